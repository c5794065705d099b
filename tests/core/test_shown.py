"""Contributions come back as they were shown, to the last bit, in any order in which they are asked for."""

from functools import partial
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, StatisticsTable
from privfed.core.record.records import Tables
from privfed.core.roles.conversation import Contributions
from tests.some import some

SPEC = StatisticsSpec(Entry("count", (2,), 0.0, 9.0, 1.0), Entry("sum", (2, 3), -1.0, 1.0, 0.1))


@given(seed=st.integers(0, 2**32 - 1))
def test_tables_come_back_to_the_last_bit(seed: int) -> None:
    rng, tables, kept, expected = np.random.default_rng(seed), Tables(), {}, {}
    vectors = np.zeros((3, SPEC.size))
    for index in range(8):
        n = 3 if rng.random() < 0.7 else 2
        vectors = np.where(rng.random(vectors.shape) < 0.2, rng.normal(size=vectors.shape), vectors)
        vectors[0, :3] = rng.choice([0.0, -0.0, np.nan], 3)
        shown = {i: SPEC.unflatten(vectors[i].copy()) for i in range(n)}
        kept[index], expected[index] = tables.pack(index, shown), vectors[:n].copy()
    fresh = Tables()
    for index in some(rng.permutation(8).tolist()):
        assert fresh.unpack(index, kept).tobytes() == expected[index].tobytes()


def test_a_table_that_barely_changed_takes_few_bytes() -> None:
    tables, rng = Tables(), np.random.default_rng(0)
    count, total = np.ones((100, 2)), rng.uniform(-1, 1, (100, 2, 3))
    first = tables.pack(4, dict(enumerate(SPEC.tabled(count=count, sum=total.copy()))))
    total[7, 1, 2] = 0.5
    second = tables.pack(9, dict(enumerate(SPEC.tabled(count=count, sum=total))))
    assert (first.length > 4000, first.follows) == (True, None)
    assert (second.length < 100, second.follows) == (True, 4)
    alone = tables.pack(11, {5: Statistics(count=count[0], sum=total[0])})
    assert (alone.clients, alone.follows) == ((5,), None)


def test_a_sum_that_is_not_there_is_an_error() -> None:
    tables = Tables()
    with pytest.raises(KeyError):
        tables.unpack(1, {})


def test_a_table_that_does_not_shrink_keeps_the_bytes_that_it_was_read_from() -> None:
    data = np.random.default_rng(0).bytes(8 * 4 * 4000)
    whole = np.frombuffer(data).reshape(4, 4000)
    for vectors, as_they_are in ((whole, True), (whole[::-1], False), (whole[1:], False), (whole.T, False)):
        layout = (("numbers", (vectors.shape[1],)),)
        shown = Contributions(range(len(vectors)), partial(StatisticsTable, layout, vectors))
        kept = Tables().pack(0, shown)
        assert not kept.packed and (kept.data is data) == as_they_are
        assert kept.data == vectors.tobytes() and kept.sha256 == sha256(kept.data).hexdigest()
