"""Proofs that digits meet their statement, by interleaved codes and hashes.

The proof system is that of Ligero (Ames, Hazay, Ishai and Venkitasubramaniam, CCS 2017, sections 4.1 to 4.6),
made to speak once by the hash of all that was said. What it proves, to whom, and what it shows to whom:
docs/protocols/valid.md.

A commitment is a Merkle tree over the columns of a table. Each row of the table is the codeword of a random
polynomial of fewer than k coefficients; its values at the first k - 190 points of a subgroup hold a row of
the witness, the others are random. A proof shows 190 columns, so that they are uniform whatever the witness
is. It also shows random combinations of rows, each with a row added that is random itself:

- code: rows are codewords (three combinations);
- linear: digits and forms are what the bits say, and v is the functional of the digits plus pads (two);
- quadratic: bits are 0 or 1 (two).

A value in [0, R] is written in bits with the weights 1, 2, 4, ..., of which the last is R - (2^(B-1) - 1):
sums of such weights are the numbers 0 to R and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256, shake_256
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.stored.encoding import bound, digest
from privfed.errors import ArgumentError
from privfed.protocols.crypto.fixed_point import Words, to_integer
from privfed.protocols.crypto.keys import equal, expand, new_secret
from privfed.protocols.crypto.keystream import keystream
from privfed.protocols.valid.statement import IntArray, P, Statement, StatementError

COLUMNS = 190
"""Columns that a proof shows: (5/8)^190 < 2^-128."""

WIDTHS = tuple(1 << power for power in range(9, 15))
"""Numbers of coefficients k of which the one with the shortest proof is taken."""

CODE_TESTS, REPEATS, PAD_WORDS = 3, 2, 3
_TESTS = ("code", "linear", "quadratic")
PAD_BITS = 172
SIGMA_BYTES = ROOT_BYTES = SALT_BYTES = 32
_RATE = 8

Field = npt.NDArray[np.uint64]


class ProofError(Exception):
    """A proof does not hold; callers turn it into an error that names its sender.

    Attributes:
        code: "length", "field" (a number is not below p), "root" (columns are not those that were committed
            to), "code", "linear" or "quadratic" (the test that failed).
    """

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"the proof fails the test {code!r}")


class Committed(NamedTuple):
    """What a client keeps and sends of a commitment.

    Attributes:
        root: of the Merkle tree, 32 bytes; it goes to the server with the upload.
        pads: one for each of `functionals`, three words each, lowest first: uint64. They are masked.
        key: 32 bytes from which all that is secret follows. It stays with the client until `prove`.
    """

    root: bytes
    pads: Words
    key: bytes

    def __repr__(self) -> str:
        return f"Committed(root={self.root.hex()})"


new_sigma = new_secret
"""Returns a new sigma, 32 bytes from the operating system's generator."""


def sigma_hash_of(sigma: bytes) -> bytes:
    """Return the hash by which clients know a sigma before it is shown, 32 bytes."""
    return digest("valid sigma", sigma)


def commit(statement: Statement, digits: IntArray, context: bytes, sigma_hash: bytes) -> Committed:
    """Commit to digits, int64 of shape (statement.size,), before sigma is known.

    Args:
        statement: what the digits meet.
        digits: the answer.
        context: what the proof is bound to besides: the sum and the client.
        sigma_hash: hash of the sigma that will be shown.

    Raises:
        StatementError: code "witness"; the digits do not meet the statement.
    """
    key = new_secret()
    made = _Commitment(statement, digits, context, sigma_hash, key)
    return Committed(made.root, made.pads, key)


def prove(statement: Statement, digits: IntArray, key: bytes, context: bytes, sigma: bytes) -> bytes:
    """Return the proof of a commitment, once sigma is known; always the same bytes for the same arguments.

    Under any other context, statement, digits or sigma all blinds and pads are others too, as if they were
    drawn anew. So nobody gets two openings of one commitment, even of a client that lost its state.

    Args:
        statement: as in `commit`, like digits and context.
        digits: the answer.
        key: of the commitment.
        context: what the proof is bound to.
        sigma: what the server has shown; its hash must be that of the first exchange.

    Raises:
        StatementError: code "witness"; the digits do not meet the statement.
    """
    made = _Commitment(statement, digits, context, sigma_hash_of(sigma), key)
    v = _answered(functional(sigma, statement), digits, made.pads).reshape(1, -1)
    return made.opened(_Challenge(made.layout, made.root, context, sigma, v))


