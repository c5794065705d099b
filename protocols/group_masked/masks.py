"""Sums under pairwise masks and one group mask: the scheme of `GroupMasked`.

    upload_i = encode(x_i) + sum_j +-PRG(K_ij, header) [+ PRG(G, header) from the client of lowest position]

The pairwise masks cancel in the sum; the group mask, under the clients' secret G, hides the sum from the
server. FastLloyd (Diaa, Humphries, Kerschbaum 2024, arXiv:2405.02437) also masks sums that clients open;
here, in addition, no stream is ever used twice, one colluding client opens only totals, and sums are
authenticated.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from privfed.core.stored.encoding import Message, decode, encode
from privfed.core.values.numbers import Number
from privfed.errors import IntegrityError, MessageError
from privfed.privacy.pricing import Drawn
from privfed.protocols.answering import RangedAnswer
from privfed.protocols.client_opened.scheme import Opened
from privfed.protocols.client_opened.state import Group
from privfed.protocols.client_opened.sum_attempt import SumAttempt
from privfed.protocols.crypto.check_words import CHECK_BYTES, added, check_of, from_bytes, to_bytes
from privfed.protocols.crypto.fixed_point import Grid, Layout, Words, grid_of
from privfed.protocols.crypto.keys import bound, equal, expand
from privfed.protocols.crypto.keystream import Masker

_Check = Annotated[bytes, msgspec.Meta(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]


class MaskedWords(Message, frozen=True):
    """Holds a masked answer or a sum of them: words, how many entries are wide, and check words."""

    n_wide: Number
    words: memoryview
    check: _Check

    @property
    def layout(self) -> Layout | None:
        """The layout of the words; None if no layout has that many."""
        size, rest = divmod(len(self.words), 8)
        n_narrow = size - 2 * self.n_wide
        return None if rest or n_narrow < 2 else Layout(n_narrow, self.n_wide)

    def to_numpy(self) -> Words:
        """Return the words, uint64."""
        return np.frombuffer(self.words, dtype="<u8").astype(np.uint64)


class MaskScheme:
    """Masks, adds and opens answers.

    Args:
        by_server: whether the coordinator adds the noise. Check words then cover only what gets no noise,
            the two entries that the grid appends; the coordinator can change all others as it likes.
    """

    whole = True
    pairwise = True

    def __init__(self, *, by_server: bool = False) -> None:
        self._by_server = by_server

    def check(self, question: bytes, n_clients: int) -> None:
        """Check that the total of a cohort fits the grid's two limbs.

        Raises:
            ArgumentError: it does not.
        """
        grid_of(question, n_clients)

    def draw(self) -> tuple[bytes, bytes]:
        """Return no secret: the group's secret G is enough."""
        return b"", b""

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's answer under the masks that belong to this attempt's header."""
        grid = _grid(attempt)
        words = grid.encode(own.vector, own.clipped)
        check = self._check(words, grid, _coefficients(group, attempt))
        masker = Masker(grid)
        for key, sign in _masks(group, attempt):
            (masker.add if sign > 0 else masker.subtract)(words, key)
            check = added(check, _check_mask(key), sign)
        return encode(MaskedWords(grid.n_wide, memoryview(words.tobytes()), to_bytes(check)))

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Remove the group mask and check the total.

        Raises:
            IntegrityError: it is not the sum of the members' answers under this header.
        """
        grid = _grid(attempt)
        try:
            sealed: MaskedWords = decode(body, MaskedWords, sender="the coordinator", stage="collect")
        except MessageError:
            raise _wrong(attempt) from None
        if sealed.n_wide != grid.n_wide or len(sealed.words) != 8 * grid.size:
            raise _wrong(attempt)
        words, key = sealed.to_numpy(), _group_key(group, attempt)
        Masker(grid).subtract(words, key)
        check = added(from_bytes(sealed.check), _check_mask(key), -1)
        if not equal(to_bytes(check), to_bytes(self._check(words, grid, _coefficients(group, attempt)))):
            raise _wrong(attempt)
        vector, clipped, contributors = grid.decode(words)
        if contributors != len(attempt.members):
            raise IntegrityError(
                f"the sum of {len(attempt.members)} clients counts {contributors}, though its check words "
                "are right: a client sent a wrong count; a coordinator that no client helps cannot do this. "
                "Masked answers do not show which client it was. Nothing is released and the fit ends; begin "
                "a new one without clients that you do not trust."
            )
        return Opened(vector, clipped, attempt.members, words.astype("<u8").tobytes())

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        """Add noise to a masked sum, modulo 2^64, and 2^128 for wide entries.

        Raises:
            IntegrityError: the sum has another layout.
        """
        sealed: MaskedWords = decode(body, MaskedWords, sender="the clients", stage="collect")
        grid = Grid(noise.spec, n_clients, noise.reach)
        if (sealed.n_wide, len(sealed.words)) != (grid.n_wide, 8 * grid.size):
            raise IntegrityError(
                "the clients' answers are not of the layout that was agreed on for this sum, so no noise can "
                "be added. Nothing is released; begin a new fit."
            )
        words, drawn = sealed.to_numpy(), grid.encode(noise.values, 0)
        # The coordinator adds noise, but must not be counted as a contributor.
        drawn[grid.n_narrow - 1] = 0
        grid.add(words, drawn)
        return encode(msgspec.structs.replace(sealed, words=words.astype("<u8").tobytes()))

    def adder(self, public: bytes) -> MaskAdder:
        """Return an adder of masked words."""
        return MaskAdder()

    def _check(self, words: Words, grid: Grid, key: bytes) -> int:
        if not self._by_server:
            return check_of(words, grid, key)
        return check_of(words[grid.n_narrow - 2 : grid.n_narrow], Layout(2, 0), key)


