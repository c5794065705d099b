"""Compares FKM of Garst and Reinders (2023) with k-FED (Dennis, Li, Smith 2021) and central k-means.

    python examples/fkm.py [--quick] [--out DIR] [--data DIR]

The regular data are the paper's (section 3): 16 centers on a grid with spacing 5, 50 or 200 rows around each,
and five clients at random places; a row falls to a client with probability 1 - exp(-beta / distance). Rows,
places and draws are new for every seed. "cluster-wise" gives the clients rows of 1, 4, 7, 10 and 16 clusters
(Figure 4). FKM runs the start and 9 rounds, which the authors count as 10. With "gathered" the server sees
every client's centroids over plain sums, as published; with "summed" it sees only totals, over masked sums.
"informed" k-FED uses the number of local clusters with the highest mean index, which needs the labels.

The adjusted Rand index is computed on all rows ("pooled"), and as the mean of the clients' own indices
weighted by their rows, as the authors do ("by client"). Scores pool rows because this is a simulation.
"authors' code" is what their code gave by client on their stored data; there, central k-means gives .9550,
.9549 and .9549 pooled.

With --data DIR, a folder with femnist_fkm_100clients.npz (the authors' FEMNIST clients), the silhouettes of
Figure 5 are computed for the first 10 of these clients and 60 clusters; without it that part is left out.

It writes fkm.csv, .md and .png. The whole study takes about 12 minutes on two cores, --quick 15 seconds.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

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


class Score(NamedTuple):
    """Holds adjusted Rand indices of all rows and by client, and the seconds of a fit."""

    pooled: float
    by_client: float
    seconds: float


AUTHORS_CODE = {
    ("FKM gathered", Data(0.1)): 0.9538,
    ("FKM gathered", Data(1.0)): 0.9587,
    ("FKM gathered", Data(10.0)): 0.9589,
    ("FKM gathered", Data(None)): 0.9503,
    ("k-FED gathered", Data(0.1)): 0.649,
    ("k-FED gathered", Data(1.0)): 0.719,
    ("k-FED gathered", Data(10.0)): 0.840,
    ("k-FED informed", Data(0.1)): 0.805,
    ("k-FED informed", Data(1.0)): 0.867,
    ("k-FED informed", Data(10.0)): 0.840,
}


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


Scores = dict[tuple[str, Data], list[Score]]
Courses = dict[Data, list[list[float]]]


def last(centers: np.ndarray) -> np.ndarray:
    """Return the final centers of a fit."""
    return centers[-1] if centers.ndim == 3 else centers


def scored(fit: Fit, split: Split, seed: int) -> tuple[Score, np.ndarray]:
    """Return the score of a fit, and its centers (FKM: after each merge)."""
    began = time.perf_counter()
    centers = fit(split.clients, seed)
    seconds = time.perf_counter() - began
    return Score(pooled(split, last(centers)), by_client(split, last(centers)), seconds), centers


def study(sets: Sequence[Data], seeds: int, local: Sequence[int]) -> tuple[Scores, Courses, dict[Data, int]]:
    """Return scores, FKM's index after each merge, and the number of local clusters of informed k-FED."""
    scores, courses, best = Scores(), Courses(), dict[Data, int]()
    for data in sets:
        began, splits = time.perf_counter(), [split(data, seed) for seed in range(seeds)]
        for name, fit in METHODS.items():
            found = [scored(fit, one, seed) for seed, one in enumerate(splits)]
            scores[name, data] = [score for score, _ in found]
            if name == "FKM summed":
                courses[data] = [
                    [pooled(one, each) for each in run] for one, (_, run) in zip(splits, found, strict=True)
                ]
        if data.noise == 1.0:
            # With fewer than four local clusters, five clients have fewer centroids than there are clusters.
            tried = {k: kfed(K, n_local_clusters=k, **SEEN) for k in local}
            tries = {k: [scored(fit, one, s)[0] for s, one in enumerate(splits)] for k, fit in tried.items()}
            best[data] = max(tries, key=lambda k: np.mean([one.by_client for one in tries[k]]))
            scores["k-FED informed", data] = tries[best[data]]
        print(f"{data}: {time.perf_counter() - began:.0f} s", flush=True)
    return scores, courses, best


