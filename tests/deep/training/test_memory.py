"""What clients remember between questions: as it is stored, and who remembers what."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box
from privfed.core.asking.question import ClientData, memories_of
from privfed.core.values.domain import Ranges
from privfed.deep import DCFL
from privfed.deep.training.memory import TRAINED, Memory, memory_of
from privfed.errors import ArgumentError, FormatError
from privfed.protocols import Masked, Slotted
from tests.deep.population import clients

CODEC = TRAINED.codec
NUMBERS = st.integers(-1, 2**40)
ARRAYS = st.lists(st.floats(allow_nan=False, width=64), max_size=5).map(np.array)
MEMORIES = st.builds(
    Memory,
    **dict.fromkeys(("structure", "label", "round", "origin", "trainings"), NUMBERS),
    **dict.fromkeys(("update", "mean", "shown"), st.none() | ARRAYS),
    sketch=st.none() | st.tuples(NUMBERS, NUMBERS, ARRAYS),
    mass=st.floats(0.0, 1e6),
    labels=st.dictionaries(NUMBERS, NUMBERS, max_size=4),
)


def parts(memory: Memory) -> list[Any]:
    values = [getattr(memory, one.name) for one in fields(memory)]
    flat = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in flat]


@given(MEMORIES)
def test_a_memory_is_read_back_to_the_last_bit(memory: Memory) -> None:
    assert parts(CODEC.from_bytes(CODEC.to_bytes(memory))) == parts(memory)


def test_what_is_no_memory_is_an_error_that_quotes_nothing() -> None:
    stored = CODEC.to_bytes(Memory(update=np.array([1.5])))
    with pytest.raises(ArgumentError, match="these bytes are no memory of a client that trains"):
        CODEC.from_bytes(stored[:-1])
    with pytest.raises(FormatError, match="of format 3 is not read"):
        CODEC.from_bytes(stored.replace(b"trains\x04", b"trains\x03"))


def test_clipped_rows_share_their_clients_memory() -> None:
    client = ClientData(np.array([[0.5], [2.0]]))
    clipped, moved = client.within(Ranges([0.0], [1.0], 2))
    memory_of(clipped).label = 3
    assert moved == 1 and memory_of(client).label == 3
    assert memory_of(client.inside(Box(0.0, 1.0))).label == 3


def test_a_client_that_is_not_asked_remembers_nothing_of_a_round() -> None:
    """Also where it has a part in the sum, as it prepares for the next one."""
    X, y = clients(6)
    cohorts = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]
    words: dict[str, Any] = {"n_classes": 3, "rounds": 3, "domain": Box(0, 1), "cohorts": cohorts}
    # Slots are named, as public lists of who took part say whose a linked sketch is.
    fitted = DCFL(**words, sketch_error=0.9, protocol=Slotted(Masked(), sums=3)).fit(X, y)
    known = fitted.labels_history_ >= 0
    assert [np.flatnonzero(row).tolist() for row in known] == cohorts
    questions = [one.question for one in fitted.transcript_.view("server").sums]
    assert all(memories_of(one) == {TRAINED.name: TRAINED} for one in questions)
