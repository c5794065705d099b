"""The estimator of federated mini-batch k-means (Triebe and Rajagopal 2019).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.kmeans.minibatch`), and to
everyone the final centroids. `labels_` is computed where the data lies and never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privfed.algorithms.kmeans.minibatch import MOST_EPOCHS, FederatedMiniBatch
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.checks import check_init, check_integer, check_number
from privfed.estimators.private_algorithms import private_minibatch
from privfed.federation.simulation import Simulation
from privfed.privacy.privacy import Privacy


class FederatedMiniBatchKMeans(FederatedClusterer):
    """Federated mini-batch k-means (Triebe and Rajagopal 2019, Algorithm 1).

    Each round the cohort's clients go `epochs` times through their rows in batches of `batch_size`, moving
    their own copy of the centroids; the server moves its centroids by the mean of their movements,
    weighted by the clients' cluster sizes in the last epoch. Only totals leave the secure sum. With one
    full-batch epoch, all clients and the default rates it equals Lloyd's algorithm on the pooled data,
    but for small clusters that are drawn anew.

    Args:
        n_clusters: number of clusters (K of the paper).
        epochs: passes over a client's rows in a round (E).
        batch_size: rows of a batch (B); None takes all of a client's rows at once.
        learning_rate: in (0, 1], the server's rate (alpha).
        momentum: mu in [0, 1): the server moves by m = mu m + (1 - mu) update. 0 is the paper's
            Algorithm 1, 0.5 its figures.
        client_learning_rate: in (0, 1], the clients' rate (beta).
        reassign_after: a cluster that was small for so many rounds in a row is drawn anew, uniformly from
            the domain (from the ranges that were found where none is declared); None never does it.
        reassign_min: in [0, 1]: a cluster is small below this share of the rows of the round's clients.
        max_iter: most rounds (T).
        tol: a run stops when the centroids move by strictly less (Frobenius norm); 0 runs all rounds.
        n_init: restarts; the one with the lowest inertia is kept.
        init: "coreset", "kfed", "random", or an array of shape (n_clusters, n_features).
        clients_per_round: clients drawn for each round (C times the number of clients); None asks all.
            The draw follows from `random_state` and the clients' names: parties on several machines must
            agree on it without the server's choice.
        cohorts: an explicit schedule in its place: a list of client positions for each round.
        protocol: "plain", "masked", or a configured object of `privfed.protocols`.
        privacy: None, or a `privfed.Privacy`: then rounds are noised (see
            `privfed.algorithms.private.kmeans`), at
            most eight, `tol` and `reassign_after` are without effect, and `inertia_` is None. At unit
            "record" it takes one epoch of one batch.
        engine: None for clients in this process, or a `privfed.Simulation` with faults.
        policy: what the clients answer; a `privfed.ClientPolicy`.
        domain: declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges
            by a sum that is named under Reveals.
        run_dir: folder for the transcript, so that a run can be resumed; None keeps it in memory.
        random_state: seed of the start, of new positions, of the cohorts and of the clients' batches.

    Attributes:
        cluster_centers_: (n_clusters, n_features) float64.
        history_: of the kept restart, list of (n_clusters, n_features); `history_[0]` is the start.
        n_iter_: rounds of the kept restart.
        converged_: whether a stop rule (`tol`) ended the kept restart. False comes with a
            `ConvergenceWarning`, and `remedy()` says what helps; None where rounds were fixed, by `tol=0` or
            under differential privacy.
        inertia_: pooled sum of squared distances to the nearest center.
        labels_: labels of the rows; a list of arrays where `fit` was given a list.
        privacy_spent_: what is claimed, and against whom; None without differential privacy.
        privacy_claim_: the same, and what is said of a rehearsal: that it is not private.
        transcript_: record of the run; federation_: answers further questions.
        n_features_in_: number of columns.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be opened; with `run_dir`, `fit` can be resumed.
    """

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        client_learning_rate: float = 1.0,
        reassign_after: int | None = 20,
        reassign_min: float = 0.01,
        max_iter: int = 200,
        tol: float = 0.0,
        n_init: int = 1,
        init: Any = "coreset",
        clients_per_round: int | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        protocol: str | SecureSum = "masked",
        privacy: Privacy | None = None,
        engine: Simulation | None = None,
        policy: ClientPolicy | None = None,
        domain: Domain | None = None,
        run_dir: str | Path | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.client_learning_rate = client_learning_rate
        self.reassign_after = reassign_after
        self.reassign_min = reassign_min
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.init = init
        self.clients_per_round = clients_per_round
        self.cohorts = cohorts
        self.protocol = protocol
        self.privacy = privacy
        self.engine = engine
        self.policy = policy
        self.domain = domain
        self.run_dir = run_dir
        self.random_state = random_state

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        params = self.get_params(deep=False)
        check_mini_batch(params)
        if self.privacy is not None:
            return private_minibatch(params, self.privacy, n_features, seed)
        return FederatedMiniBatch(
            n_clusters=self.n_clusters,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            client_learning_rate=self.client_learning_rate,
            reassign_after=self.reassign_after,
            reassign_min=self.reassign_min,
            max_iter=self.max_iter,
            tol=self.tol,
            n_init=self.n_init,
            init=check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )


def check_mini_batch(params: dict[str, Any]) -> None:
    """Check the words of mini-batch k-means.

    Raises:
        ArgumentError: one is out of its bounds.
    """
    for name in ("n_clusters", "epochs", "max_iter", "n_init"):
        check_integer(name, params[name], 1)
    check_number("epochs", params["epochs"], 1, MOST_EPOCHS)
    for name in ("batch_size", "reassign_after", "clients_per_round"):
        if params[name] is not None:
            check_integer(name, params[name], 1)
    for name in ("learning_rate", "client_learning_rate"):
        check_number(name, params[name], 0.0, 1.0, open_low=True)
    check_number("momentum", params["momentum"], 0.0, 1.0, open_high=True)
    check_number("reassign_min", params["reassign_min"], 0.0, 1.0)
    check_number("tol", params["tol"], 0.0)
