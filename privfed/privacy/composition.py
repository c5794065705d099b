"""Composition of releases of any mechanism that dp-accounting supports; results name their method.

Gaussian releases compose exactly (`privfed.privacy.accounting`). If another mechanism takes part, the privacy
loss distribution is used (Koskela, Jälkö and Honkela 2020, arXiv 1906.03049; Doroshenko et al. 2022, arXiv
2207.04380), and where that does not apply, Renyi differential privacy (Mironov 2017, arXiv 1702.07476).

One convention holds for all events and both relations: a noise multiplier is the noise's scale over the
sensitivity *under the relation that is claimed*. dp-accounting is not uniform in this: its PLD accountant
doubles the sensitivity of every Gaussian for REPLACE_ONE, its RDP accountant never does. Here the caller's
sensitivity already accounts for the relation, and the accountant never changes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from privfed.core.values.guarantee import Neighbours
from privfed.errors import ArgumentError
from privfed.privacy.accounting import gdp_epsilon
from privfed.privacy.composed import Composed

_SAMPLED = (dp_accounting.PoissonSampledDpEvent, dp_accounting.SampledWithoutReplacementDpEvent)


def compose(events: Sequence[dp_accounting.DpEvent], delta: float, neighbours: Neighbours) -> Composed:
    """Return the joint guarantee of a sequence of adaptively chosen releases.

    Args:
        events: dp-accounting's events; noise multipliers are relative to sensitivities under `neighbours`.
        delta: in [1e-300, 1).
        neighbours: relation for which the sensitivities, and so the guarantee, hold.

    Raises:
        ArgumentError: no accountant bounds these events under this relation, or delta is out of bounds.
    """
    leaves = [leaf for event in events for leaf in _leaves(event, 1)]
    if all(isinstance(event, dp_accounting.GaussianDpEvent) for event, _ in leaves):
        multipliers = [(event.noise_multiplier, count) for event, count in leaves]
        if any(multiplier == 0 and count for multiplier, count in multipliers):
            return Composed(math.inf, delta, neighbours, "gdp")
        cost = math.fsum(count / multiplier**2 for multiplier, count in multipliers if count)
        return Composed(gdp_epsilon(math.sqrt(cost), delta), delta, neighbours, "gdp")
    together = dp_accounting.ComposedDpEvent(list(events))
    replaced = neighbours is Neighbours.REPLACE_ONE and any(
        isinstance(event, _SAMPLED) for event, _ in leaves
    )
    if not replaced:
        # Without sampling, only the distance between two totals matters, not the relation behind it.
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        if accountant.supports(together):
            return Composed(accountant.compose(together).get_epsilon(delta), delta, neighbours, "pld")
    relation = dp_accounting.NeighboringRelation["REPLACE_ONE" if replaced else "ADD_OR_REMOVE_ONE"]
    fallback = RdpAccountant(neighboring_relation=relation)
    if not fallback.supports(together):
        raise ArgumentError(
            f"no accountant bounds {', '.join(sorted({type(event).__name__ for event, _ in leaves}))} for "
            f"neighbours={neighbours.value!r}; count them as not sampled, or claim the other relation."
        )
    return Composed(fallback.compose(together).get_epsilon(delta), delta, neighbours, "rdp")


def _leaves(event: dp_accounting.DpEvent, count: int) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    """Yield the elementary events of a composed event, each with its number of repetitions."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    else:
        yield event, count
