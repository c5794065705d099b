"""The contracts of questions, plain and bounded, and the clients' rows that they are tried on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import AdditiveOver, ClientData, Question, question_from_bytes
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import MessageError, PrivacyError, PrivFedError
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.sampler import SeededGenerator


class QuestionContract:
    """Properties of every `privfed.core.asking.question.Question`. Write `make`.

    A client's answer depends on its own rows only, bit for bit, and stays within the declared ranges. The
    question can be sent as bytes. What it declares is true. Where it adds up over records, splitting a client
    changes no total.

    Attributes:
        n_cohorts: on how many drawn cohorts each property is tried.
    """

    n_cohorts = 8

    def make(self, ranges: Ranges, centers: FloatArray) -> Question:
        """Return the question; `centers`, float64 of shape (n, n_features), may lie outside the ranges."""
        raise NotImplementedError

    def drawn(self) -> list[tuple[Cohort, Question]]:
        """Return the cohorts, each with the question that is asked of it."""
        return [(one, self.make(one.ranges, one.centers)) for one in cohorts(self.n_cohorts)]

    def test_all_clients_at_once_are_answered_as_each_alone(self) -> None:
        """answer_all([a, b]) == [answer(a), answer(b)], bit for bit, in any order of the clients."""
        for (clients, _), question in self.drawn():
            data, n = as_clients(clients), len(clients)
            together = question.answer_all(data, generators(n))
            alone = [question.answer(*one) for one in zip(as_clients(clients), generators(n), strict=True)]
            # A client's generator is its own, wherever it stands in the list.
            turned = question.answer_all(as_clients(clients)[::-1], generators(n)[::-1])[::-1]
            for answers in (alone, turned):
                assert len(answers) == n == len(together)
                for one, other in zip(together, answers, strict=True):
                    flat = [question.spec.flatten(answer).tobytes() for answer in (one, other)]
                    assert flat[0] == flat[1]

    def test_answers_keep_to_the_ranges_that_are_declared(self) -> None:
        """Every entry is finite and lies within `spec`."""
        for (clients, _), question in self.drawn():
            for flat in _answers(question, as_clients(clients)):
                assert np.isfinite(flat).all() and question.spec.clip(flat)[1] == 0

    def test_asking_again_gives_the_same_answer(self) -> None:
        """What a client keeps between sums changes no answer."""
        for (clients, _), question in self.drawn():
            data = as_clients(clients)
            np.testing.assert_array_equal(_answers(question, data), _answers(question, data))

    def test_the_encoding_round_trips(self) -> None:
        """question_from_bytes(q.to_bytes()) asks what q asks."""
        for (clients, _), question in self.drawn():
            again = question_from_bytes(question.to_bytes())
            assert type(again) is type(question) and again.to_bytes() == question.to_bytes()
            one, other = (_answers(asked, as_clients(clients)) for asked in (question, again))
            np.testing.assert_array_equal(one, other)

    def test_damaged_bytes_are_an_error(self) -> None:
        """A client meets nothing but refusals, whatever a coordinator sends."""
        encoded = self.make(_UNIT, np.zeros((2, 2))).to_bytes()
        cuts = [encoded[:length] for length in range(0, len(encoded), 7)]
        for damaged in (*cuts, encoded + b"\x00", b"\xc0" + encoded):
            with pytest.raises(MessageError):
                question_from_bytes(damaged)

    def test_any_other_field_is_an_error_or_can_be_answered(self) -> None:
        """Parameters that a server may choose end in an answer or in one of privfed's errors."""
        encoded = self.make(_UNIT, np.full((2, 2), 0.5)).to_bytes()
        rows = ClientData(np.array([[0.1, 0.2], [0.3, 0.4], [0.9, 0.5]]))
        names = [
            (kind, name) for kind in ("options", "arrays") for name in msgspec.msgpack.decode(encoded)[kind]
        ]
        for kind, name in names:
            for odd in _ODD:
                plain = msgspec.msgpack.decode(encoded)
                plain[kind][name] = odd
                try:
                    changed = question_from_bytes(msgspec.msgpack.encode(plain))
                    _answers(changed, [rows.within(changed.ranges)[0]])
                except PrivFedError:
                    pass

    def test_what_is_declared_is_true(self) -> None:
        """Declared counts are counts of rows: a row adds at most 1 to all of an entry's together."""
        for (clients, _), question in self.drawn():
            declared = question.declaration
            for data in as_clients(clients):
                answer = question.answer(data, np.random.default_rng(0))
                for one in declared.row_counts if declared is not None else ():
                    assert (answer[one] >= 0).all() and answer[one].sum() <= data.n_rows * (1.0 + 1e-9)

    def test_no_total_of_honest_clients_is_impossible(self) -> None:
        """Totals stay within what the specification says of them, on the coarsest grid that it takes, too."""
        for (clients, _), question in self.drawn():
            vectors = _answers(question, as_clients(clients))
            steps = question.spec.resolution
            for whole in (vectors.sum(axis=0), (np.rint(vectors / steps) * steps).sum(axis=0)):
                assert impossible(question, question.spec.unflatten(whole), len(vectors)) is None

    def test_splitting_a_client_changes_no_total_where_rows_add_up(self) -> None:
        """Additive over records: answer(a + b) == answer(a) + answer(b)."""
        for (clients, _), question in self.drawn():
            if question.additive_over is not AdditiveOver.RECORDS:
                continue
            (whole,), parts = _split(np.concatenate(clients))
            one, two = (np.sum(_answers(question, data), axis=0) for data in ([whole], parts))
            # What a bounded record adds depends on nothing beside it, and multiples of a step add exactly.
            least = 0.0 if isinstance(question, RecordBounded) else 1e-9
            assert (np.abs(two - one) <= least * np.abs(one).max()).all()

    def test_the_bounded_form_has_the_same_statistics_or_the_error_names_the_alternative(self) -> None:
        """`bounded()` is for differential privacy; where there is none, the error says what to ask."""
        for _, question in self.drawn():
            try:
                bounded = question.bounded()
            except PrivacyError as error:
                assert question.alternative in str(error)
                continue
            assert isinstance(bounded, RecordBounded)
            names = {entry.name for entry in question.spec.entries}
            assert {entry.name for entry in bounded.spec.entries} == set(bounded.bounds) == names


