"""One client's side of verified totals: it checks each total, tells its own run, and answers what comes next.

What it promises, and against whom: docs/protocols/masked.md, section 13.

Two machines ask the same where floats differ in their last digits, and nothing else does (`alike`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from functools import lru_cache

import msgspec
import numpy as np

from privfed.core.asking.phases import NEAR
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import Question, centers_of, question_from_bytes
from privfed.core.roles.conversation import Total
from privfed.core.roles.secure_sum import NextQuestion, Replay
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import IntegrityError, MessageError, PolicyError
from privfed.protocols.crypto.fixed_point import Grid, Words, grid_of, to_words
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    bound,
    digest,
    equal,
    expand,
    new_secret,
    seal,
    unseal,
)
from privfed.protocols.crypto.keystream import to_bytes
from privfed.protocols.masked.client_state import Chain, DropoutReport, Fit
from privfed.protocols.masked.masked_messages import (
    CollectRequest,
    EarlierSum,
    Invitation,
    OpenedSum,
    VerifiedRequest,
)
from privfed.protocols.masked.verification import CHECK_WORDS, Place, check_words, first_head
from privfed.protocols.setup.rules import Cohort, Rules, is_bitmap, needed_to_open


def alike(expected: Question, asked: Question) -> bool:
    """Say whether a question is the expected one: the same but for floats within 1e-9 of their range.

    The range of centers and of ranges is that of the data, feature by feature; that of another array is its
    largest absolute value. Classes, shapes and options must be equal.
    """
    return _Comparison(expected).holds(expected, asked)


class _Comparison:
    """Compares the values of questions with those of an expected one.

    Args:
        expected: the question; its ranges and its declared centers say what a small difference is.
    """

    def __init__(self, expected: Question) -> None:
        self._width, self._centers = expected.ranges.width, centers_of(expected)

    def holds(self, expected: object, asked: object) -> bool:
        """Say whether one value is the other up to the last digits of its floats."""
        if type(expected) is not type(asked):
            return False
        if isinstance(expected, np.ndarray) and isinstance(asked, np.ndarray):
            return _near(expected, asked, self._range(expected))
        if isinstance(expected, Ranges) and isinstance(asked, Ranges):
            bounds = ((expected.low, asked.low), (expected.high, asked.high))
            return expected.rows == asked.rows and all(_near(a, b, self._width) for a, b in bounds)
        if is_dataclass(expected):
            others = asdict(asked)
            return all(self.holds(one, others[name]) for name, one in asdict(expected).items())
        return bool(expected == asked)

    def _range(self, array: FloatArray) -> FloatArray:
        is_center = any(one is array for one in self._centers)
        if is_center and array.shape[-1:] == self._width.shape:
            return self._width
        return np.asarray(np.abs(array).max(initial=0.0))


def _near(expected: FloatArray, asked: FloatArray, width: FloatArray) -> bool:
    if expected.shape != asked.shape:
        return False
    # The last bits of a value far from the origin may be more than 1e-9 of a narrow range.
    last_bits = 8.0 * np.finfo(np.float64).eps * np.abs(expected)
    return bool((np.abs(expected - asked) <= NEAR * width + last_bits).all())


NO_NUMBER = 1 << 32
"""Above the numbers of all sums."""

MOST_COUNTED = 1.0 + 2.0**-20
"""Most rows that counts may come to, relative to those that the range sum counts: memberships are rounded."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Holds a total whose check words hold.

    Args:
        total: the sum, as the algorithm gets it.
        head: head of the chain after it.
        whose: digest of its contributors.
        rows: how many rows they hold, where the question counts all of them; else None.
    """

    total: Total
    head: bytes
    whose: bytes
    rows: float | None


class Verifier:
    """Checks totals and questions for one client.

    Args:
        agreement: what the client was given, and not by the coordinator.
        me: the client's position.
        replay: its own run of the algorithm.
    """

    def __init__(self, agreement: Rules, me: int, replay: Replay) -> None:
        self._agreement, self._me, self._replay = agreement, me, replay

    def begun(self, session: bytes, past: tuple[Chain, ...]) -> Chain:
        """Return the chain of a new set-up, after the totals that this client's own run was told before."""
        head = first_head(session, _last_head(past))
        return Chain(head=head, opened=self._replay.told - 1, session=session, past=past)

    # The clients' secret.

    def led(self, keys: Fit) -> Fit:
        """Draw the clients' secret, once in a set-up."""
        chain = msgspec.structs.replace(keys.chain, drawn=keys.chain.drawn or new_secret())
        return msgspec.structs.replace(keys, chain=chain)

    def invitations(self, keys: Fit, clients: Iterable[int]) -> tuple[Invitation, ...]:
        """Return the secret that this client drew, sealed for others that it shares keys with."""
        secret, me, session = keys.chain.drawn, self._me, keys.session
        if not secret:
            return ()
        boxes = {
            j: seal(
                expand(keys.pairs[j].invitation, about := bound("invitation", session, me, j)), secret, about
            )
            for j in sorted(clients)
        }
        return tuple([Invitation(j, box) for j, box in boxes.items()])

    def _secret(self, keys: Fit, request: VerifiedRequest) -> bytes:
        """Return the clients' secret: what this client drew, or the leader sealed for it.

        Raises:
            PolicyError: it is not from the named leader, for this client in this session.
        """
        leader, pair = request.leader, keys.pairs.get(request.leader)
        if leader == self._me:
            secret = keys.chain.drawn
        else:
            try:
                about = bound("invitation", keys.session, leader, self._me)
                key = bytes(KEY_BYTES) if pair is None else expand(pair.invitation, about)
                secret = unseal(key, request.invitation, about)
            except CryptographyError:
                raise PolicyError("invitation") from None
            secret = b"" if pair is None else secret
        if len(secret) != KEY_BYTES:
            raise PolicyError("invitation")
        return secret

    # Totals.

    def taken(self, keys: Fit, number: int, request: VerifiedRequest) -> Fit:
        """Return the keys after the totals that came with a request; those known before are passed over.

        Raises:
            IntegrityError: one is not the total of its sum; the fit ends.
            MessageError: some are missing.
            PolicyError: the clients' secret did not come.
        """
        chain = keys.chain
        if not chain.secret:
            # Before anything of this set-up is answered, since its first sum is bound to what came before.
            chain = self._caught_up(chain, request.earlier)
            chain = msgspec.structs.replace(chain, secret=self._secret(keys, request))
        for one in request.totals:
            if one.index > chain.opened:
                chain = self._after(chain, number, one)
        return msgspec.structs.replace(keys, chain=chain)

    def _caught_up(self, chain: Chain, earlier: tuple[EarlierSum, ...]) -> Chain:
        """Take totals of earlier set-ups that this client lacks.

        Raises:
            PolicyError: it has not the secrets that check them: nobody else would share its masks.
        """
        past = {one.session: one for one in chain.past}
        # By what was chained, not by what its own run was told: that may be durable before the chain is.
        opened = max((one.opened for one in chain.past), default=-1)
        for one in earlier:
            if one.total.index > opened and one.session in past:
                past[one.session] = self._after(past[one.session], NO_NUMBER, one.total)
                opened = one.total.index
        if any(one.total.index > opened for one in earlier):
            raise PolicyError("history")
        kept = tuple(past.values())
        head = first_head(chain.session, _last_head(kept))
        return msgspec.structs.replace(chain, past=kept, opened=max(opened, chain.opened), head=head)

    def _after(self, chain: Chain, number: int, one: OpenedSum) -> Chain:
        # This client's own run has not come to it where a total before is missing.
        expected = self._replay.ask(one.index)
        if one.cohort != expected.cohort or not chain.number < one.number < number:
            raise _wrong(one)
        cohort = self._agreement.cohort(expected.cohort)
        self._check_lists(one, cohort)
        where = (chain.session, one.number, one.index, chain.head, cohort.digest, one.prepared)
        checked = _checked(
            chain.secret,
            Place(*where, expected.metric),
            one,
            cohort.members,
            expected.question,
            self._agreement.configuration.rows_of(cohort.members),
        )
        if checked is None:
            raise _wrong(one)
        for report in chain.reports:
            self._check_report(report, one)
        rows = chain.rows if checked.rows is None else {**chain.rows, checked.whose: checked.rows}
        if not counts_plausible(expected.question, checked, rows.get(checked.whose)):
            raise _wrong(one)
        self._replay.tell(one.index, checked.total)
        changed = {"head": checked.head, "opened": one.index, "number": one.number, "rows": rows}
        return msgspec.structs.replace(chain, reports=(), **changed)

    def _check_lists(self, one: OpenedSum, cohort: Cohort) -> None:
        """Check who is said to be prepared and in the total: enough clients, all of them prepared.

        Raises:
            IntegrityError: no such total can have been opened.
        """
        n = len(cohort.members)
        lists = is_bitmap(one.prepared, n) and is_bitmap(one.contributors, n)
        if not lists or any(u > p for u, p in zip(one.contributors, one.prepared, strict=True)):
            raise _wrong(one)
        if sum(one.contributors) < needed_to_open(n, self._agreement.configuration.terms):
            raise _wrong(one)

    def _check_report(self, report: DropoutReport, one: OpenedSum) -> None:
        """Check that who is in the total is whom this client was told when it helped to open it.

        Raises:
            IntegrityError: the server told other clients another report.
        """
        there = np.packbits(np.frombuffer(one.contributors, dtype=np.uint8)).tobytes()
        if report.number == one.number and there != report.survivors:
            raise _wrong(one)

    # Questions.

    def check_question(self, keys: Fit, message: CollectRequest) -> None:
        """Check that a question is the one that comes next in this client's own run of the algorithm.

        Raises:
            MessageError: its total is known, or this client's own run has not come to it.
            PolicyError: the run asks something else.
        """
        if message.index <= keys.chain.opened:
            raise MessageError("a sum that is already open", sender="the coordinator", stage="collect")
        expected = self._replay.ask(message.index)
        if expected.cohort != message.cohort or not self._same(expected, message.question):
            raise PolicyError("program")

    def _same(self, expected: NextQuestion, question: bytes) -> bool:
        if expected.question == question:
            return True
        n = len(self._agreement.cohort(expected.cohort).members)
        if not alike(question_from_bytes(expected.question), question_from_bytes(question)):
            return False
        # A range moved within 1e-9 over a power of two would halve a step, and so double what others read.
        return bool(np.array_equal(grid_of(expected.question, n).step, grid_of(question, n).step))

    def with_check(self, keys: Fit, number: int, message: CollectRequest, grid: Grid, words: Words) -> Words:
        """Return a client's answer followed by its check words, all without masks."""
        cohort, chain = self._agreement.cohort(message.cohort), keys.chain
        where = (keys.session, number, message.index, chain.head, cohort.digest, message.prepared)
        place = Place(*where, self._replay.ask(message.index).metric)
        check = check_words(words, grid, chain.secret, place, [self._me])
        return np.concatenate([words, to_words(check, CHECK_WORDS)])


