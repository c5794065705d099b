"""Parameters of privfed's estimators, in groups that their classes inherit from.

The module imports nothing heavy: the command line declares its options from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from privfed.estimators.declaring import parameter, parameters

if TYPE_CHECKING:
    from pathlib import Path

    from privfed.core.agreed.policy import ClientPolicy
    from privfed.core.connection import Engine
    from privfed.core.roles.secure_sum import SecureSum, SumName
    from privfed.core.values.domain import Domain
    from privfed.metrics.named import Named
    from privfed.privacy.claim import Privacy


@parameters
class Surroundings:
    """Declares where and how a fit runs, over which sum, and what protects clients; for every estimator."""

    trains = False
    """Whether it trains models, with what `PARTS` has for them; otherwise it clusters rows."""

    protocol: SumName | SecureSum = parameter(
        default="masked",
        text='the secure sum: a name ("plain", "masked", "masked-verified", "masked-proven", "group-masked", '
        '"ckks") or a configured object of `privfed.protocols`.',
    )
    privacy: Privacy | None = parameter(
        default=None, text="None, or a `privfed.Privacy`, which adds noise to everything that a fit releases."
    )
    engine: Engine | None = parameter(
        default=None,
        text="where the clients run; None for this process, a `privfed.Simulation` with faults, or any "
        "engine. Clients on other machines keep their rows, and `fit` is called without X.",
    )
    policy: ClientPolicy | None = parameter(
        default=None, text="the clients' policy, a `privfed.ClientPolicy`; None for its defaults."
    )
    domain: Domain | None = parameter(
        default=None,
        text="declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges by a "
        "sum (see Reveals). With `privacy` it is `privacy.domain`.",
    )
    run_dir: str | Path | None = parameter(
        default=None,
        text="folder for the transcript, so that a run can be resumed; None keeps it in memory.",
    )
    random_state: Any = parameter(
        default=0,
        text="seed of everything that a fit draws (starts, cohorts, batches, the clients' own steps). "
        "Keys, and the noise of a claim, never depend on it.",
    )


@parameters
class Clusters:
    """Declares the number of clusters; for every clustering estimator."""

    n_clusters: int = parameter(default=5, bounds="[1, inf)", text="number of clusters.", kw_only=False)


@parameters
class Measured:
    """Declares which metrics may follow a fit; for every clustering estimator."""

    metrics: Named = parameter(
        default=None,
        text="metrics that clients may be asked after the fit, each once; names of `privfed.metrics`, or "
        'a dict from names to options, such as `{"accuracy": {"n_labels": 3}}`. Any other metric is '
        "then an error. None agrees on the usual indices; any other metric that is asked on "
        "`federation_` then needs an agreement of its own.",
    )


@parameters
class Scaled:
    """Declares on which scale rows are clustered; for every clustering estimator."""

    scale: Literal["standard", "range", "robust"] | None = parameter(
        default=None,
        text='how columns are scaled first; "standard" (mean 0, variance 1), "range" (to [0, 1]) or "robust" '
        "(median 0, interquartile range 1), over all clients. None takes rows as they are.",
    )


@parameters
class Cohorts:
    """Declares which clients are asked in which round."""

    clients_per_round: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="number of clients drawn for each round; None asks all. The draw depends on `random_state` "
        "and the clients' names. Parties on several machines must agree on it without the server's "
        "choice.",
    )
    cohorts: Sequence[Sequence[int]] | None = parameter(
        default=None,
        text="explicit schedule instead of drawn cohorts; a list of client positions for each round.",
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
        bounds="[0, inf)",
        text="a run stops when the centers move by strictly less (Frobenius norm); 0 runs all rounds.",
    )
    plateau: int | None = parameter(
        default=5,
        bounds="[1, inf)",
        text="a run stops, too, once the centers only jitter: the last `plateau` rounds moved them on "
        "average no less than the `plateau` before. The first check is after four times as many rounds. "
        "Learning rates below 1 lengthen the window. None never; nor with `tol=0`, or drawn cohorts.",
    )
    max_iter: int = parameter(default=300, bounds="[1, inf)", text="maximum number of rounds.")


@parameters
class Patience:
    """Declares when a run may stop, and when it stops although its centers still move."""

    min_iter: int = parameter(
        default=1, bounds="[1, inf)", text="minimum number of rounds before `tol` may stop a run."
    )
    patience: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="a run stops when the movement did not decrease over the last `patience` rounds; None never.",
    )


@parameters
class Starts:
    """Declares from which centers runs start, and how many restarts there are."""

    n_init: int = parameter(
        default=1, bounds="[1, inf)", text="number of restarts; the one of the lowest inertia is kept."
    )
    init: Literal["coreset", "nested", "kfed", "random"] | Any = parameter(
        default="coreset",
        text='method for the starting centers; "coreset", "nested" (the same cells in each fit, for rows '
        'that are fitted again), "kfed" or "random". Or an array of shape (n_clusters, n_features), '
        "or the start total of an earlier fit on the same rows (`StartTotal.of_run`, "
        "`kept_start()`).",
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

    local_iter: int = parameter(
        default=5, bounds="[1, inf)", text="maximum number of steps of a client in a round."
    )
    local_tol: float | None = parameter(
        default=None,
        bounds="[0, inf)",
        text="a client stops once a step moves its centroids by less (Frobenius norm); None never.",
    )


@parameters
class ServerSteps:
    """Declares how far the server moves the centroids in a round."""

    learning_rate: float = parameter(
        default=1.0,
        bounds="(0, 1]",
        text="in (0, 1]: fraction of the way to the aggregated centers that the centers move.",
    )
    momentum: float = parameter(
        default=0.0, bounds="[0, 1)", text="in [0, 1): fraction of the last movement that is added."
    )


@parameters
class LocalCenters:
    """Declares how the centers of the clients' own clusters are used."""

    min_cluster_size: int = parameter(
        default=2, bounds="[1, inf)", text="a client leaves out centers of fewer rows; 1 keeps all."
    )
    merge: Literal["summed", "gathered", "slotted"] = parameter(
        default="summed",
        text='how the clients\' centers are merged; "summed", "gathered" or "slotted". "summed": by a '
        'k-means whose steps are secure sums, so that nobody sees a client\'s centers. "gathered": as '
        'published, the server sees every client\'s (only with `protocol="plain"`). "slotted": the '
        "server sees them all, but not whose they are (with `privfed.protocols.Slotted`).",
    )