class BoundedQuestionContract(QuestionContract):
    """Properties of every `privfed.privacy.bounds.RecordBounded`, besides those of a question. Write `make`.

    One record moves each entry by at most its bound, on the entry's grid. Another one in its place moves by
    no more than the bound's `stay` or `move` say. All others add what they added before. Rows are drawn where
    bounds are reached: at the ranges' corners and at the centers.
    """

    def test_answers_lie_on_the_grid(self) -> None:
        """Every entry is a multiple of its resolution, which no sum of clients rounds."""
        for (clients, _), question in self.drawn():
            steps = question.spec.resolution
            for flat in _answers(question, as_clients(clients)):
                np.testing.assert_array_equal(flat, steps * np.rint(flat / steps))

    def test_one_record_moves_no_entry_beyond_its_bound(self) -> None:
        """`|answer(rows + record) - answer(rows)|_2 <= bound`, exactly what the record answers alone."""
        for question, rest, one, _ in self._neighbours():
            alone, without, added = (_only(question, rows) for rows in (one, rest, [*one, *rest]))
            for name, bound in question.bounds.items():
                np.testing.assert_array_equal(added[name], without[name] + alone[name])
                assert np.linalg.norm(alone[name]) <= bound.l2 * (1.0 + 1e-12), name

    def test_one_record_in_place_of_another_moves_no_more_than_is_said(self) -> None:
        """The squared changes, in units of l2^2, together stay below those of `stay` or of `move`."""
        for question, rest, one, other in self._neighbours():
            before, after = (_only(question, [*own, *rest]) for own in (one, other))
            bounds = question.bounds
            moved = sum(
                float(np.linalg.norm((before[name] - after[name]) / bound.l2)) ** 2
                for name, bound in bounds.items()
            )
            ends = [sum(getattr(bound, end) for bound in bounds.values()) for end in ("stay", "move")]
            assert moved <= max(ends) * (1.0 + 1e-9)

    def _neighbours(self) -> list[tuple[RecordBounded, FloatArray, FloatArray, FloatArray]]:
        """Return questions with rows, one further row, and another one in its place."""
        found = []
        for turn, (cohort, question) in enumerate(self.drawn()):
            assert isinstance(question, RecordBounded)
            rng, ranges = np.random.default_rng(turn), question.ranges
            corners = np.where(rng.random((4, ranges.n_features)) < 0.5, ranges.low, ranges.high)
            near = ranges.clip(cohort.centers[rng.integers(len(cohort.centers), size=4)])
            rows = np.concatenate([*cohort.clients, corners, near])
            chosen = rows[rng.permutation(len(rows))]
            found += [(question, chosen[2:], chosen[:1], chosen[1:2])]
            found += [(question, chosen[2:], corners[:1], ranges.clip(-corners[:1]))]
        return found


