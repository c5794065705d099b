"""Figures over the seeds, and the front of the best known."""

import math
from typing import Any

import pytest

from privfed.attacks import Status
from privfed.experiments.report.curves import Stat, curve_of, over_fits, shown


def test_figures_of_one_seed_have_no_deviation() -> None:
    assert math.isnan(Stat.of([2.0]).sd)
    assert Stat.of([1.0, 3.0]) == Stat(2.0, math.sqrt(2.0), 2)
    assert (str(Stat.of([2.0])), str(Stat.of([1.0, 3.0]))) == ("2", "2.0 ± 1.4")
    many = (Stat(0.92913, 9.6e-4, 5), Stat(1.0, 1.5e-5, 5), Stat(54131.0, 285.2, 5), Stat(3.0, 0.0, 5))
    assert [str(one) for one in many] == ["0.9291 ± 0.0010", "1.0000 ± 0.0000", "54,131 ± 285", "3 ± 0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.23456, "1.235"), (0.00012, "1.200e-04"), (123456.0, "123,456"), (2.5e7, "2.500e+07")],
)
def test_numbers_are_shown_as_people_read_them(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_curve_keeps_the_last_value_of_a_seed_that_has_ended() -> None:
    curve = curve_of([([1, 2], [0.0, 0.5]), ([1, 2, 5], [0.0, 0.1, 0.9])])
    assert curve is not None
    assert curve.rounds == [1, 2, 5]
    assert [stat.mean for stat in curve.values] == pytest.approx([0.0, 0.3, 0.7])


def test_leakage_over_fits_is_of_any_attack_that_ran_and_of_rows_that_joined() -> None:
    def stored(status: Status, *advantages: float) -> dict[str, Any]:
        reports = [{"status": status, "advantage": one, "recovered": one / 2} for one in advantages]
        return {"fits": [1, 2], "reports": reports}

    rows = stored(Status.FOUND, 0.1, 0.3) | {"joined": [None, 1.0]}
    others = {0: stored(Status.FOUND, 0.2, 0.25), 1: stored(Status.NOT_APPLICABLE, 0.9, 0.9)}
    found = over_fits({"rows": {0: rows}, "others": others})
    assert {title: [one.mean for one in curve.values] for title, curve in found.items()} == {
        "leakage": [0.2, 1.0],
        "rows": [0.05, 0.15],
        "rows: rows that joined": [1.0],
        "others": pytest.approx([0.275, 0.2875]),
    }
    assert [curve.rounds for curve in found.values()] == [[1, 2], [1, 2], [2], [1, 2]]
