"""Figures that docs/privacy quotes: what several claims are together, and what a smaller delta costs."""

import math
import warnings

import pytest

from privfed import Box, Privacy
from privfed.privacy.accounting import gdp_epsilon, gdp_mu

DELTA = 1e-6


@pytest.mark.parametrize(("fits", "epsilon"), [(5, 2.40), (10, 3.52)])
def test_costs_of_several_fits_add_up(fits: int, epsilon: float) -> None:
    # docs/privacy/who-is-protected.md, "One fit": costs are mu^2.
    assert gdp_epsilon(math.sqrt(fits) * gdp_mu(1.0, DELTA), DELTA) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(("rows", "epsilon"), [(2, 2.1), (5, 5.9)])
def test_who_has_several_rows_has_the_claim_of_so_many_units(rows: int, epsilon: float) -> None:
    assert gdp_epsilon(rows * gdp_mu(1.0, DELTA), DELTA) == pytest.approx(epsilon, abs=0.05)


def published(n: int) -> float:
    """Return the delta of the published figures that docs/privacy/utility.md stands beside."""
    return 1 / (n * math.log(n))


def warns(delta: float) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Privacy(epsilon=1.0, delta=delta, unit="record", domain=Box(-1, 1), neighbours="add-remove")
    return bool(caught)


def test_the_delta_of_comparisons_is_one_that_privfed_warns_of() -> None:
    assert warns(published(150)) and warns(published(1797)) and warns(published(10_750))
    assert not warns(published(10_800))


@pytest.mark.parametrize(("n", "wider"), [(1797, (1.43, 1.30, 1.17)), (150, (2.2, 1.7, 1.4))])
def test_a_delta_for_use_takes_wider_noise(n: int, wider: tuple[float, ...]) -> None:
    ratios = [gdp_mu(epsilon, published(n)) / gdp_mu(epsilon, DELTA) for epsilon in (0.1, 1.0, 10.0)]
    assert ratios == pytest.approx(wider, abs=0.05 if n == 150 else 0.005)
