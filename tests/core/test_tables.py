"""Statistics of several clients in one table are those that they would be one by one."""

from hashlib import sha256
from pathlib import Path
from zlib import compress

import numpy as np
import pytest
from msgspec.structs import replace

from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, StatisticsTable
from privfed.core.record.records import Table
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


def test_values_in_a_file_have_a_hash(tmp_path: Path) -> None:
    data = compress(bytes(8))
    (tmp_path / "values").write_bytes(data)
    bare = Table((0,), 1, len(data), "", at=0)
    with pytest.raises(ValueError):
        bare.values(tmp_path / "values")
    assert replace(bare, sha256=sha256(data).hexdigest()).values(tmp_path / "values").tolist() == [[0.0]]
