"""Risks beside a control: singling out, inference, and how far the nearest row is."""

import math

import numpy as np
import pytest

from privfed.attacks import Truth, evaluate
from privfed.attacks.base.report import risk
from privfed.attacks.base.results import Points

RNG = np.random.default_rng(0)


def flags(n: int, of: int) -> np.ndarray:
    return np.arange(of) < n


def test_the_risk_is_that_of_wilsons_rates() -> None:
    """By hand for 90 of 100 beside 20 of 50: rates .8852 and .4071, errors .0595 and .1314."""
    found = risk("r", flags(90, 100), flags(20, 50))
    assert found["r"] == pytest.approx((0.8852 - 0.4071) / (1 - 0.4071), abs=1e-3)
    error = math.hypot(0.0595 / 0.5929, 0.1314 * 0.1148 / 0.5929**2)
    assert found["r, high"] - found["r"] == pytest.approx(error, abs=1e-3)


@pytest.mark.parametrize(("n", "of"), [(0, 5), (3, 40), (40, 40)])
def test_an_attack_like_its_control_has_no_risk(n: int, of: int) -> None:
    found = risk("r", flags(n, of), flags(n, of))
    assert found["r"] == 0.0 <= found["r, high"] and found["r, low"] == 0.0
    assert all(math.isnan(one) for one in risk("r", flags(0, 0), flags(n, of)).values())


def test_rows_that_are_found_are_singled_out_and_repeated_ones_are_not() -> None:
    rows = RNG.normal(size=(60, 3))
    guesses = RNG.normal(size=(60, 3))
    twice = np.vstack([rows, rows])
    alone, together = (
        evaluate(Points(attack="a", queries=1, points=rows, without_access=guesses), Truth([own])).details
        for own in (rows, twice)
    )
    assert alone["singling-out risk"] > 0.9 > 0.1 > together["singling-out risk"]
    assert alone["nearest row / sd, median"] == together["nearest row / sd, median"] == 0.0
    assert alone["nearest row / sd, median, no access"] > 0.1