_UNIT = Ranges(np.zeros(2), np.ones(2), 4)
_ODD = [
    *(None, "x", True, -1, 0, 1, 2.5, 1e308, float("nan"), 2**40, 2**63),
    {"shape": [1], "data": b"\x00" * 8},
    {"shape": [2, 2], "data": np.full(4, np.nan).tobytes()},
    {"shape": [2, 2], "data": b""},
    {"shape": [-1], "data": b""},
    {"shape": [0, 2], "data": b""},
]
"""Values that no field expects."""


def _answers(question: Question, clients: Sequence[ClientData]) -> FloatArray:
    """Return the clients' answers, float64 of shape (n_clients, size)."""
    answers = question.answer_all(clients, generators(len(clients)))
    return np.array([question.spec.flatten(answer) for answer in answers])


def _only(question: Question, rows: FloatArray | list[FloatArray]) -> dict[str, FloatArray]:
    """Return one client's answer, by entry."""
    data = ClientData(np.array(rows), np.arange(len(rows)) % 1)
    answer = question.answer(data, np.random.default_rng(0))
    assert not data.errors, f"rows counted as zero: {data.errors[0]}"
    return {name: answer[name] for name in answer}


def _split(rows: FloatArray) -> tuple[list[ClientData], list[ClientData]]:
    """Return all rows as one client, and as two."""
    (whole,) = as_clients([rows])
    assert whole.labels is not None
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    cut = max(1, len(rows) // 3)
    parts = [ClientData(rows[own], whole.labels[own]) for own in (order[:cut], order[cut:]) if len(own)]
    return [whole], parts


N_LABELS = 3


class Cohort(NamedTuple):
    """Rows of each client, and centers.

    Attributes:
        clients: float64 of shape (n_rows of the client, n_features) each.
        centers: float64 of shape (n_clusters, n_features).
    """

    clients: list[FloatArray]
    centers: FloatArray

    @property
    def ranges(self) -> Ranges:
        """The narrowest ranges that hold all rows."""
        rows = np.concatenate(self.clients)
        return Ranges(rows.min(axis=0), rows.max(axis=0), max(map(len, self.clients)))


def cohorts(number: int, seed: int = 0) -> Iterator[Cohort]:
    """Yield cohorts, in turns of few columns with many ties and of many columns without."""
    for turn in range(number):
        rng = np.random.default_rng((seed, turn))
        yield _many_columns(rng) if turn % 2 else _few_columns(rng)


def _few_columns(rng: np.random.Generator) -> Cohort:
    n_features, scale = int(rng.integers(1, 4)), rng.choice([1.0, 1e-9, 1e9])
    clients = []
    for size in rng.integers(1, 7, size=rng.integers(1, 5)):
        values = rng.uniform(-1.0, 1.0, (size, n_features)).astype(np.float32).astype(np.float64)
        ties = rng.choice([-1.0, 0.0, 0.1, 1.0], (size, n_features))
        clients.append(scale * np.where(rng.random((size, n_features)) < 0.5, ties, values))
    if rng.random() < 0.5:
        for rows in clients:
            rows[:, 0] = 0.7 * scale
    return Cohort(clients, scale * rng.uniform(-3.0, 3.0, (rng.integers(1, 5), n_features)))


def _many_columns(rng: np.random.Generator) -> Cohort:
    offset = np.zeros(11)
    offset[0] = rng.choice([0.0, 1e3, 1.7e9])
    clients = [offset + rng.normal(size=(size, 11)) for size in rng.integers(1, 31, size=rng.integers(1, 5))]
    return Cohort(clients, offset + 2.0 * rng.normal(size=(rng.integers(1, 5), 11)))


def as_clients(clients: Sequence[FloatArray]) -> list[ClientData]:
    """Return the clients' data, with labels."""
    return [ClientData(rows, np.arange(len(rows)) % N_LABELS) for rows in clients]


def generators(number: int) -> list[np.random.Generator]:
    """Return as many generators, each its own; noise of questions is drawn from them, too."""
    return [SeededGenerator(np.random.default_rng(i).bit_generator) for i in range(number)]