# --- FEMNIST ---


def silhouettes(rows: np.ndarray, centers: np.ndarray) -> tuple[float, float]:
    """Return the silhouette, from distances to rows, and the simplified one, from distances to centers."""
    products = np.square(rows).sum(axis=1)[:, None] + np.square(centers).sum(axis=1) - 2 * rows @ centers.T
    distances = np.sqrt(np.maximum(products, 0.0))
    labels, (nearest, second) = distances.argmin(axis=1), np.partition(distances, 1, axis=1)[:, :2].T
    simplified = np.mean((second - nearest) / np.maximum(second, 1e-300))
    return float(silhouette_score(rows, labels)), float(simplified)


def femnist(folder: Path, seeds: int, k: int = 60) -> dict[str, np.ndarray]:
    """Return each method's silhouettes on the first 10 clients, (n_seeds, 2)."""
    with np.load(folder / FILE) as file:
        rows, owner = file["X"] / 255.0, file["client"]
    clients = [rows[owner == i] for i in range(10)]
    found = {}
    for name, fit in methods(k).items():
        began, ends = time.perf_counter(), [last(fit(clients, seed)) for seed in range(seeds)]
        found[name] = np.array([silhouettes(np.concatenate(clients), centers) for centers in ends])
        print(f"FEMNIST, {name}: {time.perf_counter() - began:.0f} s", flush=True)
    return found


# --- tables ---


