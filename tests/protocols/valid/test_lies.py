"""Lies are refused: answers off their statement, by provers of every kind, and proofs of something else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from privfed.protocols.crypto.fixed_point import to_integer, to_words
from privfed.protocols.valid import proof
from privfed.protocols.valid.proof import ProofError, ceiling, new_sigma, totals_hold, verify
from privfed.protocols.valid.statement import P, Statement
from tests.protocols.valid.stated import Exchange, clustered, clusters, drawn, forms, plain
from tests.some import some

pytest.importorskip("numba")

CODES = {"length", "field", "root", "code", "linear", "quadratic"}


def refused(statement: Statement, exchange: Exchange, made: bytes, *codes: str) -> None:
    with pytest.raises(ProofError) as caught:
        verify(statement, exchange.committed.root, exchange.context, exchange.sigma, made)
    assert caught.value.code in (codes or CODES)


class Liar:
    """A prover without scruples: it takes any digits, and writes what it likes into the table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Statement, "holds", lambda self, digits: True)
        self.patch, self._table = monkeypatch, proof._Layout.table

    def writes(self, change: object) -> None:
        """Change the table, a function of the layout and the table, before it is encoded."""

        def table(layout: proof._Layout, *arguments: object) -> object:
            made = self._table(layout, *arguments)  # type: ignore[arg-type]
            change(layout, made)  # type: ignore[operator]
            return made

        self.patch.setattr(proof._Layout, "table", table)


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Liar:
    return Liar(monkeypatch)


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


BOX = clusters(2, 1, 70, 1000)
LIES = {
    "one above": (plain(3, 20), whole(0, 1 << 19, 0)),
    "one below": (plain(3, 20), whole(0, -(1 << 19) - 1, 0)),
    "one above a range that is no power of two": (Statement(5, whole(0), whole(70)), whole(71)),
    "128 of 70": (Statement(5, whole(0), whole(70)), whole(128)),
    "one below zero": (Statement(5, whole(0), whole(70)), whole(-1)),
    "2^63 - 1": (plain(3, 20), whole(0, 0, 2**63 - 1)),
    "-2^63": (plain(3, 20), whole(0, 0, -(2**63))),
    "p off": (plain(3, 20), whole(0, 0, P - 2**64)),
    "one number": (Statement(5, whole(3), whole(3)), whole(4)),
    "a sum without rows": (BOX, whole(0, 0, 1, 0)),
    "a sum above its box": (BOX, whole(30, 40, 30_001, 0)),
    "a sum below its box": (BOX, whole(30, 40, 0, -40_001)),
    "a mean at 1,000": (BOX, whole(1, 1, 1_000_000, 0)),
    "rows that do not exist": (BOX, whole(70, 1, 0, 0)),
    "negative rows": (BOX, whole(-1, 1, 0, 0)),
    "negative rows that give others room": (BOX, whole(71, -1, 71_000, 0)),
    "a form": (Statement(5, whole(0, 0), whole(9, 9), forms(({0: 3, 1: -5}, -7, 11))), whole(9, 1)),
}


@pytest.mark.parametrize("name", LIES)
def test_an_answer_off_its_statement_is_refused(name: str, liar: Liar) -> None:
    """A prover that follows the protocol with an impossible answer: the bits do not make it up."""
    statement, digits = LIES[name]
    exchange = Exchange(statement, digits)
    refused(statement, exchange, exchange.proof(), "linear")


def first_bits(statement: Statement) -> proof._Layout:
    return proof._arranged(statement, proof.COLUMNS, proof.WIDTHS)


