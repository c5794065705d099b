"""What a proof shows of an answer is v, and a pad hides v: for every other answer the same is as likely.

Small codes are looked at whole. The real one is too: what a proof showed is explained by another answer, with
blinds of the same kind. The blinds of one answer and of another are equally many, so that nobody who sees
challenges, columns, combinations and v learns which answer it was.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from privfed.protocols.crypto.fixed_point import Words
from privfed.protocols.valid import proof
from privfed.protocols.valid.proof import functional, totals_hold
from privfed.protocols.valid.statement import IntArray, P, Statement
from tests.protocols.valid.stated import Exchange, added, clustered, clusters, drawn, plain

compiled_field = pytest.importorskip("privfed.numerics.kernels.compiled_field", reason="needs numba")

P_VALUE = 1e-7


def small(patch: pytest.MonkeyPatch, columns: int, width: int) -> None:
    """Make the code of proofs a small one."""
    patch.setattr(proof, "COLUMNS", columns)
    patch.setattr(proof, "WIDTHS", (width,))


def random_slots(k: int, columns: int) -> compiled_field.Field:
    """Return what each random slot of a row adds to its codeword, (8k, columns)."""
    units = np.zeros((k, columns), dtype=np.uint64)
    units[k - columns :] = np.eye(columns, dtype=np.uint64)
    return compiled_field.encoded(compiled_field.interpolated(units), k)


@pytest.mark.parametrize(("k", "columns"), [(4, 2), (8, 2), (4, 3), (8, 3)])
def test_columns_are_uniform_whichever_are_shown(k: int, columns: int) -> None:
    """The random slots of a row map one to one onto what any choice of columns shows of it: all choices."""
    added = random_slots(k, columns).astype(object)
    chosen = np.array(list(itertools.combinations(range(8 * k), columns)))
    of_each = added[chosen]
    if columns == 2:
        determinants = of_each[:, 0, 0] * of_each[:, 1, 1] - of_each[:, 0, 1] * of_each[:, 1, 0]
    else:
        a, b, c = of_each[:, 0].T, of_each[:, 1].T, of_each[:, 2].T
        crossed = (b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0])
        determinants = sum(one * other for one, other in zip(a, crossed, strict=True))
    assert (determinants % P != 0).all()


def solved(matrix: compiled_field.Field, right: compiled_field.Field) -> compiled_field.Field:
    """Return x with matrix x = right modulo p."""
    n = len(matrix)
    rows = np.concatenate([matrix, right], axis=1)
    for i in range(n):
        pivot = i + int(np.flatnonzero(rows[i:, i])[0])
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = compiled_field.products(rows[i], np.uint64(pow(int(rows[i, i]), -1, P)))
        factors = proof._minus(rows[:, i])
        factors[i] = 0
        rows = compiled_field.sums(rows, compiled_field.products(factors[:, None], rows[i]))
    return rows[:, n:]


class Seen:
    """What the server sees of a proof, and under which challenge."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.layout = (
            exchange,
            proof._arranged(exchange.statement, proof.COLUMNS, proof.WIDTHS),
        )
        made, start, parts = exchange.proof(), 0, []
        for n, m in self.layout.shapes:
            parts.append(np.frombuffer(made, "<u8", n * m, start).astype(np.uint64).reshape(n, m))
            start += 8 * n * m
        self.v, *self.responses, self.shown, _ = parts
        root = exchange.committed.root
        self.challenge = proof._Challenge(self.layout, root, exchange.context, exchange.sigma, self.v)
        self.places = self.challenge.columns(self.responses)

    def explained(self, digits: IntArray) -> None:
        """Check that another answer explains all of it, with blinds of the same kind."""
        layout, challenge, places = self.layout, self.challenge, self.places
        k, n = layout.k, layout.n_rows
        pads = np.zeros(proof.PAD_WORDS * self.v.size, dtype=np.uint64)
        without = proof._answered(functional(self.exchange.sigma, self.exchange.statement), digits, pads)
        pads[::3] = compiled_field.sums(self.v[0], proof._minus(without))
        nothing = np.zeros((layout.columns, n), dtype=np.uint64)
        arguments = self.exchange.statement, digits, pads

        def columns(coefficients: compiled_field.Field) -> compiled_field.Field:
            return compiled_field.encoded(coefficients, k)[places]

        base = columns(compiled_field.interpolated(layout.table(*arguments, nothing)))
        missing = compiled_field.sums(self.shown[:, :n], proof._minus(base))
        random = solved(random_slots(k, layout.columns)[places], missing)
        rows = compiled_field.interpolated(layout.table(*arguments, random))
        assert (columns(rows) == self.shown[:, :n]).all()
        linear, quadratic = challenge.tested(compiled_field.encoded(rows, k, 4), 4)
        made = (
            compiled_field.combined(challenge.code, rows),
            compiled_field.decoded(linear.T).T,
            compiled_field.decoded(quadratic.T).T,
        )
        blinds = [
            compiled_field.sums(one, proof._minus(other))
            for one, other in zip(self.responses, made, strict=True)
        ]
        start = n
        for blind in blinds:
            assert (columns(blind.T) == self.shown[:, start : start + len(blind)]).all()
            start += len(blind)
        # Of the kinds that are drawn: the linear ones add up to zero, the quadratic ones vanish in the slots.
        assert (compiled_field.sums(blinds[1][:, 0], blinds[1][:, k]) == 0).all()
        halves = compiled_field.sums(blinds[2][:, :k], blinds[2][:, k:]).T
        assert not compiled_field.evaluated(halves, k, 1)[: layout.slots].any()


