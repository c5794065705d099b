"""What groups of rows leave of every attack: the table of docs/measurements/groups.md.

    python -m benchmarks.group_attacks [seeds [set ...]]

One fit and five over plain, masked and verified sums, five clients, k = 10, one local step and five restarts,
which show most. All attacks on rows that read such runs are in it; probing servers ask sixty questions. Slow
steps are one fit of 200 rounds (`learning_rate=0.01, momentum=0.98`). Rows that join do so one before each of
five fits. Models are softmax regressions over plain FedAvg: of clients with about 28 rows of breast_cancer in
one round, and of clients with 12 digits of five classes in ten rounds.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn import datasets

from benchmarks.groups import distances, dominated, inferred, standardised
from privfed import Box, ClientPolicy
from privfed.attacks import Prior, evaluate
from privfed.deep import FedAvg
from privfed.deep.attacks.counts import ClassCounts
from privfed.deep.attacks.inversion import TOLERANCE, GradientInversion
from privfed.deep.attacks.linkage import LabelledTruth
from privfed.errors import ArgumentError
from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study

STUDY = """\
name = "Groups"
seeds = SEEDS
fits = [5]

[[partition]]
clients = 5
"""
SETS = {
    name: f"""
[[data]]
source = "{name}"
standardise = true
low = {-most}
high = {most}
public = 0.2
"""
    for name, most in (("wine", 6.0), ("breast_cancer", 12.0))
}


def algorithm(name: str, *more: str) -> str:
    """Return the table of an algorithm at each size of groups."""
    head = f'name = "{name}"\nestimator = "DWFKMeans"\nn_clusters = 10\nlocal_iter = 1'
    sizes = "grid = { group_size = [1, 3, 5, 10] }"
    return "\n".join(["\n[[algorithm]]", head, *more, sizes, ""])


def sums(*names: str) -> str:
    """Return the tables of secure sums."""
    return "".join(f'\n[[sum]]\nprotocol = "{name}"\n' for name in names)


STUDIES = (
    algorithm("k-means", "n_init = 5") + sums("plain", "masked", "masked-verified"),
    algorithm("a row joins before each", "n_init = 5", "row_joins = true")
    + algorithm("slow steps", "learning_rate = 0.01", "momentum = 0.98", "max_iter = 200", "tol = 0.0")
    + sums("masked"),
)
SIZES = (1, 3, 5, 10)
ATTACKS = (
    (
        ("differencing, client 0", 'kind = "differencing"\nclient = 0\nsums = ["plain"]'),
        ("tomography, client 0", 'kind = "tomography"\nclient = 0\nsums = ["plain"]'),
        ("differencing, totals", 'kind = "differencing"\nsums = ["masked"]'),
        (
            "differencing, curious client",
            'kind = "differencing"\nparty = "clients"\ncolluding = [1]\nsums = ["masked-verified"]',
        ),
        ("membership (AUC)", 'kind = "membership"\nsums = ["masked"]'),
        ("attribute inference", 'kind = "attribute-inference"\nsums = ["masked"]'),
        ("probing, client 0", 'kind = "probing"\nclient = 0\nsums = ["plain"]'),
        ("probing, totals", 'kind = "probing"\nsums = ["masked"]'),
    ),
    (
        (
            "differencing, a row joins before each fit",
            'kind = "differencing"\nalgorithms = ["a row joins before each"]',
        ),
        ("differencing, slow steps", 'kind = "differencing"\nalgorithms = ["slow steps"]'),
    ),
)
DISTANCE = "nearest row / sd, median"
"""How far half of the claims are from a row, at least."""

BY_THEMSELVES = (
    "share of rows within .1 sd of a group's mean",
    "sums that one row dominates (p = 10 %)",
    "a hidden column from the nearest mean, R2",
    "the same from the nearest other rows, R2",
)
"""What groups' means show without any attack, as `groups.py` measures it."""


Found = dict[str, dict[tuple[int, str], list[float]]]
"""Attack -> size of groups and number of fits, or what else is told -> figures."""


