"""`privfed demo`: the same centroids over plain and masked sums, in spite of dropouts."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from privfed.cli.main import main
from privfed.experiments.commands.studies import N_CLIENTS, losses
from tests.owners import assert_the_owners, umask


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, Result, float]:
    folder, began = tmp_path_factory.mktemp("demo") / "out", time.monotonic()
    with umask(0):
        result = CliRunner().invoke(main, ["demo", "--no-study", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result, time.monotonic() - began


def test_it_writes_results_and_a_picture(demo) -> None:
    assert {path.name for path in demo[0].iterdir()} == {"demo.json", "demo.png"}
    assert (demo[0] / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_what_it_writes_is_for_its_owner(demo) -> None:
    assert_the_owners(demo[0], {"demo.json", "demo.png"})


def test_masked_and_plain_end_with_the_same_centroids(demo) -> None:
    shown = json.loads((demo[0] / "demo.json").read_text())
    plain, masked = shown["runs"]["plain"], shown["runs"]["masked"]
    assert shown["largest_difference"] == np.abs(np.subtract(plain["centroids"], masked["centroids"])).max()
    assert shown["largest_difference"] < 1e-7
    assert plain["n_iter"] == masked["n_iter"]
    assert [row["contributors"] for row in plain["sums"]] == [row["contributors"] for row in masked["sums"]]
    assert plain["agreement"] == masked["agreement"]
    assert masked["agreement"]["v_measure"] > 0.5


def test_clients_are_lost_before_and_after_their_upload(demo) -> None:
    masked = json.loads((demo[0] / "demo.json").read_text())["runs"]["masked"]
    stages = {stage for row in masked["sums"] for stage in row["dropped"].values()}
    assert {"collect", "unmask"} <= stages
    assert all(row["contributors"] == N_CLIENTS for row in masked["sums"][-3:])


def test_it_prints_one_table(demo) -> None:
    text = demo[1].stdout
    lines = [line.strip("│ ").split()[0] for line in text.splitlines() if line.strip("│ ").split()]
    assert lines.count("plain") == lines.count("masked") == 1
    for word in ("score", "v-measure", "rounds", "dropouts", "the server saw", "Largest difference"):
        assert word in text
    assert "Of both runs: differential privacy: none claimed." in text


@pytest.mark.slow
def test_it_can_be_run_again(demo, invoke) -> None:
    shown = json.loads((demo[0] / "demo.json").read_text())
    invoke("demo", "--no-study", "--out", demo[0])
    again = json.loads((demo[0] / "demo.json").read_text())
    assert again["runs"]["masked"]["centroids"] == shown["runs"]["masked"]["centroids"]


def test_the_losses_follow_from_the_seed() -> None:
    assert losses(1) == losses(1) != losses(2)
    assert {fault.stage for fault in losses(0)} == {"collect", "unmask"}


@pytest.mark.slow
def test_it_ends_with_the_report_of_a_study(tmp_path: Path, invoke) -> None:
    text = invoke("demo", "--out", tmp_path).stdout
    assert "leakage <= 0.1 and cost ratio <= 1.3" in text
    assert (tmp_path / "study" / "report.html").exists()
    assert not json.loads((tmp_path / "study" / "results.json").read_text())["configurations"][0]["errors"]
