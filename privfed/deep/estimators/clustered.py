"""The estimators: FedAvg, IFCA, CFL and DCFL. What they do not list is `FederatedModel`'s."""

from __future__ import annotations

from typing import Any, Literal

from privfed.core.conversation import Algorithm
from privfed.core.secure_sum import SecureSum
from privfed.deep.algorithms.averaging import Averaging
from privfed.deep.algorithms.plan import ModelsOutcome, Plan
from privfed.deep.algorithms.regrouped import RegroupedLearning, Rule
from privfed.deep.algorithms.rules import BipartitionRule, PropagationRule
from privfed.deep.clustering.bipartition import Linkage, SplitRule
from privfed.deep.clustering.distances import Metric
from privfed.deep.clustering.propagation import Propagation, Similarity
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.checks import check_integer, check_number
from privfed.federation.builder import protocol_of
from privfed.protocols.slotted import Slotted

MERGES = ("slotted", "gathered")


class FedAvg(FederatedModel):
    """One model for all clients (McMahan et al. 2017): the mean of what they train, in one sum a round.

    Reveals: `privfed.deep.algorithms.averaging`.
    """

    def _algorithm(self, plan: Plan) -> Algorithm[ModelsOutcome]:
        return Averaging(plan=plan)


class IFCA(FederatedModel):
    """A known number of models (Ghosh et al. 2020): each client trains that of the lowest loss on its rows.

    Reveals: `privfed.deep.algorithms.averaging`. Not with DP-SGD: the choice is made on exact rows.

    Args:
        n_clusters: number of models.
    """

    def __init__(self, model: Any = "softmax", *, n_clusters: int = 2, **words: Any) -> None:
        super().__init__(model, **words)
        self.n_clusters = n_clusters

    def _algorithm(self, plan: Plan) -> Algorithm[ModelsOutcome]:
        check_integer("n_clusters", self.n_clusters, 1)
        if self._by_dp_sgd is not None and self.n_clusters > 1:
            raise PrivacyError(
                'IFCA chooses by the loss on exact rows, which DP-SGD does not cover; use unit="client", '
                "or DCFL."
            )
        return Averaging(plan=plan, n_clusters=self.n_clusters)


class _Regrouped(FederatedModel):
    """Estimators that compare updates: how these come to the server.

    Args:
        merge: "slotted": the server sees sketches of updates, not whose they are, and averages are secure
            sums; or "gathered": as published, it sees every client's update (only with `protocol="plain"`).
        sketch_error: by which share sketches may change squared distances; None for whole updates.
    """

    def __init__(
        self,
        model: Any = "softmax",
        *,
        merge: Literal["slotted", "gathered"] = "slotted",
        sketch_error: float | None = None,
        **words: Any,
    ) -> None:
        super().__init__(model, **words)
        self.merge = merge
        self.sketch_error = sketch_error

    def _secure_sum(self) -> SecureSum:
        """Return the protocol of the sums; one by name is given slots for the rounds' sketches."""
        protocol = protocol_of(self.protocol)
        if self.merge != "slotted" or isinstance(protocol, Slotted) or not isinstance(self.protocol, str):
            return protocol
        return Slotted(protocol, sums=self.rounds)

    def _rule(self) -> Rule:
        raise NotImplementedError

    def _algorithm(self, plan: Plan) -> Algorithm[ModelsOutcome]:
        if self.merge not in MERGES:
            raise ArgumentError(f"merge must be one of {MERGES}, got merge={self.merge!r}.")
        if self.sketch_error is not None:
            check_number("sketch_error", self.sketch_error, 0.0, 1.0, open_low=True, open_high=True)
        slotted = self.merge == "slotted"
        if slotted and not isinstance(self._secure_sum(), Slotted):
            raise ArgumentError(
                'merge="slotted" needs slots: pass protocol="masked", or Slotted(Masked(...), sums=rounds).'
            )
        if not slotted and self._secure_sum().reveals != "contributions":
            raise ArgumentError(
                'merge="gathered" needs every client\'s update, and this sum does not show them; use '
                'merge="slotted", or protocol="plain".'
            )
        return RegroupedLearning(
            plan=plan, rule=self._rule(), sketch_error=self.sketch_error, slotted=slotted
        )


class CFL(_Regrouped):
    """Clusters that are split in two, as their members' updates part (Sattler, Mueller, Samek 2021).

    Reveals: `privfed.deep.algorithms.regrouped`.

    Args:
        split_mean_norm: eps_1: a cluster is split only where the mean of its updates is shorter.
        split_max_norm: eps_2: and the longest of them is longer. Both depend on data and model.
        split_after: and after so many rounds.
        min_cluster_size: and where so many members took part.
        linkage: how the halves are found, "complete" (the authors' code) or "single" (their proof).
        merge: as in `DCFL`.
        sketch_error: as in `DCFL`.
    """

    def __init__(
        self,
        model: Any = "softmax",
        *,
        split_mean_norm: float = 0.4,
        split_max_norm: float = 1.6,
        split_after: int = 20,
        min_cluster_size: int = 3,
        linkage: Linkage = "complete",
        merge: Literal["slotted", "gathered"] = "slotted",
        sketch_error: float | None = None,
        **words: Any,
    ) -> None:
        super().__init__(model, merge=merge, sketch_error=sketch_error, **words)
        self.split_mean_norm = split_mean_norm
        self.split_max_norm = split_max_norm
        self.split_after = split_after
        self.min_cluster_size = min_cluster_size
        self.linkage = linkage

    def _rule(self) -> Rule:
        return BipartitionRule(
            split=SplitRule(
                mean_norm=self.split_mean_norm,
                max_norm=self.split_max_norm,
                min_size=self.min_cluster_size,
                after=self.split_after,
                linkage=self.linkage,
            )
        )


class DCFL(_Regrouped):
    """Clusters that are found anew wherever they no longer fit (Augello, Falzone, Lo Re 2023).

    Reveals: `privfed.deep.algorithms.regrouped`.

    Args:
        metric: distance of updates: "complete" (equation 2), or alone "divergence", "cosine", "euclidean".
        similarity: of affinity propagation, "negative" or "negative-squared" distances.
        preference: lower for fewer clusters; None for the median similarity.
        damping: of affinity propagation, in [0.5, 1).
        cluster_after: rounds before the first clustering; 0 as published.
        merge: "slotted": the server sees sketches of updates, not whose they are, and averages are secure
            sums; or "gathered": as published, it sees every client's update (only with `protocol="plain"`).
        sketch_error: by which share sketches may change squared distances; None for whole updates.
    """

    def __init__(
        self,
        model: Any = "softmax",
        *,
        metric: Metric = "complete",
        similarity: Similarity = "negative",
        preference: float | None = None,
        damping: float = 0.5,
        cluster_after: int = 0,
        merge: Literal["slotted", "gathered"] = "slotted",
        sketch_error: float | None = None,
        **words: Any,
    ) -> None:
        super().__init__(model, merge=merge, sketch_error=sketch_error, **words)
        self.metric = metric
        self.similarity = similarity
        self.preference = preference
        self.damping = damping
        self.cluster_after = cluster_after

    def _rule(self) -> Rule:
        words = Propagation(similarity=self.similarity, preference=self.preference, damping=self.damping)
        return PropagationRule(metric=self.metric, propagation=words, after=self.cluster_after)
