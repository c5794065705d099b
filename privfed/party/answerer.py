"""Answers from a client's own rows: what a client needs to answer, and nothing of any other client.

A simulation answers for all its clients in one pass instead (`privfed.engines.in_process.Pool`), with the
functions below; each client's answer is the same to the last bit.

At unit "user" a client answers from at most so many rows of each user, by a keyed choice (`of_users`). Which
rows of a user count follows from that user's rows and the client's own key alone: a keyed hash of id and row
puts them in order, and the first ones are kept. So a user's presence changes no choice among the rows of
others, and nobody without the key can write rows that are sure to be kept. Rows without an id belong to no
user, and are left out.

Reveals: nothing; it happens before any question is answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import deepcopy

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import Configuration, PrivacyTerms
from privfed.core.asking.data import all_within
from privfed.core.asking.question import ERRORS, ClientData, Question, memories_of, parts_of
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, ErrorLog, PythonLog, client_generator, note
from privfed.core.values.computed import Computed
from privfed.core.values.guarantee import Unit
from privfed.errors import FAILED, ArgumentError, DataError, PolicyError
from privfed.party.groups import as_ids
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import SeededGenerator

Answer = tuple[Statistics, int]
"""Statistics, and how many rows were clipped into the question's ranges."""


class _Generators(Computed[np.random.Generator]):
    """The clients' generators for one sum, each made when first used, since most questions draw nothing."""

    def __init__(self, seed: int, names: Sequence[str], index: int, *, seeded: bool) -> None:
        self._seed, self._names, self._index, self._seeded = seed, names, index, seeded
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._names)

    def item(self, place: int) -> np.random.Generator:
        """Return the generator of one client."""
        if place not in self._made:
            made = client_generator(self._seed, self._names[place], self._index)
            self._made[place] = SeededGenerator(made.bit_generator) if self._seeded else made
        return self._made[place]


def in_order(
    question: Question,
    index: int,
    names: Sequence[str],
    rows: Sequence[ClientData],
    seed: int,
    logs: Sequence[ErrorLog],
    *,
    seeded: bool = False,
) -> tuple[Sequence[Statistics], list[int]]:
    """Answer for several clients in one pass: exactly what each would answer alone.

    Args:
        question: what is asked.
        index: index of the sum in the run.
        names: of the clients.
        rows: their data.
        seed: of the clients' simulation randomness, which name and index key.
        logs: their own logs.
        seeded: whether noise repeats with the seed, and protects nobody; for simulated clients alone.

    Returns:
        Statistics and numbers of clipped rows, in the clients' order.
    """
    within, moved = all_within(rows, question.ranges)
    generators = _Generators(seed, names, index, seeded=seeded)
    # Others without rows add nothing; those without a group of rows say nothing at all.
    asked = [
        i for i, own in enumerate(within) if own.n_rows or (question.asks_all_clients and not own.grouped)
    ]
    answers: Sequence[Statistics]
    if len(asked) == len(within):
        answers = question.answer_all(within, generators)
    else:
        answers = _of_some(question, within, generators, asked)
    for log, data in zip(logs, within, strict=True):
        while data.errors:
            note(log, data.errors.pop(0))
    return answers, moved


def remembering_again(question: Question, clients: Sequence[ClientData]) -> Callable[[], None]:
    """Return a function that has clients remember what they do now: for after an answer that failed."""
    remembers = memories_of(question)
    before = [{name: deepcopy(one.of(data.memory)) for name, one in remembers.items()} for data in clients]

    def restore() -> None:
        for data, known in zip(clients, before, strict=True):
            data.memory.update(deepcopy(known))

    return restore


def _of_some(
    question: Question,
    clients: Sequence[ClientData],
    generators: Sequence[np.random.Generator],
    asked: Sequence[int],
) -> list[Statistics]:
    """Answer for several clients, of which only some are asked: the others answer zeros."""
    found = [question.spec.unflatten(np.zeros(question.spec.size)) for _ in clients]
    own = [clients[i] for i in asked], [generators[i] for i in asked]
    for i, answer in zip(asked, question.answer_all(*own) if asked else [], strict=True):
        found[i] = answer
    return found


def answered_alone(
    question: Question,
    index: int,
    name: str,
    data: ClientData,
    seed: int,
    log: ErrorLog,
    *,
    seeded: bool = False,
    silent: bool = False,
) -> Answer:
    """Answer for one client.

    What fails under noise, or where errors are `silent`, is answered as by a client without rows: an error
    would tell of them. Such a client remembers nothing of what failed: it might refuse because of it.

    Raises:
        PolicyError: messages and settings do not allow an answer; or none can be given that is noised.
        Exception: whatever the question's own code raises otherwise.
    """
    kept = isinstance(question, Noised) or silent
    as_before = remembering_again(question, [data] if kept else [])
    for own in (data, data.emptied()):
        try:
            (answer, *_), (moved, *_) = in_order(question, index, [name], [own], seed, [log], seeded=seeded)
            if kept and not np.isfinite(question.spec.flatten(answer)).all():
                raise ArithmeticError("an answer is not finite")
            return answer, moved
        except KeyboardInterrupt:
            raise
        except ERRORS as error:
            # What refuses a client without rows depends on no row.
            if not kept or (isinstance(error, PolicyError) and own is not data):
                raise
            note(log, error)
            as_before()
    if _private(question):
        # Zeros without noise would tell that something failed.
        raise PolicyError(FAILED)
    return question.spec.unflatten(np.zeros(question.spec.size)), 0


