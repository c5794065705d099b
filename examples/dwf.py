"""Compares dynamically weighted federated k-means with its paper: Tables 1 to 3 and Figures 4 to 8.

Holzer, Jacob and Kavane: Dynamically Weighted Federated k-Means (2023). DWF, EWF and k-FED are compared with
central k-means on three distributions of the same rows over 100 (Figures 4 to 6) or 10 clients (7, 8), with
all or a part of the clients in each round. As in the paper (section 3.4) the better half of the runs, by
score, is kept. Runs use plain sums; over masked sums the centroids are the same up to the quantisation step.

    python examples/dwf.py [--quick | --whole] [--out DIR] [--data DIR]

The synthetic data are drawn here. --data names a folder with mnist.npz (x_train, y_train) and
femnist_dwf_iid_hiid.npz (X_iid, y_iid, client_iid, X_hiid, ...). FEMNIST's non-IID clients are left out, as
they are not completely available. To finish in reasonable time, the study is smaller than the paper's: the
tables state the number of seeds, of MNIST's rows and of FEMNIST's clients. Scores on a part of the rows
differ a little from the paper's. --whole does all that the paper did: 24,000 models of each data set, which
docs/measurements/performance.md says the cost of.

Writes dwf.csv, dwf.md and dwf.png to DIR (default: runs/dwf).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

# One thread for each process, as runs are spread over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score

from privfed.data import partition
from privfed.errors import DataError
from privfed.estimators.local_centers import KFED
from privfed.estimators.local_steps import DWFKMeans, EWFKMeans
from privfed.federation.simulation import Simulation

CENTRAL, EWF, DWF, K_FED = METHODS = ("k-means", "EWF", "DWF", "k-FED")
KINDS = ("iid", "half-iid", "non-iid")
CLUSTERS = {"synthetic": 5, "MNIST": 20, "FEMNIST": 64}
FILES = {"MNIST": "mnist.npz", "FEMNIST": "femnist_dwf_iid_hiid.npz"}
FIGURES = {
    ("synthetic", 100): "Figure 4",
    ("MNIST", 100): "Figure 5",
    ("FEMNIST", 100): "Figure 6",
    ("synthetic", 10): "Figure 7",
    ("MNIST", 10): "Figure 8",
}

PAPER = {
    ("synthetic", "iid"): (
        (0.0780, 0.0743, 0.0743, 0.0759),
        (0.9093, 0.9091, 0.9091, 0.9077),
        (0.8299, 0.8297, 0.8297, 0.8301),
    ),
    ("synthetic", "half-iid"): (
        (0.0780, 0.0744, 0.0744, 0.0786),
        (0.9093, 0.9093, 0.9093, 0.9083),
        (0.8299, 0.8300, 0.8299, 0.8307),
    ),
    ("synthetic", "non-iid"): (
        (0.0780, 0.0772, 0.0744, 0.0817),
        (0.9093, 0.9049, 0.9093, 0.9062),
        (0.8299, 0.8280, 0.8298, 0.8269),
    ),
    ("MNIST", "iid"): (
        (34.6892, 34.7191, 34.6930, 35.7251),
        (0.7150, 0.7144, 0.7149, 0.6789),
        (0.5498, 0.5509, 0.5517, 0.5174),
    ),
    ("MNIST", "half-iid"): (
        (34.6892, 34.9325, 34.7729, 35.7704),
        (0.7150, 0.7012, 0.7124, 0.6692),
        (0.5498, 0.5392, 0.5496, 0.5130),
    ),
    ("MNIST", "non-iid"): (
        (34.6892, 38.6028, 34.7879, 35.4158),
        (0.7150, 0.5983, 0.7037, 0.6861),
        (0.5498, 0.4338, 0.5410, 0.5297),
    ),
    ("FEMNIST", "iid"): (
        (8.3140, 8.4945, 8.3624, 8.5574),
        (0.5695, 0.5669, 0.5769, 0.5479),
        (0.4580, 0.4668, 0.4697, 0.4548),
    ),
    ("FEMNIST", "half-iid"): (
        (8.3871, 8.4991, 8.4309, 8.6519),
        (0.4667, 0.4589, 0.4605, 0.4312),
        (0.4292, 0.4306, 0.4314, 0.4107),
    ),
}
"""Means over 100 runs in Tables 1 (score), 2 (accuracy) and 3 (v-measure), in the order of METHODS."""


@dataclass(frozen=True)
class Scale:
    """Says how much of the paper's study is run.

    Args:
        seeds: runs of each configuration on the synthetic data; the better half of them counts.
        image_seeds: runs of each configuration on images.
        participating: shares of the clients that take part in a round.
        image_rows: number of MNIST's rows.
        image_clients: number of FEMNIST's clients.
        most_rounds: most rounds of a run; 10,000 in the paper.
    """

    seeds: int
    image_seeds: int
    participating: tuple[float, ...]
    image_rows: int
    image_clients: int
    most_rounds: int


QUICK = Scale(2, 0, (0.1, 1.0), 0, 0, 60)
FULL = Scale(4, 1, (0.1, 0.5, 1.0), 3000, 10, 400)
WHOLE = Scale(100, 100, tuple(level / 20 for level in range(1, 21)), 60_000, 100, 10_000)


class Job(NamedTuple):
    """Describes one run."""

    data: str
    n_clients: int
    kind: str
    method: str
    asked: int
    seed: int


class Score(NamedTuple):
    """Holds the measures of the paper's section 3.3, on all rows."""

    score: float
    accuracy: float
    v_measure: float


