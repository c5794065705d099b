"""The estimators: FedAvg, IFCA, CFL and DCFL. What they do not list is `FederatedModel`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import FloatArray
from privfed.deep.algorithms.averaging import Averaging
from privfed.deep.algorithms.plan import ModelsOutcome
from privfed.deep.algorithms.regrouped import RegroupedLearning
from privfed.deep.algorithms.rules import BipartitionRule, PropagationRule, Rule
from privfed.deep.estimators.base import PASSES, FederatedModel
from privfed.deep.estimators.training_plan import named
from privfed.deep.parameters import Comparing, KnownNumber, Propagating, Splitting
from privfed.deep.training.local import Training
from privfed.deep.training.regrouping import descended, nearest
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.declaring import parameters
from privfed.protocols.slotted import Slotted

WORTH_ASKING = 6
"""Rounds from which clusters are compared with what needs none, where nothing else is said."""

DECAY = 0.9
"""Of running means under DP-SGD, where none is given."""


def check_merge(merge: str, protocol: SecureSum) -> bool:
    """Check that a protocol shows updates as `merge` says; return whether they come in slots.

    Raises:
        ArgumentError: it does not.
    """
    slotted = merge == "slotted"
    if slotted and not isinstance(protocol, Slotted):
        raise ArgumentError(
            'merge="slotted" needs slots: pass protocol="masked", or Slotted(Masked(...), sums=rounds).'
        )
    if not slotted and protocol.reveals != "contributions":
        raise ArgumentError(
            'merge="gathered" needs every client\'s update, and this sum does not show them; use '
            'merge="slotted", or protocol="plain".'
        )
    return slotted


@parameters
class FedAvg(FederatedModel):
    """One model for all clients (McMahan et al. 2017): the mean of what they train, in one sum a round.

    Without `privacy` clients count by their rows, as in the paper; with it all alike.

    Reveals: `privfed.deep.algorithms.averaging`.
    """

    @property
    def _usual_weighting(self) -> str:
        return "rows" if self.privacy is None else "clients"

    def make_algorithm(self, training: Training) -> Algorithm[ModelsOutcome]:
        """Check the parameters and return the algorithm."""
        return Averaging(training=training)


@parameters
class IFCA(KnownNumber, FederatedModel):
    """A known number of models (Ghosh et al. 2020): each client trains that of the lowest loss on its rows.

    Reveals: `privfed.deep.algorithms.averaging`. Not with DP-SGD: the choice is made on exact rows.
    """

    def make_algorithm(self, training: Training) -> Algorithm[ModelsOutcome]:
        """Check the parameters and return the algorithm."""
        if self._by_dp_sgd is not None and self.n_clusters > 1:
            raise PrivacyError(
                'IFCA chooses by the loss on exact rows, which DP-SGD does not cover; use unit="client", '
                "or DCFL."
            )
        return Averaging(training=training, **named(Averaging, self._options))


@parameters
class _Regrouped(Comparing, FederatedModel):
    """Estimators that compare updates."""

    @property
    def slotted_sums(self) -> int:
        """Each round's sketches come in slots."""
        return self.rounds if self.merge == "slotted" else 0

    def _rule(self) -> Rule:
        raise NotImplementedError

    def _training(self, seed: int) -> Training:
        """With the round after which clusters are compared with what needs none."""
        if self.compare and self.privacy is not None:
            raise PrivacyError(
                "compare=True asks for accuracies on exact rows, which no claim covers, and for one model "
                "beside the clusters, which would cost as much again. Leave it out; to compare, fit FedAvg "
                "on a budget of its own, and have clients score both, and what they train alone.",
                parameters=["compare"],
            )
        compared = self.rounds >= WORTH_ASKING and self.privacy is None
        until = -(-2 * self.rounds // 3) if self.compare or (self.compare is None and compared) else 0
        return replace(super()._training(seed), held_until=until)

    @property
    def _decay(self) -> float:
        """The decay, with what None stands for."""
        by_default = DECAY if self._by_dp_sgd is not None else 0.0
        decay = by_default if self.decay is None else self.decay
        if decay and self.privacy is not None and self._by_dp_sgd is None:
            raise PrivacyError(
                'a running mean is no less noisy at unit "client", where noise is added later; use decay=0.'
            )
        if decay and self._by_dp_sgd is not None and self.optimizer is not None:
            raise ArgumentError(
                "running means of updates are clustered by the variance of SGD's noise, which is not known "
                "of another optimizer: use decay=0, or optimizer=None.",
                parameters=["decay", "optimizer"],
            )
        return float(decay)

    def _joined(self, update: Callable[[FloatArray], FloatArray]) -> int:
        """As clients join within a fit."""
        return nearest(self.models_, self._rule().metric, update)

    def make_algorithm(self, training: Training) -> Algorithm[ModelsOutcome]:
        """Check the parameters and return the algorithm."""
        slotted = check_merge(self.merge, self._secure_sum())
        if slotted and isinstance(self.protocol, str) and self._sampled:
            raise ArgumentError(
                "slots hide no names where other clients take part in each round: public lists of these "
                "say whose a linked sketch is. Leave out clients_per_round and cohorts, take FedAvg or IFCA, "
                "or name the slots: protocol=Slotted(Masked(), sums=rounds).",
                parameters=["clients_per_round", "cohorts"],
            )
        return RegroupedLearning(
            training=training,
            rule=self._rule(),
            sketch_error=self.sketch_error,
            slotted=slotted,
            passes=PASSES if self.fine_tune is None else self.fine_tune,
        )


@parameters
class CFL(Splitting, _Regrouped):
    """Clusters that are split in two, as their members' updates part (Sattler, Mueller, Samek 2021).

    Reveals: `privfed.deep.algorithms.regrouped`.
    """

    def _rule(self) -> Rule:
        return BipartitionRule(**named(BipartitionRule, self._options) | {"decay": self._decay})

    def _joined(self, update: Callable[[FloatArray], FloatArray]) -> int:
        """By the tree of splits."""
        return descended(self.history_, self.parents_.tolist(), update)


@parameters
class DCFL(Propagating, _Regrouped):
    """Clusters that are found anew wherever they no longer fit (Augello, Falzone, Lo Re 2023).

    Reveals: `privfed.deep.algorithms.regrouped`.
    """

    def _rule(self) -> Rule:
        # The Dunn index of noisy means says little of clusters.
        quantile = 0.5 if self._decay and self.preference_quantile is None else self.preference_quantile
        own = {"decay": self._decay, "preference_quantile": quantile}
        return PropagationRule(**named(PropagationRule, self._options) | own)
