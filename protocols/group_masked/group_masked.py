"""Sums under pairwise masks and one group mask (docs/protocols/group-masked.md).

    upload_i = encode(x_i) + sum_j +-PRG(K_ij, header) [+ PRG(G, header) from the client of lowest position]

The pairwise masks cancel in the sum; the group mask, under the clients' secret G, hides the sum from the
server. FastLloyd (Diaa, Humphries, Kerschbaum 2024, arXiv:2405.02437) also masks sums that clients open;
here, in addition, no stream is ever used twice, one colluding client opens only totals, and sums are
authenticated.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import default_losses
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Stage
from privfed.core.stored.encoding import Message, decode, encode
from privfed.core.values.numbers import Number, check_whole
from privfed.errors import ArgumentError, IntegrityError, MessageError
from privfed.privacy.pricing import Drawn
from privfed.protocols.answering import RangedAnswer
from privfed.protocols.client_opened.client_opened import ClientOpenedSum
from privfed.protocols.client_opened.scheme import Group, Opened, SumAttempt, needed
from privfed.protocols.crypto.fixed_point import Grid, Layout, Words, grid_of
from privfed.protocols.crypto.keys import bound, equal, expand
from privfed.protocols.crypto.keystream import CHECK_BYTES, Masker, added, check_of, from_bytes, to_bytes
from privfed.protocols.setup.rules import default_terms

_Check = Annotated[bytes, msgspec.Meta(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]


class MaskedWords(Message, frozen=True):
    """Holds a masked answer or a sum of them: words, how many entries are wide, and check words."""

    n_wide: Number
    words: memoryview
    check: _Check

    def to_numpy(self) -> Words:
        """Return the words, uint64."""
        return np.frombuffer(self.words, dtype="<u8").astype(np.uint64)


class MaskScheme:
    """Masks, adds and opens answers.

    Args:
        by_server: whether the coordinator adds the noise. Check words then cover only what gets no noise,
            the two entries that the grid appends; the coordinator can change all others as it likes.
    """

    pairwise = True

    def __init__(self, *, by_server: bool = False) -> None:
        self._by_server = by_server

    def check(self, question: bytes, n_clients: int) -> None:
        """Check that the total of a cohort fits the grid's two limbs.

        Raises:
            ArgumentError: it does not.
        """
        grid_of(question, n_clients)

    def draw(self) -> bytes:
        """Return no secret: the group's secret G is enough."""
        return b""

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's answer under the masks that belong to this attempt's header."""
        grid = grid_of(attempt.question, len(attempt.cohort))
        words, masker = grid.encode(own.vector, own.clipped), Masker(grid)
        check = self._check(words, grid, _coefficients(group, attempt))
        for key, sign in _masks(group, attempt):
            masker.add(words, key, sign)
            check = added(check, _check_mask(key), sign)
        return encode(MaskedWords(grid.n_wide, memoryview(words.tobytes()), to_bytes(check)))

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Remove the group mask and check the total.

        Raises:
            IntegrityError: it is not the sum of the members' answers under this header.
        """
        grid = grid_of(attempt.question, len(attempt.cohort))
        try:
            sealed: MaskedWords = decode(body, MaskedWords, sender="the coordinator", stage="collect")
        except MessageError:
            raise _wrong(attempt) from None
        if sealed.n_wide != grid.n_wide or len(sealed.words) != 8 * grid.size:
            raise _wrong(attempt)
        words, key = sealed.to_numpy(), _group_key(group, attempt)
        Masker(grid).add(words, key, -1)
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

    def adder(self) -> MaskAdder:
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
        (size, rest), wide = divmod(len(sealed.words), 8), sealed.n_wide
        if rest or size < 2 * wide + 2:
            raise MessageError("words of an impossible length", sender=name, stage="collect")
        if (size, wide) not in self._sums:
            self._sums[size, wide] = _Sum(Layout(size - 2 * wide, wide))
        one = self._sums[size, wide]
        one.layout.add(one.words, np.frombuffer(sealed.words, dtype="<u8"))
        one.check = added(one.check, from_bytes(sealed.check))
        one.clients.append(client)

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return the positions of the clients in the sum, ascending, and the masked sum."""
        if not self._sums:
            return (), b""
        most = max(self._sums.values(), key=lambda one: len(one.clients))
        words = memoryview(most.words.astype("<u8").tobytes())
        return tuple(sorted(most.clients)), encode(
            MaskedWords(most.layout.n_wide, words, to_bytes(most.check))
        )


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


def _masks(group: Group, attempt: SumAttempt) -> list[tuple[bytes, int]]:
    """Return the keys of a client's masks with their signs; of two clients, the lower adds their mask."""
    others = [j for j in attempt.members if j != attempt.me]
    about = bound("pair mask", attempt.header)
    masks = [(expand(group.pairs[j], about), 1 if attempt.me < j else -1) for j in others]
    if attempt.me == attempt.members[0]:
        masks.append((_group_key(group, attempt), 1))
    return masks


