"""`--config`: options from a file count as if they stood before those of the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = """
group = "site"
drop = ["note", "c"]
n-clusters = 3
max_iter = 7
scale = "standard"
picture = false
quiet = true
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"s{i % 4},{9 * (i % 2) + rng.normal()},{rng.normal()},{i},x" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["site,a,b,c,note", *lines]))
    (tmp_path / "fit.toml").write_text(FILE)
    return tmp_path / "t.csv"


def test_a_file_of_options_is_the_same_as_its_words(invoke: Any, table: Path) -> None:
    words = ("--group", "site", "--drop", "note,c", "-k", 3, "--max-iter", 7, "--scale", "standard")
    invoke("fit", table, *words, "--no-picture", "--quiet", "--out", table.parent / "plain")
    for number, option in enumerate(
        [("--config", table.parent / "fit.toml"), (f"--config={table.parent}/fit.toml",)]
    ):
        out = table.parent / f"run{number}"
        invoke("fit", table, *option, "--out", out)
        assert (out / "centroids.csv").read_bytes() == (table.parent / "plain/centroids.csv").read_bytes()
        assert {one.name for one in out.iterdir()} == {one.name for one in (table.parent / "plain").iterdir()}


def test_the_command_line_overrides_a_file(invoke: Any, table: Path) -> None:
    invoke("fit", table, "-k", 2, "--config", table.parent / "fit.toml", "--out", table.parent / "run")
    assert len((table.parent / "run/centroids.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nn = 3", "--nn"),
        ("low = [[1]]", "low must be a text"),
        ("[fit]\nlow = 1", "fit must be a text"),
        ("low =", "cannot be read as a file of options"),
        ('epsilon = 1.0\nalgorithm = "dp"\ngroup = "site"', "missing: --delta, --unit"),
        ('scale = "wide"', "is not one of 'standard'"),
        ('config = "other.toml"', "names another file of options"),
    ],
)
def test_what_a_file_may_not_say_is_an_error_of_one_line(
    failing: Any, table: Path, text: str, told: str
) -> None:
    (table.parent / "bad.toml").write_text(text)
    error = failing("fit", table, "--config", table.parent / "bad.toml", "--out", table.parent / "run")
    assert told in error and error.count("\n") <= 1
    assert not (table.parent / "run").exists()


def test_help_of_attacks_shows_the_usual_options_and_how_to_see_the_others(invoke: Any) -> None:
    brief, whole = (
        {
            line.split()[0]
            for line in invoke("attack", *words, "--help").stdout.splitlines()
            if line[:3] == "  -"
        }
        for words in ((), ("--attack", "membership"))
    )
    assert brief < whole and len(brief) <= 20 and {"--truth", "--attack", "--party"} <= brief
    assert "attack --attack NAME --help" in invoke("attack", "--help").stdout


@pytest.mark.parametrize("command", ["fit", "select-k"])
def test_help_shows_the_usual_options_and_how_to_see_the_others(invoke: Any, command: str) -> None:
    def shown(*words: str) -> set[str]:
        text = invoke(command, *words, "--help").stdout
        return {line.split()[0] for line in text.splitlines() if line.startswith("  -")}

    brief, whole = shown(), shown("--algorithm", "fuzzy")
    assert brief < whole and 15 <= len(brief) <= 20
    assert {"--group", "--epsilon", "--protocol", "--help"} <= brief
    assert {"--fuzzifier", "--separator", "--mechanism"} <= whole - brief
    assert f"{command} --algorithm NAME --help" in invoke(command, "--help").stdout


def test_help_stands_under_headings(invoke: Any) -> None:
    text = invoke("fit", "--help").stdout
    places = [text.index(f"\n{one}:\n") for one in ("Options", "Rows", "Secure sum")]
    assert places == sorted(places)
    assert text.index("--group COLUMN") > places[1] and text.index("--protocol NAME") > places[2]
