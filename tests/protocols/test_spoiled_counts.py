"""A client that counts itself twice: no sum comes out, and the error says what can be known of who did it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Summed
from privfed.core.roles.engine import Answerer
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.stored.encoding import Array, decode, encode
from privfed.errors import IntegrityError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain, Slotted
from privfed.protocols.ckks.grid import SlotGrid
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.plain import PlainAnswer
from tests.protocols.federations import Sums, vectors

N, SPOILER = 6, 3


class Spoiled(Sums):
    """A federation in which one client's next answer is to be counted twice."""

    spoils = False

    def answerer(self, client: int) -> Answerer:
        """Return the answerer of one client."""
        plain = super().answerer(client)

        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            self.spoils = client == SPOILER
            return plain(question, index)

        return answer


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[SecureSum], Spoiled]:
    """Return a function that opens one honest sum of a federation, whose next ones are spoiled."""

    def begun(protocol: SecureSum) -> Spoiled:
        run = Spoiled(protocol, N)
        run.ask(vectors())
        masked, encrypted = Grid.encode, SlotGrid.encode

        def counted(grid: Grid, *answer: Any) -> Any:
            words = masked(grid, *answer)
            words[grid.n_narrow - 1] += run.spoils
            return words

        def written(grid: SlotGrid, vector: Any, clipped: int, place: int) -> Any:
            slots = encrypted(grid, vector, clipped, place)
            # Into another's slot: the one that is off need not be the liar's.
            slots[grid.entries + 1 + (place + 1) % N] += run.spoils
            return slots

        monkeypatch.setattr(Grid, "encode", counted)
        monkeypatch.setattr(SlotGrid, "encode", written)
        return run

    return begun


SAID = {
    "masked": (Masked, r"of 6 clients counts 7.*do not show which client"),
    "slotted": (lambda: Slotted(Masked()), r"of 6 clients counts 7.*do not show which client"),
    "group-masked": (
        GroupMasked,
        r"counts 7, though its check words are right: a client.*do not show which",
    ),
    "ckks": (CKKS, r"though its check words are right. A client.*cannot be told"),
}


@pytest.mark.parametrize(("make", "said"), SAID.values(), ids=SAID.keys())
def test_a_spoiled_count_names_nobody_where_nobody_can_be_known(
    make: Callable[[], SecureSum], said: str, spoiled: Callable[[SecureSum], Spoiled]
) -> None:
    run = spoiled(make())
    with pytest.raises(IntegrityError, match=said) as caught:
        run.ask(vectors())
    assert not any(name in str(caught.value) for name in run.configuration.clients)
    assert len(run.transcript.of(Summed)) == 1


def test_over_plain_sums_an_answer_out_of_range_is_thrown_away_by_name() -> None:
    # There is no count: the server sees who answered, and what.
    run = Sums(Plain(), N)

    def lies(data: bytes) -> bytes:
        answer: PlainAnswer = decode(data, PlainAnswer, sender="", stage="")
        return encode(msgspec.structs.replace(answer, vector=Array.from_numpy(np.full(3, 99.0))))

    run.engine.change_replies = lambda exchange, replies: [
        (i, lies(one) if i == SPOILER else one) for i, one in replies
    ]
    total = run.ask(vectors())
    run.assert_exact(total, vectors())
    assert total.rejected == {SPOILER: "statistics that no honest client gives"}
    assert SPOILER not in total.contributors