def _private(question: Question) -> bool:
    """Say whether rows show only through noise: in the answer, or in how a client trains."""
    declared = question.declaration
    trained = None if declared is None else declared.trained
    return isinstance(question, Noised) or (trained is not None and trained.steps is not None)


def own_answerer(name: str, data: ClientData, seed: int, log: ErrorLog | None = None) -> Answerer:
    """Return the answerer of one client on its own machine, from its own rows alone.

    Its noise is the operating system's.

    Property: whether it answers, and with which code it refuses, depends on questions and on what the owner
    says that rows may be used for, never on rows.

    Args:
        name: the client's, as the configuration has it; it keys the client's generator.
        data: its rows.
        seed: the configuration's.
        log: its own log of errors; by default that of the process.
    """
    kept = PythonLog() if log is None else log

    def answer(question: Question, index: int) -> Answer:
        if code := data.unusable(part.declaration for part in parts_of(question)):
            raise PolicyError(code)
        return answered_alone(question, index, name, data, seed, kept, silent=True)

    return answer


KEY_BYTES = 32
"""Length of the key by which a client chooses."""


def of_users(data: ClientData, terms: PrivacyTerms, key: bytes | None) -> ClientData:
    """Return the rows that a client answers from: at unit "user" at most `rows_per_user` of each.

    Args:
        data: its rows, and whose they are.
        terms: what was agreed.
        key: the client's own, of `KEY_BYTES` bytes.

    Raises:
        ArgumentError: nothing says whose the rows are, or there is no key.
    """
    if terms.unit != Unit.USER:
        return data
    found = data.only(chosen(data, terms.rows_per_user, key))
    nameless = sum(one == "" for one in as_ids(data.users or ()))
    if nameless:
        found.errors.append(DataError(f"{nameless} rows have no id and are left out. This stays here."))
    return found


def chosen(data: ClientData, most: int, key: bytes | None) -> npt.NDArray[np.bool_]:
    """Return which rows are kept, at most `most` of each user, bool of shape (n_rows,).

    Raises:
        ArgumentError: nothing says whose the rows are, or there is no key.
    """
    if data.users is None:
        raise ArgumentError(
            'unit="user" needs a column that says whose each row is: name it by id=... where the tables are '
            'loaded, or claim unit="record".'
        )
    if key is None or len(key) != KEY_BYTES:
        raise ArgumentError(
            f'unit="user" needs a key of {KEY_BYTES} bytes that only this client knows; join with '
            "privfed.nodes.party.Party, which has one."
        )
    ids = as_ids(data.users)
    names, owner, sizes = np.unique(np.array(ids, dtype=object), return_inverse=True, return_counts=True)
    kept = np.isin(owner, np.flatnonzero((names != "") & (sizes <= most)))
    many = np.flatnonzero(np.isin(owner, np.flatnonzero((names != "") & (sizes > most))))
    if not len(many):
        return kept
    # Equal rows of a user have equal hashes, and the order among them is the user's own.
    hashes = np.array([_hash(key, ids[i], data, i) for i in many.tolist()], dtype=np.uint64)
    order = np.lexsort((hashes, owner[many]))
    firsts = np.flatnonzero(np.diff(owner[many][order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    kept[many[order[rank < most]]] = True
    return kept


def check_named(data: ClientData, name: str) -> None:
    """Check that each row of a simulated client has an id.

    Raises:
        DataError: one has none; the message names the client.
    """
    if "" in as_ids(data.users or ()):
        raise DataError(
            f'client {name}: rows without an id belong to no user, and unit="user" protects users; name '
            "their users, or drop them."
        )


def _hash(key: bytes, user: str, data: ClientData, row: int) -> int:
    label = b"" if data.labels is None else data.labels[row].tobytes()
    name = user.encode("utf-8", "surrogatepass")
    found = hashlib.blake2b(digest_size=8, key=key, person=b"privfed users")
    found.update(len(name).to_bytes(8, "big") + name + (data.features[row] + 0.0).tobytes() + label)
    return int.from_bytes(found.digest(), "big")


def check_columns(data: ClientData, configuration: Configuration) -> None:
    """Check that rows have as many columns as was agreed, before anything is built for them.

    Raises:
        ArgumentError: they have others.
    """
    if data.n_features != configuration.n_features:
        raise ArgumentError(
            f"the rows have {data.n_features} columns, the agreement says {configuration.n_features}."
        )
