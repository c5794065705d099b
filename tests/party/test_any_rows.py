"""Whether a client answers, and how it refuses, depends on questions and settings, not on rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box
from privfed.core.asking.declaration import Remembered
from privfed.core.asking.question import ClientData, Question, question_from_bytes
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, Client
from privfed.core.stored.encoding import Array, Codec
from privfed.core.values.domain import Ranges
from privfed.core.values.numbers import Integer
from privfed.deep.algorithms.averaging import Averaging
from privfed.deep.training.local import Training
from privfed.deep.training.rounds import Round
from privfed.errors import MessageError, PolicyError
from privfed.federation.opening import open_over
from privfed.party.answerer import own_answerer
from privfed.party.state import MemoryStore
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import LloydSums
from tests.core.question_examples import EXAMPLES
from tests.nodes.elsewhere import Elsewhere
from tests.raised import forbidden_by

RANGES = Ranges([-1.0, 0.0], [1.0, 2.0], 8)
CENTERS = np.array([[0.0, 1.0], [0.5, 0.2]])
USUAL = ClientData(np.array([[0.1, 0.2], [0.5, 1.5], [-0.3, 0.7]]), np.array([0, 1, 2]))
VALUES = st.sampled_from([0.0, -0.0, 0.5, -1.0, 1.0, 2.0, 1e308, -1e308, 5e-324, 1e30])
LABELS = st.sampled_from([0, 1, 2, 3, -1, 7, 10**9, -(2**63)])


class Noted(list[BaseException]):
    """A client's log: the errors of its code."""

    def note(self, error: BaseException) -> None:
        self.append(error)


@st.composite
def tables(draw: st.DrawFn) -> ClientData:
    """Tables as they are once read: finite, of any number of rows, with any labels."""
    n = draw(st.sampled_from([0, 1, 1, 2, 9]))
    rows = np.array(draw(st.lists(st.tuples(VALUES, VALUES), min_size=n, max_size=n)))
    labels = draw(st.lists(LABELS, min_size=n, max_size=n))
    return ClientData(rows.reshape(n, 2), np.array(labels, dtype=np.int64))


def outcome(question: Question, data: ClientData, log: Noted | None = None) -> str:
    """Return the code of a client's refusal, empty where it answers."""
    kept = Noted() if log is None else log
    own = own_answerer("0", replace(data, cache={}, memory={}), 0, kept)
    found: list[Statistics] = []

    def answerer(asked: Question, index: int) -> tuple[Statistics, int]:
        statistics, clipped = own(asked, index)
        found.append(statistics)
        return statistics, clipped

    client = Client(Asking(question), MemoryStore(), answerer, kept)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        code = client.handle(b"").decode()
        assert code or np.isfinite(question.spec.flatten(found[-1])).all()
    return code


@dataclass(frozen=True)
class Asking:
    """The side of a sum that asks one question, and replies with the code of a refusal."""

    question: Question
    codec: Any = None

    def initial(self) -> int:
        return 0

    def step(self, state: Any, request: bytes, answerer: Answerer) -> tuple[Any, bytes]:
        try:
            answerer(self.question, 0)
        except PolicyError as error:
            return state, str(error).encode()
        return state, b""


@pytest.mark.parametrize("name", EXAMPLES)
@given(data=tables())
@pytest.mark.few(25)
def test_every_question_is_answered_whatever_the_rows_are(name: str, data: ClientData) -> None:
    log = Noted()
    assert (outcome(EXAMPLES[name](RANGES, CENTERS), data, log), log) == ("", [])


ODD = [*(None, "x", -1, 0, 1, 2.5, 1e308, -1e308, 5e-324, 64), True]


@pytest.mark.parametrize("name", EXAMPLES)
@given(data=tables(), drawn=st.data())
@pytest.mark.few(25)
def test_whatever_a_coordinator_writes_into_a_question_is_refused_for_all_rows_or_none(
    name: str, data: ClientData, drawn: st.DataObject
) -> None:
    plain = msgspec.msgpack.decode(EXAMPLES[name](RANGES, CENTERS).to_bytes())
    kind = drawn.draw(st.sampled_from([one for one in ("options", "arrays") if plain[one]]))
    # How much noise there is, is compared with what is paid before anything is drawn.
    field = drawn.draw(st.sampled_from(sorted({*plain[kind]} - {"sigma"})))
    if kind == "options":
        plain[kind][field] = drawn.draw(st.sampled_from(ODD))
    else:
        array = Array(tuple(plain[kind][field]["shape"]), plain[kind][field]["data"]).to_numpy()
        other = np.full(array.shape, drawn.draw(st.sampled_from([0.0, 1e300, -1e300, 1e-300, 0.5])))
        plain[kind][field] = msgspec.to_builtins(Array.from_numpy(other), builtin_types=(bytes,))
    try:
        question = question_from_bytes(msgspec.msgpack.encode(plain))
    except MessageError:
        return
    assert outcome(question, data) == outcome(question, USUAL)


@pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if isinstance(EXAMPLES[name](RANGES, CENTERS), Round)]
)
def test_labels_that_are_not_declared_are_refused_whatever_the_rows_are(name: str) -> None:
    question = EXAMPLES[name](RANGES, CENTERS)
    for n in (0, 1, 5):
        without = ClientData(np.zeros((n, 2)))
        assert outcome(question, without) == "agreement:labels"
        labelled = ClientData(np.zeros((n, 2)), np.full(n, 7), classes=2)
        assert outcome(question, labelled) == "agreement:labels"
        assert outcome(question, replace(labelled, classes=3)) == ""


class Odd(LloydSums):
    """Fails on tables of one row, in one of several ways."""

    how: ClassVar[str]

    def answer_all(self, clients: Any, generators: Any) -> Any:
        answers = super().answer_all(clients, generators)
        if not any(one.n_rows == 1 for one in clients):
            return answers
        if self.how == "raises":
            raise ArithmeticError
        if self.how == "refuses":
            raise PolicyError("policy:rows")
        return [self.spec.unflatten(np.full(self.spec.size, np.nan)) for _ in clients]


@pytest.mark.parametrize("how", ["raises", "not finite", "refuses"])
def test_code_that_fails_on_some_rows_is_answered_as_by_a_client_without_rows(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "how", how, raising=False)
    question, log = Odd(ranges=RANGES, centers=CENTERS), Noted()
    assert (outcome(question, ClientData(np.zeros((1, 2))), log), outcome(question, USUAL)) == ("", "")
    assert len(log) == 1


def test_code_that_refuses_whatever_the_rows_are_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(question: Any, clients: Any, generators: Any) -> Any:
        raise PolicyError("policy:never")

    monkeypatch.setattr(Odd, "answer_all", refuses)
    monkeypatch.setattr(Odd, "asks_all_clients", True)
    question = Odd(ranges=RANGES, centers=CENTERS)
    for n in (0, 1, 3):
        assert outcome(question, ClientData(np.zeros((n, 2)))) == "policy:never"


NUMBERS = Codec(Annotated[list[Integer], msgspec.Meta(max_length=8)], "numbers", 1)
ONCE: Remembered[list[int]] = Remembered("tests.once", list, NUMBERS)


class Once(LloydSums):
    """Is answered once in a fit, as a training that is paid for; fails on tables of one row."""

    remembers: ClassVar[Remembered[Any]] = ONCE
    asks_all_clients = True

    def answer_all(self, clients: Any, generators: Any) -> Any:
        for own in clients:
            if ONCE.of(own.memory):
                raise PolicyError("policy:budget")
            ONCE.of(own.memory).append(1)
            if own.n_rows == 1:
                raise ArithmeticError
        return super().answer_all(clients, generators)


def test_what_failed_on_some_rows_is_not_remembered_where_it_would_be_a_refusal() -> None:
    question = Once(ranges=RANGES, centers=CENTERS)
    for n in (0, 1, 3):
        own = own_answerer("0", ClientData(np.zeros((n, 2))), 0, Noted())
        own(question, 0)
        with forbidden_by("policy:budget"):
            own(question, 1)


@pytest.mark.parametrize("n", [0, 3])
def test_where_no_noise_can_be_drawn_there_is_no_answer(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(question: Any, clients: Any, generators: Any) -> Any:
        raise ArithmeticError

    monkeypatch.setattr(Noised, "answer_all", fails)
    inner = LloydSums(ranges=RANGES, centers=CENTERS)
    noised = Noised(ranges=RANGES, inner=inner, sigma=np.full(2, 1e3), limits=np.zeros(0))
    with forbidden_by("error"):
        own_answerer("0", ClientData(np.zeros((n, 2))), 0, Noted())(noised, 0)


@pytest.mark.parametrize("timed", [False, True])
def test_refusals_tell_nothing_of_labels_or_times(timed: bool, tmp_path: Path) -> None:
    """Wards 2, 4 and 5 hold one row each that others have not: beyond the classes, or in other rounds."""
    rng, n = np.random.default_rng(0), 7
    tables, classes = [], []
    for ward in range(n):
        rows, labels = rng.normal(size=(30, 4)), np.zeros(30, dtype=np.int64)
        rows[:, 2] = rng.integers(0, 8, 30)
        rows[:, 3] = rows[:, 2] + 0.5
        labels[7] = {2: 2, 5: 2, 4: 3}.get(ward, 0)
        tables.append(rows)
        classes.append(labels)
    training = Training(model="softmax", batch_size=None, learning_rate=1e-3, timed=timed, rounds=3)
    algorithm = Averaging(training=training)
    engine = Elsewhere(tmp_path, tables, labels=classes)
    words: dict[str, Any] = {"engine": engine, "protocol": "masked-verified", "algorithm": algorithm}
    words["domain"] = Box(-5.0, 100.0, max_rows=64)
    if timed:
        with forbidden_by("agreement:times"):
            open_over(None, **words)
        return
    federation = open_over(None, **words)
    federation.run(algorithm)
    totals = federation.transcript.totals()
    assert totals and {total.contributors for _, total in totals} == {tuple(range(n))}
