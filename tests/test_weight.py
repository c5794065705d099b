"""Each part of the product stays within the statements that docs/weight.md allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.weight import PRODUCT, ROOT, limits, listed, modules, part_of, statements, weights

PARTS = {"core", "attacks", "deep", "tables", "nodes", "experiments"}


def test_there_are_six_parts_with_a_limit() -> None:
    assert set(limits()) == PARTS == set(listed().values())


@pytest.mark.parametrize("part", sorted(PARTS))
def test_no_part_is_above_its_limit(part: str) -> None:
    assert 0 < weights()[part] <= limits()[part]


def test_every_module_has_a_part_and_every_listed_name_is_there() -> None:
    names = listed()
    found = [part_of(path, names) for path in modules(*PRODUCT)]
    assert len(found) > 100
    missing = {
        name for name in names if not (ROOT / name).exists() or (ROOT / name).is_dir() != name.endswith("/")
    }
    assert not missing


def test_statements_are_counted_without_imports_and_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        '"""A module."""\nimport os\nX = 1\n"""Of X."""\ndef f():\n    """Say."""\n    return os\n'
    )
    assert statements(file) == 3