# --- data ---


def synthetic() -> tuple[np.ndarray, np.ndarray]:
    """Return the paper's blobs and 100 uniform outliers, as its authors draw them."""
    rows, labels = make_blobs(10_000, centers=5, cluster_std=0.2, center_box=(-1, 1), random_state=18042023)
    draw = random.Random(1)
    outliers = [[2 * draw.random() - 1, 2 * draw.random() - 1] for _ in range(100)]
    return np.concatenate([rows, outliers]), np.concatenate([labels, np.full(100, 5)])


@lru_cache(maxsize=4)
def table(data: str, kind: str, folder: Path | None, scale: Scale) -> tuple[np.ndarray, ...]:
    """Return rows, labels and, if the data come with clients, each row's client."""
    if data == "synthetic" or folder is None:
        return synthetic()
    with np.load(folder / FILES[data]) as arrays:
        if data == "MNIST":
            chosen = np.random.default_rng(0).choice(60_000, scale.image_rows, replace=False)
            return arrays["x_train"][chosen].reshape(-1, 784) / 255, arrays["y_train"][chosen].astype(
                np.int64
            )
        name = {"iid": "iid", "half-iid": "hiid"}[kind]
        held = arrays[f"client_{name}"] <= scale.image_clients
        rows, labels, owner = (arrays[f"{part}_{name}"][held] for part in ("X", "y", "client"))
    return rows / 255, labels.astype(np.int64), owner


