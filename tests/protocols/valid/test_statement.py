"""Statements: which are refused, what they imply, and what meets them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.protocols.valid import proof
from privfed.protocols.valid.statement import UNBOUNDED, Forms, P, Statement, StatementError
from tests.protocols.valid.stated import clusters, drawn, forms, plain

HALF = P // 2


def refused(code: str, *arguments: object) -> None:
    with pytest.raises(StatementError) as caught:
        Statement(*arguments)  # type: ignore[arg-type]
    assert caught.value.code == code


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_totals_that_could_wrap_are_refused() -> None:
    Statement(4, whole(0), whole(2**60))
    refused("wraps", 8, whole(0), whole(2**60))
    refused("wraps", 8, whole(-(2**60)), whole(0))
    refused("wraps", 2, whole(-(2**63)), whole(0))


def test_forms_that_could_wrap_are_refused() -> None:
    """A mean at 1,000 in a box of 1 would pass modulo p with 2^34 rows in steps of 2^-30: it is refused."""
    rows, unit = 2**34, 2**30
    counts = whole(0, -(2**61)), whole(rows, 2**61)
    refused("wraps", 2, *counts, forms(({0: unit, 1: -1}, 0, None)))
    refused("wraps", 2, *counts, forms(({0: -(2**63)}, 0, None)))
    refused("wraps", 2, whole(0, 0), whole(1, 1), forms(({0: 2**62, 1: 2**62}, 0, None)))
    # What the coefficients allow counts together with the form's own end.
    refused("wraps", 2, whole(0), whole(1), forms(({0: 2**62 + 2**61}, None, None)))
    Statement(2, whole(0), whole(1), forms(({0: 2**61}, None, None)))


def test_statements_that_say_nothing_clear_are_refused() -> None:
    refused("shape", 2, whole(), whole())
    refused("shape", 2, whole(0), whole(1, 2))
    refused("shape", 1, whole(0), whole(1))
    refused("shape", 2, np.zeros(1), np.ones(1))
    refused("shape", 2, np.zeros(1, dtype=np.uint64), whole(1))
    twice = Forms(whole(0, 0), whole(0, 0), whole(1, 1), whole(0), whole(1))
    refused("shape", 2, whole(0), whole(1), twice)
    refused("order", 2, whole(1), whole(0))
    refused("order", 2, whole(0), whole(1), forms(({0: 1}, 1, 0)))
    refused("empty", 2, whole(0), whole(1), forms(({0: 1}, 2, None)))
    refused("empty", 2, whole(0), whole(1), forms(({0: 1}, None, -1)))


@pytest.mark.parametrize("most", [*range(71), 127, 128, 129, 1000])
def test_weights_of_bits_make_up_the_range_and_no_other_number(most: int) -> None:
    """With powers of two alone 70 rows would count 127."""
    layout = proof._arranged(Statement(2, whole(0), whole(most)), proof.COLUMNS, proof.WIDTHS)
    bits = int(layout.bits[0])
    own = layout.n_rows - layout.n_value_rows
    assert own == bits == most.bit_length()
    weights = (layout.weights.astype(object) * layout.factors[:, :1].astype(object)).sum(axis=0)
    of_bits = weights[layout.n_value_rows :]
    if bits <= 8:
        sums = {
            sum(w for w, b in zip(of_bits, one, strict=True) if b)
            for one in itertools.product((0, 1), repeat=bits)
        }
        assert sums == set(range(most + 1))
    assert sum(of_bits) == most


def test_digests_tell_statements_apart() -> None:
    def one(
        clients: int = 3, low: int = 0, high: int = 5, factor: int = 2, least: int = 0, most: int = 9
    ) -> bytes:
        return Statement(
            clients, whole(low, 0), whole(high, 4), forms(({0: factor, 1: 1}, least, most))
        ).digest

    different = [
        one(), one(clients=4), one(low=-1), one(high=6), one(factor=3), one(least=1), one(most=8),
        Statement(3, whole(0, 0), whole(5, 4)).digest,
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert one() == one()
    # An end that ranges leave no room for says nothing.
    assert one(most=14) == one(most=UNBOUNDED) and one(least=-7) == one()


def test_a_box_implies_the_range_of_its_sums() -> None:
    statement = clusters(3, 2, 70, 1 << 40)
    assert statement.implied.tolist() == [False] * 3 + [True] * 6
    # Neither end alone does, nor a coefficient other than 1, nor a total of counts.
    low, high = whole(0, -700), whole(70, 700)
    for few in (
        [({0: 10, 1: 1}, 0, None)],
        [({0: 10, 1: -1}, 0, None)],
        [({0: 10, 1: 2}, 0, None), ({0: 10, 1: -2}, 0, None)],
    ):
        assert not Statement(2, low, high, forms(*few)).implied.any()
    # A box that is wider than the range does not, either.
    wide = [({0: 11, 1: 1}, 0, None), ({0: 11, 1: -1}, 0, None)]
    assert not Statement(2, low, high, forms(*wide)).implied.any()


def test_no_two_digits_of_a_form_are_implied_by_it() -> None:
    """Each of two equal digits would have its range from the other."""
    statement = Statement(2, whole(0, 0), whole(9, 9), forms(({0: 1, 1: -1}, 0, 0)))
    assert not statement.implied.all()


@given(st.integers(0, 2**32 - 1))
def test_what_is_implied_holds(seed: int) -> None:
    """Whatever the digits with ranges of their own are, an implied digit that meets its forms is in range."""
    rng = np.random.default_rng(seed)
    n, n_forms = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    low = rng.integers(-3, 1, n)
    high = low + rng.integers(0, 5, n)
    rows = []
    for _ in range(n_forms):
        digits = rng.permutation(n)[: rng.integers(1, 3)]
        factors = {int(one): int(rng.choice([-2, -1, 1, 2])) for one in digits}
        start = int(rng.integers(-6, 3))
        rows.append((factors, start, start + int(rng.integers(0, 9))))
    try:
        statement = Statement(2, low, high, forms(*rows))
    except StatementError as error:
        assert error.code == "empty"
        return
    spans = [
        range(-40, 41) if free else range(a, b + 1)
        for free, a, b in zip(statement.implied, low, high, strict=True)
    ]
    if np.prod([len(one) for one in spans], dtype=float) > 2e5:
        return
    found = np.array(list(itertools.product(*spans)))
    factors = np.zeros((n_forms, n), dtype=np.int64)
    factors[statement.forms.form, statement.forms.digit] = statement.forms.coefficient
    values = found @ factors.T
    meets = ((statement.forms.low <= values) & (values <= statement.forms.high)).all(axis=1)
    assert ((low <= found[meets]) & (found[meets] <= high)).all()
    assert all(statement.holds(one) for one in found[meets][:50])


def test_answers_off_their_statement_do_not_hold() -> None:
    statement = plain(4, 8)
    for place, value in itertools.product(range(4), (-129, 128, -(2**63), 2**63 - 1)):
        digits = drawn(statement, np.random.default_rng(0))
        assert statement.holds(digits)
        digits[place] = value
        assert not statement.holds(digits)
    assert not statement.holds(whole(0, 0, 0))
    # A sum without rows, a row too many.
    few = clusters(2, 1, 70, 1000)
    assert few.holds(whole(70, 0, 70_000, 0)) and not few.holds(whole(70, 0, 70_000, 1))
    assert not few.holds(whole(70, 1, 70_000, 1)) and not few.holds(whole(71, 0, 0, 0))
