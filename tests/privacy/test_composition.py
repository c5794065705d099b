"""Composition: how each answer was found, and dp-accounting's and Opacus' own figures."""

import math

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from privfed.core.values.guarantee import Neighbours
from privfed.errors import ArgumentError
from privfed.privacy.composition import compose

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
DELTA = 1e-6


def poisson(sigma: float, probability: float, rounds: int) -> DpEvent:
    return SelfComposedDpEvent(PoissonSampledDpEvent(probability, GaussianDpEvent(sigma)), rounds)


def without_replacement(sigma: float, rounds: int) -> DpEvent:
    return SelfComposedDpEvent(SampledWithoutReplacementDpEvent(1000, 100, GaussianDpEvent(sigma)), rounds)


# Figures at delta 1e-6: the exact curve; then dp-accounting 0.6.
COMPOSED = {
    "gaussian": ([SelfComposedDpEvent(GaussianDpEvent(5.0), 5)], ADD, "gdp", 1.99453),
    "gaussian, replaced": ([SelfComposedDpEvent(GaussianDpEvent(5.0), 5)], REPLACE, "gdp", 1.99453),
    "nested": ([ComposedDpEvent([GaussianDpEvent(10.0)] * 3), GaussianDpEvent(5.0)], ADD, "gdp", 1.1276),
    "with laplace": ([GaussianDpEvent(5.0), LaplaceDpEvent(2.0)], ADD, "pld", None),
    "with laplace, replaced": ([GaussianDpEvent(5.0), LaplaceDpEvent(2.0)], REPLACE, "pld", None),
    "discrete laplace": ([DiscreteLaplaceDpEvent(0.1, 1)] * 2, REPLACE, "pld", 0.2),
    "sampled": ([poisson(2.0, 0.1, 50)], ADD, "pld", 1.914),
    "sampled, replaced": ([without_replacement(2.0, 50)], REPLACE, "rdp", 4.101),
    "concentrated": ([ZCDpEvent(rho=0.1), GaussianDpEvent(5.0)], REPLACE, "rdp", None),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_each_answer_says_how_it_was_composed(name: str) -> None:
    events, neighbours, method, epsilon = COMPOSED[name]
    found = compose(events, DELTA, neighbours)
    assert (found.method, found.neighbours, found.delta) == (method, neighbours, DELTA)
    if epsilon is not None:
        assert found.epsilon == pytest.approx(epsilon, rel=5e-4)


def test_a_sensitivity_is_counted_once_under_both_relations() -> None:
    # The trap: dp-accounting's PLD doubles it for REPLACE_ONE, its RDP does not.
    event = SelfComposedDpEvent(GaussianDpEvent(5.0), 5)
    doubled = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(event).get_epsilon(DELTA)
    plain = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(event)
    assert doubled == pytest.approx(4.3058, abs=1e-3)
    assert plain.get_epsilon(DELTA) == pytest.approx(2.1430, abs=1e-3)
    for events in ([event], [event, LaplaceDpEvent(3.0)], [event, ZCDpEvent(rho=0.1)]):
        assert compose(events, DELTA, ADD).epsilon == compose(events, DELTA, REPLACE).epsilon


def test_privacy_loss_distributions_meet_the_exact_curve() -> None:
    # A Laplace release of next to nothing sends Gaussian ones through the other accountant.
    gaussian = SelfComposedDpEvent(GaussianDpEvent(10.0), 7)
    exact = compose([gaussian], DELTA, ADD).epsilon
    near = compose([gaussian, LaplaceDpEvent(1e7)], DELTA, ADD)
    assert near.method == "pld"
    assert exact <= near.epsilon <= exact + 5e-4


def test_what_nobody_can_bound_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="PoissonSampledDpEvent"):
        compose([poisson(2.0, 0.1, 5)], DELTA, REPLACE)
    with pytest.raises(ArgumentError, match="SampledWithoutReplacementDpEvent"):
        compose([without_replacement(2.0, 5)], DELTA, ADD)


def test_a_release_without_noise_has_no_bound() -> None:
    assert compose([GaussianDpEvent(0.0), GaussianDpEvent(5.0)], DELTA, ADD).epsilon == math.inf
    assert compose([GaussianDpEvent(0.0), LaplaceDpEvent(5.0)], DELTA, ADD).epsilon == math.inf


def test_nothing_released_costs_nothing() -> None:
    assert compose([], DELTA, ADD).epsilon == 0.0


def opacus_epsilon(name: str, sigma: float, probability: float, rounds: int) -> float:
    """Return the epsilon of one of Opacus' accountants."""
    accountant = pytest.importorskip("opacus.accountants").create_accountant(name)
    for _ in range(rounds):
        accountant.step(noise_multiplier=sigma, sample_rate=probability)
    return float(accountant.get_epsilon(delta=DELTA))


@pytest.mark.parametrize(("sigma", "probability", "rounds"), [(2.0, 0.1, 50), (1.0, 0.01, 1000)])
@pytest.mark.few(1)
def test_opacus_agrees_on_sampled_gaussians(sigma: float, probability: float, rounds: int) -> None:
    event = poisson(sigma, probability, rounds)
    renyi = RdpAccountant().compose(event).get_epsilon(DELTA)
    assert opacus_epsilon("rdp", sigma, probability, rounds) == pytest.approx(renyi, rel=0.01)
    # Its PRV accountant's upper bound is 0.01 above its estimate.
    ours = compose([event], DELTA, ADD).epsilon
    assert ours - 1e-3 <= opacus_epsilon("prv", sigma, probability, rounds) <= ours + 0.02


def test_opacus_bounds_unsampled_gaussians_from_above() -> None:
    ours = compose([SelfComposedDpEvent(GaussianDpEvent(5.0), 5)], DELTA, ADD).epsilon
    assert ours <= opacus_epsilon("rdp", 5.0, 1.0, 5) <= 1.1 * ours
