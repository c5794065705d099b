"""Each row is held to its bound in whole steps before it is added, whatever its question says."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, Privacy
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.extend import ClientPolicy, open_over
from privfed.party.answerer import own_answerer
from privfed.privacy import noised
from privfed.privacy.bounds import Bound, RecordBounded, in_cells, lone_count, magnitude, step_of
from privfed.privacy.contributions import Contribution, most_squared
from privfed.privacy.noised import Noised
from privfed.questions.bounded import bounded_sums
from tests.some import some

D = 2
UNIT = Ranges(np.full(D, -1.0), np.full(D, 1.0), 100)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Unclipped(RecordBounded):
    """Ask for sums of rows, which claim a bound of 1 and are multiplied by a factor instead of clipped."""

    additive_over = AdditiveOver.RECORDS
    factor: float

    @property
    def bounds(self) -> dict[str, Bound]:
        return {"sum": in_cells(1.0), "size": magnitude(1.0), "rows": lone_count()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        step, most = step_of(1.0), 1e3
        return StatisticsSpec(
            Entry("sum", (2, D), -most, most, step),
            Entry("size", (1,), 0.0, most, step),
            Entry("rows", (1,), 0.0, most, step),
        )

    def contributions(self, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        side = (rows[:, 0] > 0).astype(np.intp)
        return {
            "sum": Contribution(self.factor * rows, side),
            "size": Contribution(np.abs(rows[:, :1])),
        }


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientSums(Question):
    """Ask for the sum of a client's rows, which is a client's as a whole."""

    additive_over = AdditiveOver.CLIENTS

    @cached_property
    def spec(self) -> StatisticsSpec:
        return StatisticsSpec(Entry("sum", (D,), -100.0, 100.0, 2.0**-20))

    def answer_all(self, clients: Any, generators: Any) -> list[Statistics]:
        return [Statistics(sum=one.features.sum(axis=0)) for one in clients]


ROWS = np.array([[0.5, 0.5], [0.9, 0.9], [-0.3, 0.1], [0.0, 1.0], [-1.0, -1.0]])


def test_only_rows_beyond_their_bound_add_zero() -> None:
    data = ClientData(ROWS)
    answer = Unclipped(ranges=UNIT, factor=1.0).answer(data, np.random.default_rng(0))
    inside = np.linalg.norm(ROWS, axis=1) <= 1.0
    assert inside.tolist() == [True, False, True, True, False]
    step, kept = step_of(1.0), ROWS[inside]
    whole = np.trunc(kept / step) * step
    np.testing.assert_array_equal(answer["sum"][1], whole[kept[:, 0] > 0].sum(axis=0))
    np.testing.assert_array_equal(answer["sum"][0], whole[kept[:, 0] <= 0].sum(axis=0))
    # All that such a row adds is zero, but for what no neighbour changes.
    np.testing.assert_array_equal(answer["size"], [np.abs(whole[:, 0]).sum()])
    np.testing.assert_array_equal(answer["rows"], [5.0])
    assert "2 contributions were beyond their bound" in str(data.errors[0])


def test_a_length_of_just_the_bound_is_within_it_and_one_step_more_is_not() -> None:
    step = step_of(1.0)
    for over, kept in some([(0.0, True), (step, False)]):
        data = ClientData([[1.0 + over, 0.0]])
        answer = Unclipped(ranges=UNIT, factor=1.0).answer(data, np.random.default_rng(0))
        assert bool(answer["sum"].any()) is kept
        assert bool(data.errors) is not kept


@given(
    st.floats(2.0**-400, 2.0**400),
    st.lists(st.integers(-(2**21), 2**21), min_size=1, max_size=6),
)
def test_lengths_are_compared_as_exact_integers(l2: float, steps: list[int]) -> None:
    step = step_of(l2)
    exactly = sum(one * one for one in steps) <= (Fraction(l2) / Fraction(step)) ** 2
    whole = np.array([steps], dtype=np.float64)
    most = most_squared(l2, step)
    assert bool(np.einsum("ij,ij->i", whole, whole)[0] <= most) is exactly
    assert most <= (Fraction(l2) / Fraction(step)) ** 2 < most + 1


def no_number(rows: np.ndarray) -> np.ndarray:
    return np.where(rows[:, :1] > 0.8, np.nan, rows)


def endless(rows: np.ndarray) -> np.ndarray:
    return np.where(rows[:, :1] > 0.8, np.inf, rows)


@pytest.mark.parametrize("wrong", [no_number, endless])
def test_what_is_no_number_costs_its_own_row_alone(
    wrong: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Unclipped.contributions

    def planted(self: Unclipped, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        found = honest(self, rows, labels)
        cells = found["sum"].cells
        return found | {"sum": Contribution(wrong(rows), cells)}

    monkeypatch.setattr(Unclipped, "contributions", planted)
    data, others = ClientData(0.6 * ROWS + [[0.4, 0.0]]), ClientData((0.6 * ROWS + [[0.4, 0.0]])[2:])
    question = Unclipped(ranges=UNIT, factor=1.0)
    found, rest = (question.answer(one, np.random.default_rng(0)) for one in (data, others))
    first = question.answer(ClientData((0.6 * ROWS + [[0.4, 0.0]])[:1]), np.random.default_rng(0))
    np.testing.assert_array_equal(found["sum"], rest["sum"] + first["sum"])


@pytest.mark.parametrize("cells", [[0, 2], [0, -2]])
def test_a_row_in_no_cell_that_there_is_adds_zero(cells: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: Unclipped, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        every = np.resize(cells, len(rows))
        return {"sum": Contribution(rows, every), "size": Contribution(np.abs(rows[:, :1]))}

    monkeypatch.setattr(Unclipped, "contributions", planted)
    clients, rng = [ClientData(ROWS[[0, 2]]) for _ in range(2)], np.random.default_rng(0)
    for answer in some(Unclipped(ranges=UNIT, factor=1.0).answer_all(clients, [rng, rng])):
        np.testing.assert_array_equal(answer["sum"], [[0.5, 0.5], [0.0, 0.0]])
        assert answer["size"].tolist() == [0.5]


def test_a_negative_value_is_beyond_a_bound_that_counts_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Unclipped.contributions

    def planted(self: Unclipped, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        return honest(self, rows, labels) | {"size": Contribution(rows[:, :1])}

    monkeypatch.setattr(Unclipped, "contributions", planted)
    answer = Unclipped(ranges=UNIT, factor=0.5).answer(ClientData([[-0.5, 0.0], [0.25, 0.0]]), None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(answer["size"], [0.25])
    np.testing.assert_array_equal(answer["sum"], [[0.0, 0.0], [0.125, 0.0]])


def test_no_question_with_a_bound_answers_by_itself() -> None:
    with pytest.raises(TypeError, match="says what each row adds"):
        type("Own", (Unclipped,), {"answer_all": lambda self, clients, generators: []})


def claim(**words: Any) -> Privacy:
    given: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(domain=Box(-1.0, 1.0, max_rows=100), noise_seed=3, **given | words)


def test_before_noise_clients_of_a_run_leave_such_rows_out_and_only_their_logs_tell() -> None:
    clients = [ROWS] * 3
    federation = open_over(clients, privacy=claim(epsilon=10.0), policy=ClientPolicy(undeclared=True))
    third = {"sum": 0.4, "size": 0.3, "rows": 0.3}
    total = federation.ask(Ask(Unclipped(ranges=UNIT, factor=1.0), weights=third))
    std = total.noise_std or {}
    short = ROWS[np.linalg.norm(ROWS, axis=1) <= 1.0]
    right = 3 * short[short[:, 0] > 0].sum(axis=0)
    assert (np.abs(total.statistics["sum"][1] - right) < 5 * std["sum"]).all()
    assert "beyond their bound" not in repr(federation.transcript.records)


class Log:
    """A client's own log."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, error: BaseException) -> None:
        self.said.append(str(error))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer without noise."""
    monkeypatch.setattr(Noised, "_noise", lambda self, n, generators: np.zeros((n, self.spec.size)))


@pytest.mark.usefixtures("silent")
def test_a_client_on_its_own_machine_leaves_such_rows_out_and_its_own_log_tells() -> None:
    log, inner = Log(), Unclipped(ranges=UNIT, factor=1.0)
    asked = Noised(ranges=UNIT, inner=inner, sigma=np.full(3, 100.0), limits=np.zeros(0))
    answer, _ = own_answerer("a", ClientData(ROWS), 0, log)(asked, 0)
    np.testing.assert_allclose(answer["sum"], [[-0.3, 1.1], [0.5, 0.5]], atol=1e-5)
    assert len(log.said) == 1
    assert "Unclipped: 2 contributions were beyond their bound" in log.said[0]


@pytest.mark.usefixtures("silent")
def test_a_question_that_forgets_to_clip_moves_no_total_beyond_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = bounded_sums.CenterSum(ranges=UNIT, radius=0.5, center=np.zeros(D))
    monkeypatch.setattr(bounded_sums, "HAIR", 3.0)
    answer = question.answer(ClientData(ROWS), np.random.default_rng(0))
    np.testing.assert_allclose(answer["sum"], [[-0.3, 0.1]], atol=1e-5)


@pytest.mark.usefixtures("silent")
def test_a_client_beyond_its_limit_answers_zeros_and_only_that_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noised, "shortened", lambda vectors, limit: vectors)
    inner = ClientSums(ranges=UNIT)
    asked = Noised(ranges=UNIT, inner=inner, sigma=np.full(1, 100.0), limits=np.array([2.0]))
    long, short = ClientData(np.full((5, D), 0.9)), ClientData(np.full((2, D), 0.5))
    found = asked.answer_all([long, short], [np.random.default_rng(0)] * 2)
    np.testing.assert_allclose([one["sum"] for one in found], [[0.0, 0.0], [1.0, 1.0]], atol=1e-5)
    assert len(long.errors) == 1
    assert not short.errors


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("n", [1, 2, 5])
def test_only_rows_for_which_a_question_fails_add_zero(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Unclipped.contributions

    def failing(self: Unclipped, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        if (rows[:, 0] == 0.5).any():
            raise ValueError("one row is strange")
        return honest(self, rows, labels)

    monkeypatch.setattr(Unclipped, "contributions", failing)
    inner = Unclipped(ranges=UNIT, factor=0.5)
    asked = Noised(ranges=UNIT, inner=inner, sigma=np.full(3, 100.0), limits=np.zeros(0))
    log = Log()
    whole, _ = own_answerer("a", ClientData(ROWS[:n]), 0, log)(asked, 0)
    rest = (
        inner.answer(ClientData(ROWS[1:n]), np.random.default_rng(0))
        if n > 1
        else dict.fromkeys(("sum", "size"), 0.0)
    )
    np.testing.assert_array_equal(whole["sum"], rest["sum"] + np.zeros((2, D)))
    np.testing.assert_array_equal(whole["size"], rest["size"] + np.zeros(1))
    # That there is a row no neighbour changes, where one replaces another.
    np.testing.assert_array_equal(whole["rows"], [float(n)])
    assert log.said == ["one row is strange"]


@pytest.mark.usefixtures("silent")
def test_at_unit_client_an_error_for_one_row_makes_the_whole_answer_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two halves, each within the limits, could together be beyond them."""
    honest = Unclipped.contributions

    def failing(self: Unclipped, rows: np.ndarray, labels: np.ndarray) -> dict[str, Contribution]:
        if (rows[:, 0] == 0.5).any():
            raise ValueError("one row is strange")
        return honest(self, rows, labels)

    monkeypatch.setattr(Unclipped, "contributions", failing)
    inner = Unclipped(ranges=UNIT, factor=0.5)
    asked = Noised(ranges=UNIT, inner=inner, sigma=np.full(3, 100.0), limits=np.full(3, 0.5))
    answer, _ = own_answerer("a", ClientData(ROWS), 0, Log())(asked, 0)
    assert not any(np.any(answer[name]) for name in ("sum", "size", "rows"))
