"""`privfed attack --candidates FILE --listed SHARE`, and runs whose rows were scaled in other ways."""

import csv
import json

import numpy as np
import pytest


@pytest.fixture
def listed(iris, tmp_path):
    """Return a file with every second row of iris and others that took no part, and a file of public rows."""
    with iris.open() as file:
        header, *rows = csv.reader(file)
    rng = np.random.default_rng(0)
    kept = [i for i, name in enumerate(header) if name not in ("hospital", "species")]
    own = np.array([[float(row[i]) for i in kept] for row in rows])
    others = np.round(own + rng.normal(scale=0.6, size=own.shape), 3)
    files = []
    for name, table in (("listed", np.concatenate([own[::2], others[:75]])), ("public", others[75:])):
        files.append(tmp_path / f"{name}.csv")
        with files[-1].open("w", newline="") as file:
            csv.writer(file).writerows([[header[i] for i in kept], *table.tolist()])
    return files


def test_a_list_is_what_membership_domains_and_attributes_are_asked_of(invoke, copied, listed, tmp_path):
    run = copied(tmp_path / "run", "--protocol", "masked", "--algorithm", "lloyd", "-k", 8)
    words = ("--candidates", listed[0], "--listed", 0.5, "--public", listed[1], "--json")
    names = ("membership", "enumerated-domain", "attribute-inference")
    found = json.loads(invoke("attack", run, "--attack", ",".join(names), *words).stdout)["attacks"]
    assert set(found) == set(names)
    member = found["membership"]
    assert "150 candidates, which hold 0.5 of the members" in member["given"] and member["recovered"] > 0.7
    # Equal rows of iris are candidates of both kinds, or of one.
    assert sum(n for name, n in member["details"].items() if name.startswith("targets, ")) == 150
    unknown = json.loads(invoke("attack", run, "--attack", "membership", *words[:2], "--json").stdout)
    assert "an unknown share" in unknown["attacks"]["membership"]["given"]
    assert unknown["attacks"]["membership"]["key"] != member["key"]


def test_runs_of_other_scales_are_attacked_together_as_the_rows_before(invoke, copied, tmp_path):
    words = ("--algorithm", "lloyd", "--protocol", "masked", "-k", 8)
    runs = [
        copied(tmp_path / kind, *words, "--scale", kind, "--seed", seed)
        for seed, kind in enumerate(("standard", "range", "robust"))
    ]
    alone, both = (
        json.loads(invoke("attack", *some, "--attack", "differencing", "--json").stdout)["attacks"][
            "differencing"
        ]
        for some in (runs[:1], runs)
    )
    # Values of one decimal, as of iris, have combinations that look like rows (docs/attacks/differencing.md).
    assert both["recovered"] > 2.0 * alone["recovered"] and both["precision"] >= 0.95
