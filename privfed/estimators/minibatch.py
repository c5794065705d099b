"""The estimator of federated mini-batch k-means (Triebe and Rajagopal 2019).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.kmeans.minibatch`), and to
everyone the final centroids. `labels_` is computed where the data is and never sent.
"""

from __future__ import annotations

from typing import Any

from privfed.algorithms.kmeans.minibatch import MOST_EPOCHS, FederatedMiniBatch
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.roles.conversation import Algorithm
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.checks import check_init, check_integer, check_number
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Cohorts, Rounds, ServerSteps, Starts
from privfed.estimators.private_algorithms import private_minibatch
from privfed.privacy.privacy import Privacy


@parameters
class FederatedMiniBatchKMeans(ServerSteps, Rounds, Starts, Cohorts, FederatedClusterer):
    """Federated mini-batch k-means (Triebe and Rajagopal 2019, Algorithm 1).

    Each round the cohort's clients go `epochs` times through their rows in batches of `batch_size`, moving
    their own copy of the centroids; the server moves its centroids by the mean of their movements,
    weighted by the clients' cluster sizes in the last epoch. Only totals leave the secure sum. With one
    full-batch epoch, all clients and the default rates it equals Lloyd's algorithm on the pooled data,
    except that small clusters are redrawn.
    """

    epochs: int = parameter(default=1, text="passes over a client's rows in a round (E of the paper).")
    batch_size: int | None = parameter(
        default=None, text="rows of a batch (B); None takes all of a client's rows at once."
    )
    momentum: float = parameter(
        default=0.0,
        text="mu in [0, 1): the server moves by m = mu m + (1 - mu) update. 0 is the paper's Algorithm 1, "
        "0.5 its figures.",
    )
    client_learning_rate: float = parameter(
        default=1.0, text="in (0, 1]: the clients' rate (beta; `learning_rate` is the server's, alpha)."
    )
    reassign_after: int | None = parameter(
        default=20,
        text="a cluster that was small for so many rounds in a row is drawn anew, uniformly from the domain "
        "(from the ranges that were found where none is declared); None never does it.",
    )
    reassign_min: float = parameter(
        default=0.01,
        text="in [0, 1]: a cluster is small below this share of the rows of the round's clients.",
    )
    tol: float = parameter(default=0.0)
    max_iter: int = parameter(default=200)
    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`: then rounds are noised (`privfed.algorithms.private.kmeans`), "
        "at most eight, `tol` and `reassign_after` are without effect, and `inertia_` is None. At unit "
        '"record" it takes one epoch of one batch.',
    )

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
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
            sampled=self._sampled,
            seed=seed,
        )


def check_mini_batch(params: dict[str, Any]) -> None:
    """Check the parameters of mini-batch k-means.

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
