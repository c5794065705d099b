"""Two names of one computation are seen as one, and ties are broken by what repeats."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import (
    FKM,
    KFED,
    Box,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
    WFKMeans,
)
from privfed.experiments.measuring import measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.advice import advise
from privfed.experiments.report.curves import Stat
from privfed.experiments.report.page import write_report
from privfed.experiments.report.summary import Adversary, Row
from privfed.experiments.running import Store

STUDY = """\
name = "By two names"
seeds = 2

[[data]]
source = "mixture"
rows = 300
components = 2
low = -1.0
high = 1.0
public = 0.2

[[partition]]
clients = 4

[[algorithm]]
name = "DP"
estimator = "DPKMeans"
n_clusters = 2

[[algorithm]]
name = "DWF"
estimator = "DWFKMeans"
n_clusters = 2
local_iter = 1
grid = { tol = [1e-3, 1e-6] }

[[algorithm]]
name = "smaller steps"
estimator = "DWFKMeans"
n_clusters = 2
local_iter = 1
learning_rate = 0.5

[[sum]]
protocol = "plain"

[[privacy]]
epsilon = 1.0
delta = 1e-6

[[attack]]
kind = "Membership"
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    folder, checked = tmp_path_factory.mktemp("names"), plan(parse_study(STUDY, "study.toml"), Path())
    store = Store(folder)
    for setup in checked.setups:
        for seed in checked.seeds:
            store.keep(setup.cell(seed), setup.stored(seed), measure(setup, seed, setup.parts(), Path()), 1)
    return folder, write_report(folder, checked, store)


@pytest.mark.slow
def test_rows_of_one_computation_are_marked(study: tuple[Path, list[Row]]) -> None:
    dp, *others, slower = study[1]
    assert dp.ran == "PrivateKMeans(n_clusters=2)" and dp.same_as is None
    for row in others:
        assert row.ran == dp.ran
        assert row.same_as is not None and row.same_as.computation and row.same_as.id == dp.id
        # That it is one computation is no claim: both came out the same, to the last bit.
        assert row.outcomes == dp.outcomes
    assert "learning_rate=0.5" in slower.ran and slower.same_as is None and slower.outcomes != dp.outcomes


def test_page_and_tables_say_it(study: tuple[Path, list[Row]]) -> None:
    folder, rows = study
    documents = json.loads((folder / "results.json").read_text())["configurations"]
    assert [one["ran"] for one in documents] == [row.ran for row in rows]
    assert [None if one["same_as"] is None else one["same_as"]["id"] for one in documents] == [
        None, rows[0].id, rows[0].id, None,
    ]  # fmt: skip
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("is the same computation as DP") >= 2
    assert "<td><code>PrivateKMeans(n_clusters=2)</code></td><td>#1, #2, #3</td>" in text
    assert "is the same computation as DP" in (folder / "table.tex").read_text()


def deployed(row: Row) -> Row:
    """Return a row as if its sum were masked and its noise claimed: others are never advised."""
    assert row.setup.privacy is not None
    claimed = msgspec.structs.replace(row.setup.privacy, seeded=False)
    return replace(row, setup=msgspec.structs.replace(row.setup, protocol="masked", privacy=claimed))


def test_ties_are_broken_by_what_repeats(study: tuple[Path, list[Row]]) -> None:
    """Whatever the seconds say, the study's first is named, and the others with it."""
    first, second = (deployed(row) for row in study[1][:2])
    for seconds in ((1.0, 2.0), (2.0, 1.0)):
        rows = [
            replace(row, stats={**row.stats, "client_seconds": Stat(value, 0.0, 2)})
            for row, value in zip((first, second), seconds, strict=True)
        ]
        found = advise(rows, Adversary.SERVER, 1.0, 99.0)
        assert found.row is rows[0]
        assert "DWF, tol 0.001 is the same computation as DP" in found.caveats
    less = replace(second, stats={**second.stats, "leakage: the server": Stat(-1.0, 0.0, 2)}, same_as=None)
    assert advise([first, less], Adversary.SERVER, 1.0, 99.0).row is less


PRIVACY = Privacy(
    epsilon=2.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-20, 20), noise_seed=0
)
BY_CLIENT = Privacy(
    epsilon=2.0, delta=1e-6, unit="client", neighbours="add-remove", domain=Box(-20, 20), noise_seed=0
)
TOLD: list[Any] = [
    (
        DWFKMeans(3, protocol="plain", max_iter=2, tol=0),
        WFKMeans(3, protocol="plain", max_iter=2, tol=0),
        True,
    ),
    (
        DWFKMeans(3, protocol="plain", max_iter=2, tol=0),
        EWFKMeans(3, protocol="plain", max_iter=2, tol=0),
        False,
    ),
    (
        FederatedMiniBatchKMeans(3, protocol="plain", privacy=PRIVACY),
        DWFKMeans(3, local_iter=1, protocol="plain", privacy=PRIVACY, patience=4),
        True,
    ),
    (
        DWFKMeans(3, local_iter=2, protocol="plain", privacy=BY_CLIENT, tol=0.1),
        DWFKMeans(3, local_iter=2, protocol="plain", privacy=BY_CLIENT),
        True,
    ),
    (
        DWFKMeans(3, local_iter=2, protocol="plain", privacy=BY_CLIENT),
        DWFKMeans(3, local_iter=3, protocol="plain", privacy=BY_CLIENT),
        False,
    ),
    (
        DWFKMeans(3, local_iter=1, protocol="plain", privacy=PRIVACY),
        FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1, protocol="plain", privacy=PRIVACY),
        False,
    ),
    (
        DWFKMeans(3, protocol="plain", clients_per_round=4, max_iter=2, tol=0),
        DWFKMeans(3, protocol="plain", clients_per_round=5, max_iter=2, tol=0),
        False,
    ),
    (FKM(3, protocol="plain", privacy=PRIVACY), KFED(3, protocol="plain", privacy=PRIVACY), False),
]


@pytest.mark.parametrize(("one", "other", "same"), TOLD)
@pytest.mark.few(2)
def test_what_ran_is_told_apart_where_it_differs(one: Any, other: Any, same: bool, blobs: Any) -> None:
    assert (one.fit(blobs).resolved() == other.fit(blobs).resolved()) is same
    if same:
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
        np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))
