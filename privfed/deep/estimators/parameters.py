"""Parameters that the estimators of models share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from privfed.deep.clustering.distances import Metric
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Cohorts, Surroundings

if TYPE_CHECKING:
    from privfed.privacy.privacy import Privacy


@parameters
class Models:
    """What is trained."""

    model: Any = parameter(
        default="softmax",
        text='a registered model ("softmax"), or a torch module of rows of flat float64 features.',
        kw_only=False,
    )
    loss: Any = parameter(
        default=None,
        text="with a torch module: from scores and labels to the mean loss; None for the cross-entropy.",
    )
    n_classes: int = parameter(default=2, text="labels are 0 to n_classes - 1.")


@parameters
class LocalTraining:
    """How clients train it."""

    rounds: int = parameter(default=10, text="rounds of communication.")
    epochs: int = parameter(default=1, text="passes over a client's rows in a round.")
    batch_size: int | None = parameter(
        default=32, text="rows of a batch; None takes all of a client's rows at once."
    )
    learning_rate: float = parameter(default=0.1, text="of the clients' SGD.")
    learning_rate_decay: float = parameter(
        default=1.0, text="factor of the learning rate from round to round."
    )
    max_update_norm: float = parameter(
        default=10.0,
        text="L2 norm that a client's update is clipped to; the grid of the sums follows from it.",
    )
    weighting: Literal["clients", "rows"] = parameter(
        default="clients",
        text='how clients count in averages; "clients": all alike, or "rows": by their rows.',
    )
    timed: bool = parameter(
        default=False,
        text="whether the last two columns of X say when a row is there, the first round and the first round "
        "without it; so a client's data change (drift).",
    )


@parameters
class DPSGD:
    """DP-SGD, which clients train by under `privacy` at unit "record"."""

    sample_rate: float = parameter(default=0.1, text="with DP-SGD: chance of a row to be in a step's batch.")
    max_grad_norm: float = parameter(
        default=1.0, text="with DP-SGD: L2 norm that a row's gradient is clipped to."
    )
    noise_multiplier: float | None = parameter(
        default=None,
        text="with DP-SGD: ratio of the noise's standard deviation to `max_grad_norm`; None takes the least "
        "that the claim allows over all rounds.",
    )
    rows_per_client: int | None = parameter(
        default=None,
        text="with DP-SGD: a public number of rows, about a client's, that sums of gradients are divided by.",
    )


@parameters
class ModelParameters(Models, LocalTraining, DPSGD, Cohorts, Surroundings):
    """All of them."""

    privacy: Privacy | None = parameter(
        default=None,
        text='None, or a `privfed.Privacy`. At unit "record" each client trains by DP-SGD, with noise of its '
        'own (noise="local"); at unit "client" its clipped update is noised.',
    )
    cohorts: Any = parameter(
        default=None,
        text="an explicit schedule in its place: a list of client positions for each round. Clients that are "
        "not in the first lists join later; those that are left out for a while come back.",
    )


@parameters
class Comparing:
    """How updates come to be compared, where clusters follow from them."""

    merge: Literal["slotted", "gathered"] = parameter(
        default="slotted",
        text='how updates meet; "slotted": the server sees sketches of them, not whose they are, and '
        'averages are secure sums; or "gathered": as published, it sees every client\'s update (only with '
        '`protocol="plain"`).',
    )
    sketch_error: float | None = parameter(
        default=None,
        text="by which share sketches may change squared distances; None takes whole updates.",
    )


@parameters
class Distances:
    """How updates are compared."""

    metric: Metric = parameter(
        default="complete",
        text='distance of updates; "complete" (equation 2), or alone "divergence", "cosine", "euclidean".',
    )
