"""Pictures of fits, of trained models, of selections and of the demonstration. No row is ever drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from privfed.cli.result import Decided, Outcome, Result, TrainedResult, claim_from
from privfed.core.roles.conversation import ROUND
from privfed.core.stored.files import replaced
from privfed.core.values.domain import FloatArray
from privfed.experiments.report.svg import COLOURS
from privfed.privacy.claim import PrivacySpent, noised_mark

if TYPE_CHECKING:
    from privfed.estimators.choosing import SelectionResult

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw_run(path: Path, history: Sequence[FloatArray], result: Result, tol: float) -> None:
    """Draw convergence beside the paths of the centroids.

    Args:
        path: PNG file to write.
        history: centroids at the start and after each round, each (n_clusters, n_features) float64.
        result: result of the run.
        tol: movement below which the run stops.
    """
    figure = _figure(result)
    left, right = figure.subplots(1, 2)
    draw_convergence(left, {result.protocol: result.movements}, tol)
    _draw_centroids(right, np.stack(history), result.columns)
    save(figure, path)


def _figure(result: Outcome) -> Figure:
    figure, claim = Figure(figsize=(11, 5), layout="constrained"), claim_from(result.privacy)
    what = f"{result.algorithm} over {len(result.clients)} clients, protocol {result.protocol}"
    figure.suptitle(f"{what}{noised_mark(claim)}")
    write_claim(figure, claim)
    return figure


def write_claim(figure: Figure, claim: PrivacySpent | None) -> None:
    """Write the claim, if there is one, below a figure, as pictures are shared without their report."""
    if claim is not None:
        characters = int(16 * figure.get_figwidth())
        figure.supxlabel("\n".join(textwrap.wrap(claim.line, characters)), fontsize=7, color="#444444")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, or as SVG where the file is called so."""
    if path.suffix.lower() == ".svg":
        # The salt names the parts of equal pictures alike.
        with replaced(path) as fresh, rc_context({"svg.hashsalt": path.stem}):
            FigureCanvasSVG(figure).print_svg(fresh, metadata={"Date": None})  # type: ignore[no-untyped-call]
        return
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(120)
    with replaced(path) as fresh:
        # Unlike `savefig`, this draws once, and the layout is found in the same pass.
        canvas.print_png(fresh)  # type: ignore[no-untyped-call]


def draw_convergence(axes: Axes, runs: dict[str, Sequence[float]], tol: float) -> None:
    """Draw the movement of each round on a logarithmic axis; rounds without movement are at the bottom."""
    for position, (name, moved) in enumerate(runs.items()):
        _draw_movements(axes, name, np.asarray(moved), position)
    if any(value > 0 for moved in runs.values() for value in moved):
        axes.set_yscale("log")
    else:
        axes.set_yticks([])
    if tol > 0:
        axes.axhline(tol, color="#666666", linewidth=1, linestyle=":", label=f"tol = {tol:g}")
    axes.set(title="Convergence", xlabel="round", ylabel="movement of the centroids")
    _finish(axes, "lower left")


def _draw_movements(axes: Axes, name: str, moved: FloatArray, position: int) -> None:
    colour, rounds = COLOURS[position % len(COLOURS)], np.arange(1, len(moved) + 1)
    width, line, marker = ((2.5, "-", "o"), (1.5, "--", "s"))[position % 2]
    kept = np.where(moved > 0, moved, np.nan)
    axes.plot(rounds, kept, line, color=colour, linewidth=width, marker=marker, markersize=4, label=name)
    still = rounds[moved == 0]
    if still.size:
        # A logarithmic axis has no zero, so these points are placed in units of the axes' height.
        bottom = axes.get_xaxis_transform()
        axes.plot(
            still,
            np.full(still.size, 0.02 + 0.03 * position),
            "v",
            color=colour,
            transform=bottom,
            label=f"{name}: zero",
        )


def flat(history: FloatArray, columns: Sequence[str]) -> tuple[FloatArray, tuple[str, str]]:
    """Project centroids to the plane, by their features or by the principal axes of the final ones.

    Args:
        history: float64 of shape (n_rounds + 1, n_clusters, n_features).
        columns: names of the features.

    Returns:
        The points, float64 of shape (n_rounds + 1, n_clusters, 2), and the names of the axes.
    """
    if history.shape[2] == 1:
        return np.concatenate([history, np.zeros_like(history)], axis=2), (columns[0], "")
    if history.shape[2] == 2:
        return history, (columns[0], columns[1])
    last = history[-1]
    _, spread, axes = np.linalg.svd(last - last.mean(axis=0), full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, axes.shape[1]))])[:2]
    # The sign of a principal axis is arbitrary; the largest entry is made positive so that pictures repeat.
    axes = axes * np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    share = np.append(np.square(spread), 0.0)[:2] / max(float(np.square(spread).sum()), 1e-300)
    names = [f"principal axis {i + 1} of the centroids ({share[i]:.0%})" for i in range(2)]
    return (history - last.mean(axis=0)) @ axes.T, (names[0], names[1])


