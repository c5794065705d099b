"""The estimator for differential privacy: k-means from noised sums.

Reveals: what the protocol's totals show, all noised (see "Reveals" of `privfed.algorithms.private.kmeans`),
and to everyone the final centers. `privacy_spent_` says whom the noise protects, and from whom. `labels_` is
computed where the data is and never sent.
"""

from __future__ import annotations

from typing import Literal

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.private.baselines import LloydBaseline
from privfed.algorithms.private.evolution import PrivateEvolution
from privfed.algorithms.private.kmeans import MOST_ROUNDS, PrivateKMeans
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.guarantee import Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.checks import check_integer
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.privacy.privacy import Privacy

BASELINES = ("fastlloyd", "lloyd", "pe")
"""Methods for comparison."""


@parameters
class DPKMeans(FederatedClusterer):
    """k-means under differential privacy, over any secure sum.

    Spends one budget on at most 22 noised sums: on where the rows lie, on a weighted coreset, and on two to
    eight Lloyd rounds, as many as are useful under the noise.

    Attributes:
        n_iter_: number of Lloyd rounds.
        converged_: None, as the noise determines the number of rounds.
        inertia_: None, as no budget is spent on it.

    Raises:
        ArgumentError: a parameter is out of its bounds, or `privacy` is None.
        PrivacyError: a baseline method is used at unit "client".
        BudgetError: a sum had to be asked again, and no budget was kept for that (`Privacy(spare=...)`).
    """

    method: Literal["coreset", "fastlloyd", "lloyd", "pe"] = parameter(
        default="coreset",
        text='"coreset", or as baselines "fastlloyd" and "lloyd": a start without a look at the data and two '
        'to seven Lloyd rounds (`privfed.algorithms.private.baselines`); or "pe", Private Evolution: rows '
        "vote for candidates (`privfed.algorithms.private.evolution`).",
    )
    protocol: str | SecureSum = parameter(
        default="masked",
        text='name of a secure sum, or a configured object of `privfed.protocols`. Over "plain" each '
        "client adds the whole noise; over the others the honest clients of a sum share it.",
    )
    privacy: Privacy | None = parameter(
        default=None, text="a `privfed.Privacy`, which declares the domain too. There is no default."
    )

    # Not a parameter here: the noise determines how many rounds there are.
    max_iter = MOST_ROUNDS

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_integer("n_clusters", self.n_clusters, 1)
        if self.privacy is None:
            raise ArgumentError(
                "DPKMeans needs privacy=Privacy(...); without differential privacy use DWFKMeans."
            )
        if self.method in BASELINES and self.privacy.unit == Unit.CLIENT:
            raise PrivacyError(
                f'method={self.method!r} is a baseline for unit="record"; use method="coreset".'
            )
        if self.method in ("fastlloyd", "lloyd"):
            return LloydBaseline(n_clusters=self.n_clusters, method=self.method, seed=seed)
        if self.method == "pe":
            return PrivateEvolution(n_clusters=self.n_clusters, seed=seed)
        if self.method != "coreset":
            raise ArgumentError(
                f'method must be "coreset", "fastlloyd", "lloyd" or "pe", got method={self.method!r}.'
            )
        return PrivateKMeans(n_clusters=self.n_clusters, seed=seed)
