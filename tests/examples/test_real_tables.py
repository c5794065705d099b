"""The example of exports: what it writes is what it drew, and its clusters are the kinds that were drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.tables import load_described, read_schema
from tests.examples.scripts import loaded


@pytest.fixture(scope="module")
def example() -> Any:
    return loaded("real_tables")


def test_the_schema_reads_each_site_as_it_was_drawn(example: Any, tmp_path: Path) -> None:
    kinds = example.write_exports(tmp_path / "exports", 300)
    (tmp_path / "schema.toml").write_text(example.SCHEMA.replace("WEIGHT", "0.3"), encoding="utf-8")
    tables = load_described(tmp_path / "exports", read_schema(tmp_path / "schema.toml"))
    assert tables.names == tuple(kinds) == ("aarhus", "odense", "viborg")
    drawn, low, high = example.KINDS * [1, 1, 1, 1000], [0, 2, 0, 0], [110, 20, 15, 150_000]
    for rows, own in zip(tables.arrays, kinds.values(), strict=True):
        assert rows.shape == (300, 9) and ((rows >= 0.0) & (rows <= 1.0)).all()
        for kind in range(len(drawn)):
            # A site that was read in another unit, or with another decimal sign, would be far outside.
            found = rows[own == kind, :4].mean(axis=0) * np.subtract(high, low) + low
            assert (np.abs(found - drawn[kind]) < [6.0, 0.8, 1.0, 8000.0]).all()


@pytest.mark.slow
def test_clusters_are_the_kinds_from_rows_from_groups_and_under_privacy(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = example.main(["--out", str(tmp_path / "out")])
    assert min(scores.values()) > 0.95 and set(scores) == {"rows", "groups", "private"}
    printed = capsys.readouterr().out
    assert "$ privfed check" in printed and "against the server: (2, 1e-06)" in printed
    wards = example.main(["--out", str(tmp_path / "wards"), "--weight", "0.7071067811865476"])
    # Under a claim columns are scaled by their quartiles, so that wards do not outweigh the rest.
    assert max(wards["rows"], wards["groups"]) < 0.9 < wards["private"]


@pytest.mark.flower
def test_three_nodes_find_the_centers_of_one_process(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(["--out", str(tmp_path / "out"), "--rows", "300", "--nodes"])
    assert "three nodes found the same centers as one process" in capsys.readouterr().out