def _draw_centroids(axes: Axes, history: FloatArray, columns: Sequence[str]) -> None:
    points, (across, up) = flat(history, columns)
    for cluster in range(points.shape[1]):
        path, colour = points[:, cluster], COLOURS[cluster % len(COLOURS)]
        axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=1, alpha=0.6)
        axes.plot(*path[0], "o", markerfacecolor="white", markeredgecolor=colour, markersize=5)
        marker = _MARKERS[cluster // len(COLOURS) % len(_MARKERS)]
        axes.plot(*path[-1], marker, color=colour, markersize=10)
        axes.annotate(str(cluster), path[-1], xytext=(7, 7), textcoords="offset points", fontsize=11)
    axes.set(title="Centroids (small circle: where each started)", xlabel=across, ylabel=up)
    axes.margins(0.1)
    axes.grid(color="#dddddd", linewidth=0.5)
    if history.shape[2] == 1:
        axes.set_yticks([])


def draw_models(path: Path, history: Sequence[FloatArray], result: TrainedResult) -> None:
    """Draw the movement of the models beside the number of clusters.

    Args:
        path: PNG file to write.
        history: models at the start and after each round, each float64 of shape (n_clusters, n_parameters).
        result: result of the run.
    """
    figure = _figure(result)
    left, right = figure.subplots(1, 2)
    _draw_moved(left, moved(history))
    _draw_clusters(right, [len(models) for models in history[1:]], result.decided)
    save(figure, path)


def moved(history: Sequence[FloatArray]) -> list[FloatArray]:
    """Return for each round how far each model lies from the nearest of the round before, one array each."""
    found = []
    for before, after in pairwise(history):
        apart = np.linalg.norm(after[:, None] - before[None], axis=2)
        found.append(np.asarray(apart.min(axis=1)))
    return found


def _draw_moved(axes: Axes, steps: Sequence[FloatArray]) -> None:
    rounds = np.arange(1, len(steps) + 1)
    for number, own in zip(rounds, steps, strict=True):
        axes.plot(np.full(len(own), number), own, ".", color="#bbbbbb", markersize=4)
    means = [float(own.mean()) for own in steps]
    axes.plot(rounds, means, color=COLOURS[0], marker="o", markersize=4, label="mean of all models")
    axes.set(title="Movement of the models", xlabel="round", ylabel="distance to the nearest one before")
    axes.set_ylim(bottom=0.0)
    _finish(axes)


def _draw_clusters(axes: Axes, counts: Sequence[int], decided: Sequence[Decided]) -> None:
    rounds = np.arange(1, len(counts) + 1)
    axes.step(rounds, counts, where="mid", color=COLOURS[0], label="clusters")
    changed = [one.round for one in decided if one.changed]
    if changed:
        own = [counts[number - 1] for number in changed]
        axes.plot(changed, own, "v", color=COLOURS[1], markersize=5, label="clients clustered anew")
    axes.set(title="Clusters", xlabel="round", ylabel="number of models")
    axes.set_ylim(0, max(counts) + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes)


def _finish(axes: Axes, legend: Literal["best", "lower left"] = "best") -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc=legend)


def draw_selection(path: Path, result: SelectionResult) -> None:
    """Draw the index over the numbers of clusters, with the chosen one marked, as a PNG file."""
    figure, claim = Figure(figsize=(7, 4.5), layout="constrained"), result.privacy_claim
    write_claim(figure, claim)
    axes = figure.subplots()
    numbers, values = [row.n_clusters for row in result.table], [row.index for row in result.table]
    axes.plot(numbers, values, "-o", color=COLOURS[0], linewidth=2, markersize=5, label=result.index)
    best = next(row for row in result.table if row.n_clusters == result.n_clusters)
    axes.plot(
        best.n_clusters,
        best.index,
        "o",
        color=COLOURS[1],
        markersize=13,
        markerfacecolor="none",
        markeredgewidth=2.5,
        label=f"{result.rule}: {result.n_clusters} clusters",
    )
    name = result.index.replace("_", " ") + noised_mark(claim)
    axes.set(title="Number of clusters", xlabel="clusters", ylabel=name)
    axes.margins(0.08)
    _finish(axes)
    save(figure, path)


