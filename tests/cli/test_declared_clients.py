"""Clients on the command line: under differential privacy they are declared, and may hold no rows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.default_run import slow

Invoke = Callable[..., Result]

DECLARED = (
    *("--low", 0, "--high", 8, "--epsilon", 5, "--delta", "1e-6"),
    *("--unit", "record", "--neighbours", "add-remove", "--quiet"),
)
ALL = "h1,h2,h3,h4,h5,h6,far"


def told(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.parametrize("command", ["fit", "select-k"])
def test_under_privacy_a_group_column_needs_the_list_of_clients(
    failing: Callable[..., str], iris: Path, tmp_path: Path, command: str
) -> None:
    words = [command, iris, "--group", "hospital", "--label", "species", "--algorithm", "dp", *DECLARED]
    said = failing(*words, *(("--max-k", 3) if command == "select-k" else ()), "--out", tmp_path / "r")
    assert "--clients" in said and "declared" in said
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("algorithm", "from_file"), [slow(("dp", False)), ("kfed", True)])
def test_a_declared_client_without_rows_takes_part(
    invoke: Invoke, iris: Path, tmp_path: Path, algorithm: str, from_file: bool
) -> None:
    (tmp_path / "names.txt").write_text(ALL.replace(",", "\n") + "\n")
    words = ["fit", iris, "--group", "hospital", "--label", "species", "-k", 2, "--algorithm", algorithm]
    clients = f"@{tmp_path / 'names.txt'}" if from_file else ALL
    invoke(*words, *DECLARED, "--clients", clients, "--out", tmp_path / "r")
    before = told(tmp_path / "r")
    assert before["clients"] == ALL.split(",")
    # The resumed run asks for nothing more: whose rows there are by then leads to no error.
    lines = iris.read_text().splitlines()
    kept = [line for line in lines[1:] if not line.startswith("h6,")]
    iris.write_text("\n".join([lines[0], *kept]) + "\n")
    invoke("resume", tmp_path / "r", "--quiet")
    assert told(tmp_path / "r")["centroids"] == before["centroids"]


def test_the_number_of_clusters_is_chosen_among_declared_clients(
    invoke: Invoke, iris: Path, tmp_path: Path
) -> None:
    words = ["--group", "hospital", "--label", "species", "--algorithm", "dp", "--max-k", 3, *DECLARED]
    invoke("select-k", iris, *words, "--clients", ALL, "--out", tmp_path / "s")
    assert json.loads((tmp_path / "s" / "selection.json").read_text())["clients"] == ALL.split(",")


def test_without_privacy_a_client_needs_rows(failing: Callable[..., str], iris: Path, tmp_path: Path) -> None:
    said = failing(
        "fit", iris, "--group", "hospital", "--label", "species", "--clients", ALL, "--out", tmp_path / "r"
    )
    assert "client 'far' has no rows" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--group", "hospital", "--clients", f"{ALL},h1"), "two clients are called 'h1'"),
        (("--group", "hospital", "--clients", "a,,b"), "empty name"),
        (("--group", "hospital", "--clients", "@none.txt"), "none.txt is no text that can be read"),
        (("--group", "hospital", "--clients", "@/dev/null"), "holds no names"),
        (("--columns", "sepal length", "--clients", ALL), "--group"),
    ],
)
def test_lists_that_do_not_fit_are_one_line(
    failing: Callable[..., str], iris: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    label = () if "--columns" in words else ("--label", "species")
    assert message in failing(
        "fit", iris, *words, *label, *DECLARED, "--algorithm", "dp", "--out", tmp_path / "r"
    )


@pytest.mark.slow
def test_attacks_and_audits_read_a_run_with_a_client_without_rows(
    invoke: Invoke, iris: Path, tmp_path: Path
) -> None:
    words = [
        "fit",
        iris,
        "--group",
        "hospital",
        "--label",
        "species",
        "-k",
        2,
        "--algorithm",
        "dp",
        *DECLARED,
    ]
    invoke(*words, "--protocol", "plain", "--clients", ALL, "--out", tmp_path / "r")
    invoke("audit", tmp_path / "r", "--confidence", 1 - 1e-9)
    # The others' rows are still attacked; the one without has none to find.
    invoke("attack", tmp_path / "r", "--attack", "differencing,linkage", "--quiet")
    said = invoke("attack", tmp_path / "r", "--client", "far", "--quiet", exit_code=2).stderr
    assert "client 'far' has no rows" in said
