"""Statistics of several clients in one table are those that they would be one by one."""

import numpy as np
import pytest

from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, StatisticsTable
from privfed.errors import ArgumentError

SPEC = StatisticsSpec(Entry("count", (2,), 0.0, 9.0, 1.0), Entry("sum", (2, 3), -1.0, 1.0, 0.1))
RNG = np.random.default_rng(0)
COUNT, SUM = RNG.integers(0, 9, (4, 2)).astype(float), RNG.uniform(-1, 1, (4, 2, 3))


def table() -> StatisticsTable:
    return SPEC.tabled(count=COUNT, sum=SUM)


def test_a_row_of_a_table_is_the_clients_statistics() -> None:
    assert len(table()) == 4
    for i, own in enumerate(table()):
        alone = Statistics(count=COUNT[i], sum=SUM[i])
        assert own.layout == alone.layout == SPEC.layout
        assert {name: array.tolist() for name, array in own.items()} == {
            name: array.tolist() for name, array in alone.items()
        }
        assert SPEC.flatten(own).tolist() == SPEC.flatten(alone).tolist()
        assert dict(own + alone)["sum"].tolist() == (2 * SUM[i]).tolist()
        assert repr(own) == repr(alone)
        with pytest.raises(ValueError, match="read-only"):
            own["sum"][0] = 0.0
    assert [dict(one)["count"].tolist() for one in table()[1:3]] == COUNT[1:3].tolist()
    with pytest.raises(IndexError):
        table()[4]


def test_a_specification_says_whether_answers_keep_to_its_ranges() -> None:
    assert SPEC.holds(table().vectors) and all(SPEC.holds(own.vector) for own in table())
    outside = SPEC.tabled(count=COUNT, sum=np.where(SUM.max() == SUM, 1.5, SUM))
    assert not SPEC.holds(outside.vectors)
    assert [SPEC.holds(own.vector) for own in outside] == [SUM.max() not in one for one in SUM]
    assert not SPEC.holds(SPEC.tabled(count=COUNT * np.nan, sum=SUM)[0].vector)
    narrower = StatisticsSpec(Entry("count", (2,), 0.0, 1.0, 1.0), Entry("sum", (2, 3), -1.0, 1.0, 0.1))
    assert not narrower.holds(table().vectors)


def test_a_table_of_another_layout_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="layout"):
        SPEC.tabled(count=COUNT, sum=SUM[:, :1])
    with pytest.raises(ArgumentError, match="layout"):
        SPEC.tabled(sum=SUM, count=COUNT)
