"""Which pictures a report has, and how it keeps them readable."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from privfed.experiments.planning import Plan
from privfed.experiments.report.curves import Stat
from privfed.experiments.report.page import _matrix
from privfed.experiments.report.pictures import (
    MOST_BARS,
    MOST_LINES,
    convergence,
    costs,
    pareto,
    scaling,
)
from privfed.experiments.report.summary import Row, summarise
from privfed.experiments.report.tables import by_data
from privfed.experiments.running import Store


@pytest.fixture(scope="module")
def rows(small: Plan, finished: Path) -> list[Row]:
    return summarise(small, Store(finished))


def at(row: Row, clients: int) -> Row:
    """Return a row as of another number of clients."""
    setup = msgspec.structs.replace(
        row.setup,
        partition=msgspec.structs.replace(row.setup.partition, clients=clients),
        labels=row.setup.labels | {"partition": f"{clients} iid"},
    )
    return replace(row, setup=setup, stats=row.stats | {"clients": Stat(clients, 0.0, 2)})


def test_leakage_and_bytes_are_drawn_against_the_number_of_clients(rows: list[Row]) -> None:
    assert scaling(rows) == []
    grown = [at(row, n) for n in (100, 3, 10) for row in rows]
    leakage, size = scaling(grown)
    assert leakage.title == "leakage: iris" and "bytes" in size.title
    assert leakage.drawing.count('class="mark"') == len(leakage.lines) == 3 * len(rows)
    places = leakage.drawing.split('data-x="')[1:4]
    assert [float(place.split('"')[0]) for place in places] == [3.0, 10.0, 100.0]
    assert [name for name, _ in by_data(grown)] == [f"iris, {n} iid clients" for n in (100, 3, 10)]


def test_many_curves_are_drawn_an_algorithm_at_a_time(rows: list[Row]) -> None:
    few = list(enumerate(rows, start=1))
    assert [one.title for one in convergence("iris", few)] == ["iris"]
    many = [(i, rows[i % len(rows)]) for i in range(MOST_LINES + 1)]
    assert {one.title for one in convergence("iris", many)} == {f"DWF, n_init {n}: iris" for n in (1, 2)}


def test_many_bars_are_shown_on_demand(rows: list[Row]) -> None:
    assert not any(one.folded for one in costs("iris", list(enumerate(rows, start=1))))
    assert all(one.folded for one in costs("iris", [(i, rows[0]) for i in range(MOST_BARS + 1)]))


def test_no_leakage_is_said_and_not_drawn(rows: list[Row]) -> None:
    silent = [
        (i, replace(row, stats=row.stats | {"leakage": Stat(0.0, 0.0, 2)})) for i, row in enumerate(rows)
    ]
    picture = pareto("iris", silent)
    assert picture is not None
    assert picture.drawing == "" and "no leakage to be drawn" in picture.about
    assert len(picture.lines) == len(rows)


def test_what_no_attack_could_measure_is_not_drawn_at_zero(rows: list[Row]) -> None:
    blank = {name: stat for name, stat in rows[0].stats.items() if name != "leakage"}
    first = replace(rows[0], stats=blank, attacks=[], not_applicable={"Membership": {"why": 2}})
    picture = pareto("iris", list(enumerate([first, *rows[1:]], start=1)))
    assert picture is not None
    assert len(picture.lines) == len(rows) - 1
    assert "Not drawn: #1, where no attack of this study had anything to work on." in picture.about
    assert pareto("iris", [(1, first)]) is None


def test_several_attacks_are_set_beside_each_other(rows: list[Row]) -> None:
    assert "What each attack gained" not in _matrix(rows)
    second = {"other: advantage": Stat(0.5, 0.0, 2)}
    both = [replace(row, attacks=[*row.attacks, "other"], stats=row.stats | second) for row in rows]
    text = _matrix([*both[:-1], replace(both[-1], stats=rows[-1].stats)])
    assert text.count("rgb(213 94 0 / 0.30)") == len(rows) - 1
    assert text.count('<td class="number"></td>') == 1