def verify(statement: Statement, root: bytes, context: bytes, sigma: bytes, proof: bytes) -> Field:
    """Return v, uint64 of shape (functionals(clients),), of a proof that holds.

    Args:
        statement: what is proven.
        root: what the client committed to before sigma was shown.
        context: what the proof is bound to.
        sigma: as shown.
        proof: the bytes of the proof.

    Raises:
        ProofError: it does not hold. Its length is looked at before anything else.
    """
    compiled, layout, parts, start = _field(), _arranged(statement, COLUMNS, WIDTHS), [], 0
    if not layout.least <= len(proof) <= ceiling(statement):
        raise ProofError("length")
    k = layout.k
    for n, m in layout.shapes:
        part = np.frombuffer(proof, dtype="<u8", count=n * m, offset=start)
        parts.append(part.astype(np.uint64).reshape(n, m))
        start += part.nbytes
    v, *responses, shown, salts = parts
    if any((one >= np.uint64(P)).any() for one in (v, *responses, shown)):
        raise ProofError("field")
    challenge = _Challenge(layout, root, context, sigma, v)
    places = challenge.columns(responses)
    wanted = _siblings(places, k)
    if len(proof) - start != ROOT_BYTES * sum(map(len, wanted)):
        raise ProofError("length")
    known = dict(zip(places.tolist(), _leaves(shown, salts), strict=True))
    brought = iter([proof[at : at + ROOT_BYTES] for at in range(start, len(proof), ROOT_BYTES)])
    for beside in wanted:
        known.update((place, next(brought)) for place in beside)
        even = [at for at in known if at % 2 == 0]
        known = {at // 2: sha256(b"node" + known[at] + known[at + 1]).digest() for at in even}
    if not equal(known[0], root):
        raise ProofError("root")
    rows, *blinds = np.split(shown, np.cumsum([layout.n_rows, CODE_TESTS, REPEATS]), axis=1)
    found = compiled.combined(challenge.code, rows), *challenge.tested(rows, 1, places)
    for name, response, made, blind in zip(_TESTS, responses, found, blinds, strict=True):
        # Each response is, in each column, what the column gives.
        if not np.array_equal(compiled.encoded(response.T, k)[places], compiled.sums(made.T, blind)):
            raise ProofError(name)
    _, linear, quadratic = responses
    if [k * (int(one[0]) + int(one[k])) % P for one in linear] != challenge.right_sides():
        raise ProofError("linear")
    halves = compiled.sums(quadratic[:, :k], quadratic[:, k:])
    if compiled.evaluated(halves.T, k, 1)[: layout.slots].any():
        raise ProofError("quadratic")
    return np.ravel(v)


def ceiling(statement: Statement) -> int:
    """Return the most bytes that a proof of a statement has."""
    layout = _arranged(statement, COLUMNS, WIDTHS)
    return layout.least + _most_siblings(layout.k, layout.columns)


def functionals(clients: int) -> int:
    """Return how many functionals bind a total: for n clients at least (n + 128) / 64.

    Of l liars who act together each can fall silent once it has seen sigma: they choose among 2^l totals, of
    which a wrong one passes with chance 2^l p^-8 where there are eight.
    """
    return max(8, -(-(clients + 128) // 64))


def functional(sigma: bytes, statement: Statement) -> Field:
    """Return the coefficients of the functionals of digits, (functionals(clients), size), below p."""
    return _public(digest("valid functional", sigma), functionals(statement.clients), statement.size)


def totals_hold(statement: Statement, sigma: bytes, totals: IntArray, pads: Words, v: Field) -> bool:
    """Say whether totals are those of the digits that were proven.

    Args:
        statement: its digits' ranges are those of all clients.
        sigma: as shown.
        totals: the opened words read as whole numbers, int64 of shape (statement.size,).
        pads: the opened pads, uint64 of shape (3 functionals(clients),).
        v: what `verify` returned for each client of the sum, (n, functionals(clients)).
    """
    n = len(v)
    if not 0 < n <= statement.clients or ((totals < n * statement.low) | (totals > n * statement.high)).any():
        return False
    found = [sum(map(int, column)) % P for column in v.T]
    return found == _answered(functional(sigma, statement), totals, pads).tolist()  # type: ignore[no-any-return]


def check_compiled() -> None:
    """Check that proofs can be made and checked here.

    Raises:
        ArgumentError: numba is not there, or others can write where it reads machine code.
    """
    from privfed.numerics.kernels.dispatch import machine_code_allowed

    if not machine_code_allowed():
        raise ArgumentError(
            "proofs of answers need numba, which is not installed, or would read its machine code from where "
            "others can write: install it, set NUMBA_CACHE_DIR to a folder of your own, or leave out proofs.",
            parameters=["proofs"],
        )


@cache
def _field() -> Any:
    check_compiled()
    return import_module("privfed.numerics.kernels.compiled_field")


def _residues(numbers: IntArray) -> Field:
    """Return whole numbers of absolute value below p as numbers in [0, p)."""
    return np.where(numbers < 0, numbers.view(np.uint64) + np.uint64(P), numbers.view(np.uint64))


def _minus(values: Field) -> Field:
    return np.where(values > 0, np.uint64(P) - values, np.uint64(0))


def _uniform(draw: Callable[[int], bytes], shape: tuple[int, ...]) -> Field:
    """Return uniform numbers below p from a stream of bytes; words that are not below p are left out."""
    size, more, kept = int(np.prod(shape)), 16, np.empty(0, dtype=np.uint64)
    while len(kept) < size:
        words = np.frombuffer(draw(8 * (size + more)), dtype="<u8").astype(np.uint64)
        kept, more = words[words < np.uint64(P)], 2 * more
    return kept[:size].reshape(shape)


def _public(seed: bytes, *shape: int) -> Field:
    return _uniform(shake_256(seed).digest, shape)


def _numbers(pads: Words) -> Field:
    """Return pads, three words each, modulo p."""
    return np.array([to_integer(pad) % P for pad in pads.reshape(-1, PAD_WORDS)], dtype=np.uint64)


def _answered(coefficients: Field, digits: IntArray, pads: Words) -> Field:
    """Return the functionals of digits or totals, plus pads: one number for each."""
    combined = _field().combined(coefficients, _residues(digits).reshape(1, -1))
    return _field().sums(combined[:, 0], _numbers(pads))  # type: ignore[no-any-return]


def _bytes(values: npt.NDArray[Any]) -> bytes:
    return values.astype("<u8", copy=False).tobytes()


@dataclass(frozen=True, eq=False)
class _Layout:
    """Says where a witness stands in the table's rows.

    Variables are the pads, implied digits, other digits, and forms less their lowest value. The first two are
    numbers below p. The others are numbers in [0, range], written in bits: a variable has one slot, and in it
    one bit a row. Rows that the linear test weighs alike, but for a factor each, are one group.
    """

    statement: Statement
    columns: int
    k: int
    ranges: IntArray
    bits: IntArray
    order: IntArray
    """Variables that have bits, those with the most first; counted from the first of them."""
    n_value_rows: int
    places: IntArray
    """Variable of each group's slots, (n_groups, slots)."""
    factors: Field
    """Its factor there, likewise; 0 where there is none."""
    weights: Field
    """Factor of each row in its group, (n_groups, n_rows); 0 in others."""

    @property
    def slots(self) -> int:
        """Points of a row that hold the witness."""
        return self.k - self.columns

    @property
    def n_rows(self) -> int:
        """Rows that hold the witness."""
        return int(self.weights.shape[1])

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of what a proof begins with: v, three kinds of polynomials, columns, their salts."""
        wide, shown = (REPEATS, 2 * self.k), (self.columns, self.n_rows + CODE_TESTS + 2 * REPEATS)
        return [
            (1, functionals(self.statement.clients)),
            (CODE_TESTS, self.k),
            wide,
            wide,
            shown,
            (self.columns, SALT_BYTES // 8),
        ]

    @property
    def least(self) -> int:
        """Bytes of a proof without hashes."""
        return 8 * sum(n * m for n, m in self.shapes)

    def table(self, statement: Statement, digits: IntArray, pads: Words, random: Field) -> Field:
        """Return a witness as values of polynomials, (k, n_rows); (columns, n_rows) of them are random."""
        own, slots, row = ~statement.implied, self.slots, self.n_value_rows
        values = np.concatenate([_numbers(pads), _residues(digits[statement.implied])])
        table = np.zeros((self.k, self.n_rows), dtype=np.uint64)
        table[slots:] = random
        table[:slots, :row].T.flat[: len(values)] = values
        slacks = statement.values(digits) - statement.forms.low
        items, below = np.concatenate([(digits - statement.low)[own], slacks]), _below(self.bits)
        last = items > below
        items -= last * (self.ranges - below)
        for chosen in _parts(self.order, slots):
            width = int(self.bits[chosen[0]])
            table[: len(chosen), row : row + width] = (items[chosen, None] >> np.arange(width)) & 1
            row += width
            table[: len(chosen), row - 1] = last[chosen]
        return table


def _below(bits: IntArray) -> IntArray:
    """Return the largest number that all bits but the last make up."""
    return (np.int64(1) << np.maximum(bits - 1, 0)) - 1


def _parts(order: IntArray, size: int) -> list[IntArray]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _most_siblings(k: int, columns: int) -> int:
    """Return the most bytes of hashes beside the paths of some columns."""
    return ROOT_BYTES * sum(min(columns, 1 << level) for level in range(_depth(k)))


def _depth(k: int) -> int:
    return (_RATE * k).bit_length() - 1


@lru_cache(maxsize=16)
def _arranged(statement: Statement, columns: int, widths: tuple[int, ...]) -> _Layout:
    """Return the layout with the shortest proof."""
    forms, own = statement.forms, ~statement.implied
    ranges = np.concatenate([(statement.high - statement.low)[own], forms.high - forms.low])
    bits = (ranges[:, None] >> np.arange(63) > 0).sum(axis=1)
    order = np.argsort(-bits, kind="stable")[: np.count_nonzero(bits)]
    n_values = functionals(statement.clients) + int(statement.implied.sum())

    def size(k: int) -> int:
        rows = -(-n_values // (k - columns)) + int(bits[order][:: k - columns].sum())
        return 8 * k * (CODE_TESTS + 4 * REPEATS) + 8 * columns * rows + _most_siblings(k, columns)

    k = min((one for one in widths if one > columns), key=size)
    value_parts = _parts(np.arange(n_values), k - columns)
    found = [(part, np.ones_like(part), np.ones(1, dtype=np.int64)) for part in value_parts]
    for chosen in _parts(order, k - columns):
        plain, done = bits[chosen] - 1, 0
        for edge in np.unique(plain[plain > 0]).tolist():
            # Rows from `done` to `edge` hold bits of those variables that have as many.
            found.append((chosen + n_values, (plain >= edge).astype(np.int64), 1 << np.arange(done, edge)))
            done = edge
        found.append((chosen + n_values, ranges[chosen] - _below(bits[chosen]), np.ones(1, dtype=np.int64)))
    places, factors = np.zeros((2, len(found), k - columns), dtype=np.int64)
    weights, row = np.zeros((len(found), sum(len(rows) for _, _, rows in found)), dtype=np.int64), 0
    for group, (chosen, factor, rows) in enumerate(found):
        places[group, : len(chosen)], factors[group, : len(chosen)] = chosen, factor
        weights[group, row : row + len(rows)] = rows
        row += len(rows)
    made = statement, columns, k, ranges, bits, order, len(value_parts)
    return _Layout(*made, places, _residues(factors), _residues(weights))


class _Commitment:
    """A table of codewords with its tree, as they follow from a key.

    Raises:
        StatementError: the digits do not meet the statement.
    """

    def __init__(
        self, statement: Statement, digits: IntArray, context: bytes, sigma_hash: bytes, key: bytes
    ) -> None:
        if not statement.holds(digits):
            raise StatementError("witness", "the answer does not meet the statement of its question.")
        self.layout = layout = _arranged(statement, COLUMNS, WIDTHS)
        k, columns, compiled = layout.k, layout.columns, _field()

        about = digest("valid secrets", statement.digest, _bytes(digits), context, sigma_hash)

        def words(purpose: str) -> Callable[[int], bytes]:
            own = expand(key, bound(f"valid {purpose}", about))
            return lambda size: keystream(own, size // 8).astype("<u8").tobytes()

        self.pads = np.frombuffer(
            words("pads")(8 * PAD_WORDS * functionals(statement.clients)), dtype="<u8"
        ).astype(np.uint64)
        self.pads[2::3] &= np.uint64((1 << PAD_BITS - 128) - 1)
        random = _uniform(words("rows"), (columns, layout.n_rows + REPEATS))
        table = layout.table(statement, digits, self.pads, random[:, REPEATS:])
        # Vanishing rows are zero in all slots, and random elsewhere.
        vanishing = np.concatenate([np.zeros((layout.slots, REPEATS), dtype=np.uint64), random[:, :REPEATS]])
        self.rows, low = compiled.interpolated(table), compiled.interpolated(vanishing)
        code = _uniform(words("code"), (k, CODE_TESTS))
        linear = _uniform(words("linear"), (2 * k, REPEATS))
        # Its values at the subgroup add up to zero: all coefficients but 0 and k cancel there.
        linear[k] = _minus(linear[0])
        high = _uniform(words("quadratic"), (k, REPEATS))
        # At the subgroup x^k = 1, so that both halves add up.
        self.blinds = code, linear, np.concatenate([compiled.sums(low, _minus(high)), high])
        parts = [compiled.encoded(one, k) for one in (self.rows, *self.blinds)]
        self.matrix = np.concatenate(parts, axis=1)
        self.salts = np.frombuffer(words("salts")(_RATE * k * SALT_BYTES), dtype="<u8").reshape(_RATE * k, -1)
        self.levels = [_leaves(self.matrix, self.salts)]
        for _ in range(_depth(k)):
            lower = self.levels[-1]
            # Without a function: a call more for each would cost a tenth of the proof.
            self.levels.append(
                [
                    sha256(b"node" + left + right).digest()
                    for left, right in zip(lower[::2], lower[1::2], strict=True)
                ]
            )
        (self.root,) = self.levels[-1]

    def opened(self, challenge: _Challenge) -> bytes:
        """Return the proof under a challenge."""
        compiled, layout, k = _field(), self.layout, self.layout.k
        # Products have fewer than 2k coefficients: values at two cosets give them.
        two = np.concatenate([self.matrix[:k], self.matrix[4 * k : 5 * k]])[:, : layout.n_rows]
        linear, quadratic = challenge.tested(two, 4)
        found = (
            compiled.combined(challenge.code, self.rows),
            compiled.decoded(linear.T).T,
            compiled.decoded(quadratic.T).T,
        )
        responses = [compiled.sums(one, blind.T) for one, blind in zip(found, self.blinds, strict=True)]
        places = challenge.columns(responses)
        parts = challenge.v, *responses, self.matrix[places], self.salts[places]
        beside = zip(self.levels, _siblings(places, k), strict=False)
        hashes = [level[place] for level, wanted in beside for place in wanted]
        return b"".join([*map(_bytes, parts), *hashes])


def _leaves(columns: Field, salts: Words) -> list[bytes]:
    """Return the hash of each column with its salt; no column is as long as two hashes with their tag."""
    data, width = _bytes(np.concatenate([salts, columns], axis=1)), 8 * (salts.shape[1] + columns.shape[1])
    return [sha256(data[start : start + width]).digest() for start in range(0, len(data), width)]


def _siblings(places: IntArray, k: int) -> list[list[int]]:
    """Return, for each level from the leaves on, which hashes a proof brings."""
    found = []
    for _ in range(_depth(k)):
        found.append(np.setdiff1d(places ^ 1, places).tolist())
        places = np.unique(places >> 1)
    return found


class _Challenge:
    """What hashes of all that was said ask of a proof."""

    def __init__(self, layout: _Layout, root: bytes, context: bytes, sigma: bytes, v: Field) -> None:
        stated = layout.statement
        self.layout, self.v, self._shown = layout, v, functional(sigma, stated)
        first = digest("valid challenge", stated.digest, context, sigma, root)
        # What tests the code and the bits does not depend on v: a liar cannot try many of them.
        self.code = _public(digest("valid code", first), CODE_TESTS, layout.n_rows)
        self._bits = _public(digest("valid bits", first), REPEATS, layout.n_rows - layout.n_value_rows)
        # What tests v does: else v could be chosen so that it makes up for what is wrong elsewhere.
        self._seed = digest("valid answer", first, _bytes(v))
        self._each = _public(self._seed, REPEATS, v.size + len(stated.forms.low))

    def _digits(self) -> Field:
        """Return each digit's coefficient in both linear tests, (2, size)."""
        compiled, forms = _field(), self.layout.statement.forms
        found = compiled.combined(self._each[:, : self.v.size], self._shown.T)
        coefficients = _residues(forms.coefficient)
        for digits, each in zip(found, self._each[:, self.v.size :], strict=True):
            compiled.sums.at(digits, forms.digit, compiled.products(coefficients, each[forms.form]))
        return found  # type: ignore[no-any-return]

    def right_sides(self) -> list[int]:
        """Return what each linear test comes to."""
        stated, own = self.layout.statement, ~self.layout.statement.implied
        weights = np.concatenate([self._each, self._digits()[:, own]], axis=1)
        lowest = self.v[0], _residues(stated.forms.low), _minus(_residues(stated.low[own]))
        return _field().combined(weights, np.concatenate(lowest).reshape(1, -1))[:, 0].tolist()  # type: ignore[no-any-return]

    def tested(self, rows: Field, step: int, places: IntArray | slice = slice(None)) -> tuple[Field, Field]:
        """Return what both linear and both quadratic tests make of rows, (2, n) each.

        Args:
            rows: values of all rows at some points, (n, n_rows).
            step: these points are on each step-th coset,
            places: at these places of all the cosets'.
        """
        layout, compiled = self.layout, _field()
        together = compiled.combined(layout.weights, rows)
        digits, implied = self._digits(), layout.statement.implied
        parts = self._each[:, : self.v.size], digits[:, implied], digits[:, ~implied]
        linear = np.empty((REPEATS, len(rows)), dtype=np.uint64)
        for one, each in zip(
            linear, np.concatenate([*parts, _minus(self._each[:, self.v.size :])], axis=1), strict=True
        ):
            table = np.zeros((layout.k, len(layout.places)), dtype=np.uint64)
            table[: layout.slots] = compiled.products(each[layout.places], layout.factors).T
            factors = compiled.encoded(compiled.interpolated(table), layout.k, step)[places]
            one[:] = compiled.sums.reduce(compiled.products(factors.T, together), axis=0)
        bits = rows[:, layout.n_value_rows :]
        return linear, compiled.combined(
            self._bits, compiled.products(bits, compiled.sums(bits, np.uint64(P - 1)))
        )

    def columns(self, responses: Sequence[Field]) -> IntArray:
        """Return which columns are shown, ascending."""
        seed = digest("valid columns", self._seed, *map(_bytes, responses))
        found, n = np.empty(0, dtype=np.int64), self.layout.columns
        while len(found) < self.layout.columns:
            n *= 2
            words = np.frombuffer(shake_256(seed).digest(4 * n), dtype="<u4").astype(np.int64)
            words %= _RATE * self.layout.k
            found = words[np.sort(np.unique(words, return_index=True)[1])]
        return np.sort(found[: self.layout.columns])
