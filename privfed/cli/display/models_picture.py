"""Picture of a run that trains models: how far they move, and how many there are. It reads models alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from privfed.cli.display.picture import save, write_claim
from privfed.cli.folder.claim import claim_from
from privfed.cli.folder.trained import Decided, TrainedResult
from privfed.core.values.domain import FloatArray
from privfed.experiments.report.svg import COLOURS
from privfed.privacy.claim import noised_mark


def draw_models(path: Path, history: Sequence[FloatArray], result: TrainedResult) -> None:
    """Draw the movement of the models beside the number of clusters.

    Args:
        path: PNG file to write.
        history: models at the start and after each round, each float64 of shape (n_clusters, n_parameters).
        result: result of the run.
    """
    figure, claim = Figure(figsize=(11, 5), layout="constrained"), claim_from(result.privacy)
    what = f"{result.algorithm} over {len(result.clients)} clients, protocol {result.protocol}"
    figure.suptitle(f"{what}{noised_mark(claim)}")
    write_claim(figure, claim)
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


def _finish(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="best")
