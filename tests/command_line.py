"""A small table with groups and labels, and the command line run in this process."""

import csv
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_iris

from privfed.cli.main import main
from privfed.estimators.choosing import INDICES
from tests.cli.wide import without_pictures

Invoke = Callable[..., Result]

PYTHON = r"(?<![\w/])[a-z]\w*=|\b[A-Z]\w+\(|(?<![\w/'.-])[a-z]+_[a-z_]+(?![\w'.])"
"""What only Python says: `name=value`, `Class(...)`, `name_with_lines`; paths and quoted names apart."""


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of a group, those of other parts too, by name."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: one for name, one in found.items() if one is not None}


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process; pictures are drawn only for tests that say --picture."""

    def run(*words: object, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, without_pictures(words))
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


@pytest.fixture(scope="session")
def fit_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Fit iris with these further words, once for all tests; return the folder, beside the table."""

    def fit(*more: str) -> Path:
        folder = tmp_path_factory.mktemp("once")
        words = ["fit", _write(folder / "iris.csv"), "--group", "hospital", "--label", "species", "-k", 3]
        result = CliRunner().invoke(main, without_pictures([*words, *more, "--out", folder / "run"]))
        assert result.exit_code == 0, result.output
        return folder / "run"

    return cache(fit)


@pytest.fixture
def copied(fit_once: Callable[..., Path], iris: Path) -> Callable[..., Path]:
    """Return a copy of the folder of such a fit, as if it had read this test's table."""

    def copy(folder: Path, *more: object) -> Path:
        once = fit_once(*map(str, more))
        shutil.copytree(once, folder)
        settings = (folder / "run.json").read_text()
        assert str(once.parent / "iris.csv") in settings
        (folder / "run.json").write_text(settings.replace(str(once.parent / "iris.csv"), str(iris)))
        return folder

    return copy
