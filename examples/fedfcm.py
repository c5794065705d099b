"""Compares federated fuzzy c-means and the federated fuzzy Davies-Bouldin index with the paper's results.

Stallmann and Wilbik: On a Framework for Federated Cluster Analysis, Appl. Sci. 12 (2022) 10455:

- the motivational example (section 3.2.1, Tables 1 and 2): three clients, none with all five clusters;
- the G2 sets (section 3.2.2, Table 3): how often the index finds the two clusters;
- the bank's customers (section 3.2.3, Figure 6): one client for each job. Only with --data.

    python examples/fedfcm.py [--quick] [--out DIR] [--data DIR]

Writes motivational.csv, g2.csv, bank.csv, fedfcm.md and fedfcm.png to DIR (default: fedfcm). --data names a
folder with bank-full.csv or bank-full.csv.gz (UCI Bank Marketing, separated by ';') and g2_sets.npz (arrays
g2_{D}_{sd}). G2 sets that are not there are drawn from the same distribution, floor(N(500 or 600, sd^2)).
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# One thread for each process, as the sets are spread over two processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

from privfed.data import iid
from privfed.estimators.local_steps import FederatedFuzzyCMeans
from privfed.metrics.functions import fuzzy_davies_bouldin

Clients = list[np.ndarray]
WORKERS = 2
ROUNDS = 30
METHODS = ("central", "kmeans", "weighted")
NAMES = {"central": "central", "kmeans": "k-means avg.", "weighted": "weighted avg."}

# Tables 1 and 2 of the paper: central, k-means averaging, federated averaging.
PAPERS_INDEX = {
    2: (0.8707, 0.8179, 1.0047),
    3: (0.5687, 0.6055, 0.9143),
    4: (0.4869, 0.4951, 1.1683),
    5: (0.4348, 0.4289, 1.9158),
    6: (0.5440, 0.6202, 1.5063),
    7: (0.6707, 0.5072, 0.9248),
    8: (0.5680, 0.6221, 1.2115),
}
# Table 3: share of right numbers of clusters, among results of an index below 1.3; by number of clients.
PAPERS_SHARE = {
    ("central", 1): 0.929,
    **{("kmeans", p): share for p, share in ((2, 0.914), (5, 0.880), (10, 0.872))},
    **{("weighted", p): share for p, share in ((2, 0.904), (5, 0.895), (10, 0.889))},
}
MEANINGFUL = 1.3
AUTHORS_SECONDS = 6.6  # their code, eight clusters, motivational example, on a loaded two-core machine


@dataclass(frozen=True)
class Scale:
    """Says how much of the study is run."""

    seeds: int
    dimensions: tuple[int, ...]
    deviations: tuple[int, ...]
    parties: tuple[int, ...]
    runs: int


QUICK = Scale(2, (2, 32), (20, 60), (2, 10), 1)
FULL = Scale(10, (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), tuple(range(10, 101, 10)), (2, 5, 10), 3)


def fitted(clients: Clients, k: int, method: str, seed: int, protocol: str = "plain") -> FederatedFuzzyCMeans:
    """Fit k clusters, centrally or federated with one of the two kinds of averaging."""
    parameters: dict[str, Any] = {"averaging": "kmeans", "max_iter": ROUNDS, "plateau": None}
    if method == "central":
        clients, parameters = [np.concatenate(clients)], {"averaging": "weighted", "max_iter": 1, "tol": 0}
    if method == "weighted":
        parameters = {"averaging": "weighted", "weight": "u", "max_iter": ROUNDS, "plateau": None}
    with warnings.catch_warnings():
        # If local steps end in a cycle, its best state is used; the paper's code uses the last one.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FederatedFuzzyCMeans(k, protocol=protocol, random_state=seed, **parameters).fit(clients)


def index_of(model: FederatedFuzzyCMeans) -> float:
    return fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)


def least(curve: dict[int, float]) -> int:
    """Return the number of clusters with the smallest index."""
    return min(curve, key=lambda k: curve[k])


# --- the motivational example ---


def motivational(seed: int) -> Clients:
    """Draw the three clients; the paper's tables are reproduced if groups 3 and 4 are exchanged, as here."""
    rng = np.random.default_rng(seed)
    means = {1: (0, 0), 2: (0, 1), 3: (1, 0), 4: (1, 1)}
    return [
        np.concatenate(
            [*(rng.normal(means[group], 0.2, (500, 2)) for group in pair), rng.normal(0.5, 0.01, (40, 2))]
        )
        for pair in ((1, 2), (2, 4), (3, 4))
    ]