def draw_profile(path: Path, apart: FloatArray, sizes: FloatArray, columns: Sequence[str]) -> None:
    """Draw how far each column's mean in each cluster lies from that of all rows, as a heat map.

    Args:
        path: PNG or SVG file to write.
        apart: in standard deviations of all rows, (n_clusters, n_features) float64; NaN without rows.
        sizes: rows of each cluster, (n_clusters,).
        columns: names of the columns.
    """
    k, d = apart.shape
    figure = Figure(
        figsize=(min(max(6.0, 2.5 + 0.9 * k), 24.0), min(1.8 + 0.3 * d, 40.0)), layout="constrained"
    )
    axes = figure.subplots()
    image = axes.imshow(apart.T, cmap="RdBu_r", vmin=-2.0, vmax=2.0, aspect="auto")
    names = [f"{i}\n{size:.0f} rows" for i, size in enumerate(sizes)]
    axes.set_xticks(range(k), names)
    axes.set_yticks(range(d), list(columns))
    axes.set(title="Means of clusters beside those of all rows", xlabel="cluster")
    figure.colorbar(image, label="standard deviations\nof all rows", extend="both")
    if k * d <= 400:
        for i, j in np.ndindex(k, d):
            shown = "" if np.isnan(apart[i, j]) else f"{apart[i, j]:+.1f}"
            dark = abs(apart[i, j]) > 1.3
            axes.text(i, j, shown, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    save(figure, path)


def draw_months(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Draw what a party gave in each month: its answers above the epsilon of the fits that began in it.

    Args:
        path: PNG file to write.
        lines: of `record` by month; a month without any is drawn as an empty one.
    """
    first, last = (np.datetime64(line["month"], "M") for line in (lines[0], lines[-1]))
    months, data_sets = np.arange(first, last + 1).astype(str), sorted({line["data_set"] for line in lines})
    unclaimed = {line["month"] for line in lines if line["fits_without_guarantee"]}
    figure = Figure(figsize=(min(4.0 + 0.4 * len(months), 24.0), 6.0), layout="constrained")
    panels, width = figure.subplots(2, 1, sharex=True), 0.8 / len(data_sets)
    titles = {"answers": "Sums answered", "epsilon": "Epsilon of the fits that began in it"}
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        # Sets stand side by side: epsilon of different rows does not add up.
        for number, rows in enumerate(data_sets):
            own = {line["month"]: line[column] for line in lines if line["data_set"] == rows}
            place = np.arange(len(months)) + (number - (len(data_sets) - 1) / 2) * width
            height = [own.get(month, 0) for month in months]
            axes.bar(place, height, width, color=COLOURS[number % len(COLOURS)], label=rows)
        axes.set_title(title, loc="left")
        axes.grid(axis="y", color="#dddddd", linewidth=0.5)
        axes.set_axisbelow(True)
    names = [f"{month}{' *' * (month in unclaimed)}" for month in months]
    axes.set_xticks(range(len(months)), names, rotation=90 if len(months) > 8 else 0)
    axes.set_xlabel("month; * a fit in it gave no guarantee of differential privacy")
    panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*panels[0].get_legend_handles_labels(), title="data set", loc="outside right upper")
    save(figure, path)


def draw_demonstration(path: Path, runs: dict[str, Result], tol: float) -> None:
    """Draw the centroids of each run, which are digits of 8 by 8 pixels, above the convergence of all."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1, 1.4])
    above, below = (figure.add_subfigure(rows[i]) for i in range(2))
    grid = above.subplots(len(runs), runs["masked"].n_clusters)
    for row, (name, result) in enumerate(runs.items()):
        for cluster, centroid in enumerate(result.centroids):
            axes = grid[row, cluster]
            axes.imshow(np.reshape(centroid, (8, 8)), cmap="gray_r", vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
        grid[row, 0].set_ylabel(name)
    above.suptitle("Centroids of the ten clusters")
    axes = below.subplots()
    draw_convergence(axes, {name: result.movements for name, result in runs.items()}, tol)
    _mark_losses(axes, runs["masked"])
    save(figure, path)


def _mark_losses(axes: Axes, result: Result) -> None:
    """Shade the rounds in which clients were missing from the total."""
    rounds = [row for row in result.sums if row.purpose == ROUND]
    label = "clients missing"
    for number, row in enumerate(rounds, start=1):
        if row.contributors < row.clients:
            axes.axvspan(number - 0.5, number + 0.5, color="#eeeeee", zorder=0, label=label)
            label = "_"
    axes.set_xlim(left=0.5)
    axes.legend(loc="lower left")
