"""Contributions come back as they were shown, to the last bit, in any order in which they are asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.record.shown import ShownTables
from tests.some import some

SPEC = StatisticsSpec(Entry("count", (2,), 0.0, 9.0, 1.0), Entry("sum", (2, 3), -1.0, 1.0, 0.1))


@given(seed=st.integers(0, 2**32 - 1))
def test_tables_come_back_to_the_last_bit(seed: int) -> None:
    rng, tables, kept, expected = np.random.default_rng(seed), ShownTables(), {}, {}
    vectors = np.zeros((3, SPEC.size))
    for index in range(8):
        n = 3 if rng.random() < 0.7 else 2
        vectors = np.where(rng.random(vectors.shape) < 0.2, rng.normal(size=vectors.shape), vectors)
        vectors[0, :3] = rng.choice([0.0, -0.0, np.nan], 3)
        shown = {i: SPEC.unflatten(vectors[i].copy()) for i in range(n)}
        kept[index], expected[index] = tables.pack(index, shown), vectors[:n].copy()
    fresh = ShownTables()
    for index in some(rng.permutation(8).tolist()):
        assert fresh.unpack(index, kept).tobytes() == expected[index].tobytes()


def test_only_what_changed_is_kept() -> None:
    tables = ShownTables()
    count, total = np.ones((100, 2)), np.ones((100, 2, 3))
    first = tables.pack(4, dict(enumerate(SPEC.tabled(count=count, sum=total))))
    total[7, 1, 2] = 0.5
    second = tables.pack(9, dict(enumerate(SPEC.tabled(count=count, sum=total))))
    assert first.lengths is not None and second.lengths is not None
    assert (sum(first.lengths[1:]) < 300, first.follows) == (True, None)
    assert (second.lengths[1:], second.follows) == ((1,) * 8, 4)
    alone = tables.pack(11, {5: Statistics(count=count[0], sum=total[0])})
    assert (alone.clients, alone.follows) == ((5,), None)


def test_a_sum_that_is_not_there_is_an_error() -> None:
    tables = ShownTables()
    with pytest.raises(KeyError):
        tables.unpack(1, {})
