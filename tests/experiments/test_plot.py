"""Displays of studies: bands over seeds, ticks at what was measured, and frames filtered by the user."""

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

from privfed import experiments, plot
from privfed.errors import ArgumentError, RunFolderError
from privfed.experiments.plot import BandsDisplay, band
from privfed.experiments.report.figures import pictures


def frame(data: str = "iris") -> pl.DataFrame:
    axes = {"sum": ["plain", "masked"], "epsilon": [0.5, 2.0, math.inf], "seed": range(4)}
    found = pl.DataFrame({"data": [data], "partition": ["5 iid"], "algorithm": ["DP"], "defence": ["none"]})
    found = found.with_columns(kind=pl.lit("iid"), clients=pl.lit(5.0), privacy=pl.lit("some"))
    for name, values in axes.items():
        found = found.join(pl.DataFrame({name: values}), how="cross")
    seed, cost = pl.col("seed"), 10.0 * pl.min_horizontal("epsilon", 9.0)
    leaked = pl.when(pl.col("sum") == "plain").then(0.1 * seed).otherwise(0.0)
    return found.with_columns((1.0 + seed / cost).alias("cost ratio"), leaked.alias("leakage"))


def test_a_band_holds_the_median_and_is_narrow_where_seeds_agree() -> None:
    middle, low, high = band([1.0, 2.0, 3.0, 9.0])
    assert low <= middle == 2.5 <= high and (low, high) != (middle, middle)
    assert band([2.0]) == (2.0, 2.0, 2.0) and band([1.5] * 5) == (1.5, 1.5, 1.5)
    assert band([1.0, 2.0, 3.0]) == band([1.0, 2.0, 3.0])


def test_cost_over_epsilon_has_ticks_at_what_was_measured_and_none_at_the_end() -> None:
    _, ax = plt.subplots()
    shown = plot.EpsilonDisplay.from_study(frame(), ax=ax)
    assert shown.ax_ is ax and ax.get_xscale() == "log"
    assert [one.get_text() for one in ax.get_xticklabels()] == ["0.5", "2", "none"]
    assert list(shown.lines) == ["plain", "masked"] and ax.get_ylabel() == "cost ratio"
    assert "4 seeds" in ax.get_legend().get_title().get_text()
    (line,) = [one for one in ax.lines if one.get_label() == "plain"]
    np.testing.assert_allclose(line.get_ydata(), [1.3, 1.075])
    plt.close("all")


def test_one_seed_has_no_band_and_says_so() -> None:
    shown = plot.EpsilonDisplay.from_study(frame().filter(pl.col("seed") == 0))
    assert "one seed" in shown.ax_.get_legend().get_title().get_text()
    plt.close("all")


def test_a_share_near_zero_does_not_look_large() -> None:
    shown = plot.EpsilonDisplay.from_study(frame())
    beyond = [bars.lines[0].get_xdata()[0] for bars in shown.ax_.containers]
    assert len(beyond) == len(set(beyond)) == len(shown.lines)  # Fits without a guarantee stand apart.
    ax = plot.EpsilonDisplay.from_study(frame().filter(pl.col("sum") == "masked"), "leakage").ax_
    assert ax.get_ylim()[1] >= 0.25
    plt.close("all")


def test_leakage_against_cost_has_a_mark_for_each_configuration() -> None:
    shown = plot.LeakageDisplay.from_study(frame())
    assert {name: list(own) for name, own in shown.points.items()} == {
        "plain": ["0.5", "2", ""],
        "masked": ["0.5", "2", ""],
    }
    low, high = shown.ax_.get_ylim()
    assert low == -0.03 and high >= 0.25
    top = max(max(leaked) for own in shown.points.values() for _, leaked in own.values())
    assert high > top
    # Marks are open, so that one below another shows.
    marks = [line for line in shown.ax_.lines if line.get_marker() not in ("None", "", "|", "_")]
    assert marks and {line.get_markerfacecolor() for line in marks} == {"none"}
    plt.close("all")


def test_what_no_attack_could_read_keeps_its_name_and_has_no_mark() -> None:
    exact = frame().filter(pl.col("epsilon").is_infinite()).with_columns(algorithm=pl.lit("DWF"))
    noised = frame().filter(pl.col("epsilon").is_finite()).with_columns(leakage=pl.lit(None, pl.Float64))
    both = pl.concat([exact, noised], how="diagonal_relaxed")
    assert list(plot.LeakageDisplay.of(both).points) == ["DWF, plain", "DWF, masked"]
    utility, leakage = pictures([], both)[0].panels
    assert list(leakage.lines) == ["DWF, plain", "DWF, masked"] and len(utility.lines) == 4
    axes = [one.plot() for one in (utility, leakage)]
    above, below = ([tick.get_text() for tick in ax.get_xticklabels()] for ax in axes)
    assert above == below == ["0.5", "2", "none"]
    assert [one.name for one in pictures([], both)] == ["tradeoff", "leakage-against-cost"]
    plt.close("all")


def test_several_data_sets_are_no_single_line() -> None:
    two = pl.concat([frame(), frame("wine")])
    with pytest.raises(ArgumentError, match="iris, wine"):
        plot.EpsilonDisplay.from_study(two)
    assert plot.EpsilonDisplay.from_study(two, data="wine").title == "wine"
    with pytest.raises(ArgumentError, match="'ari'"):
        plot.EpsilonDisplay.from_study(two, "ari", data="wine")
    plt.close("all")


def test_numbers_of_a_display_are_what_it_draws() -> None:
    numbers = BandsDisplay({"a": {1.0: [1.0, 3.0]}}, "rounds", "recovered").numbers()
    assert [(one["line"], one["rounds"], one["median"], one["n"]) for one in numbers] == [("a", 1.0, 2.0, 2)]


def test_a_folder_without_a_study_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"study\.csv"):
        experiments.read(tmp_path)


def test_a_finished_study_is_a_frame_and_a_picture_with_one_line_each(finished: Path) -> None:
    shown = plot.LeakageDisplay.from_study(finished)
    assert shown.points and experiments.read(finished)["seed"].unique().to_list() == [0, 1]
    plt.close("all")


@pytest.mark.parametrize("text", [b"seed,cost\n1,2\n3,4,5\n", b"seed,name\n1,\xff\n"])
def test_a_table_that_was_changed_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "study.csv").write_bytes(text)
    with pytest.raises(RunFolderError):
        experiments.read(tmp_path)