def lines(scores: Scores, best: dict[Data, int]) -> Iterator[list[str]]:
    """Yield the lines of the table of adjusted Rand indices."""
    for (name, data), found in scores.items():
        all_rows, own_rows, seconds = np.array(found).T
        theirs = AUTHORS_CODE.get((name, data))
        named = f"{name} (k' = {best[data]})" if name == "k-FED informed" else name
        yield [
            str(data),
            named,
            f"{all_rows.mean():.4f} ± {all_rows.std():.4f}",
            f"{own_rows.mean():.4f} ± {own_rows.std():.4f}",
            "" if theirs is None else f"{theirs:.4f}".rstrip("0"),
            f"{1000 * np.median(seconds):.0f}",
        ]


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rows = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def write(
    scores: Scores,
    best: dict[Data, int],
    images: dict[str, np.ndarray],
    scale: str,
    out: Path,
) -> None:
    """Print the tables, and write them as Markdown and CSV."""
    header = ["data", "method", "ARI pooled", "ARI by client", "authors' code", "ms"]
    text = scale + "\n\n" + markdown(header, sorted(lines(scores, best), key=lambda one: one[0]))
    if images:
        body = [
            [name, *(f"{one.mean():.4f} ± {one.std():.4f}" for one in found.T)]
            for name, found in images.items()
        ]
        text += "\n" + markdown(["FEMNIST, 10 clients, k = 60", "silhouette", "simplified"], body)
    print("\n" + text)
    (out / "fkm.md").write_text(text)
    with (out / "fkm.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["beta", "noise", "rows", "method", "k_local", "seed", *Score._fields])
        for (name, data), found in scores.items():
            k_local = best[data] if name == "k-FED informed" else K if "k-FED" in name else ""
            setting = ["cluster-wise" if data.beta is None else data.beta, data.noise, data.rows]
            for seed, one in enumerate(found):
                writer.writerow([*setting, name, k_local, seed, *one])


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


def draw_methods(axes: Axes, scores: Scores, sets: Sequence[Data]) -> None:
    """Draw each method's index on the regular data (Figures 1b and 4b)."""
    for j, (name, colour) in enumerate(COLOURS.items()):
        found = [np.array(scores[name, data])[:, 0] for data in sets]
        mean, std = [one.mean() for one in found], [one.std() for one in found]
        places = np.arange(len(sets)) + (j - 2.5) * 0.11
        axes.errorbar(places, mean, std, fmt="o", color=colour, capsize=3, label=name)
    names = ["cluster-wise" if one.beta is None else f"β = {one.beta:g}" for one in sets]
    axes.set_xticks(range(len(sets)), names)
    axes.set(title="Figures 1b and 4b (sd 1, 50 rows): mean ± sd", ylabel="adjusted Rand index")
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def draw_noise(axes: Axes, scores: Scores, beta: float) -> None:
    """Draw indices against the noise (Figure 3a to c)."""
    for name in METHODS:
        for rows, style in ((50, "o-"), (200, "s--")):
            sets = [one for other, one in scores if (other, one.beta, one.rows) == (name, beta, rows)]
            if sets:
                means = [np.array(scores[name, data])[:, 0].mean() for data in sets]
                line: dict[str, Any] = {"color": COLOURS[name], "label": f"{name}, {rows} rows"}
                axes.plot([one.noise for one in sets], means, style, markersize=4, **line)
    axes.set(title=f"Figure 3, β = {beta:g}", xlabel="standard deviation of a cluster", ylabel="ARI")
    axes.set_ylim(0.3, 1.0)
    axes.legend(fontsize=6, ncols=2)


def draw_courses(axes: Axes, courses: Courses) -> None:
    """Draw FKM's index after each merge (Figure 3d to f)."""
    for beta, colour in zip(BETAS, ("#0072B2", "#009E73", "#D55E00"), strict=True):
        for data, found in courses.items():
            if data.beta == beta and data.rows == 50 and data.noise in (1.0, 1.5):
                style = "-" if data.noise == 1.0 else "--"
                label = f"β = {beta:g}, sd {data.noise:g}"
                axes.plot(range(1, MERGES + 1), np.mean(found, axis=0), style, color=colour, label=label)
    axes.set(title="FKM summed, merge by merge", xlabel="merge (1: the start)", ylabel="ARI")
    axes.legend(fontsize=7)


def draw(scores: Scores, courses: Courses, scale: str, path: Path) -> None:
    """Draw the paper's figures on one page."""
    figure = Figure(figsize=(15, 8.5), layout="constrained")
    figure.suptitle(f"FKM (Garst and Reinders 2023) and k-FED (Dennis et al. 2021)\n{scale}")
    grid = figure.subplots(2, 3)
    draw_split(grid[0, 0], Data(0.1))
    draw_methods(grid[0, 1], scores, [Data(beta) for beta in BETAS] + [Data(None)])
    draw_courses(grid[0, 2], courses)
    for axes, beta in zip(grid[1], BETAS, strict=True):
        draw_noise(axes, scores, beta)
    for axes in grid.ravel():
        axes.grid(color="#dddddd", linewidth=0.5)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and write its tables and picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2 seeds, two noises, fewer local clusters")
    parser.add_argument("--out", type=Path, default=Path("runs/fkm"), help="folder for the results")
    parser.add_argument("--data", type=Path, help=f"folder that holds {FILE}")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    seeds, noises, sizes = (2, (1.0, 1.5), (50,)) if chosen.quick else (20, np.arange(10, 16) / 10, (50, 200))
    sets = [Data(beta, float(sd), rows) for rows in sizes for beta in BETAS for sd in noises]
    scores, courses, best = study([*sets, Data(None)], seeds, (4, 8, 16) if chosen.quick else range(4, 17))
    scale = f"{seeds} seeds, {MERGES} merges"
    scale += " (quick; the paper: 200 runs on one data set)" if chosen.quick else ""
    images: dict[str, np.ndarray] = {}
    if chosen.data is None or not (chosen.data / FILE).exists():
        print(f"FEMNIST is left out: give --data DIR with {FILE}.")
    else:
        images = femnist(chosen.data, 1 if chosen.quick else 5)
    write(scores, best, images, scale, chosen.out)
    draw(scores, courses, scale, chosen.out / "fkm.png")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
