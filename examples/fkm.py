"""Sets FKM beside its paper: Figures 1 to 7 of Garst and Reinders (2023), with k-FED and central k-means.

    python -m examples.fkm [--quick | --full] [--page] [--out DIR] [--data DIR]

The regular data are the paper's (section 3): 16 centers on a grid with spacing 5, 50, 100 or 200 rows around
each, and five clients at random places; a row falls to a client with probability 1 - exp(-beta / distance).
Rows, places and draws are new for every seed. "cluster-wise" gives the clients rows of 1, 4, 7, 10 and 16
clusters (Figure 4). FKM runs the start and 9 rounds, which the authors count as 10. With "gathered" the
server sees every client's centroids over plain sums, as published; with "summed" it sees only totals, over
masked sums. "informed" k-FED uses the number of local clusters with the highest mean index, which needs the
labels.

The adjusted Rand index is computed on all rows ("pooled"), and as the mean of the clients' own indices
weighted by their rows, as the authors do ("by client"). Scores pool rows because this is a simulation.

--data names a folder with femnist_fkm_100clients.npz (the authors' FEMNIST clients: X, client), for Figures 5
and 7, and bank-full.csv.gz (UCI Bank Marketing), whose jobs are clients that differ by nature.

It writes fkm.csv, fkm-images.csv, .md (the page) and .png.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from examples import pages
from examples.fedfcm import bank
from privfed.data import by_cluster, by_distance
from privfed.estimators.local_centers import FKM, KFED

K, MERGES = 16, 10
GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
HELD = [1, 4, 7, 10, 16]
BETAS = (0.1, 1.0, 10.0)
FILE = "femnist_fkm_100clients.npz"


@dataclass(frozen=True)
class Data:
    """Describes a data set of the paper: beta (None: cluster-wise), standard deviation, rows per cluster."""

    beta: float | None
    noise: float = 1.0
    rows: int = 50

    def __str__(self) -> str:
        kind = "cluster-wise" if self.beta is None else f"beta {self.beta:g}"
        return f"{kind}, sd {self.noise:g}, {self.rows} rows"


class Split(NamedTuple):
    """Holds rows and labels of each client."""

    clients: list[np.ndarray]
    labels: list[np.ndarray]


class Job(NamedTuple):
    """Describes one run; `k_local` is None but for informed k-FED."""

    beta: float | None
    noise: float
    rows: int
    method: str
    k_local: int | None
    seed: int


class ImageJob(NamedTuple):
    """Describes one run on clients that differ by nature."""

    data: str
    method: str
    seed: int


@dataclass(frozen=True)
class Scale:
    """Says how much is run: seeds of Figures 1 and 4, of 3 and 6, for the best k', and of images."""

    seeds: int
    noise_seeds: int
    informed_seeds: int
    image_seeds: int
    noises: tuple[float, ...] = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
    sizes: tuple[int, ...] = (50, 100, 200)
    # With fewer than four local clusters, five clients have fewer centroids than there are clusters.
    local: tuple[int, ...] = tuple(range(4, 17))


QUICK = Scale(2, 2, 2, 0, (1.0, 1.5), (50,), (4, 8, 16))
PART = Scale(10, 2, 3, 1)
FULL = Scale(200, 200, 200, 20)

AUTHORS_CODE = {
    ("FKM gathered", 0.1): (0.9538, 0.0036, 20),
    ("FKM gathered", 1.0): (0.9587, 0.0023, 20),
    ("FKM gathered", 10.0): (0.9589, 0.0029, 20),
    ("FKM gathered", None): (0.9503, 0.0020, 10),
    **{("k-FED gathered", b): (one, math.nan, 20) for b, one in ((0.1, 0.649), (1.0, 0.719), (10.0, 0.840))},
    **{("k-FED informed", b): (one, math.nan, 20) for b, one in ((0.1, 0.805), (1.0, 0.867), (10.0, 0.840))},
}
"""Means, deviations and numbers of runs of the authors' code on their stored data, by client."""


