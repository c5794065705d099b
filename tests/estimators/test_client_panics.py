"""Whatever a question's code raises at a client becomes its coded refusal, also what is no `Exception`."""

from typing import Any

import numpy as np
import pytest

from privfed import Box, DWFKMeans, Privacy
from privfed.core.asking.question import Question
from privfed.errors import PolicyError, RefusedError
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.lloyd import LloydSums

ROWS = [np.random.default_rng(seed).uniform(-1, 1, (20, 2)) for seed in range(4)]
START = np.array([[-0.5, 0.0], [0.5, 0.0]])


class PanicException(BaseException):
    """As compiled code raises it (polars, and whatever is written in Rust)."""


def raising(monkeypatch: pytest.MonkeyPatch, kind: type[Question], error: BaseException) -> None:
    def answer_all(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(kind, "answer_all", answer_all)


def fit(protocol: str, **words: Any) -> DWFKMeans:
    return DWFKMeans(2, local_iter=1, init=START, max_iter=2, tol=0, protocol=protocol, **words).fit(ROWS)


@pytest.mark.parametrize("protocol", ["plain", "masked", "group-masked"])
@pytest.mark.parametrize(
    "error",
    [PanicException("row 3"), SystemExit(1), StopIteration(), GeneratorExit(), PolicyError("policy:rows")],
    ids=lambda one: type(one).__name__,
)
def test_no_error_escapes_from_a_client(
    error: BaseException, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, LloydSums, error)
    with pytest.raises(RefusedError, match=r"0: error, 1: error, 2: error, 3: error") as found:
        fit(protocol)
    assert "row" not in str(found.value)


def test_under_privacy_a_panic_is_answered_by_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, RelativeSums, PanicException("row 3"))
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(-1, 1, max_rows=99), neighbours="add-remove"
    )
    assert fit("masked", privacy=privacy).n_iter_ == 2


def test_an_interrupt_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, LloydSums, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fit("plain")