def run_motivational(scale: Scale) -> pl.DataFrame:
    rows = []
    for seed in range(scale.seeds):
        clients = motivational(seed)
        for k, method in product(PAPERS_INDEX, METHODS):
            begin = time.process_time()
            model = fitted(clients, k, method, seed)
            seconds = time.process_time() - begin
            rows.append(
                {
                    "seed": seed,
                    "k": k,
                    "method": method,
                    "index": index_of(model),
                    "rounds": model.n_iter_,
                    "cycled": model.cycled_,
                    "seconds": seconds,
                }
            )
        print(f"  motivational example, seed {seed} of {scale.seeds}", flush=True)
    return pl.DataFrame(rows)


def curve_of(table: pl.DataFrame, **where: Any) -> dict[int, float]:
    """Return the mean index for each number of clusters, over the rows that match."""
    kept = table.filter(*(pl.col(name) == value for name, value in where.items()))
    means = kept.group_by("k").agg(pl.col("index").mean()).sort("k")
    return dict(zip(means["k"].to_list(), means["index"].to_list(), strict=True))


def masked_choice(seed: int) -> int:
    """Return the number of clusters chosen over masked sums."""
    clients = motivational(seed)
    return least({k: index_of(fitted(clients, k, "kmeans", seed, "masked")) for k in PAPERS_INDEX})


def motivational_report(table: pl.DataFrame) -> Iterator[str]:
    yield "| K | central: paper | ours | k-means avg.: paper | ours | weighted avg.: paper | ours |"
    yield "|---|---|---|---|---|---|---|"
    curves = {method: curve_of(table, method=method) for method in METHODS}
    for k, papers in PAPERS_INDEX.items():
        cells = (f"{one:.4f} | {curves[method][k]:.4f}" for method, one in zip(METHODS, papers, strict=True))
        yield f"| {k} | {' | '.join(cells)} |"
    seeds = sorted(set(table["seed"].to_list()))
    for method in METHODS:
        chosen = [least(curve_of(table, method=method, seed=seed)) for seed in seeds]
        yield f"\n{NAMES[method]}: five clusters chosen in {chosen.count(5)} of {len(seeds)} seeds."
    yield f"\nOver masked sums, seed 0: {masked_choice(0)} clusters chosen."
    eight = np.median(table.filter(pl.col("k") == 8, pl.col("method") == "kmeans")["seconds"].to_numpy())
    theirs = (
        f"authors' code, on another, loaded machine: {AUTHORS_SECONDS} s; {AUTHORS_SECONDS / eight:.0f} to 1"
    )
    yield f"\nEight clusters, k-means averaging: {eight:.3f} s of one core ({theirs})."


# --- the G2 sets ---


def g2(dimension: int, deviation: int, data: Path | None) -> np.ndarray:
    """Return a G2 set: the published one if it is available, else one from the same distribution."""
    if data is not None and (data / "g2_sets.npz").exists():
        with np.load(data / "g2_sets.npz") as sets:
            if f"g2_{dimension}_{deviation}" in sets:
                return np.asarray(sets[f"g2_{dimension}_{deviation}"], dtype=np.float64)
    rng = np.random.default_rng([dimension, deviation])
    halves = [rng.normal(mean, deviation, (1024, dimension)) for mean in (500, 600)]
    return np.floor(np.concatenate(halves))


def g2_set(job: tuple[int, int, Path | None, Scale]) -> list[dict[str, Any]]:
    """Return the curves of one set: central, and for each kind of averaging and number of parties."""
    dimension, deviation, data, scale = job
    rows_of, rows = g2(dimension, deviation, data), []
    ways = [("central", 1), *product(("kmeans", "weighted"), scale.parties)]
    for run, (method, parties) in product(range(scale.runs), ways):
        clients = [rows_of[own] for own in iid(len(rows_of), parties, np.random.default_rng(run))]
        curve = {k: index_of(fitted(clients, k, method, run)) for k in range(2, 7)}
        found = {"dimension": dimension, "deviation": deviation, "run": run, "method": method}
        rows.append({**found, "parties": parties, "index": curve[2], "chosen": least(curve)})
    return rows


