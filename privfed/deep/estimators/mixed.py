"""R-DPCFL, the baseline that clustered learning by DP-SGD is compared with."""

from __future__ import annotations

from privfed.core.roles.conversation import Algorithm
from privfed.core.values.guarantee import MOST_CHOICE_NOISE
from privfed.deep.algorithms.mixing import MixtureLearning
from privfed.deep.algorithms.plan import ModelsOutcome, Plan
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.estimators.clustered import check_merge
from privfed.deep.estimators.parameters import Mixing
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.declaring import parameters
from privfed.estimators.fitting import check_integer, check_number


@parameters
class RDPCFL(Mixing, FederatedModel):
    """Clusters by the first round's updates, then by clients' choices (Malekmohammadi et al. 2025, R-DPCFL).

    Made for DP-SGD at each client (`privacy` at unit "record"); without privacy it trains by plain SGD.

    Reveals: `privfed.deep.algorithms.mixing`.
    """

    @property
    def slotted_sums(self) -> int:
        """The first round's updates come in slots."""
        return 1 if self.merge == "slotted" else 0

    def _check(self) -> None:
        super()._check()
        check_number("first_rate", self.first_rate, 0.0, 1.0, open_low=True)
        check_number("choosing_share", self.choosing_share, 0.0, 1.0)
        check_number("choice_noise", self.choice_noise, 0.0, MOST_CHOICE_NOISE, open_low=True)
        if self.n_clusters is not None:
            check_integer("n_clusters", self.n_clusters, 1)
        if self.rounds < 2:
            raise ArgumentError(f"R-DPCFL clusters after its first of at least 2 rounds, got {self.rounds}.")
        if self.privacy is not None and self._by_dp_sgd is None:
            raise PrivacyError(
                'R-DPCFL protects records, by DP-SGD at each client; use unit="record", or DCFL or FedAvg at '
                'unit="client".'
            )

    def make_algorithm(self, plan: Plan) -> Algorithm[ModelsOutcome]:
        """Check the parameters and return the algorithm."""
        return MixtureLearning(
            plan=plan,
            n_clusters=self.n_clusters,
            choosing_rounds=round(self.choosing_share * plan.rounds),
            slotted=check_merge(self.merge, self._secure_sum()),
        )
