"""What the commands write is for the account that ran them alone, under the most open umask.

`tradeoff` is looked at where it runs anyway.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.owners import assert_the_owners, mode, umask

Invoke = Callable[..., object]


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    with umask(0):
        yield


def test_a_run_its_attacks_and_its_predictions(invoke: Invoke, iris: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "run"
    words = ["--group", "hospital", "--label", "species", "--protocol", "plain", "--max-iter", 2, "--quiet"]
    invoke("fit", iris, *words, "-k", 3, "--out", out)
    for name in ("transcript.jsonl", "result.json"):
        (out / name).chmod(0o644)  # As an older version left it.
    out.chmod(0o755)
    invoke("resume", out, "--quiet", "--picture")
    invoke("attack", out, "--attack", "linkage", "--quiet")
    assert_the_owners(out, {"transcript.jsonl", "run.json", "model.npz", "picture.png", "attacks.json"})
    assert mode(tmp_path / "runs") == 0o700
    invoke("attack", out, "--attack", "linkage", "--out", tmp_path / "found", "--quiet", "--picture")
    assert_the_owners(tmp_path / "found", {"attacks.json", "linkage.png"})
    invoke("predict", out, iris, "--out", tmp_path / "labels.csv")
    assert mode(tmp_path / "labels.csv") == 0o600


def test_the_clients_ledgers(invoke: Invoke, iris: Path, tmp_path: Path) -> None:
    words = ["--group", "hospital", "--columns", "petal length,petal width", "--quiet"]
    words += ["--epsilon", 2, "--delta", 1e-5, "--unit", "record", "--neighbours", "add-remove"]
    words += ["--low", 0, "--high", 8, "--max-rows", 90, "-k", 3, "--clients", "h1,h2,h3,h4,h5,h6"]
    invoke("fit", iris, "--algorithm", "dp", *words, "--out", tmp_path / "run")
    assert_the_owners(tmp_path / "run", {"clients", "0.ledger", "0.ledger.lock"})


def test_a_selection_in_an_empty_folder_and_an_audit(invoke: Invoke, iris: Path, tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    words = ["--group", "hospital", "--label", "species", "--max-k", 3, "--max-iter", 2, "--quiet"]
    invoke("select-k", iris, *words, "--protocol", "plain", "--out", tmp_path / "found")
    assert_the_owners(tmp_path / "found", {"k002", "transcript.jsonl", "selection.json", "model.npz"})
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "releases.npz", inside=rng.normal(1, 9, 4000), outside=rng.normal(0, 9, 4000))
    invoke("audit", tmp_path / "releases.npz", "--epsilon", 9, "--delta", 0.1, "--out", tmp_path / "a.json")
    assert mode(tmp_path / "a.json") == 0o600


def test_a_folder_that_others_may_enter_is_named(
    invoke: Invoke, words: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    invoke(*words, "--protocol", "plain", "--max-iter", 1, "--out", tmp_path / "mine", "--quiet")
    assert "others may enter" in caplog.text
    written = [path for path in (tmp_path / "mine").rglob("*") if path.name != "notes.txt"]
    assert written and {mode(path) for path in written} == {0o600}


def test_a_picture_of_rows(tmp_path: Path) -> None:
    from privfed.attacks import Report

    Report(attack="Probing", goal="rows", recovered=0.5).picture(tmp_path / "probing.png")
    Report(attack="Probing", goal="rows", recovered=0.5).picture(str(tmp_path / "probing.svg"))
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
        "probing.png": 0o600,
        "probing.svg": 0o600,
    }