class _Sum:
    """Holds the running sum of answers of one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.clients: list[int] = []
        self.words: Words = np.zeros(layout.size, dtype=np.uint64)
        self.check = 0


class MaskAdder:
    """Adds masked words. As the server does not know the question, it takes the layout of most answers."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], _Sum] = {}

    def add(self, client: int, body: bytes | memoryview, name: str) -> None:
        """Add one masked answer.

        Raises:
            MessageError: the answer is not well formed.
        """
        sealed: MaskedWords = decode(body, MaskedWords, sender=name, stage="collect")
        layout = sealed.layout
        if layout is None:
            raise MessageError("words of an impossible length", sender=name, stage="collect")
        key = layout.size, layout.n_wide
        if key not in self._sums:
            self._sums[key] = _Sum(layout)
        one = self._sums[key]
        layout.add(one.words, np.frombuffer(sealed.words, dtype="<u8"))
        one.check = added(one.check, from_bytes(sealed.check))
        one.clients.append(client)

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return the positions of the clients in the sum, ascending, and the masked sum."""
        if not self._sums:
            return (), b""
        most = max(self._sums.values(), key=lambda one: len(one.clients))
        words = memoryview(most.words.astype("<u8").tobytes())
        body = MaskedWords(most.layout.n_wide, words, to_bytes(most.check))
        return tuple(sorted(most.clients)), encode(body)


def _grid(attempt: SumAttempt) -> Grid:
    return grid_of(attempt.question, len(attempt.cohort))


def _wrong(attempt: SumAttempt) -> IntegrityError:
    return IntegrityError(
        f"what the coordinator sent is not the sum of the {len(attempt.members)} clients that it names: "
        "masks or check words do not fit, because of the coordinator or of a client. Nothing is released and "
        "the fit ends; begin a new one."
    )


def _group_key(group: Group, attempt: SumAttempt) -> bytes:
    return expand(group.secret, bound("group mask", attempt.header))


def _coefficients(group: Group, attempt: SumAttempt) -> bytes:
    return expand(group.secret, bound("check words", attempt.header))


def _check_mask(key: bytes) -> int:
    return from_bytes(expand(key, bound("check mask"))[:CHECK_BYTES])


def _pair_stream(group: Group, attempt: SumAttempt, other: int) -> bytes:
    return expand(group.pairs[other], bound("pair mask", attempt.header))


def _masks(group: Group, attempt: SumAttempt) -> list[tuple[bytes, int]]:
    """Return the keys of a client's masks with their signs; of two clients, the lower adds their mask."""
    others = [j for j in attempt.members if j != attempt.me]
    masks = [(_pair_stream(group, attempt, j), 1 if attempt.me < j else -1) for j in others]
    if attempt.me == attempt.members[0]:
        masks.append((_group_key(group, attempt), 1))
    return masks