def run_g2(scale: Scale, data: Path | None) -> pl.DataFrame:
    jobs = [(d, sd, data, scale) for d, sd in product(scale.dimensions, scale.deviations)]
    rows, begin = [], time.perf_counter()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for done, found in enumerate(pool.map(g2_set, jobs), start=1):
            rows += found
            if done % 10 == 0 or done == len(jobs):
                print(f"  G2: {done} of {len(jobs)} sets, {time.perf_counter() - begin:.0f} s", flush=True)
    return pl.DataFrame(rows)


def right_share(table: pl.DataFrame, method: str, parties: int, **where: Any) -> float:
    """Return how often two clusters were chosen, among meaningful results (Table 3's rule)."""
    conditions = {"method": method, "parties": parties, **where}
    kept = table.filter(pl.col("index") < MEANINGFUL, *(pl.col(n) == v for n, v in conditions.items()))
    return float((kept["chosen"] == 2).mean()) if len(kept) else float("nan")  # type: ignore[arg-type]


def g2_report(table: pl.DataFrame, scale: Scale) -> Iterator[str]:
    sets = len(scale.dimensions) * len(scale.deviations)
    yield f"{sets} of the 100 sets, {scale.runs} runs (paper: 20)."
    yield f"Share of results in which two clusters are chosen, where their index is below {MEANINGFUL}:\n"
    yield "| | clients | paper | ours | ours, all results | median index, K=2 |"
    yield "|---|---|---|---|---|---|"
    for (method, parties), papers in PAPERS_SHARE.items():
        kept = table.filter(pl.col("method") == method, pl.col("parties") == parties)
        if len(kept):
            ours, right = right_share(table, method, parties), (kept["chosen"] == 2).mean()
            median = kept["index"].median()
            yield f"| {NAMES[method]} | {parties} | {papers:.1%} | {ours:.1%} | {right:.1%} | {median:.4f} |"


# --- the bank's customers ---


def bank(data: Path) -> tuple[Clients, list[str]] | None:
    """Return the customers' standardised age, balance and education, one client for each job; or None."""
    files = [one for one in (data / "bank-full.csv", data / "bank-full.csv.gz") if one.exists()]
    if not files:
        return None
    table = pl.read_csv(files[0], separator=";").filter(
        pl.col("job") != "unknown", pl.col("education") != "unknown"
    )
    schooling = pl.col("education").replace_strict({"primary": 1, "secondary": 2, "tertiary": 3})
    rows = table.select("age", "balance", schooling).to_numpy().astype(np.float64)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    job = table["job"].to_numpy()
    # Each job is a client, as in section 3.2.3 of Stallmann and Wilbik 2022.
    return [rows[job == one] for one in np.unique(job)], np.unique(job).tolist()


def run_bank(clients: Clients, numbers: range) -> tuple[pl.DataFrame, np.ndarray]:
    rows, four = [], np.empty(0)
    for k, method in product(numbers, ("central", "kmeans")):
        model = fitted(clients, k, method, 0)
        rows.append({"k": k, "method": method, "index": index_of(model), "rounds": model.n_iter_})
        if (k, method) == (4, "kmeans"):
            four = model.cluster_centers_
    return pl.DataFrame(rows), four


def bank_report(table: pl.DataFrame, four: np.ndarray, clients: Clients) -> Iterator[str]:
    yield f"{sum(map(len, clients))} customers, {len(clients)} jobs.\n"
    yield "| K | central | k-means avg. |"
    yield "|---|---|---|"
    central, federated = (curve_of(table, method=method) for method in ("central", "kmeans"))
    for k in central:
        yield f"| {k} | {central[k]:.4f} | {federated[k]:.4f} |"
    balances = ", ".join(f"{balance:.1f}" for balance in sorted(four[:, 1]))
    yield f"\nFour clusters, k-means averaging: balances {balances} sd (paper: wealthiest 3.1; central 2.4)."


# --- all of it ---


