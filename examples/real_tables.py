"""Clusters the exports of three hospitals, each with its own habits, by the commands of docs/tables.md.

    python examples/real_tables.py [--out DIR] [--rows N] [--weight W] [--nodes]

It draws stays of four kinds of patients: age, glucose, days, cost, ward and day of admission. Aarhus writes
Latin-1 with semicolons and decimal commas. Odense measures glucose in mg/dl, has other names of columns, and
writes 9999 for what is missing. Viborg has another order of columns, and gaps. A schema says all this.

Each command is printed as one would type it. Every site checks its file at home; then an index proposes k,
and the four clusters are found three times: from rows, from means of groups of five rows, and under
differential privacy. Real parties take one of these: a claim covers no exact sums of the same rows beside it.
Each time the profile is printed, and how well the clusters agree with the kinds that were drawn (adjusted
Rand index over all rows; real tables have no such column).

With `--nodes` each site is a node of Flower, too (needs privfed[flower], half a minute). From means of groups
the nodes give the same centers as one process does, to the last bit.

Everything is in DIR (default: runs/real_tables), which must not hold an earlier run.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from privfed import load
from privfed.cli.main import main as privfed

WARDS = ("heart", "surgery", "medicine", "children")
# Means of age in years, glucose in mmol/l, days, and cost in 1,000 kr, of each kind, who lies in "its" ward.
KINDS = np.array(
    [[72.0, 6.0, 9.0, 90.0], [55.0, 5.5, 4.0, 60.0], [66.0, 12.0, 6.0, 35.0], [8.0, 5.0, 2.0, 15.0]]
)
SPREADS = np.array([6.0, 0.8, 1.0, 8.0])
SHARES = {"aarhus": (0.4, 0.3, 0.2, 0.1), "odense": (0.1, 0.2, 0.5, 0.2), "viborg": (0.2, 0.4, 0.1, 0.3)}
GAPS = 0.03

SCHEMA = """scale = "range"

[columns.patient]
kind = "id"

[columns.age]
kind = "number"
unit = "years"
low = 0
high = 110
outside = "clip"
missing = 50

[columns.glucose]
kind = "number"
unit = "mmol/l"
units = {"mg/dl" = 0.0555}
low = 2
high = 20
codes = ["9999"]
outside = "clip"
missing = 6

[columns.days]
kind = "number"
unit = "days"
low = 0
high = 15
outside = "clip"
missing = "leave-out"

[columns.cost]
kind = "number"
unit = "kr"
low = 0
high = 150000
outside = "clip"
missing = "leave-out"

[columns.ward]
kind = "category"
categories = ["heart", "surgery", "medicine", "children"]
weight = WEIGHT
missing = "medicine"

[columns.admitted]
kind = "date"
format = "%d-%m-%Y"
low = 2024-01-01
high = 2025-01-01
outside = "clip"
missing = "leave-out"

[files.aarhus]
encoding = "latin-1"
separator = ";"
decimal = ","

[files.odense]
names = {alder = "age", blodsukker = "glucose"}

