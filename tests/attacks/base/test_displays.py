"""Displays of reports are drawn into any axes, also of attacks that were not run."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from privfed import plot
from privfed.attacks import Report

CURVE = np.array([[0.0, 0.0], [0.2, 0.7], [1.0, 1.0]])
SCORED = Report(
    attack="membership", goal="area under the ROC curve", recovered=0.9, baseline=0.5, scenes={"ROC": CURVE}
)


def test_a_roc_curve_stands_beside_that_of_guesses() -> None:
    _, ax = plt.subplots()
    shown = plot.RocDisplay.from_report(SCORED, ax)
    assert shown.ax_ is ax and ax.lines[0].get_xydata().tolist() == CURVE.tolist()
    assert ax.lines[-1].get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert "0.9" in ax.get_legend().get_texts()[0].get_text()
    plt.close("all")


def test_figures_over_the_share_that_is_listed_are_in_its_order() -> None:
    reports = {1.0: SCORED, 0.25: replace(SCORED, recovered=0.6)}
    ax = plot.ListedDisplay.from_reports(reports).ax_
    assert ax.lines[0].get_xydata().tolist() == [[0.25, 0.6], [1.0, 0.9]]
    assert ax.lines[1].get_ydata().tolist() == [0.5, 0.5]
    plt.close("all")


def test_bars_are_of_what_is_known() -> None:
    ax = plot.ReportDisplay.from_report(SCORED).ax_
    assert [bar.get_height() for bar in ax.patches] == [0.5, 0.9]
    plt.close("all")


def test_a_report_of_an_attack_that_was_not_run_says_why(tmp_path: Path) -> None:
    report = Report(attack="probing", goal="rows", recovered=float("nan"), why="it asks, and nobody answers")
    report.picture(tmp_path / "p.svg")
    assert "it asks, and nobody answers" in (tmp_path / "p.svg").read_text()
    with pytest.raises(ValueError, match="known format"):
        report.picture(tmp_path / "p")
