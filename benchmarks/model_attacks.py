"""What updates of models give away: the tables of "Updates of models" in docs/measurements/attacks.md.

    python -m benchmarks.model_attacks [rows] [batches] [columns] [classes] [networks]

Without a word it prints all of them. Rows are scaled to [0, 1], and dealt out by the seeds 0, 1, ...; models
have the defaults unless a line says otherwise. Rows count as found within .01 deviations. Errors are the root
mean square over all values of a run, and the largest of any value; seconds are of one core, for each client.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets

from privfed import Box
from privfed.attacks import Points, Prior, Truth, evaluate
from privfed.attacks.base.report import matched_rmse, nearest_rows
from privfed.core.record.records import View
from privfed.deep import DCFL, FedAvg
from privfed.deep.attacks.counts import ClassCounts
from privfed.deep.attacks.first_layer import TOLERANCE
from privfed.deep.attacks.inversion import GradientInversion
from privfed.deep.attacks.linkage import LabelledTruth, SketchLinkage

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "DCFL over slots": (DCFL, {}),
    "DCFL by name": (DCFL, {"protocol": "plain", "merge": "gathered"}),
    "FedAvg, plain": (FedAvg, {"protocol": "plain"}),
}
SLOTS, NAMED, PLAIN = WAYS


class Sites(NamedTuple):
    """Rows and labels of each client."""

    rows: list[np.ndarray]
    labels: list[np.ndarray]


def dealt(data: str, sizes: Sequence[int], seed: int) -> Sites:
    """Deal rows of a set of scikit-learn out to clients of these sizes."""
    rows, labels = getattr(datasets, f"load_{data}")(return_X_y=True)
    own = np.random.default_rng(seed).permutation(len(rows))[: sum(sizes)]
    low, high = (0.0, 16.0) if data == "digits" else (rows.min(axis=0), rows.max(axis=0))
    ends = np.cumsum(sizes)[:-1]
    return Sites(np.split((rows[own] - low) / (high - low), ends), np.split(labels[own], ends))


def seen(way: str, sites: Sites, **words: Any) -> View:
    """Train, and return what the server saw."""
    kind, own = WAYS[way]
    n_classes = 1 + max(int(labels.max()) for labels in sites.labels)
    model = kind(**{"n_classes": n_classes, "rounds": 10, "domain": Box(0, 1), **own, **words})
    view: View = model.fit(*sites).transcript_.view("server")
    return view


def inverted(view: View, sites: Sites, **options: Any) -> tuple[int, int, float, float, float]:
    """Return how many rows are found and claimed, both errors, and the seconds of a client."""
    began = time.process_time()
    found = GradientInversion(**options).run(view, Prior(), np.random.default_rng(0))
    seconds = (time.process_time() - began) / len(sites.rows)
    if not isinstance(found, Points):
        return 0, 0, 0.0, 0.0, seconds
    rows = np.concatenate(sites.rows)
    right = round(evaluate(found, Truth(sites.rows, tolerance=TOLERANCE)).recovered * len(rows))
    far = float(nearest_rows(found.points, rows).max(initial=0.0))
    return right, len(found.points), matched_rmse(found.points, rows) / rows.shape[1] ** 0.5, far, seconds


def line(
    way: str,
    data: str,
    sizes: Sequence[int],
    draws: int,
    *,
    note: str = "",
    options: dict[str, Any] | None = None,
    **words: Any,
) -> None:
    """Print what was found of the rows of some draws."""
    each = [dealt(data, sizes, seed) for seed in range(draws)]
    found = np.array([inverted(seen(way, sites, **words), sites, **(options or {})) for sites in each])
    right, claims = found[:, :2].sum(axis=0).astype(int)
    low, high = found.min(axis=0), found.max(axis=0)
    precision = f"{right / claims:.3f}" if claims else "no claim"
    errors = f"{low[2]:.0e} to {high[2]:.0e}, {high[3]:.1e}" if claims else ""
    sized = f"{len(sizes)} of {sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    shown = [f"{way}, {data}{note}", sized, f"{right} of {draws * sum(sizes)}", precision, errors]
    print("| " + " | ".join([*shown, f"{low[4]:.1f} to {high[4]:.1f}"]) + " |", flush=True)


def rows() -> None:
    """Rows of digits from a softmax regression."""
    for way, sizes in ((SLOTS, [12] * 6), (SLOTS, [24] * 5), (PLAIN, [24] * 3)):
        line(way, "digits", sizes, 3)
    for way in (SLOTS, NAMED):
        line(way, "digits", [2, 6, 12, 18, 24, 28, 32, 40], 1)


def batches() -> None:
    """Rows of digits from large batches."""
    line(PLAIN, "digits", [32] * 2, 3)
    for size, n in ((40, 10), (40, 20), (48, 20)):
        words: dict[str, Any] = {"batch_size": None, "rounds": n, "options": {"most_rows": 64}}
        line(PLAIN, "digits", [size], 1, note=f", batch_size=None, {n} rounds", **words)


def columns() -> None:
    """Rows of sets with fewer columns and classes."""
    for data in ("wine", "iris"):
        line(SLOTS, data, [2, 4, 6, 8, 10, 12, 30], 2)


def classes() -> None:
    """Classes of clients with 30 rows from one round, and links of updates over ten."""
    for data, number in (("digits", 24), ("wine", 5), ("breast_cancer", 6)):
        for way in (SLOTS, PLAIN):
            told = [counted(way, data, number, seed) for seed in range(10)]
            print(f"| classes, {way}, {data} | {' '.join(map(str, told))} of {number} each |", flush=True)
    for size in (12, 24):
        shares = []
        for seed in range(3):
            sites = dealt("digits", [size] * 6, seed)
            found = SketchLinkage().run(seen(SLOTS, sites), Prior(), np.random.default_rng(0))
            shares.append(evaluate(found, LabelledTruth(sites.rows, labels=sites.labels)).recovered)
        print(f"| links, {SLOTS}, digits, 6 of {size} | {' '.join(f'{one:.2f}' for one in shares)} |")


def counted(way: str, data: str, number: int, seed: int) -> int:
    """Return of how many clients with 30 rows the rows of all classes are counted, after one round."""
    sites, attack = dealt(data, [30] * number, seed), ClassCounts()
    found = attack.run(seen(way, sites, rounds=1), Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(sites.rows, labels=sites.labels))
    return 0 if np.isnan(report.recovered) else round(report.recovered * number)


def networks() -> None:
    """Rows of digits from the first layer of a network."""
    for size, units, kind, n, way in (
        (5, 256, torch.float64, 10, PLAIN),
        (12, 256, torch.float64, 10, PLAIN),
        (24, 256, torch.float64, 10, PLAIN),
        (24, 1000, torch.float64, 10, PLAIN),
        (5, 256, torch.float32, 1, PLAIN),
        (5, 256, torch.float32, 10, PLAIN),
        (5, 256, torch.float32, 10, SLOTS),
        (12, 256, torch.float32, 10, PLAIN),
        (24, 256, torch.float32, 10, PLAIN),
    ):
        torch.manual_seed(0)
        layers = torch.nn.Linear(64, units), torch.nn.ReLU(), torch.nn.Linear(units, 10)
        network, note = torch.nn.Sequential(*layers).to(kind), f", {units} units, {kind}, {n} rounds"
        line(way, "digits", [size] * 5, 3, note=note, model=network, rounds=n)


TABLES = (rows, batches, columns, classes, networks)


def main(names: Sequence[str]) -> None:
    """Print the tables."""
    for table in TABLES:
        if not names or table.__name__ in names:
            print(f"\n{table.__doc__}\n", flush=True)
            if table is not classes:
                print(
                    "| run | clients | rows found | precision | errors | seconds |\n|---|---|---|---|---|---|"
                )
            table()


if __name__ == "__main__":
    main(sys.argv[1:])