@pytest.mark.parametrize(
    ("bit", "lie"), [(0, 2), (0, -1), (3, 2), (3, 1 << 37), (0, 1 << 40), (19, 2), (0, P // 2)]
)
def test_bits_that_are_none_are_refused(bit: int, lie: int, liar: Liar) -> None:
    """The digit is what such a bit makes of it, so that the linear tests hold."""
    statement = plain(3, 20)
    low = int(statement.low[0])
    digits = whole(low + (lie << bit if bit != 19 else lie << 19), low, low)
    clean = whole(low, low, low)

    def change(layout: proof._Layout, table: np.ndarray) -> None:
        table[0, layout.n_value_rows + bit] = lie % P

    liar.writes(change)
    exchange = Exchange(statement, clean)
    answered = proof._answered
    liar.patch.setattr(proof, "_answered", lambda factors, _, pads: answered(factors, digits, pads))
    refused(statement, exchange, exchange.proof(), "quadratic")


@pytest.mark.parametrize("row", [0, 1, 5])
def test_a_bit_of_a_variable_that_has_fewer_is_not_counted(row: int, liar: Liar) -> None:
    """Variables with fewer bits share rows with those that have more: there their slot weighs nothing."""
    statement = Statement(5, whole(0, 0), whole(2**20 - 1, 3))

    def change(layout: proof._Layout, table: np.ndarray) -> None:
        assert layout.n_rows == layout.n_value_rows + 20
        table[1, layout.n_value_rows + 5 : layout.n_value_rows + 19] = 1

    liar.writes(change)
    honest = Exchange(statement, whole(7, row % 4))
    v = honest.checked(honest.proof())
    assert totals_hold(statement, honest.sigma, whole(7, row % 4), honest.committed.pads, v[None])


@pytest.mark.parametrize("share", [8, 64])
def test_columns_off_the_code_are_refused(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of them passes once in 10^11, a 64th once in 20."""
    leaves, rng = proof._leaves, np.random.default_rng(0)
    statement, caught = plain(3, 20), 0

    def damaged(columns: np.ndarray, salts: np.ndarray) -> list[bytes]:
        if len(columns) > proof.COLUMNS:
            off = rng.permutation(len(columns))[: len(columns) // share]
            columns[off, 3] ^= np.uint64(1)
        return leaves(columns, salts)

    for seed in range(6):
        exchange = Exchange(statement, drawn(statement, np.random.default_rng(seed)))
        with monkeypatch.context() as patch:
            patch.setattr(proof, "_leaves", damaged)
            state = rng.bit_generator.state
            committed = proof.commit(
                statement, exchange.digits, exchange.context, proof.sigma_hash_of(exchange.sigma)
            )
            rng.bit_generator.state = state
            made = proof.prove(statement, exchange.digits, committed.key, exchange.context, exchange.sigma)
        try:
            verify(statement, committed.root, exchange.context, exchange.sigma, made)
        except ProofError as error:
            assert error.code in ("code", "linear", "quadratic")
            caught += 1
    assert caught == 6 if share == 8 else caught >= 1


def honest() -> Exchange:
    return Exchange(BOX, clustered(BOX, 2, 1, np.random.default_rng(4)))


def test_a_proof_of_something_else_is_refused() -> None:
    exchange, other = honest(), honest()
    made = exchange.proof()
    exchange.checked(made)
    wider = clusters(2, 1, 71, 1000)
    more = Statement(21, BOX.low, BOX.high, BOX.forms)
    for statement, root, context, sigma in (
        (BOX, exchange.committed.root, b"client 4 of sum 7", exchange.sigma),
        (BOX, exchange.committed.root, b"client 3 of sum 8", exchange.sigma),
        (BOX, exchange.committed.root, exchange.context, new_sigma()),
        (BOX, other.committed.root, exchange.context, exchange.sigma),
        (wider, exchange.committed.root, exchange.context, exchange.sigma),
        (more, exchange.committed.root, exchange.context, exchange.sigma),
        (BOX, b"", exchange.context, exchange.sigma),
    ):
        with pytest.raises(ProofError) as caught:
            verify(statement, root, context, sigma, made)
        assert caught.value.code in CODES
    refused(BOX, exchange, other.proof())


def test_a_byte_changed_anywhere_is_refused() -> None:
    exchange, rng = honest(), np.random.default_rng(5)
    made = exchange.proof()
    sizes = [8 * n * m for n, m in first_bits(BOX).shapes]
    starts = np.cumsum([0, *sizes]).tolist()
    assert len(made) > starts[-1]
    for start, stop in zip(starts, [*starts[1:], len(made)], strict=True):
        places = {start, stop - 1, *rng.integers(start, stop, 4).tolist()}
        for place in sorted(places):
            altered = bytearray(made)
            altered[place] ^= 1 << int(rng.integers(8))
            refused(BOX, exchange, bytes(altered))


def test_a_number_above_p_is_refused_even_where_it_is_the_same_modulo_p() -> None:
    exchange = honest()
    made = exchange.proof()
    layout = first_bits(BOX)
    shown = 8 * sum(n * m for n, m in layout.shapes[:4])
    words = np.frombuffer(made[:shown], dtype="<u8")
    small = np.flatnonzero(words < 2**32 - 1)
    altered = np.frombuffer(made[: len(made) // 8 * 8], dtype="<u8").copy()
    assert len(small) or altered[0] < P
    altered[0] = 2**64 - 1
    refused(BOX, exchange, altered.tobytes() + made[len(made) // 8 * 8 :], "field")


def test_other_lengths_are_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = honest()
    made = exchange.proof()
    for altered in (
        made[:-1],
        made[:-8],
        made[:-32],
        made + b"\0",
        made + bytes(8),
        made + bytes(32),
        made * 2,
    ):
        refused(BOX, exchange, altered, "length")
    monkeypatch.setattr(proof, "_Challenge", lambda *_: pytest.fail("it looked inside"))
    least = first_bits(BOX).least
    for altered in (b"", b"\0", made[: least - 1], bytes(ceiling(BOX) + 1), bytes(10_000_000)):
        refused(BOX, exchange, altered, "length")


def test_parts_of_two_proofs_make_none() -> None:
    exchange, other = honest(), honest()
    made, foreign = exchange.proof(), other.proof()
    starts = np.cumsum([0, *[8 * n * m for n, m in first_bits(BOX).shapes]]).tolist()
    for start, stop in some(pairwise(starts)):
        refused(BOX, exchange, made[:start] + foreign[start:stop] + made[stop:])


def test_an_upload_that_is_not_what_was_proven_moves_the_total() -> None:
    """The total of a liar's words and others' is compared with what all of them proved."""
    exchange = honest()
    v = exchange.checked(exchange.proof())[None]
    for lie in (1, -1, 2**32, 2**62, 2**63 - 1, P - 2**64):
        uploaded = exchange.digits.copy()
        uploaded[2] = (int(uploaded[2]) + lie + 2**63) % 2**64 - 2**63
        assert not totals_hold(BOX, exchange.sigma, uploaded, exchange.committed.pads, v)
    pads = exchange.committed.pads.copy()
    pads[0] += np.uint64(1)
    assert not totals_hold(BOX, exchange.sigma, exchange.digits, pads, v)
    # p more in a pad is the same number: it moves nothing, and helps nobody.
    assert to_integer(pads[:3]) < 2**proof.PAD_BITS + 1


def test_a_pad_cannot_make_up_for_an_upload_before_sigma_is_known() -> None:
    """A liar that knew sigma could: its hash alone is shown until all have uploaded."""
    exchange = honest()
    v = exchange.checked(exchange.proof())[None]
    uploaded = exchange.digits + np.array([0, 0, 5, 0])
    known = proof.functional(exchange.sigma, BOX)[:, 2]
    pads = exchange.committed.pads.copy()
    for at, factor in zip(range(0, len(pads), 3), known.tolist(), strict=True):
        pads[at : at + 3] = [(int(pads[at]) + (-5 * factor) % P) % 2**64, *pads[at + 1 : at + 3]]
        carried = int(exchange.committed.pads[at]) + (-5 * factor) % P >= 2**64
        pads[at + 1] += np.uint64(carried)
    assert totals_hold(BOX, exchange.sigma, uploaded, pads, v)
    assert not totals_hold(BOX, new_sigma(), uploaded, pads, v)


@pytest.mark.parametrize("n", [20, 384, 385, 700])
def test_liars_who_fall_silent_once_they_see_sigma_cannot_make_a_wrong_total_fit(n: int) -> None:
    """Each uploads a pad that is a power of two off: whoever stays adds it. So 513 liars make eight fit."""
    statement, sigma, rng = Statement(n, whole(0, 0), whole(9, 9)), new_sigma(), np.random.default_rng(n)
    known = proof.functional(sigma, statement)
    assert 64 * len(known) >= n + 128 and len(known) >= 8
    digits = rng.integers(0, 10, (n, 2))
    pads = rng.integers(0, 2**62, (n, len(known)))
    v = [proof._answered(known, one, to_pads(pad.tolist())) for one, pad in zip(digits, pads, strict=True)]
    # Client 0 adds 5 to its second digit; client 1 + 64 h + b adds 2^b to its pad h.
    missing = [-5 * one % P for one in known[:, 1].tolist()]
    off = {1 + 64 * h + b: (h, 1 << b) for h in range(8) for b in range(64) if 64 * h + b < n - 2}
    silent = {i for i, (h, power) in off.items() if not missing[h] & power}
    there = [i for i in range(n) if i not in silent]
    added = [sum(one) for one in zip(*pads[there].tolist(), strict=True)]
    for i in off.keys() - silent:
        added[off[i][0]] += off[i][1]
    totals, proven = digits[there].sum(axis=0) + whole(0, 5), np.array(v)[there]
    fits = [
        (sum(column) - one) % P == 0
        for column, one in zip(
            proven.T.tolist(), proof._answered(known, totals, to_pads(added)).tolist(), strict=True
        )
    ]
    # With 513 liars the first eight fit; there are more of them for so many clients.
    assert all(fits[:8]) == (n == 700)
    assert not totals_hold(statement, sigma, totals, to_pads(added), proven)


def to_pads(numbers: list[int]) -> np.ndarray:
    """Return pads as words."""
    return np.concatenate([to_words(one, proof.PAD_WORDS) for one in numbers])
