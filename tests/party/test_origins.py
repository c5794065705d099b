"""Where each value comes from follows from the forms of algorithms; docs/specifications/values.md lists it.

Run as a script (`python -m tests.party.test_origins`) it writes the page's table anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from privfed import extend
from privfed.core.asking.phases import (
    Among,
    Cycle,
    Form,
    Kept,
    Near,
    Origin,
    Phase,
    Rule,
    Same,
    Shape,
    Within,
    origin_of,
)
from privfed.core.asking.question import Question, kind_named, register
from privfed.core.names import ALGORITHMS
from privfed.errors import ArgumentError
from privfed.metrics.asked import AskedMetric
from privfed.party.program import Program
from privfed.questions.lloyd import Inertia, LloydSums
from tests.declared import UNITS, origins, programs, values_of
from tests.party.programs import SETTING
from tests.some import some

PAGE = Path(__file__).parents[2] / "docs" / "specifications" / "values.md"
BEGIN, END = "<!-- generated: python -m tests.party.test_origins -->\n", "<!-- end -->\n"


def table() -> str:
    """Return the page's table: by question its fields, and where their values come from."""
    found: dict[str, Origin] = {}
    for unit in some(UNITS):
        for _, program in programs(unit):
            for name, origin in values_of(program).items():
                found[name] = Origin.weakest((origin, found.get(name, origin)))
    lines = ["| question | any | derived | equal |", "|---|---|---|---|"]
    for question in sorted({name.partition(".")[0] for name in found}):
        cells = []
        for origin in reversed(Origin):
            own = [name.partition(".")[2] for name in found if name.startswith(f"{question}.")]
            cells.append(", ".join(f"`{one}`" for one in sorted(own) if found[f"{question}.{one}"] is origin))
        lines.append(f"| `{question}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_what_forms_declare() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written, end, _ = rest.partition(END)
    assert before and end
    assert written == table(), "write it anew: python -m tests.party.test_origins"


def test_every_value_of_every_question_is_declared_once() -> None:
    for unit in some(UNITS):
        for name, program in some(programs(unit)):
            values = values_of(program)
            assert values and all(isinstance(one, Origin) for one in values.values()), name
            noised = [one for one in values if one.startswith("Noised.")]
            assert bool(noised) == bool(unit), name


@pytest.mark.parametrize(
    ("rule", "origin"),
    [
        (3, Origin.EQUAL),
        (np.eye(2), Origin.EQUAL),
        (None, Origin.EQUAL),
        (Shape(3, 2), Origin.ANY),
        (Shape(0, 2), Origin.EQUAL),
        (Within(1, 4), Origin.ANY),
        (Within(4, 4), Origin.EQUAL),
        (Within(1.0 - 1e-9, 1.0 + 1e-9), Origin.DERIVED),
        (Near((np.eye(2),)), Origin.DERIVED),
        (Near((np.eye(2), np.eye(3))), Origin.ANY),
        (Among(("kept",)), Origin.EQUAL),
        (Among(("kept", "drawn")), Origin.ANY),
        (Same("a", Near((np.eye(2),))), Origin.DERIVED),
        (Form(Inertia, centers=np.eye(1)), Origin.ANY),
    ],
)
def test_a_rule_says_where_values_come_from(rule: object, origin: Origin) -> None:
    assert origin_of(rule) is origin


def test_values_of_parts_and_of_questions_within_are_listed_by_themselves() -> None:
    (_, program), *_ = [one for one in programs("") if one[0] == "OneShotKMeans"]
    values = values_of(program)
    assert values["PointCount.points.seed"] is Origin.EQUAL and values["PointSums.centers"] is Origin.ANY
    form = Form(Inertia, centers=Same("c", Among((np.eye(1), Shape(3, 1)))))
    assert dict(origins(form)) == {
        "Inertia.ranges": Origin.ANY,
        "Inertia.centers": Origin.ANY,
        "Inertia.directions": Origin.EQUAL,
    }


class Own(Rule):
    """A rule that does not say where its values come from."""

    def read(self, value: object, kept: Kept) -> Kept | None:
        return kept


class Told(Own):
    """One that does."""

    @property
    def origin(self) -> Origin:
        return Origin.ANY


UNDECLARED: dict[str, tuple[Callable[[], object], str]] = {
    "an own rule": (lambda: Form(Inertia, centers=Own()), "Inertia.centers .*your own rule an `origin`"),
    "one in another": (lambda: Form(Inertia, centers=Among((Shape(1, 1), Own()))), "give your own rule"),
    "a function": (lambda: Form(Inertia, centers=len), "Inertia.centers may be .*take a number"),
    "the same, but as what": (lambda: Form(Inertia, centers=Same("c")), "Inertia.centers may be"),
    "no rule": (lambda: Form(Inertia), "needs a rule for its field centers"),
}


@pytest.mark.parametrize("what", UNDECLARED)
def test_a_value_without_an_origin_is_an_error_where_the_form_is_made(what: str) -> None:
    make, said = UNDECLARED[what]
    with pytest.raises(ArgumentError, match=said):
        make()
    assert origin_of(Form(Inertia, centers=Told())) is Origin.ANY


@dataclass(frozen=True, kw_only=True, eq=False)
class Hidden(Question):
    """A question about what a function finds, which no client can compare."""

    found: Callable[[int], int]


@dataclass(frozen=True, kw_only=True)
class HiddenSteps:
    """An algorithm whose steps a function decides."""

    rule: Callable[[int], int]


def test_what_no_client_can_compare_is_not_registered() -> None:
    with pytest.raises(ArgumentError, match=r"Hidden.found is .* take float64 arrays"):
        register(Hidden)
    with pytest.raises(ArgumentError, match=r"HiddenSteps.rule is .* take numbers"):
        extend.register_algorithm(HiddenSteps)
    with pytest.raises(KeyError):
        kind_named("Hidden")
    assert "HiddenSteps" not in ALGORITHMS


def test_whoever_missed_the_sums_before_still_compares_what_is_derived() -> None:
    # k-FED's rounds asked a client that had missed the restart's first sums for points of any kind.
    found = [program for name, program in programs("") if name == "OneShotKMeans"]
    points = {name for program in found for name in values_of(program) if name.startswith("PointSums.points")}
    assert points >= {"PointSums.points.seed", "PointSums.points.n_clusters"}


def test_metrics_declare_what_they_ask_too() -> None:
    assert AskedMetric.of(Inertia, 3).alone().phases(SETTING)
    program = Program((Cycle((Phase(Form(LloydSums, centers=Shape(1, 1))),)),), (), SETTING)
    assert values_of(program) == {"LloydSums.ranges": Origin.EQUAL, "LloydSums.centers": Origin.ANY}


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(BEGIN)] + BEGIN + table() + text[text.index(END) :])