def picture(
    path: Path, first: pl.DataFrame, sets: pl.DataFrame, scale: Scale, customers: pl.DataFrame | None
) -> None:
    figure = Figure(figsize=(11, 8), layout="constrained")
    (map_axes, index_axes), (g2_axes, bank_axes) = figure.subplots(2, 2)
    clients = motivational(0)
    for number, rows in enumerate(clients, start=1):
        map_axes.scatter(*rows.T, s=6, alpha=0.3, linewidths=0, label=f"client {number}")
    map_axes.scatter(
        *fitted(clients, 5, "kmeans", 0).cluster_centers_.T, marker="x", s=60, c="black", label="centres"
    )
    map_axes.set(title="Motivational example, five clusters", aspect="equal")
    map_axes.legend(fontsize="small", loc="lower left")
    for column, method in enumerate(METHODS):
        curve = curve_of(first, method=method)
        (line,) = index_axes.plot(
            list(curve), list(curve.values()), marker="o", label=f"{NAMES[method]}, ours"
        )
        papers = [one[column] for one in PAPERS_INDEX.values()]
        index_axes.plot(
            list(PAPERS_INDEX), papers, ":", color=line.get_color(), label=f"{NAMES[method]}, paper"
        )
    index_axes.set(title="Fuzzy Davies-Bouldin index", xlabel="clusters", yscale="log")
    index_axes.legend(fontsize="small", ncols=3, loc="upper center")
    index_axes.set_ylim(top=4)
    for method, parties in [("central", 1), *(("kmeans", p) for p in scale.parties)]:
        kept = sets.filter(pl.col("method") == method, pl.col("parties") == parties)
        shares = kept.group_by("deviation").agg((pl.col("chosen") == 2).mean()).sort("deviation")
        label = "central" if method == "central" else f"{parties} clients"
        style = {"marker": "o", "markersize": 9} if method == "central" else {"marker": ".", "alpha": 0.8}
        g2_axes.plot(shares["deviation"], shares["chosen"], label=label, **style)
    g2_axes.set(
        title="G2: share of sets with two clusters found", xlabel="standard deviation", ylim=(-0.05, 1.05)
    )
    g2_axes.legend(fontsize="small")
    if customers is None:
        bank_axes.text(0.5, 0.5, "bank's customers: no --data", ha="center", transform=bank_axes.transAxes)
        bank_axes.set_axis_off()
    else:
        for method in ("central", "kmeans"):
            curve = curve_of(customers, method=method)
            bank_axes.plot(list(curve), list(curve.values()), marker="o", label=NAMES[method])
        bank_axes.set(title="Bank's customers: index", xlabel="clusters", xticks=list(curve))
        bank_axes.legend(fontsize="small")
    figure.savefig(path, dpi=130)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few seeds and sets, under a minute")
    parser.add_argument("--out", type=Path, default=Path("fedfcm"), help="folder for tables and picture")
    parser.add_argument("--data", type=Path, help="folder with bank-full.csv(.gz) and g2_sets.npz")
    options = parser.parse_args(arguments)
    scale, begin = QUICK if options.quick else FULL, time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    report: list[str] = [f"# FedFCM and FedFuzzDB, {'quick' if options.quick else 'full'} scale\n"]

    def show(title: str, lines: Iterator[str]) -> None:
        text = [f"\n## {title}\n", *lines]
        print("\n".join(text), flush=True)
        report.extend(text)

    first = run_motivational(scale)
    first.write_csv(options.out / "motivational.csv")
    show(f"Motivational example, mean of {scale.seeds} seeds", motivational_report(first))
    sets = run_g2(scale, options.data)
    sets.write_csv(options.out / "g2.csv")
    show("G2 sets", g2_report(sets, scale))
    loaded = None if options.data is None else bank(options.data)
    customers = None
    if loaded is None:
        show("Bank's customers", iter(["Skipped: bank-full.csv is not there; name its folder with --data."]))
    else:
        customers, four = run_bank(loaded[0], range(3, 7) if options.quick else range(3, 10))
        customers.write_csv(options.out / "bank.csv")
        show("Bank's customers", bank_report(customers, four, loaded[0]))
    picture(options.out / "fedfcm.png", first, sets, scale, customers)
    report.append(f"\n{time.perf_counter() - begin:.0f} s in all.")
    (options.out / "fedfcm.md").write_text("\n".join(report) + "\n")
    print(f"\n{report[-1].strip()} Tables and picture: {options.out}", flush=True)


if __name__ == "__main__":
    main()
