"""The same definition run again, and another one under its name."""

from typing import Any

import pytest

from privfed.core.asking import question
from privfed.core.asking.question import _REGISTRY
from privfed.core.names import same_definition
from privfed.errors import ArgumentError
from privfed.questions.lloyd import LloydSums

CELL = """
from dataclasses import dataclass
from functools import cached_property
from privfed.core.asking.question import AdditiveOver, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec

@register
@dataclass(frozen=True, kw_only=True, eq=False)
class {name}(Question):
    additive_over = AdditiveOver.RECORDS
    {field}

    @cached_property
    def spec(self):
        return StatisticsSpec(Entry("n", (1,), 0.0, {most}, 1.0))

    def answer_all(self, clients, generators):
        return [Statistics(n=[client.n_rows]) for client in clients]
"""


def run(name: str, field: str = "scale: float = 1.0", most: float = 9.0, module: str = "__main__") -> Any:
    """Run a notebook's cell that defines and registers a question."""
    scope: dict[str, Any] = {"__name__": module}
    exec(CELL.format(name=name, field=field, most=most), scope)
    return scope[name]


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privfed.core.asking.question._REGISTRY", dict(_REGISTRY))


def test_a_cell_may_be_run_again() -> None:
    first, again = run("OfANotebook"), run("OfANotebook")
    assert first is not again and same_definition(first, again)


@pytest.mark.parametrize(
    "change",
    [
        {"field": "scale: float = 2.0"},
        {"field": "other: float = 1.0"},
        {"most": 8.0},
        {"module": "elsewhere"},
    ],
    ids=["default", "field", "code", "module"],
)
def test_another_class_under_a_known_name_is_an_error(change: dict[str, Any]) -> None:
    run("OfANotebook")
    with pytest.raises(ArgumentError, match=r"OfANotebook is known already.*another name"):
        run("OfANotebook", **change)


def test_a_question_of_the_product_keeps_its_name() -> None:
    with pytest.raises(ArgumentError, match=r"another class of privfed\.questions\.lloyd"):
        run("LloydSums")
    assert _REGISTRY["LloydSums"] is LloydSums


def test_also_before_its_module_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(question._REGISTRY, "LloydSums")
    with pytest.raises(ArgumentError, match=r"another class of privfed\.questions\.lloyd"):
        run("LloydSums")


def test_a_function_within_another_is_the_same_as_itself_only() -> None:
    def made(to: float) -> Any:
        return lambda: to

    one, other = made(1.0), made(2.0)
    assert same_definition(one, one) and not same_definition(one, other)
    assert not same_definition(one, made(1.0))
    assert not same_definition(one, LloydSums) and not same_definition(print, len)