def attacked(data: str, seeds: int) -> Found:
    """Run all attacks on clusterings of one set."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for text, attacks in zip(STUDIES, ATTACKS, strict=True):
        tables = "".join(f'\n[[attack]]\nname = "{name}"\n{own}\n' for name, own in attacks)
        whole = STUDY.replace("SEEDS", str(seeds)) + SETS[data] + text + tables
        study = plan(parse_study(whole, "groups.toml"), Path())
        for setup in study.setups:
            m = setup.parameters["group_size"]
            assert isinstance(m, int)
            for seed in study.seeds if setup.attacks else ():
                parts = measure(setup, seed, setup.parts(), Path())
                if failed := [part.error for part in parts.values() if part.error]:
                    raise RuntimeError(f"{setup.title}: {failed[0]}")
                for attack in setup.attacks:
                    add(found, m, attack.title, "1", parts[attack_id(attack)].values)
                    if attack in setup.pooling and "slow" not in attack.title:
                        add(found, m, attack.title, "5", parts[setup.fits_id(attack)].values)
    return found


def add(found: Found, m: int, title: str, fits: str, values: dict[str, Any]) -> None:
    """Add the figures of an attack on one fit, or on five together."""
    report, own = values["report"] if "report" in values else values["reports"][0], found[title]
    own[m, fits].append(report["recovered"])
    own[m, f"{fits} near"].append(report["details"].get("recovered within .05 sd", 0.0))
    if report["details"].get(DISTANCE) is not None:
        own[m, f"{fits} far"].append(report["details"][DISTANCE])
    if "joined" in values:
        found["the row that joined, groups made anew"][m, fits].append(values["joined"][0])


def lines(data: str, found: Found) -> Iterator[str]:
    """Yield a line for each attack on a set, with how near to rows its claims in groups came."""
    for attack, own in found.items():
        for kind, what in (("", ""), (" far", ": a claim to the nearest row, sd")):
            each = [[own[m, n + kind] for n in "15"] for m in SIZES]
            shown = [" / ".join(f"{fmean(one):.2f}" for one in two if one) for two in each]
            if any(shown):
                yield f"| {data} | {attack}{what} | {' | '.join(shown)} |"
        near = max((fmean(one) for (m, kind), one in own.items() if m > 1 and "near" in kind), default=0.0)
        if near > 0.0:
            yield f"| {data} | {attack}, within .05 sd, in groups at most | | {near:.2f} | | |"


def of_models(seeds: int) -> Iterator[str]:
    """Yield a line for each attack on models."""
    rows, labels = datasets.load_breast_cancer(return_X_y=True)
    rows = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0)
    few, kinds = (one[:240] for one in datasets.load_digits(n_class=5, return_X_y=True))
    for name, X, y, n_clients, rounds, attack in (
        ("breast_cancer | class counts", rows, labels, 20, 1, ClassCounts()),
        ("digits | gradient inversion", few / 16.0, kinds, 20, 10, GradientInversion()),
    ):
        shown = []
        for m in SIZES:
            recovered = []
            for seed in range(seeds):
                own = np.array_split(np.random.default_rng(seed).permutation(len(X)), n_clients)
                sites = [X[one] for one in own], [y[one] for one in own]
                words: dict[str, Any] = {"n_classes": 1 + int(y.max()), "rounds": rounds, "domain": Box(0, 1)}
                try:
                    model = FedAvg(**words, protocol="plain", policy=ClientPolicy(group_size=m)).fit(*sites)
                except ArgumentError:  # No class of any client has rows for a group.
                    continue
                view = model.transcript_.view("server")
                found = attack.run(view, Prior(), np.random.default_rng(0))
                truth = LabelledTruth(sites[0], labels=sites[1], tolerance=TOLERANCE)
                recovered.append(evaluate(found, truth).recovered)
            shown.append(
                "none" if not recovered or np.isnan(recovered).all() else f"{np.nanmean(recovered):.2f}"
            )
        yield f"| {name} | {' | '.join(shown)} |"


def main(seeds: int, names: Sequence[str]) -> None:
    """Print a line for each set and attack, then what the groups' means show by themselves."""
    print("| set | attack, one / five fits | m = 1 | 3 | 5 | 10 |\n|---|---|---|---|---|---|", flush=True)
    for data in SETS:
        if data in (names or SETS):
            print("\n".join(lines(data, attacked(data, seeds))), flush=True)
            rows = standardised(data)
            shown = [(distances(rows, m)[2], dominated(data, m), *inferred(rows, m)) for m in SIZES[1:]]
            for what, values in zip(BY_THEMSELVES, zip(*shown, strict=True), strict=True):
                print(f"| {data} | {what} | | {' | '.join(f'{value:.2f}' for value in values)} |", flush=True)
    if not names or "models" in names:
        print("\n".join(of_models(seeds)), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2:])