@parameters
class Weighted(LocalSteps, ServerSteps, Rounds, Patience, Starts, Cohorts):
    """Declares the parameters of WF, DWF and EWF k-means."""

    restart_score: Literal["pooled", "client-mean"] = parameter(
        default="pooled",
        text='score that compares restarts; "pooled" is the inertia of all rows alike, "client-mean" is '
        "Algorithm 4 of the paper.",
    )
    relocate_empty: bool = parameter(
        default=False, text="whether local centroids without rows move onto far rows (Figure 1 warns of it)."
    )
    n_init: int = parameter(default=1, text="number of restarts; the best by `restart_score` is kept.")
    finish: Literal["lloyd"] | None = parameter(
        default=None,
        text='"lloyd" goes on with exact rounds over all clients, until these stop, too, so that centers '
        "are the means of their rows. They are the last `finish_iter_` of the `n_iter_` rounds. Exact rounds "
        "show more: .52 of the members of a fit were named, and .63 to .84 after many, where local steps "
        "showed .23. None, as in the paper, ends with the local steps.",
    )


@parameters
class MiniBatch(ServerSteps, Rounds, Starts, Cohorts):
    """Declares the parameters of mini-batch k-means."""

    epochs: int = parameter(
        default=1, bounds="[1, 100000]", text="passes over a client's rows in a round (E of the paper)."
    )
    batch_size: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="rows of a batch (B); None takes all of a client's rows at once.",
    )
    momentum: float = parameter(
        default=0.0,
        text="mu in [0, 1): the server moves by m = mu m + (1 - mu) update. 0 is the paper's Algorithm 1, "
        "0.5 its figures.",
    )
    client_learning_rate: float = parameter(
        default=1.0,
        bounds="(0, 1]",
        text="in (0, 1]: the clients' learning rate, beta; `learning_rate` is the server's, alpha.",
    )
    reassign_after: int | None = parameter(
        default=20,
        bounds="[1, inf)",
        text="rounds in a row after which a small cluster is drawn anew; None never does it. It is drawn "
        "uniformly from the domain, or from the ranges that were found where no domain is declared.",
    )
    reassign_min: float = parameter(
        default=0.01,
        bounds="[0, 1]",
        text="in [0, 1]: a cluster is small below this share of the rows of the round's clients.",
    )
    tol: float | None = parameter(  # type: ignore[assignment]
        default=None,
        text="a run stops when the centers move by strictly less (Frobenius norm); 0 runs all rounds, and "
        "None, as in the paper, leaves the end to `plateau`.",
    )
    max_iter: int = parameter(default=200)