def split(data: Data, seed: int) -> Split:
    """Draw a data set and spread it over five clients."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(GRID, data.rows, axis=0) + rng.normal(scale=data.noise, size=(K * data.rows, 2))
    labels = np.repeat(np.arange(K), data.rows)
    if data.beta is None:
        parts = by_cluster(labels, HELD, rng)
    else:
        parts = by_distance(rows, rng.uniform(-10, 10, size=(5, 2)), data.beta, rng)
    return Split([rows[own] for own in parts], [labels[own] for own in parts])


# --- methods ---

Fit = Callable[[list[np.ndarray], int], np.ndarray]


def central(clients: list[np.ndarray], seed: int, k: int) -> np.ndarray:
    """Return the centers of k-means on all rows, the best of 10 starts."""
    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit(np.concatenate(clients)).cluster_centers_)


def fkm(k: int, **parameters: Any) -> Fit:
    """Return a function that fits FKM and returns the centers after each merge."""
    return lambda clients, seed: np.stack(
        FKM(k, max_iter=MERGES - 1, random_state=seed, **parameters).fit(clients).history_
    )


def kfed(k: int, **parameters: Any) -> Fit:
    """Return a function that fits k-FED and returns its centers."""
    return lambda clients, seed: KFED(k, random_state=seed, **parameters).fit(clients).cluster_centers_


SEEN: dict[str, Any] = {"merge": "gathered", "protocol": "plain"}
HIDDEN: dict[str, Any] = {"merge": "summed", "protocol": "masked"}


def methods(k: int) -> dict[str, Fit]:
    """Return the methods by name; each client of k-FED looks for all k clusters."""
    return {
        "central k-means": lambda clients, seed: central(clients, seed, k),
        "FKM gathered": fkm(k, **SEEN),
        "FKM summed": fkm(k, **HIDDEN),
        "k-FED gathered": kfed(k, **SEEN),
        "k-FED summed": kfed(k, **HIDDEN),
    }


METHODS = methods(K)


def assigned(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the position of each row's nearest center."""
    return np.asarray(((rows[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1))


def pooled(data: Split, centers: np.ndarray) -> float:
    """Return the adjusted Rand index of all rows."""
    found = assigned(np.concatenate(data.clients), centers)
    return float(adjusted_rand_score(np.concatenate(data.labels), found))


def by_client(data: Split, centers: np.ndarray) -> float:
    """Return the mean of the clients' own indices, weighted by their rows."""
    found = [assigned(rows, centers) for rows in data.clients]
    own = [adjusted_rand_score(*pair) for pair in zip(data.labels, found, strict=True)]
    return float(np.average(own, weights=[len(rows) for rows in data.clients]))


def last(centers: np.ndarray) -> np.ndarray:
    """Return the final centers of a fit."""
    return centers[-1] if centers.ndim == 3 else centers


INFORMED = "k-FED informed"


def scored(job: Job) -> dict[str, float]:
    """Return the indices of a run, and those after each merge of FKM."""
    data = split(Data(*job[:3]), job.seed)
    fit = METHODS[job.method] if job.k_local is None else kfed(K, n_local_clusters=job.k_local, **SEEN)
    centers = fit(data.clients, job.seed)
    course = [pooled(data, one) for one in centers] if job.method == "FKM summed" else [math.nan] * MERGES
    merges = {f"merge_{number}": one for number, one in enumerate(course, start=1)}
    return {"pooled": pooled(data, last(centers)), "by_client": by_client(data, last(centers)), **merges}


def jobs(scale: Scale) -> Iterator[Job]:
    """Yield all runs on the regular data."""
    plain = [Data(beta, 1.0, scale.sizes[0]) for beta in (*BETAS, None)]
    for data in [Data(*one) for one in product(BETAS, scale.noises, scale.sizes)] + [Data(None)]:
        setting = (data.beta, data.noise, data.rows)
        for seed in range(scale.seeds if data in plain else scale.noise_seeds):
            yield from (Job(*setting, method, None, seed) for method in METHODS)
        if data in plain:
            tried = product(scale.local, range(scale.informed_seeds))
            yield from (Job(*setting, INFORMED, k_local, seed) for k_local, seed in tried)


# --- FEMNIST ---


def silhouettes(rows: np.ndarray, centers: np.ndarray) -> tuple[float, float]:
    """Return the silhouette, from distances to rows, and the simplified one, from distances to centers."""
    products = np.square(rows).sum(axis=1)[:, None] + np.square(centers).sum(axis=1) - 2 * rows @ centers.T
    distances = np.sqrt(np.maximum(products, 0.0))
    labels, (nearest, second) = distances.argmin(axis=1), np.partition(distances, 1, axis=1)[:, :2].T
    simplified = np.mean((second - nearest) / np.maximum(second, 1e-300))
    return float(silhouette_score(rows, labels)), float(simplified)


def natural(data: str, folder: Path) -> tuple[list[np.ndarray], int]:
    """Return clients that differ by nature, and the number of clusters."""
    if data == "bank":
        found = bank(folder)
        assert found is not None
        return found[0], 16
    with np.load(folder / FILE) as file:
        rows, owner = file["X"] / 255.0, file["client"]
    first = int(data.removeprefix("FEMNIST "))
    return [rows[owner == i] for i in range(first, first + 10)], 60


def scored_naturally(job: ImageJob, folder: Path) -> dict[str, float]:
    """Return silhouettes, and the mean squared distance to the nearest center."""
    clients, k = natural(job.data, folder)
    rows, centers = np.concatenate(clients), last(methods(k)[job.method](clients, job.seed))
    some = rows[np.random.default_rng(0).permutation(len(rows))[:4000]]
    nearest = np.square(rows - centers[assigned(rows, centers)]).sum(axis=1)
    names = ("silhouette", "simplified")
    return {**dict(zip(names, silhouettes(some, centers), strict=True)), "inertia": float(nearest.mean())}


# --- the page ---


def values(found: pl.DataFrame, name: str, data: Data, column: str = "pooled") -> np.ndarray:
    """Return the indices of a method's runs on a data set; of informed k-FED, with the best k' by client."""
    own = found.filter(
        pl.col("method") == name,
        pl.col("beta").eq_missing(data.beta),
        pl.col("noise") == data.noise,
        pl.col("rows") == data.rows,
    )
    if name == INFORMED and len(own):
        own = own.filter(pl.col("k_local") == best_local(own))
    return own.sort("seed")[column].to_numpy()


def best_local(own: pl.DataFrame) -> int:
    """Return the number of local clusters with the highest mean index by client."""
    return int(own.group_by("k_local").agg(pl.col("by_client").mean()).sort("by_client")["k_local"][-1])


def lines(found: pl.DataFrame) -> Iterator[list[str]]:
    """Yield the lines of Figures 1b and 4b."""
    for beta, name in product((*BETAS, None), COLOURS):
        data = Data(beta)
        label = name
        if name == INFORMED:
            own = found.filter(method=name).filter(pl.col("beta").eq_missing(beta))
            label = f"{name} (k' = {best_local(own)})"
        theirs = AUTHORS_CODE.get((name, beta), (None, math.nan, 1))
        cells = [
            pages.beside(values(found, name, data)),
            pages.beside(values(found, name, data, "by_client"), *theirs),
        ]
        yield ["cluster-wise" if beta is None else f"β = {beta:g}", label, *cells]


def by_noise(found: pl.DataFrame) -> Iterator[list[str]]:
    """Yield the lines of Figure 6, of which Figure 3 is a part."""
    shown = found.filter(pl.col("beta").is_not_null(), pl.col("noise").is_in([1.0, 1.2, 1.5]))
    keys = shown.select("beta", "rows", "noise").unique().sort("*")
    for beta, rows, noise in keys.rows():
        data = Data(beta, noise, rows)
        cells = [pages.beside(values(found, name, data), digits=3) for name in METHODS]
        yield [f"β = {beta:g}", str(rows), f"{noise:g}", *cells]


def page(found: pl.DataFrame, images: pl.DataFrame | None, said: str) -> str:
    """Return the page: the paper's figures, and the authors' code beside ours."""
    compared = pages.table(["data", "method", "pooled", "by client"], lines(found))
    courses = [
        [f"β = {beta:g}", f"{noise:g}"]
        + [
            pages.beside(values(found, "FKM summed", Data(beta, noise), f"merge_{m}"), digits=3)
            for m in (1, 2, 3, 5, 10)
        ]
        for beta, noise in product(BETAS, (1.0, 1.5))
    ]
    seconds = pages.cpu(found) + (0.0 if images is None else pages.cpu(images))
    natural_lines = (
        []
        if images is None
        else [
            [data, name]
            + [
                pages.beside(images.filter(data=data, method=name)[column])
                for column in ("silhouette", "simplified", "inertia")
            ]
            for data, name in images.select("data", "method").unique(maintain_order=True).rows()
        ]
    )
    return f"""# FKM

Garst and Reinders, *Federated K-Means clustering* (2023), beside `FKM` and `KFED`.
{pages.reading("examples.fkm --page --data DIR", said, seconds)}
The paper prints no numbers: in brackets stands what the authors' code gave by client.
{pages.within(compared)}

{NOTES}

## Figures 1 and 4. Adjusted Rand index

{compared}

## Figures 3 and 6. By noise and rows

{pages.table(["β", "rows a cluster", "sd", *METHODS], by_noise(found))}

### Merge by merge

`FKM` summed, 50 rows a cluster; the first merge is the start.

{pages.table(["β", "sd", *(f"merge {m}" for m in (1, 2, 3, 5, 10))], courses)}

## Figure 5. Clients that differ by nature

{pages.table(["data", "method", "silhouette", "simplified silhouette", "inertia"], natural_lines)}

![Figures 1 to 7](fkm.png)
"""


NOTES = """- The authors' code was run on their one stored data set, ours draws rows, places and clients anew
  for each seed: the spreads are of different things, and a few standard errors say no more.
- As in the paper FKM is as good as central k-means from 10 starts, whatever β, and k-FED as published is not.
  "k-FED summed" begins the server's k-means from cells and not from the farthest centroids, and nearly is.
- The index hardly depends on the rows of a cluster (Figure 6), and with more noise the merges are worth more.
- Figure 2 shows draws of the data, of which the first row of the picture has three.
- The paper's 10 FEMNIST clients are not named: here are the first and the next 10. The bank's customers, 12
  clients by job, are not in the paper: clients that differ by nature in a table of three columns (k = 16)."""


# --- pictures ---

COLOURS = {
    "central k-means": "black",
    "FKM gathered": "#0072B2",
    "FKM summed": "#56B4E9",
    "k-FED gathered": "#D55E00",
    "k-FED informed": "#E69F00",
    "k-FED summed": "#009E73",
}


def draw_split(axes: Axes, data: Data) -> None:
    """Draw one data set, coloured by client, and the centers that FKM found."""
    one = split(data, 0)
    for i, rows in enumerate(one.clients):
        axes.plot(*rows.T, ".", markersize=3, label=f"client {i}: {len(rows)} rows")
    centers = METHODS["FKM summed"](one.clients, 0)[-1]
    axes.plot(*centers.T, "kx", markersize=9, markeredgewidth=2, label="FKM summed")
    axes.set(title=str(data), aspect="equal")
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_methods(axes: Axes, found: pl.DataFrame, sets: Sequence[Data]) -> None:
    """Draw each method's index on the regular data (Figures 1b and 4b)."""
    for j, (name, colour) in enumerate(COLOURS.items()):
        own = [values(found, name, data) for data in sets]
        mean, std = [one.mean() for one in own], [one.std() for one in own]
        places = np.arange(len(sets)) + (j - 2.5) * 0.11
        axes.errorbar(places, mean, std, fmt="o", color=colour, capsize=3, label=name)
    names = ["cluster-wise" if one.beta is None else f"β = {one.beta:g}" for one in sets]
    axes.set_xticks(range(len(sets)), names)
    axes.set(title="Figures 1b and 4b (sd 1, 50 rows): mean ± sd", ylabel="adjusted Rand index")
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_noise(axes: Axes, found: pl.DataFrame, beta: float) -> None:
    """Draw indices against the noise (Figures 3a to c, and 6)."""
    own = found.filter(beta=beta)
    noises = sorted(own["noise"].unique().to_list())
    for name, (rows, style) in product(METHODS, ((50, "o-"), (100, "x:"), (200, "s--"))):
        if rows in own["rows"]:
            means = [values(found, name, Data(beta, noise, rows)).mean() for noise in noises]
            line: dict[str, Any] = {"color": COLOURS[name], "label": f"{name}, {rows} rows"}
            axes.plot(noises, means, style, markersize=4, **line)
    axes.set(title=f"Figures 3 and 6, β = {beta:g}", xlabel="standard deviation of a cluster", ylabel="ARI")
    axes.set_ylim(0.3, 1.0)
    axes.legend(fontsize=5, ncols=2)


def draw_courses(axes: Axes, found: pl.DataFrame) -> None:
    """Draw FKM's index after each merge (Figure 3d to f)."""
    merges = range(1, MERGES + 1)
    for (beta, colour), (noise, style) in product(
        zip(BETAS, ("#0072B2", "#009E73", "#D55E00"), strict=True), ((1.0, "-"), (1.5, "--"))
    ):
        course = [values(found, "FKM summed", Data(beta, noise), f"merge_{m}").mean() for m in merges]
        axes.plot(merges, course, style, color=colour, label=f"β = {beta:g}, sd {noise:g}")
    axes.set(title="Figure 3: FKM summed, merge by merge", xlabel="merge (1: the start)", ylabel="ARI")
    axes.legend(fontsize=7)


def draw(found: pl.DataFrame, folder: Path | None, said: str, path: Path) -> None:
    """Draw the paper's figures on one page."""
    figure = Figure(figsize=(15, 12), layout="constrained")
    figure.suptitle(f"FKM (Garst and Reinders 2023) and k-FED (Dennis et al. 2021)\n{said}")
    grid = figure.subplots(3, 3)
    for axes, beta in zip(grid[0], BETAS, strict=True):
        draw_split(axes, Data(beta))
    for axes, beta in zip(grid[1], BETAS, strict=True):
        draw_noise(axes, found, beta)
    draw_methods(grid[2, 0], found, [Data(beta) for beta in (*BETAS, None)])
    draw_courses(grid[2, 1], found)
    if folder is not None and (folder / FILE).exists():
        with np.load(folder / FILE) as file:
            grid[2, 2].hist(np.unique(file["client"], return_counts=True)[1], bins=20)
        grid[2, 2].set(title="Figure 7: rows of FEMNIST's clients", xlabel="rows", ylabel="clients")
    for axes in grid.ravel():
        axes.grid(color="#dddddd", linewidth=0.5)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=60)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and write its page and picture."""
    chosen = pages.asked(__doc__, "fkm", arguments)
    scale = QUICK if chosen.quick else FULL if chosen.full else PART
    found = pages.measured(jobs(scale), scored, chosen.out / "fkm.csv", {}, chosen)
    said = f"{scale.seeds} runs, {scale.noise_seeds} by noise (the paper: 200 on one data set)"
    images = None
    if chosen.data is not None and scale.image_seeds:
        sets = ["FEMNIST 0", "FEMNIST 10"] if (chosen.data / FILE).exists() else []
        sets += ["bank"] if bank(chosen.data) is not None else []
        wanted = [ImageJob(*one) for one in product(sets, METHODS, range(scale.image_seeds))]
        run = partial(scored_naturally, folder=chosen.data)
        if wanted:
            images = pages.measured(wanted, run, chosen.out / "fkm-images.csv", {}, chosen)
    draw(found, chosen.data, said, chosen.out / "fkm.png")
    return pages.write("fkm", page(found, images, said), chosen)


if __name__ == "__main__":
    sys.exit(main())
