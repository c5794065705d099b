"""R-DPCFL, the baseline that clustered learning by DP-SGD is compared with."""

from __future__ import annotations

from typing import Literal

from privfed.core.roles.conversation import Algorithm
from privfed.core.values.steps import MOST_CHOICE_NOISE
from privfed.deep.algorithms.mixing import MixtureLearning
from privfed.deep.algorithms.plan import ModelsOutcome, Plan
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.estimators.clustered import check_merge
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.common.checks import check_integer, check_number
from privfed.estimators.parameters.declaring import parameter, parameters


@parameters
class RDPCFL(FederatedModel):
    """Clusters by the first round's updates, then by clients' choices (Malekmohammadi et al. 2025, R-DPCFL).

    Made for DP-SGD at each client (`privacy` at unit "record"); without privacy it trains by plain SGD.

    Reveals: `privfed.deep.algorithms.mixing`.
    """

    n_clusters: int | None = parameter(
        default=None,
        text="number of models; None takes the number whose Gaussians are farthest apart in the first round.",
    )
    first_rate: float = parameter(
        default=1.0,
        text="with DP-SGD: chance of a row to be in a step's batch in the first round; 1 takes all rows.",
    )
    choosing_share: float = parameter(
        default=0.1, text="share of the rounds in which clients choose their cluster by their rows."
    )
    choice_noise: float = parameter(
        default=20.0,
        text="with DP-SGD: ratio of the noise of a choice's counts to their L2 sensitivity.",
    )
    merge: Literal["slotted", "gathered"] = parameter(
        default="slotted",
        text='how the first round\'s updates meet; "slotted": the server does not see whose they are, or '
        '"gathered": it sees every client\'s (only with `protocol="plain"`).',
    )

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