@lru_cache(maxsize=2)
def split(
    data: str, n_clients: int, kind: str, seed: int, folder: Path | None, scale: Scale
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return each client's rows and labels; each seed has its own distribution of the rows.

    All methods and levels of participation share them, and none writes to them.
    """
    rows, labels, *owner = table(data, kind, folder, scale)
    if owner:
        parts = [np.flatnonzero(owner[0] == one) for one in np.unique(owner[0])]
    else:
        parts = partition(rows, n_clients, kind, np.random.default_rng(seed))
    order, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])[:-1]
    rows, labels = rows[order], labels[order]
    rows.setflags(write=False)
    return tuple(np.split(rows, ends)), tuple(np.split(labels, ends))


# --- one run ---


def centers_of(job: Job, clients: Sequence[np.ndarray], most_rounds: int) -> np.ndarray:
    """Return the centroids that a method finds, with the parameters of section 3.4."""
    k, seed = CLUSTERS[job.data], 1000 + job.seed
    if job.method == CENTRAL:
        model = KMeans(k, n_init=1, max_iter=10_000, tol=1e-8, random_state=seed)
        return np.asarray(model.fit(np.concatenate(clients)).cluster_centers_)
    cohort = None if job.asked == len(clients) else job.asked
    if job.method == K_FED:
        one_shot = KFED(
            k, local="kmeans", merge="gathered", protocol="plain", clients_per_round=cohort, random_state=seed
        )
        return one_shot.fit(clients).cluster_centers_
    kind = DWFKMeans if job.method == DWF else EWFKMeans
    rounds = kind(
        k,
        local_iter=5,
        local_tol=1e-8,
        learning_rate=0.01,
        momentum=0.8,
        tol=1e-8,
        min_iter=16,
        patience=300,
        plateau=None,
        max_iter=most_rounds,
        init="kfed",
        clients_per_round=cohort,
        protocol="plain",
        # Nobody attacks these runs: of answers the transcripts keep digests.
        engine=Simulation(record="totals"),
        random_state=seed,
    )
    with warnings.catch_warnings():
        # With small steps and drawn cohorts, runs end by patience or with the last round, as in the paper.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return rounds.fit(clients).cluster_centers_


def measured(job: Job, folder: Path | None, scale: Scale) -> tuple[Job, Score, float]:
    """Run a job; return its scores on all rows, and how many seconds the fit took.

    Scores are NaN if the clients of k-FED's only round have fewer centroids than there are clusters.
    """
    clients, labels = split(job.data, job.n_clients, job.kind, job.seed, folder, scale)
    began = time.perf_counter()
    try:
        centers = centers_of(job, clients, scale.most_rounds)
    except DataError:
        if job.method != K_FED:
            raise
        return job, Score(math.nan, math.nan, math.nan), math.nan
    seconds = time.perf_counter() - began
    rows, truth = np.concatenate(clients), np.concatenate(labels)
    distances = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centers.T + (centers**2).sum(axis=1)
    found, nearest = distances.argmin(axis=1), np.maximum(distances.min(axis=1), 0.0)
    seen = np.zeros((len(centers), truth.max() + 1))
    np.add.at(seen, (found, truth), 1)
    right = float(seen.max(axis=1).sum() / len(rows))
    return job, Score(float(nearest.mean()), right, float(v_measure_score(truth, found))), seconds


def jobs(scale: Scale, folder: Path | None) -> Iterator[Job]:
    """Yield all runs."""
    for (data, n_clients), kind in product(FIGURES, KINDS):
        seeds = scale.seeds if data == "synthetic" else scale.image_seeds
        if data != "synthetic" and (folder is None or not (folder / FILES[data]).exists()):
            continue
        if data == "FEMNIST":
            if kind == "non-iid":
                continue
            n_clients = scale.image_clients
        asked = sorted({max(1, round(share * n_clients)) for share in scale.participating})
        for seed in range(seeds):
            yield Job(data, n_clients, kind, CENTRAL, n_clients, seed)
            for method, some in product((EWF, DWF, K_FED), asked):
                yield Job(data, n_clients, kind, method, some, seed)


# --- tables and pictures ---

Found = dict[Job, Score]
COLOURS = {CENTRAL: "#000000", EWF: "#D55E00", DWF: "#0072B2", K_FED: "#009E73"}


def kept(found: Found, data: str, n_clients: int, kind: str, method: str, asked: int) -> np.ndarray:
    """Return the scores of the better half of a configuration's runs, (n_runs, 3); NaN if none is left."""
    wanted = (data, n_clients, kind, method, asked)
    runs = sorted(one for job, one in found.items() if job[:5] == wanted and not math.isnan(one.score))
    return np.array(runs[: max(1, len(runs) // 2)] or [Score(math.nan, math.nan, math.nan)])


def lines(found: Found) -> Iterator[list[str]]:
    """Yield the lines of Tables 1 to 3, with all clients in each round."""
    configurations = sorted({job[:3] for job in found}, key=lambda one: (-one[1], one))
    for metric, name in enumerate(Score._fields):
        for data, n_clients, kind in configurations:
            theirs = PAPER.get((data, kind)) if n_clients != 10 else None
            for place, method in enumerate(METHODS):
                runs = kept(found, data, n_clients, kind, method, n_clients)[:, metric]
                paper = "" if theirs is None else f"{theirs[metric][place]:.4f}"
                cells = [f"{value:.4f}" for value in (runs.mean(), runs.std())]
                yield [str(metric + 1), name, data, str(n_clients), kind, method, *cells, paper]


def write(found: Found, seconds: dict[Job, float], said: str, out: Path) -> None:
    """Print the tables, and write them and the scores of every run."""
    header = ["table", "metric", "data", "clients", "distribution", "method", "mean", "std", "paper's mean"]
    rows = ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines(found)]]
    text = said + "\n\n" + "\n".join(rows) + "\n"
    print("\n" + text)
    (out / "dwf.md").write_text(text)
    with (out / "dwf.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Job._fields, *Score._fields, "seconds"])
        writer.writerows([*job, *score, f"{seconds[job]:.3f}"] for job, score in found.items())


def draw_panel(axes: Axes, found: Found, data: str, n_clients: int, kind: str, metric: int) -> None:
    """Draw one metric against the clients in a round: means, and one standard deviation around them."""
    asked = sorted({job.asked for job in found if job[:3] == (data, n_clients, kind)})
    for method in METHODS:
        some = asked[-1:] if method == CENTRAL else asked
        runs = [kept(found, data, n_clients, kind, method, one)[:, metric] for one in some]
        mean, std = np.array([one.mean() for one in runs]), np.array([one.std() for one in runs])
        if method == CENTRAL:
            axes.axhline(mean[0], color=COLOURS[method], linestyle="--", label=method)
            continue
        axes.plot(some, mean, "o-", color=COLOURS[method], label=method, markersize=3)
        axes.fill_between(some, mean - std, mean + std, color=COLOURS[method], alpha=0.15, linewidth=0)
    name = FIGURES.get((data, 10 if n_clients == 10 else 100), "")
    axes.set(
        title=f"{name}: {data}, {kind}",
        xlabel=f"clients a round, of {n_clients}",
        ylabel=Score._fields[metric],
    )
    axes.grid(color="#dddddd", linewidth=0.5)


def draw(found: Found, said: str, path: Path) -> None:
    """Draw Figures 4 to 8, one line for each data set and distribution."""
    panels = sorted({job[:3] for job in found}, key=lambda one: (-one[1], one))
    figure = Figure(figsize=(13, 2.8 * len(panels)), layout="constrained")
    figure.suptitle(f"Federated k-means (Holzer et al. 2023)\n{said}", fontsize=10)
    grid = figure.subplots(len(panels), 3, squeeze=False)
    for row, (data, n_clients, kind) in zip(grid, panels, strict=True):
        for metric, axes in enumerate(row):
            draw_panel(axes, found, data, n_clients, kind, metric)
    grid[0][0].legend(fontsize=8)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=80)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and write its tables and picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="synthetic data, 2 seeds, at most 60 rounds")
    size.add_argument("--whole", action="store_true", help="as many runs as the paper, for hours or days")
    parser.add_argument("--out", type=Path, default=Path("runs/dwf"), help="folder for the results")
    parser.add_argument("--data", type=Path, help="folder with the images")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    scale = QUICK if chosen.quick else WHOLE if chosen.whole else FULL
    wanted = list(jobs(scale, chosen.data))
    said = f"{scale.seeds} seeds, at most {scale.most_rounds} rounds (the paper: 100 seeds, 10,000 rounds)"
    if any(job.data != "synthetic" for job in wanted):
        said += (
            f"; images: {scale.image_seeds} seeds, {scale.image_rows} rows of MNIST, "
            f"{scale.image_clients} of FEMNIST's 100 clients"
        )
    else:
        said += "; images are left out: give --data DIR" if not chosen.quick else "; synthetic data only"
    found: Found = {}
    seconds: dict[Job, float] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = [pool.submit(measured, job, chosen.data, scale) for job in wanted]
        for number, future in enumerate(running, start=1):
            job, score, took = future.result()
            found[job], seconds[job] = score, took
            if number % 25 == 0:
                print(f"{number} of {len(wanted)} runs", flush=True)
    write(found, seconds, said, chosen.out)
    draw(found, said, chosen.out / "dwf.png")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