[files.odense.units]
glucose = "mg/dl"
"""


Columns = dict[str, list[str]]


def stays(site: str, n_rows: int, rng: np.random.Generator) -> tuple[Columns, np.ndarray]:
    """Return texts of the stays of one site in the schema's units, and each one's kind, (n_rows,)."""
    kinds = rng.choice(len(KINDS), n_rows, p=SHARES[site])
    age, glucose, days, cost = np.maximum(KINDS[kinds] + rng.normal(0.0, SPREADS, (n_rows, 4)), 0.5).T
    elsewhere = rng.random(n_rows) < 0.1
    wards = np.where(elsewhere, rng.integers(0, len(WARDS), n_rows), kinds)
    days_of_year = np.datetime64("2024-01-01") + rng.integers(0, 366, n_rows)
    return {
        "patient": [f"{site[0]}{number:05d}" for number in range(n_rows)],
        "age": [f"{value:.0f}" for value in age],
        "glucose": [f"{value:.1f}" for value in glucose],
        "days": [f"{value:.0f}" for value in days],
        "cost": [f"{1000.0 * value:.2f}" for value in cost],
        "ward": np.array(WARDS)[wards].tolist(),
        "admitted": [f"{day:%d-%m-%Y}" for day in days_of_year.tolist()],
    }, kinds


def write(path: Path, table: Columns, separator: str = ",", encoding: str = "utf-8") -> None:
    """Write a table of texts."""
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def write_exports(folder: Path, n_rows: int) -> dict[str, np.ndarray]:
    """Write the three exports, and return the kind of each of their rows by site."""
    rng, kinds = np.random.default_rng(7), dict[str, np.ndarray]()
    folder.mkdir(parents=True)
    for site in SHARES:
        table, kinds[site] = stays(site, n_rows, rng)
        gaps, path = rng.random(n_rows) < GAPS, folder / f"{site}.csv"
        if site == "aarhus":
            for name in ("glucose", "cost"):
                table[name] = [text.replace(".", ",") for text in table[name]]
            # A column of its own, with letters that UTF-8 writes otherwise; the schema leaves it out.
            table["læge"] = ["Sørensen"] * n_rows
            write(path, table, ";", "latin-1")
        elif site == "odense":
            measured = [f"{float(text) / 0.0555:.0f}" for text in table["glucose"]]
            table["glucose"] = ["9999" if gap else text for gap, text in zip(gaps, measured, strict=True)]
            names = {"age": "alder", "glucose": "blodsukker"}
            write(path, {names.get(name, name): texts for name, texts in table.items()})
        else:
            table["age"] = ["" if gap else text for gap, text in zip(gaps, table["age"], strict=True)]
            write(path, dict(reversed(table.items())))
    return kinds


def run(*words: object) -> None:
    """Print a command as one would type it, and run it; end where it fails."""
    typed = [str(word) for word in words]
    print(f"\n$ privfed {shlex.join(typed)}")
    if code := privfed(typed, standalone_mode=False):
        raise SystemExit(code)


def agreement(folder: Path, exports: Path, kinds: dict[str, np.ndarray]) -> float:
    """Predict at each site, and return the adjusted Rand index over the rows of all that have a cluster."""
    found = []
    for site in kinds:
        out = folder / f"{site}-clusters.csv"
        run("predict", folder, exports / f"{site}.csv", "--out", out)
        with out.open(encoding="utf-8") as file:
            found.append(np.array([int(line["cluster"]) for line in csv.DictReader(file)]))
    clusters, truth = np.concatenate(found), np.concatenate(list(kinds.values()))
    return float(adjusted_rand_score(truth[clusters >= 0], clusters[clusters >= 0]))


def over_nodes(out: Path, exports: Path, schema: Path) -> None:
    """Cluster means of groups once more, where each site is a node of Flower, and compare the centers."""
    run("flower", "local", exports, "--schema", schema, "--out", out / "federation")
    run("flower", "simulate", out / "federation", "-k", len(KINDS), "--out", out / "nodes")
    ours, theirs = (load(path).cluster_centers_ for path in (out / "groups", out / "nodes" / "model.npz"))
    same = ours.tobytes() == theirs.tobytes()
    print(
        "three nodes found", "the same centers as one process" if same else "OTHER centers than one process"
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Do all of it, and return the agreement of each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/real_tables"))
    parser.add_argument("--rows", type=int, default=2000, help="rows of each site")
    parser.add_argument("--weight", type=float, default=0.3, help="of a ward beside numbers from 0 to 1")
    parser.add_argument("--nodes", action="store_true", help="cluster over three nodes of Flower, too")
    given = parser.parse_args(arguments)
    if given.out.exists():
        parser.error(f"{given.out} exists; name another folder with --out")
    out, exports, schema = given.out, given.out / "exports", given.out / "schema.toml"
    kinds = write_exports(exports, given.rows)
    schema.write_text(SCHEMA.replace("WEIGHT", str(given.weight)), encoding="utf-8")
    for site in kinds:
        run("check", exports / f"{site}.csv", "--schema", schema)
    asked = (exports, "--schema", schema, "--quiet", "--no-picture")
    run("select-k", *asked, "--max-k", 7, "--out", out / "selection")
    chosen = json.loads((out / "selection" / "selection.json").read_bytes())
    print(f"the {chosen['index']} index proposes k = {chosen['n_clusters']}; {len(KINDS)} kinds were drawn")
    ways: dict[str, tuple[object, ...]] = {
        "rows": ("--profile",),
        "groups": ("--profile", "--group-size", 5),
        "private": (
            *("--algorithm", "dp", "--epsilon", 2, "--delta", 1e-6, "--unit", "record"),
            *("--neighbours", "add-remove"),
        ),
    }
    scores = {}
    for way, words in ways.items():
        run("fit", *asked, "-k", len(KINDS), *words, "--out", out / way)
        run("profile", out / way, "--no-picture")
        scores[way] = agreement(out / way, exports, kinds)
    if given.nodes:
        over_nodes(out, exports, schema)
    print("\nagreement with the kinds that were drawn (adjusted Rand index)")
    for way, score in scores.items():
        print(f"  {way:8s} {score:.3f}")
    return scores


if __name__ == "__main__":
    main()