@parameters
class OverCenters(LocalCenters, Rounds, Patience, Starts, Cohorts):
    """Declares the parameters that FKM and k-FED share."""


@parameters
class VaryingCenters(OverCenters):
    """Declares the parameters of FKM."""

    min_cluster_size: int = parameter(
        default=2,
        text="a client leaves out means of fewer rows (p in the paper); 1 keeps all.",
    )
    tol: float = parameter(default=0.0)
    max_iter: int = parameter(
        default=10,
        text="maximum number of rounds after the start; the authors count the start among their 10.",
    )
    init: Literal["k-means++", "coreset", "nested", "kfed", "random"] | Any = parameter(
        default="k-means++",
        text='method for the starting centers; "k-means++" (each client\'s own, merged), "coreset", "kfed" '
        'or "random". Or an array of shape (n_clusters, n_features).',
    )


@parameters
class OneShot(OverCenters):
    """Declares the parameters of k-FED."""

    n_local_clusters: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="number of clusters that each client looks for, k'; None for `n_clusters`. A client with "
        "fewer distinct rows is left out: its centroids would be its rows.",
    )
    local: Literal["awasthi-sheffet", "kmeans"] = parameter(
        default="awasthi-sheffet",
        text='method of a client\'s own clustering; "awasthi-sheffet" (Algorithm 1) or "kmeans".',
    )
    init: Literal["kfed", "coreset", "nested", "random"] | Any = parameter(
        default="kfed",
        text='method for the start of the k-means of centroids; "kfed" (found among them), "coreset" or '
        '"random". Or an array of shape (n_clusters, n_features).',
    )


@parameters
class Fuzzy(LocalSteps, Rounds, Starts, Cohorts):
    """Declares the parameters of fuzzy c-means."""

    m: float = parameter(
        default=2.0,
        bounds="(1, 100]",
        option="fuzzifier",
        text="fuzzifier, in (1, 100]; near 1 rows belong to one cluster, and a large m spreads them.",
    )
    averaging: Literal["kmeans", "weighted"] = parameter(
        default="kmeans", text='average of local centers; "kmeans" or "weighted".'
    )
    weight: Literal["u^m", "u"] = parameter(
        default="u^m",
        text='weight of a client\'s center with `averaging="weighted"`; "u^m", the sums that a local step '
        'divides by (Pedrycz, Barcena et al.), or "u", the sums of memberships after the local steps '
        "(the authors' code).",
    )
    local_iter: int = parameter(default=1000, bounds="[1, 100000]")
    local_tol: float | None = parameter(
        default=1e-3,
        text="a client stops once a step changes its memberships by less (Frobenius norm); None never.",
    )
    tol: float = parameter(
        default=1e-3,
        text="a run stops when the sum of the distances that the centers move is strictly less; 0 runs all "
        "rounds.",
    )
    max_iter: int = parameter(default=100)
    n_init: int = parameter(
        default=1, text="number of restarts; the one of the lowest fuzzy objective is kept."
    )


@parameters
class Mixture(Starts):
    """Declares the parameters of Gaussian mixtures."""

    covariance_type: Literal["full", "tied", "diag"] = parameter(
        default="full",
        text='shape of the components; "full" (each its own covariances), "tied" (the same for all) or '
        '"diag" (variances alone: columns are independent within a component).',
    )
    reg_covar: float = parameter(
        default=1e-6,
        bounds="(0, 1)",
        text="what is added to each variance, in units of the column's variance over all rows; it keeps "
        "components from collapsing onto a row.",
    )
    nominal: Sequence[Sequence[int]] | None = parameter(
        default=None,
        text="columns of categories; for each nominal variable the positions of its columns, which are 1 "
        "where a row has the category and 0 elsewhere. None for none.",
    )
    tol: float = parameter(
        default=1e-3,
        bounds="[0, inf)",
        text="a run stops when a round changes the mean log-likelihood of a row by less; 0 runs all rounds.",
    )
    max_iter: int = parameter(default=100, bounds="[1, inf)", text="most rounds of expectation maximisation.")
    n_init: int = parameter(
        default=1, text="number of restarts; the one of the highest log-likelihood is kept."
    )


@parameters
class PublicStart:
    """Declares the start of k-means under differential privacy."""

    init: Literal["coreset"] | Any = parameter(
        default="coreset",
        text='"coreset" finds the starting centers from the budget. Or an array of shape (n_clusters, '
        "n_features), such as the centers of public rows or of an earlier release, which costs nothing. An "
        "array does not show where it comes from: centers that were found in these rows without noise void "
        "the guarantee.",
    )
