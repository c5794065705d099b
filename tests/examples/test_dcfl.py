"""The study of DCFL's figures and tables runs; in its quick form DCFL is ahead (over 60 rounds CFL is)."""

import csv
from pathlib import Path

import pytest

from examples.dcfl import figures


@pytest.mark.slow
def test_quick_study_writes_its_tables_and_picture_with_dcfl_ahead_after_twelve_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures.main(["--quick", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert (tmp_path / "out" / "dcfl.md").read_text(encoding="utf-8") in printed
    assert "DP-SGD was left out" in printed and "Table II" in printed and "Figure 5: static" in printed
    assert (tmp_path / "out" / "dcfl.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "dcfl.csv").open(encoding="utf-8") as file:
        lines = [
            line for line in csv.DictReader(file) if line["setting"] == "dynamic" and line["round"] == "12"
        ]

    def final(name: str) -> float:
        own = [float(line["accuracy"]) for line in lines if line["technique"] == name]
        present = [value for value in own if value == value]
        return sum(present) / len(present)

    assert final("DCFL") > final("CFL") + 0.02 > final("FedAvg") + 0.04
    assert final("DCFL") > max(final(name) for name in ("divergence", "euclidean")) + 0.02
    # One seed of 12 rounds tells no more of the cosine than that it is not ahead.
    assert final("DCFL") > final("cosine") - 0.01
