"""Simulated clients that differ in their rows and states alone, and so can answer in one pass.

What is checked once here is what each of them would check, in the same order. Where one would refuse, or
fail, nothing is changed, and each is asked by itself (`privfed.core.roles.engine.Client`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ERRORS, Question
from privfed.core.asking.statistics import StatisticsTable
from privfed.core.roles.engine import ClientSide, Replies, StateStore, StepsTogether
from privfed.errors import ArgumentError, PolicyError
from privfed.party.client import Stores
from privfed.party.program import Program
from privfed.party.readings import Followed
from privfed.party.state import MemoryStore

Together = Callable[[Question, int, tuple[int, ...]], "tuple[StatisticsTable, list[int]] | None"]
"""Answers a question, as a sum with an index, for the clients at some positions (`Pool.together`)."""


class Crowd:
    """Clients without guard, ledger and journal, of one program and policy, in one process and thread.

    Args:
        side: of one of them; the others' differ in nothing.
        stores: where they keep their states, and where they stand in the program, by position; in memory.
        program: what was agreed; None where nothing was.
        together: answers for several of them.
    """

    def __init__(
        self, side: StepsTogether, stores: Sequence[Stores], program: Program | None, together: Together
    ) -> None:
        self._side, self._program, self._together = side, program, together
        self._states = [_memory(one.state) for one in stores]
        self._followed = [_memory(one.followed) for one in stores]

    @classmethod
    def of(
        cls,
        sides: Mapping[int, ClientSide],
        stores: Sequence[Stores],
        program: Program | None,
        together: Together,
        configuration: Configuration,
        policy: ClientPolicy,
    ) -> Crowd | None:
        """Return clients as a crowd; None where each must look at every question by itself."""
        side = sides[0]
        if policy.guards or configuration.privacy is not None or not isinstance(side, StepsTogether):
            return None
        return cls(side, stores, program, together)

    def replies(self, requests: Mapping[int, bytes]) -> Replies | None:
        """Return the replies to one request that all of some clients get; None where each is to be asked."""
        members = tuple(requests)
        if not members or len(set(map(id, requests.values()))) > 1:
            return None
        stores = [self._states[i] for i in members]
        first = self._side.initial()
        states = [first if (state := store.load()) is None else state for store in stores]
        after: list[Followed] = []

        def answerer(question: Question, index: int) -> tuple[StatisticsTable, list[int]] | None:
            if self._program is not None:
                try:
                    after.extend(self._read(self._program, members, question, index))
                except PolicyError:
                    return None
            return self._together(question, index, members)

        try:
            done = self._side.steps(states, requests[members[0]], answerer)
        except KeyboardInterrupt:
            raise
        except ERRORS:
            # No error reaches the coordinator: each client makes a refusal of its own.
            return None
        if done is None:
            return None
        for i, followed in zip(members, after, strict=False):
            self._followed[i].save(followed)
        for store in stores:
            store.save(done[0])
        return list(zip(members, done[1], strict=True))

    def _read(
        self, program: Program, members: tuple[int, ...], question: Question, index: int
    ) -> list[Followed]:
        """Return where each client stands after a question; most stand where others do."""
        before: list[Followed | None] = [self._followed[i].load() for i in members]
        distinct = {id(one): one for one in before}
        found = {key: program.after(one or Followed(), question, index) for key, one in distinct.items()}
        return [found[id(one)] for one in before]


def _memory(store: StateStore) -> MemoryStore:
    if not isinstance(store, MemoryStore):
        raise ArgumentError("clients that answer in one pass keep their states in memory.")
    return store
