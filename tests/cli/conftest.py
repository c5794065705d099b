"""A small table with groups and labels, and the command line run in this process."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_iris

from privfed.cli.main import main
from privfed.estimators.selection import INDICES

Invoke = Callable[..., Result]

PYTHON = r"(?<![\w/])[a-z]\w*=|\b[A-Z]\w+\(|(?<![\w/'.-])[a-z]+_[a-z_]+(?![\w'.])"
"""What only Python says: `name=value`, `Class(...)`, `name_with_lines`; paths and quoted names apart."""


@pytest.fixture
def invoke() -> Invoke:
    def run(*words: object, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words])
        assert result.exit_code == exit_code, (result.exit_code, result.output, result.exception)
        return result

    return run


@pytest.fixture
def failing(invoke: Invoke) -> Callable[..., str]:
    """Run a command that must fail on bad input; return its one line without the beginning."""

    def run(*words: object) -> str:
        result = invoke(*words, exit_code=2)
        assert result.stdout == ""
        assert result.stderr.startswith("privfed: error: ")
        assert result.stderr.count("\n") == 1
        # A study's file has words like those of Python.
        found = set() if words[0] == "tradeoff" else set(re.findall(PYTHON, result.stderr))
        assert not found - set(INDICES), result.stderr
        return result.stderr.removeprefix("privfed: error: ").strip()

    return run


def _write(path: Path) -> Path:
    data, rng = load_iris(), np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hospital", "sepal length", "sepal width", "petal length", "petal width", "species"])
        for row, species in zip(data.data, data.target, strict=True):
            writer.writerow([f"h{rng.integers(1, 7)}", *row.tolist(), data.target_names[species]])
    return path


@pytest.fixture(scope="session")
def write_iris() -> Callable[[Path], Path]:
    """Write iris with the hospital of each row, "h1" to "h6", and its species."""
    return _write


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    return _write(tmp_path / "iris.csv")


@pytest.fixture
def words(iris: Path) -> list[object]:
    """Words of a fit that ends soon, without --protocol and --out."""
    return ["fit", iris, "--group", "hospital", "--label", "species", "-k", 3]
