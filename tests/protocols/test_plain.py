"""Plain sums: each client answers a sum once, and the server takes no answer out of range."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.stored.encoding import Array, Refusal, decode, encode
from privfed.core.values.domain import Ranges
from privfed.protocols.answering import answer
from privfed.protocols.plain import PlainAnswer, PlainClient, PlainRequest, PlainSession
from privfed.questions.lloyd import LloydSums

CONFIGURATION = Configuration(
    protocol="plain", algorithm="", clients=("a", "b", "c"), n_features=1, terms=Terms(max_sums=3)
)
QUESTION = LloydSums(ranges=Ranges([0.0], [1.0], 4), centers=np.array([[0.0], [1.0]]))
DATA = ClientData(np.array([[0.0], [0.25], [1.0]]))


def answerer(question: Question, index: int) -> tuple[Statistics, int]:
    return question.answer(DATA, np.random.default_rng(0)), 0


def request(number: int = 1, question: bytes | None = None) -> bytes:
    return encode(PlainRequest(number, 0, QUESTION.to_bytes() if question is None else question))


def step(
    state: int, data: bytes, policy: ClientPolicy | None = None, answer: Any = answerer
) -> tuple[int, Any]:
    client = PlainClient(CONFIGURATION, policy or ClientPolicy())
    state, reply = client.step(state, data, answer)
    return state, decode(reply, PlainAnswer | Refusal, sender="client", stage="collect")


# --- the client ---


def test_client_answers_with_its_statistics() -> None:
    state, reply = step(0, request(1))
    assert state == 1
    assert (reply.number, reply.clipped) == (1, 0)
    np.testing.assert_array_equal(np.frombuffer(reply.vector.data), [2.0, 1.0, 0.25, 1.0])


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_client_answers_no_sum_twice(number: int) -> None:
    assert step(2, request(number)) == (2, Refusal("message"))
    assert step(2, request(3))[0] == 3


def test_client_answers_no_more_sums_than_were_agreed_on() -> None:
    assert step(0, request(4)) == (0, Refusal("message"))


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", request()[:-3], request() + b"\x00", encode(Refusal("error"))]
)
def test_client_refuses_malformed_requests_without_a_word(data: bytes) -> None:
    assert step(0, data) == (0, Refusal("message"))


def test_client_refuses_malformed_questions() -> None:
    assert step(0, request(question=QUESTION.to_bytes()[:-1])) == (0, Refusal("message"))


def test_client_refuses_by_its_policy() -> None:
    assert step(0, request(), ClientPolicy(questions=frozenset({"Inertia"}))) == (
        0,
        Refusal("policy:question"),
    )
    assert step(0, request(), ClientPolicy(min_clients=4)) == (0, Refusal("policy:min_clients"))


def test_client_refuses_questions_of_other_columns() -> None:
    wider = LloydSums(ranges=Ranges([0.0, 0.0], [1.0, 1.0], 4), centers=np.zeros((1, 2)))
    assert step(0, request(question=wider.to_bytes())) == (0, Refusal("policy:ranges"))


def test_client_clips_its_answer_into_the_ranges_and_counts_it() -> None:
    def outside(question: Question, index: int) -> tuple[Statistics, int]:
        return Statistics(count=[9.0, 1.0], sum=[[-1.0], [0.5]]), 5

    _, reply = step(0, request(), answer=outside)
    np.testing.assert_allclose(np.frombuffer(reply.vector.data), [4.0, 1.0, 0.0, 0.5])
    assert reply.clipped == 7


# --- the server ---


def told(reply: bytes) -> Any:
    """Return the total where client 1 replies like this, and the others as they should."""
    steps = PlainSession(CONFIGURATION).sum(QUESTION, 0, 0, (0,))
    exchange = next(steps)
    good = step(0, exchange.requests[0])[1]
    replies = [(0, encode(good)), (1, reply), (2, encode(good))]
    with pytest.raises(StopIteration) as finished:
        steps.send(replies)
    return finished.value.value


def answer_of(*values: float, number: int = 1, clipped: int = 0) -> bytes:
    return encode(PlainAnswer(number, Array.from_numpy(np.array(values)), clipped))


def test_what_is_no_number_is_answered_as_zero_and_counted_as_clipped() -> None:
    given = Statistics(count=np.array([9.0, np.nan]), sum=np.array([[np.nan], [1.0]]))
    found = answer(QUESTION, 0, lambda question, index: (given, 2))
    assert found.vector.tolist() == [4.0, 0.0, 0.0, 1.0] and found.clipped == 2 + 1 + 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(
            lambda: answer_of(5.0, 0.0, 0.0, 0.0),
            "statistics that no honest client gives",
            id="high",
        ),
        pytest.param(
            lambda: answer_of(0.0, 0.0, 0.0, -0.5),
            "statistics that no honest client gives",
            id="low",
        ),
        pytest.param(
            lambda: answer_of(0.0, np.nan, 0.0, 0.0),
            "statistics that no honest client gives",
            id="nan",
        ),
        pytest.param(lambda: answer_of(0.0, 0.0, 0.0), "statistics of another layout", id="short"),
        pytest.param(lambda: answer_of(0, 0, 0, 0, number=2), "answers sum 2, asked was 1", id="other-sum"),
        pytest.param(
            lambda: answer_of(0, 0, 0, 0, clipped=-1),
            "not a well-formed PlainAnswer or Refusal",
            id="clipped",
        ),
        pytest.param(
            lambda: encode(PlainAnswer(1, Array((4,), b"\x00" * 31), 0)),
            "statistics of another layout",
            id="array",
        ),
        pytest.param(lambda: b"garbage", "not a well-formed PlainAnswer or Refusal", id="garbage"),
    ],
)
def test_reply_that_cannot_be_an_answer_is_left_out(reply: Callable[[], bytes], reason: str) -> None:
    total = told(reply())
    assert total.contributors == (0, 2)
    assert total.rejected == {1: reason}
    np.testing.assert_array_equal(total.statistics["count"], [4.0, 2.0])


def test_answers_at_the_border_of_the_ranges_are_taken() -> None:
    total = told(answer_of(0.0, 4.0, 0.0, 4.0))
    assert total.contributors == (0, 1, 2) and total.rejected == {}
    np.testing.assert_array_equal(total.statistics["count"], [4.0, 6.0])


def test_a_sum_of_rows_that_are_not_counted_is_left_out() -> None:
    total = told(answer_of(4.0, 0.0, 0.0, 4.0))
    assert total.rejected == {1: "statistics that no honest client gives"}


def test_total_counts_what_was_clipped() -> None:
    assert told(answer_of(0.0, 0.0, 0.0, 0.0, clipped=3)).clipped == 3
