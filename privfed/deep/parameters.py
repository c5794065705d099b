"""Parameters of the estimators of models, in groups that their classes inherit; it imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.parameters import Cohorts, Surroundings

if TYPE_CHECKING:
    from privfed.privacy.claim import Privacy


@parameters
class Models:
    """What is trained."""

    model: str | Any = parameter(
        default="softmax",
        text='a registered model ("softmax"), or a torch module of flat rows, float32 or float64 as its '
        "parameters are, and on their device; on the command line module:name.",
        kw_only=False,
    )
    loss: Any = parameter(
        default=None,
        text="with a torch module: from scores and labels to the mean loss; None for the cross-entropy.",
    )
    optimizer: Any = parameter(
        default=None,
        text="with a torch module: a class of `torch.optim`, or what is called alike: `(parameters, lr=)`. "
        "Its state lasts for one training of one client. None for SGD.",
    )
    start: Literal["drawn", "given"] = parameter(
        default="drawn",
        text='where training begins; "drawn": at parameters that follow from `random_state`, or "given": at '
        "those of the torch module. Under `privacy` these must not come from clients' rows.",
    )
    n_classes: int = parameter(default=2, bounds="[2, inf)", text="labels are 0 to n_classes - 1.")


@parameters
class LocalTraining:
    """How clients train it."""

    rounds: int = parameter(default=10, bounds="[1, inf)", text="rounds of communication.")
    epochs: int = parameter(default=1, bounds="[1, inf)", text="passes over a client's rows in a round.")
    batch_size: int | None = parameter(
        default=32,
        bounds="[1, inf)",
        text="most rows of a batch; None takes all of a client's rows at once.",
    )
    learning_rate: float = parameter(
        default=0.1, bounds="(0, inf)", text="learning rate of the clients' SGD, or of `optimizer`."
    )
    learning_rate_decay: float = parameter(
        default=1.0, bounds="(0, inf)", text="factor of the learning rate from round to round."
    )
    max_update_norm: float = parameter(
        default=10.0,
        bounds="(0, inf)",
        text="L2 norm that a client's update is clipped to; the grid of the sums follows from it.",
    )
    weighting: Literal["clients", "rows"] | None = parameter(
        default=None,
        text='how clients count in averages; "clients": all alike, or "rows": by their rows, which shows how '
        'many these are in each sum. None takes "rows" for FedAvg without `privacy`, else "clients".',
    )
    timed: bool = parameter(
        default=False,
        text="whether the last two columns of X say when a row is there, the first round and the first round "
        "without it; so a client's data change (drift).",
    )


@parameters
class DPSGD:
    """DP-SGD, which clients train by under `privacy` at unit "record"."""

    sample_rate: float = parameter(
        default=0.1, bounds="(0, 1]", text="with DP-SGD: chance of a row to be in a step's batch."
    )
    max_grad_norm: float = parameter(
        default=1.0, bounds="(0, inf)", text="with DP-SGD: L2 norm that a row's gradient is clipped to."
    )
    noise_multiplier: float | None = parameter(
        default=None,
        bounds="(0, 1024]",
        text="with DP-SGD: ratio of the noise's standard deviation to `max_grad_norm`; None takes the least "
        "that the claim allows over all rounds.",
    )
    rows_per_client: int | None = parameter(
        default=None,
        bounds="[1, 1099511627776]",
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
    fine_tune: int | None = parameter(
        default=None,
        bounds="[0, 1024]",
        text="passes of `tuned`, each as much as a client trains in a round; where held-out rows tell "
        "whether clusters are worth it (`compare`), the most. None takes 16 there, and 0 elsewhere.",
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
        text='how updates meet; "slotted": the server sees sketches of them, under no name but linked from '
        'round to round, and averages are secure sums. With "gathered", as published, it sees all clients\' '
        'updates (only with `protocol="plain"`).',
    )
    sketch_error: float | None = parameter(
        default=None,
        bounds="(0, 1)",
        text="by which share sketches may change squared distances; None takes whole updates.",
    )
    decay: float | None = parameter(
        default=None,
        bounds="[0, 1)",
        text="running means of updates are compared, in which each update weighs `decay` times the next one: "
        "0 compares updates, as published; None takes 0.9 with DP-SGD, and 0 otherwise. DCFL takes less "
        "where clusters last and noise allows it.",
    )
    compare: bool | None = parameter(
        default=None,
        text="whether clients hold a fifth of their rows out for two thirds of the rounds, which then tell "
        "whether clusters do better than one model or training alone. One model takes their place where "
        "they do not. None compares in six rounds or more, without `privacy`.",
    )


@parameters
class KnownNumber(ModelParameters):
    """Declares how many models IFCA trains."""

    n_clusters: int = parameter(default=2, bounds="[1, inf)", text="number of models.")
    empty: Literal["divide", "keep"] = parameter(
        default="divide",
        text='what becomes of a model that no client takes: "divide" puts it beside the one that most take, '
        'so that these may part, and "keep" leaves it, as published.',
    )


@parameters
class Splitting(Comparing, ModelParameters):
    """Declares when CFL splits a cluster."""

    split_mean_norm: float = parameter(
        default=0.4,
        bounds="[0, inf)",
        text="eps_1: a cluster is split only where the mean of its updates is shorter; it depends on data "
        "and model.",
    )
    split_max_norm: float = parameter(
        default=1.6, bounds="[0, inf)", text="eps_2: and where the longest of them is longer."
    )
    gamma_max: float = parameter(
        default=0.0,
        bounds="[0, 1]",
        text="and where sqrt((1 - a) / 2) is at least this, for the greatest cosine a across the halves; in "
        "[0, 1], 0 for any halves.",
    )
    split_after: int = parameter(
        default=20,
        bounds="[0, inf)",
        text="rounds before the first split. Where clients hold rows out (`compare`), these choose splits in "
        "place of this and of both norms.",
    )
    min_cluster_size: int = parameter(
        default=3, bounds="[2, inf)", text="fewest members in a round that are split."
    )
    linkage: Literal["complete", "single"] = parameter(
        default="complete",
        text='how the halves are found, "complete" (the authors\' code) or "single" (their proof).',
    )


@parameters
class Propagating(Comparing, ModelParameters):
    """Declares how DCFL finds clusters."""

    metric: Literal["complete", "divergence", "cosine", "euclidean"] = parameter(
        default="complete",
        text='distance of updates; "complete" (equation 2), or alone "divergence", "cosine", "euclidean".',
    )
    similarity: Literal["negative", "negative-squared"] = parameter(
        default="negative", text='of affinity propagation; "negative" or "negative-squared" distances.'
    )
    preference: float | None = parameter(
        default=None,
        bounds="(-inf, inf)",
        text="of affinity propagation: lower for fewer clusters; None takes `preference_quantile`.",
    )
    preference_quantile: float | None = parameter(
        default=None,
        bounds="[0, 1]",
        text="of affinity propagation: which quantile of the pairs' similarities is the preference: 0.5 for "
        "the median, more for more clusters. None takes that of eight whose clusters do best on held-out "
        "rows (`compare`), or without these have the highest Dunn index; of running means the median.",
    )
    damping: float = parameter(default=0.5, bounds="[0.5, 1)", text="of affinity propagation.")
    cluster_after: int = parameter(
        default=0, bounds="[0, inf)", text="rounds before the first clustering, 0 as published."
    )
