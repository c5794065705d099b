"""Honest proofs hold, and what was proven is what the opened total says."""

from __future__ import annotations

import subprocess
import sys
from pickle import dumps

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.protocols.valid import proof
from privfed.protocols.valid.proof import (
    ProofError,
    ceiling,
    commit,
    new_sigma,
    prove,
    sigma_hash_of,
    totals_hold,
)
from privfed.protocols.valid.statement import Statement, StatementError
from tests.protocols.valid.stated import Exchange, added, clustered, clusters, drawn, forms, plain

pytest.importorskip("numba")


def stated(seed: int) -> tuple[Statement, np.ndarray]:
    """Return a drawn statement and an answer that meets it."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        k, d = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        statement = clusters(k, d, int(rng.integers(1, 200)), int(rng.integers(1, 2**50)))
        return statement, clustered(statement, k, d, rng)
    n = int(rng.integers(1, 40))
    sizes = np.int64(1) << rng.integers(0, 58, n)
    low = rng.integers(-sizes, sizes)
    plain = Statement(8, low, low + rng.integers(0, sizes, endpoint=True))
    digits = drawn(plain, rng)
    factors = {int(one): int(rng.integers(-5, 6)) for one in rng.permutation(n)[:4]}
    value = sum(factor * int(digits[one]) for one, factor in factors.items())
    if seed % 3 == 1 or max(map(abs, digits.tolist())) > 1 << 54:
        return plain, digits
    around = forms((factors, value - int(rng.integers(0, 3)), value + int(rng.integers(0, 1000))))
    return Statement(8, plain.low, plain.high, around), digits


@given(st.integers(0, 2**32 - 1))
def test_an_answer_that_meets_its_statement_is_proven(seed: int) -> None:
    exchange = Exchange(*stated(seed))
    made = exchange.proof()
    v = exchange.checked(made)
    assert len(made) <= ceiling(exchange.statement)
    pads = exchange.committed.pads
    assert totals_hold(exchange.statement, exchange.sigma, exchange.digits, pads, v[None])


@pytest.mark.parametrize("width", proof.WIDTHS)
def test_every_width_of_the_code_proves(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "WIDTHS", (width,))
    statement = clusters(4, 3, 90, 1 << 20)
    exchange = Exchange(statement, clustered(statement, 4, 3, np.random.default_rng(1)))
    exchange.checked(exchange.proof())


def test_totals_of_several_clients_are_those_of_what_they_proved() -> None:
    rng, sigma = np.random.default_rng(0), new_sigma()
    statement = clusters(5, 3, 100, 1 << 40, clients=6)
    each = [Exchange(statement, clustered(statement, 5, 3, rng), b"client %d" % i, sigma) for i in range(6)]
    v = np.stack([one.checked(one.proof()) for one in each])
    total, pads = sum(one.digits for one in each), added([one.committed.pads for one in each])
    assert totals_hold(statement, sigma, total, pads, v)
    for place in range(statement.size):
        # An upload that is not what was proven: by one, or by a multiple of p's distance to 2^64.
        for off in (1, -1, 2**32 - 1):
            moved = total.copy()
            moved[place] += off
            assert not totals_hold(statement, sigma, moved, pads, v)
    assert not totals_hold(statement, new_sigma(), total, pads, v)
    assert not totals_hold(statement, sigma, total, added([one.committed.pads for one in each[1:]]), v)
    for missing in range(6):
        assert not totals_hold(statement, sigma, total, pads, np.delete(v, missing, axis=0))
    assert not totals_hold(statement, sigma, total, pads, v[:0])
    # Totals beyond what so many answers come to, which are the same modulo p.
    far = total.copy()
    far[0] = -(2**63) + 1
    assert not totals_hold(statement, sigma, far, pads, v)


def test_the_same_arguments_make_the_same_proof_and_any_other_another_commitment() -> None:
    statement = plain(6, 20)
    exchange = Exchange(statement, drawn(statement, np.random.default_rng(2)))
    made = exchange.proof()
    assert exchange.proof() == made
    other = prove(statement, exchange.digits, exchange.committed.key, exchange.context, new_sigma())
    # A second opening of one commitment would show twice as many columns: it shows none of them.
    assert not columns_of(statement, made) & columns_of(statement, other)


def columns_of(statement: Statement, made: bytes) -> set[bytes]:
    """Return the bytes of each column that a proof shows."""
    layout = proof._arranged(statement, proof.COLUMNS, proof.WIDTHS)
    start = 8 * sum(n * m for n, m in layout.shapes[:4])
    n, m = layout.shapes[4]
    return {made[start + 8 * m * i : start + 8 * m * (i + 1)] for i in range(n)}


def test_an_answer_off_its_statement_is_not_committed_to() -> None:
    statement = clusters(2, 1, 70, 1000)
    digits = np.array([71, 0, 0, 0])
    with pytest.raises(StatementError) as caught:
        commit(statement, digits, b"", sigma_hash_of(new_sigma()))
    assert caught.value.code == "witness" and "71" not in str(caught.value)


def test_no_secret_is_shown_in_words() -> None:
    statement = plain(2, 8)
    committed = Exchange(statement, np.array([1, 2])).committed
    assert committed.key.hex() not in repr(committed) and str(committed.pads[0]) not in repr(committed)
    assert repr(committed.key) not in repr(committed)


def test_a_proof_is_bytes_that_hold_no_object() -> None:
    exchange = Exchange(plain(2, 8), np.array([1, 2]))
    assert type(exchange.proof()) is bytes
    with pytest.raises(ProofError):
        exchange.checked(dumps([1, 2, 3]))


def test_only_a_proof_loads_numba() -> None:
    program = "import sys, privfed.protocols.valid.proof; assert not {'numba', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
