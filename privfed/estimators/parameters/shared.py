"""Parameters that several estimators share, in groups that their classes inherit from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from privfed.estimators.parameters.declaring import parameter, parameters

if TYPE_CHECKING:
    from pathlib import Path

    from privfed.core.agreed.policy import ClientPolicy
    from privfed.core.connection import Engine
    from privfed.core.roles.secure_sum import SecureSum
    from privfed.core.values.domain import Domain
    from privfed.metrics.named import Named
    from privfed.privacy.privacy import Privacy


@parameters
class Surroundings:
    """Declares where and how a fit runs, over which sum, and what protects clients; for every estimator."""

    protocol: str | SecureSum = parameter(
        default="masked",
        text='the secure sum: a name ("plain", "masked", "masked-verified", "group-masked", "ckks") '
        "or a configured object of `privfed.protocols`.",
    )
    privacy: Privacy | None = parameter(
        default=None, text="None, or a `privfed.Privacy`; then everything that a fit releases is noised."
    )
    engine: Engine | None = parameter(
        default=None,
        text="None for clients in this process, a `privfed.Simulation` with faults, or any engine: clients "
        "on other machines keep their rows, and `fit` is called without X.",
    )
    policy: ClientPolicy | None = parameter(
        default=None, text="what the clients answer; a `privfed.ClientPolicy`."
    )
    domain: Domain | None = parameter(
        default=None,
        text="declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges by a sum "
        "that is named under Reveals. With `privacy` it is `privacy.domain`.",
    )
    run_dir: str | Path | None = parameter(
        default=None,
        text="folder for the transcript, so that a run can be resumed; None keeps it in memory.",
    )
    random_state: Any = parameter(
        default=0,
        text="seed of all that a fit draws (starts, cohorts, batches, the clients' own steps); keys, and the "
        "noise of a claim, never follow from it.",
    )


@parameters
class Clusters:
    """Declares the number of clusters; for every clustering estimator."""

    n_clusters: int = parameter(default=5, text="number of clusters.", kw_only=False)


@parameters
class Measured:
    """Declares which metrics may follow a fit; for every clustering estimator."""

    metrics: Named = parameter(
        default=None,
        text="metrics that the clients agree to be asked after the fit, each once: names of "
        '`privfed.metrics`, or a dict from names to options, such as `{"accuracy": {"n_labels": 3}}`; any '
        "other is then an error. None agrees on the usual indices, and each other metric that is asked on "
        "`federation_` is an agreement of its own.",
    )


@parameters
class Cohorts:
    """Declares which clients are asked in which round."""

    clients_per_round: int | None = parameter(
        default=None,
        text="clients drawn for each round; None asks all. The draw follows from `random_state` and the "
        "clients' names: parties on several machines must agree on it without the server's choice.",
    )
    cohorts: Sequence[Sequence[int]] | None = parameter(
        default=None, text="an explicit schedule in its place: a list of client positions for each round."
    )

    @property
    def _sampled(self) -> bool:
        """Whether a round asks some of the clients only."""
        return self.clients_per_round is not None or self.cohorts is not None


@parameters
class Rounds:
    """Declares how long a run continues."""

    tol: float = parameter(
        default=1e-6,
        text="a run stops when the centers move by strictly less (Frobenius norm); 0 runs all rounds.",
    )
    max_iter: int = parameter(default=300, text="most rounds.")


@parameters
class Patience:
    """Declares when a run may stop, and when it stops although its centers still move."""

    min_iter: int = parameter(default=1, text="fewest rounds before `tol` may stop a run.")
    patience: int | None = parameter(
        default=None,
        text="a run stops when the movement did not decrease over the last `patience` rounds; None never.",
    )


@parameters
class Starts:
    """Declares from which centers runs start, and how many restarts there are."""

    n_init: int = parameter(default=1, text="restarts, of which the best is kept; by inertia.")
    init: Any = parameter(
        default="coreset",
        text='how starting centers are found; "coreset", "nested" (the same cells in each fit, for rows that '
        'are fitted again), "kfed", "random", or given by an array of shape (n_clusters, n_features) or by '
        "the start total of an earlier fit on the same rows (`StartTotal.of_run`, `kept_start()`).",
    )


class Fixed:
    """Gives values to attributes that the library reads, for estimators without such parameters."""

    clients_per_round: int | None = None
    cohorts: Sequence[Sequence[int]] | None = None
    tol: float = 0.0
    max_iter: int
    n_init: int = 1
    m: float = 2.0
    """Of fuzzy indices."""


@parameters
class LocalSteps:
    """Declares how many steps a client takes in a round."""

    local_iter: int = parameter(default=5, text="most steps of a client in a round.")
    local_tol: float | None = parameter(
        default=None,
        text="a client stops once a step moves its centroids by less (Frobenius norm); None never.",
    )


@parameters
class ServerSteps:
    """Declares how far the server moves the centroids in a round."""

    learning_rate: float = parameter(
        default=1.0, text="in (0, 1]: how far the centers go towards the aggregated ones."
    )
    momentum: float = parameter(default=0.0, text="in [0, 1): share of the last movement that is added.")


@parameters
class LocalCenters:
    """Declares how the centers of the clients' own clusters are used."""

    min_cluster_size: int = parameter(
        default=2, text="a client leaves out centers of fewer rows; 1 keeps all."
    )
    merge: Literal["summed", "gathered", "slotted"] = parameter(
        default="summed",
        text='how the clients\' centers meet; "summed": in a k-means whose steps are secure sums, so that '
        "nobody sees a client's centers; \"gathered\": as published, the server sees every client's (only "
        'with `protocol="plain"`); or "slotted": it sees them all, but not whose they are (with '
        "`privfed.protocols.Slotted`).",
    )
