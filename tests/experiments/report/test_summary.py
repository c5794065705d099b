"""Figures over the seeds, the front of the best known, and what to use."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.experiments.report.advice import advise, telling
from privfed.experiments.report.pictures import front
from privfed.experiments.report.summary import Row, Stat, _curve, shown
from privfed.experiments.running.planning import Plan
from tests.some import some


def row(small: Plan, leakage: float, ratio: float, n_bytes: float, sd: float = 0.0) -> Row:
    stats = {
        "leakage": Stat(leakage, sd, 5),
        "score_ratio": Stat(ratio, 0.0, 5),
        "bytes": Stat(n_bytes, 0.0, 5),
        "client_seconds": Stat(1.0, 0.0, 5),
    }
    return Row(f"{leakage} {ratio} {n_bytes}", small.setups[0], {0: "a"}, [], stats, attacks=["some attack"])


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
    curve = _curve([([1, 2], [0.0, 0.5]), ([1, 2, 5], [0.0, 0.1, 0.9])])
    assert curve is not None
    assert curve.rounds == [1, 2, 5]
    assert [stat.mean for stat in curve.values] == pytest.approx([0.0, 0.3, 0.7])


def test_the_cheapest_within_both_bounds_is_named(small: Plan) -> None:
    rows = [row(small, 0.5, 1.0, 1.0), row(small, 0.1, 1.2, 30.0), row(small, 0.05, 1.1, 20.0)]
    assert advise(rows, 0.1, 1.3).row is rows[2]
    assert advise(rows, 0.6, 1.3).row is rows[0]
    assert advise(rows, 0.01, 1.3).row is None
    assert advise([replace(rows[0], stats={})], 1.0, 9.0).row is None


def test_caveats_say_what_the_answer_rests_on(small: Plan) -> None:
    sure = advise([row(small, 0.1, 1.0, 1.0)], 0.5, 1.1).caveats
    close = advise([row(small, 0.49, 1.0, 1.0, sd=0.1)], 0.5, 1.1).caveats
    assert any("some attack" in one for one in sure) and any("no differential privacy" in one for one in sure)
    assert set(close) - set(sure) == {"its leakage exceeds the bound within one standard deviation"}


def test_attacks_that_had_nothing_to_work_on_are_a_caveat(small: Plan) -> None:
    some = replace(row(small, 0.0, 1.0, 1.0), not_applicable={"other": {"it reads nothing": 2}})
    assert "other had nothing to work on here: that is no measure of it" in advise([some], 0.5, 1.1).caveats
    assert some.status("other") == "not applicable"


def test_who_reads_the_totals_instead_of_the_server_is_told(small: Plan) -> None:
    opened = replace(row(small, 0.0, 1.0, 1.0), opens_to="clients")
    assert any("clients read the totals" in one for one in advise([opened], 0.5, 1.1).caveats)


def test_answers_that_say_no_more_than_stricter_ones_are_left_out(small: Plan) -> None:
    good, cheap = row(small, 0.05, 1.1, 20.0), row(small, 0.3, 1.0, 1.0)
    bounds = [(0.1, 1.2), (0.01, 1.05), (0.01, 1.5), (0.2, 1.2), (0.5, 1.05)]
    told = [("d", advise([good, cheap], *each)) for each in bounds]
    kept = [(one.leakage, one.score_ratio, one.row) for _, one in telling(told)]
    assert kept == [(0.1, 1.2, good), (0.01, 1.5, None), (0.5, 1.05, cheap)]
    assert [one.leakage for _, one in telling(told, wanted=(0.2, 1.2))] == [0.1, 0.01, 0.2, 0.5]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_else_beats(small_figures: list[tuple[int, int]]) -> None:
    """For all: a row is left out if and only if another is no worse in both and not the same."""
    rows = [(i, _figures(*pair)) for i, pair in enumerate(small_figures)]
    kept = {i for i, _ in front(rows)}
    for i, (leak, ratio) in some(enumerate(small_figures)):
        beaten = any(a <= leak and b <= ratio and (a, b) != (leak, ratio) for a, b in small_figures)
        assert (i in kept) != beaten


def _figures(leakage: float, ratio: float) -> Row:
    stats = {"leakage": Stat(leakage, 0.0, 1), "score_ratio": Stat(ratio, 0.0, 1)}
    return Row("", None, {}, [], stats)  # type: ignore[arg-type]