@pytest.mark.parametrize(("columns", "width"), [(1, 4), (3, 8), (12, 32), (190, 512)])
def test_any_other_answer_explains_what_was_shown(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, columns, width)
    rng = np.random.default_rng(columns)
    for statement, boxed in ((plain(7, 12), False), (clusters(2, 2, 9, 50), True)):
        first, *others = [
            clustered(statement, 2, 2, rng) if boxed else drawn(statement, rng) for _ in range(3)
        ]
        seen = Seen(Exchange(statement, first))
        seen.exchange.checked(seen.exchange.proof())
        for digits in (first, *others):
            seen.explained(digits)


def test_an_answer_off_its_statement_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would fail for it: its linear blinds would not add up to zero."""
    small(monkeypatch, 3, 8)
    statement = plain(4, 12)
    seen = Seen(Exchange(statement, drawn(statement, np.random.default_rng(0))))
    with pytest.raises(AssertionError):
        seen.explained(np.array([2048, 0, 0, 0]))


def repeatable(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Let keys and sigmas come from a generator with a seed, in this test alone."""
    rng = np.random.default_rng(seed)
    patch.setattr(proof, "new_secret", lambda: rng.bytes(32))
    patch.setattr("tests.protocols.valid.stated.new_sigma", lambda: rng.bytes(32))


def views(statement: Statement, answers: list[IntArray], times: int) -> np.ndarray:
    """Return all numbers that a server sees of the first of two clients, and both v, once a row."""
    found = []
    for _ in range(times):
        first = Exchange(statement, answers[0])
        second = Exchange(statement, answers[1], b"client 4 of sum 7", first.sigma)
        one, other = Seen(first), Seen(second)
        v = np.concatenate([one.v, other.v])
        pads = added([first.committed.pads, second.committed.pads])
        assert totals_hold(statement, first.sigma, answers[0] + answers[1], pads, v)
        parts = one.v, other.v, *one.responses, one.shown, pads[None, ::3]
        found.append(np.concatenate([part.ravel() for part in parts]))
    return np.array(found)


def eighths(words: Words) -> np.ndarray:
    """Return how often each eighth of the numbers below p comes."""
    return np.bincount((words >> np.uint64(61)).astype(np.int64).ravel(), minlength=8)