MAX_CLIENTS = 200
"""Most clients. Every client masks with every other, so the cost of all grows with their number squared."""


class GroupMasked(ClientOpenedSum):
    """Lets the clients open totals, while the server sees only who took part.

    Reveals to every client: every total and every question, including those of sums that it is not in.
    Reveals to the server: who contributed, who was lost and when, message lengths and times; no
    question, no total, no answer.

    Protects answers from a server that may lie about everything and colludes with at most `colluders`
    clients of a cohort. Together they read totals, each over at least `honest` honest clients. By naming
    clients lost they can also obtain differences of totals, at most `repeats` times in a fit. A server
    that colludes with no client reads nothing and changes nothing unnoticed (a wrong total passes with
    probability 2^-64). Assumes identities that the parties exchanged before (a registry), state that is
    never restored from a copy, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519. Any client
    can spoil or stop a sum. Masks of lost clients are not recovered: the sum is asked again without
    these clients, and they are out until the next fit. If the server adds the noise
    (`Privacy(noise="server")`), it can also change totals as it likes, except the number of contributors,
    and with one colluding client it sees totals without noise.

    Args:
        colluders: most clients of the smallest cohort that collude with the server; larger cohorts are
            assumed to have the same share. By default a tenth, one more where that costs nothing.
        honest: fewest honest clients in a sum; by default about half of the honest ones.
        repeats: how often in a fit a sum may be asked again without clients that were lost.
        losses: in how many sums of a fit, over all its set-ups, other clients may be lost than before, until
            it ends: the totals are then over at most one more sets of clients, whose differences show single
            answers, and a server can invent losses. By default one, or a tenth of 30 clients or more. It
            does not bind under differential privacy.
    """

    name = "group-masked"
    recipient: Literal["clients"] = "clients"
    reveals: Literal["sums"] = "sums"
    one_key = False
    slotted_sums = 0
    verified = False
    stages = (
        Stage("advertise", "it is out of the fit"),
        Stage("prepare", "it is out of the fit"),
        Stage("invite", "it is out of the fit"),
        Stage(COLLECT, "it is out of the fit, and the sum is asked again without it", answers=True),
        Stage("close", "it does not have the last total"),
    )

    def __init__(
        self,
        *,
        colluders: int | None = None,
        honest: int | None = None,
        repeats: int = 3,
        losses: int | None = None,
    ) -> None:
        check_whole("colluders", colluders, 0, or_none=True)
        check_whole("honest", honest, 2, or_none=True)
        check_whole("repeats", repeats, 0)
        check_whole("losses", losses, 0, or_none=True)
        self.colluders, self.honest, self.repeats, self.losses = colluders, honest, repeats, losses

    @property
    def assumptions(self) -> Assumptions:
        """Assumptions behind its promises."""
        most = "the agreed number of" if self.colluders is None else str(self.colluders)
        return Assumptions(
            honest="the server may lie about everything; a total that it changes is noticed while no client "
            "colludes with it",
            colluding=f"at most {most} clients of a cohort collude with it; together they read totals",
            besides="identities were exchanged before, a client's state is never restored from a copy, and "
            "X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519 hold",
        )

    steps = staticmethod(lambda question, n_clients: grid_of(question, n_clients).step)
    """Steps of the grid in the total of an encoded question, float64 of shape (spec.size,)."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms that protect a client.

        Raises:
            ArgumentError: there are too few clients to protect, or more than `MAX_CLIENTS`.
        """
        c, m = default_terms(smallest_cohort, colluders=self.colluders, honest=self.honest)
        if clients > MAX_CLIENTS:
            raise ArgumentError(
                f"a group-masked sum is for at most {MAX_CLIENTS} clients, got {clients}: each masks with "
                'every other. Use protocol="masked".'
            )
        terms = Terms(
            min_clients=smallest_cohort,
            colluders=c,
            honest=m,
            max_sums=max_sums,
            repeats=self.repeats,
            losses=default_losses(clients) if self.losses is None else self.losses,
        )
        if needed(clients, terms) > clients:
            raise ArgumentError(
                f"a cohort of all {clients} clients cannot have {m} honest ones, if it has the same share of "
                f"colluders as a cohort of {smallest_cohort} with {c}. Assume fewer colluders, or ask more "
                "clients a round."
            )
        return terms

    def scheme(self, configuration: Configuration) -> MaskScheme:
        """Return the scheme that masks answers."""
        return MaskScheme(by_server=configuration.noised_by_server)