def _last_head(past: tuple[Chain, ...]) -> bytes:
    """Return the head after the last total of earlier set-ups; empty where there was none."""
    return next((one.head for one in reversed(past) if one.number), b"")


def _wrong(one: OpenedSum) -> IntegrityError:
    return IntegrityError(
        f"what the coordinator sent as the total of sum {one.index} is not the sum of the clients that it "
        "names, after the totals before. The fit ends; begin a new one."
    )


# Simulated clients check the same total with the same secret: it is checked once.
@lru_cache(maxsize=4)
def _checked(
    secret: bytes,
    place: Place,
    one: OpenedSum,
    members: tuple[int, ...],
    question: bytes,
    rows: tuple[int, ...],
) -> Checked | None:
    """Return a total whose check words and plain bounds hold; None where they do not."""
    grid, asked = grid_of(question, len(members)), question_from_bytes(question)
    if len(one.words) != 8 * grid.size:
        return None
    words = np.frombuffer(one.words, dtype="<u8").astype(np.uint64)
    clients = tuple(j for j, there in zip(members, one.contributors, strict=True) if there)
    if not equal(to_bytes(check_words(words, grid, secret, place, clients)), one.check):
        return None
    vector, clipped, contributors = grid.decode(words)
    total = Total(asked.spec.unflatten(vector), clients, clipped=clipped)
    held = tuple(itertools.compress(rows, one.contributors))
    if contributors != len(clients) or clipped < 0 or impossible(asked, total.statistics, contributors, held):
        return None
    head = place.next_head(one.contributors, one.words)
    return Checked(total, head, digest("contributors", *clients), _rows_of(asked, total))


def _rows_of(asked: Question, total: Total) -> float | None:
    """Return how many rows the contributors hold, where the question counts all of them in one number."""
    declared = asked.declaration
    for one in () if declared is None else declared.row_counts:
        if total.statistics[one].size == 1:
            return float(total.statistics[one].sum())
    return None


def counts_plausible(question: bytes, checked: Checked, rows: float | None) -> bool:
    """Say whether no entry counts more rows than the same contributors hold, as far as that is known."""
    declared = question_from_bytes(question).declaration
    if rows is None or declared is None:
        return True
    counted = [float(checked.total.statistics[one].sum()) for one in declared.row_counts]
    return all(one <= MOST_COUNTED * rows + 1.0 for one in counted)
