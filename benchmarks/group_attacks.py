"""What groups of rows leave of every attack: the table of docs/measurements/groups.md.

    python benchmarks/group_attacks.py [seeds]

One fit and five over plain, masked and verified sums, five clients, k = 10, one local step and five restarts,
which show most. All attacks on rows that read such runs are in it; probing servers ask sixty questions.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import fmean

from groups import distances, dominated, inferred, standardised

from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study

STUDY = """\
name = "Groups"
seeds = SEEDS
fits = [5]

[[data]]
source = "wine"
standardise = true
low = -6.0
high = 6.0
public = 0.2

[[data]]
source = "breast_cancer"
standardise = true
low = -12.0
high = 12.0
public = 0.2

[[partition]]
clients = 5

[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 10
local_iter = 1
n_init = 5
grid = { group_size = [1, 3, 5, 10] }

[[sum]]
protocol = "plain"

[[sum]]
protocol = "masked"

[[sum]]
protocol = "masked-verified"
"""
SIZES = (1, 3, 5, 10)
ATTACKS = (
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
)

BY_THEMSELVES = (
    "share of rows within .1 sd of a group's mean",
    "sums that one row dominates (p = 10 %)",
    "a hidden column from the nearest mean, R2",
    "the same from the nearest other rows, R2",
)
"""What groups' means show without any attack, as `groups.py` measures it."""


def main(seeds: int) -> None:
    """Print a line for each set and attack, then what the groups' means show by themselves."""
    tables = "".join(f'\n[[attack]]\nname = "{name}"\n{text}\n' for name, text in ATTACKS)
    study = plan(parse_study(STUDY.replace("SEEDS", str(seeds)) + tables, "groups.toml"), Path())
    found: dict[tuple[str, str], dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for setup in study.setups:
        m = setup.parameters["group_size"]
        assert isinstance(m, int)
        for seed, attack in product(study.seeds, setup.attacks):
            wanted = {"1": attack_id(attack)}
            wanted |= {"5": setup.fits_id(attack)} if attack in setup.pooling else {}
            parts = measure(setup, seed, wanted.values(), Path())
            for fits, name in wanted.items():
                if parts[name].error:
                    raise RuntimeError(f"{setup.title}, {attack.title}: {parts[name].error}")
                values = parts[name].values
                report = values["report"] if "report" in values else values["reports"][0]
                own = found[setup.data.title, attack.title]
                own[m, fits].append(report["recovered"])
                own[m, f"{fits} near"].append(report["details"].get("recovered within .05 sd", 0.0))
    print("| set | attack, one / five fits | m = 1 | 3 | 5 | 10 |\n|---|---|---|---|---|---|")
    for (data, attack), own in found.items():
        shown = [" / ".join(f"{fmean(own[m, n]):.2f}" for n in "15" if own[m, n]) for m in SIZES]
        print(f"| {data} | {attack} | {' | '.join(shown)} |")
        near = max(fmean(own[m, f"{n} near"]) for m in SIZES[1:] for n in "15" if own[m, n])
        if near > 0.0:
            print(f"| {data} | {attack}, within .05 sd, in groups at most | | {near:.2f} | | |")
    for data in ("wine", "breast_cancer"):
        rows = standardised(data)
        shown = [(distances(rows, m)[2], dominated(data, m), *inferred(rows, m)) for m in SIZES[1:]]
        for what, values in zip(BY_THEMSELVES, zip(*shown, strict=True), strict=True):
            print(f"| {data} | {what} | | {' | '.join(f'{value:.2f}' for value in values)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