@pytest.fixture(scope="module")
def both() -> tuple[np.ndarray, np.ndarray]:
    """Return views of two answers (all ends, all zeros), and of the same two the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        small(patch, 2, 8)
        repeatable(patch, 1)
        statement = plain(5, 6)
        answers = [statement.high.copy(), np.zeros(5, dtype=np.int64)]
        return views(statement, answers, 80), views(statement, answers[::-1], 80)


def test_views_of_two_answers_with_one_total_are_alike(both: tuple[np.ndarray, np.ndarray]) -> None:
    """Neither column, combination, v nor pad tells the answers from their exchange."""
    one, other = both
    values = [stats.chisquare(eighths(column)).pvalue for column in (*one.T, *other.T, one, other)]
    values += [
        stats.chi2_contingency([eighths(a), eighths(b)]).pvalue for a, b in zip(one.T, other.T, strict=True)
    ]
    assert len(values) > 300 and min(values) > P_VALUE


def test_a_distinguisher_that_is_trained_on_views_guesses(both: tuple[np.ndarray, np.ndarray]) -> None:
    """It knows both answers and many views of each, and finds the means that lie apart the most."""
    one, other = (views / 2.0**64 for views in both)
    answers = plain(5, 6).high, np.zeros(5, dtype=np.int64)
    apart = one[:40].mean(axis=0) - other[:40].mean(axis=0)
    middle = (one[:40].mean(axis=0) + other[:40].mean(axis=0)) / 2
    right = int((((one[40:] - middle) @ apart) > 0).sum() + (((other[40:] - middle) @ apart) < 0).sum())
    assert stats.binomtest(right, 80).pvalue > P_VALUE
    # The same distinguisher on what no pad hides is always right.
    bare = [np.outer(np.ones(9), answer / 64) for answer in (answers[0], answers[1])]
    apart, middle = bare[0][0] - bare[1][0], (bare[0][0] + bare[1][0]) / 2
    assert ((bare[0] - middle) @ apart > 0).all() and ((bare[1] - middle) @ apart < 0).all()


def candidates(k: int, columns: int, places: IntArray, values: Words) -> list[int]:
    """Return which bits in the slots of a row are consistent with what was shown of it, for all of them."""
    units = np.eye(k, dtype=np.uint64)
    added = compiled_field.encoded(compiled_field.interpolated(units), k)[places]
    slots, free = np.split(added, [k - columns], axis=1)
    # Combinations of what was shown that no random slot enters.
    if len(places) <= columns:
        return list(range(1 << k - columns))
    head = solved(free[:columns].T, free[columns:].T).T
    known = np.concatenate([slots, values[:, None]], axis=1)
    rest = compiled_field.sums(
        known[columns:], proof._minus(compiled_field.combined(head, np.ascontiguousarray(known[:columns].T)))
    )
    bits = (np.arange(1 << k - columns)[:, None] >> np.arange(k - columns)) & 1
    sums = compiled_field.combined(rest[:, :-1].copy(), bits.astype(np.uint64))
    return np.flatnonzero((sums == rest[:, -1:]).all(axis=0)).tolist()


def test_an_attack_reads_bits_from_two_openings_and_none_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two openings of one table would give every bit away. Two sigmas make two tables."""
    columns, k = 2, 8
    small(monkeypatch, columns, k)
    statement = plain(6, 8)
    exchange = Exchange(statement, drawn(statement, np.random.default_rng(3)))
    first = Seen(exchange)
    rows = range(first.layout.n_value_rows, first.layout.n_rows)
    own = proof.sigma_hash_of(exchange.sigma)
    made = proof._Commitment(statement, exchange.digits, exchange.context, own, exchange.committed.key)
    truth = compiled_field.evaluated(made.rows, k, 1)[: k - columns].astype(np.int64)
    others = np.setdiff1d(np.arange(8 * k), first.places)[5:7]
    layout, other = first.layout, proof.sigma_hash_of(proof.new_sigma())
    again = proof._Commitment(statement, exchange.digits, exchange.context, other, exchange.committed.key)
    right = wrong = 0
    for row in rows:
        answer = int((truth[:, row] << np.arange(k - columns)).sum())
        assert len(candidates(k, columns, first.places, first.shown[:, row])) == 1 << k - columns
        places = np.concatenate([first.places, others])
        leaked = np.concatenate([first.shown[:, row], made.matrix[others, row]])
        right += candidates(k, columns, places, leaked) == [answer]
        apart = np.concatenate([first.shown[:, row], again.matrix[others, row]])
        wrong += answer in candidates(k, columns, places, apart)
    assert right == layout.n_rows - layout.n_value_rows and wrong == 0


def test_pads_are_uniform_and_below_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    repeatable(monkeypatch, 3)
    small(monkeypatch, 2, 8)
    statement = plain(1, 4)
    pads = np.array([Exchange(statement, np.array([3])).committed.pads for _ in range(250)])
    assert (pads[:, 2::3] < 1 << proof.PAD_BITS - 128).all()
    pads[:, 2::3] <<= np.uint64(192 - proof.PAD_BITS)
    assert min(stats.chisquare(eighths(column)).pvalue for column in pads.T) > P_VALUE
    assert len(np.unique(pads)) == pads.size
