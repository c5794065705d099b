"""Whatever takes `privacy` refuses a wrong argument before its budget pays: one table, from the signatures.

Only what noised totals show may end in an error after that: that noise hides the clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isclass, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import Box, PrivacyBudget, metrics, select_n_clusters
from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.federation.opening import open_over
from privfed.metrics.named import ASKS, OF_LABELS
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore")

BOX = Box(-1.0, 1.0, max_rows=64)
CENTERS = np.array([[-0.5, 0.5], [0.5, -0.5]])
ROWS = [
    CENTERS[np.arange(40) % 2] + 0.01 * np.random.default_rng(i).standard_normal((40, 2)) for i in (0, 1, 2)
]
LABELS = [np.arange(40) % 2] * 3
WRONG: dict[str, Any] = {
    "None": None,
    "a text": "no such",
    "negative": -1,
    "zero": 0,
    "a fraction": 2.5,
    "NaN": math.nan,
    "huge": 1e300,
    "a huge integer": 2**70,
    "nothing": [],
    "an object": object(),
    "True": True,
    "a list": ["a"],
    "a dict": {"a": 1},
    "one center": CENTERS[:1],
    "other columns": np.zeros((2, 5)),
    "centers that are NaN": CENTERS * math.nan,
}

Call = tuple[Callable[..., Any], dict[str, Any]]


def estimating(kind: Any, **given: Any) -> Any:
    """Fit an estimator: its parameters and those of `fit` in one call."""
    fitted = {name: given.pop(name) for name in ("X", "y", "groups", "client_names") if name in given}
    return kind(**given).fit(**({"X": ROWS} | fitted))


def calls() -> Iterator[tuple[str, Call, set[str]]]:
    """Yield a name, a function with the arguments of a call that is right, and all its parameters."""
    without = {"X", "metric", "algorithm", "privacy", "n_clusters", "run_dir"}
    opening = {*signature(open_over).parameters} - without
    for name in sorted({*metrics.__all__} & {*dir(metrics)}):
        ask = getattr(metrics, name)
        taken = set() if isclass(ask) else {*signature(ask).parameters}
        if not taken & {"privacy", "options"} or name.startswith("with_interval"):
            continue
        known: dict[str, Any] = {"clients": ROWS, "centers": CENTERS}
        if name in OF_LABELS:
            known |= {"labels": LABELS, "n_labels": 2}
        asked = (taken | opening | {*known}) - {"privacy", "options"}
        yield name, (ask, known), asked
        if name in {*ASKS} & {*metrics.named.METRICS}:
            own = (*signature(ASKS[name]).parameters, "level", "metric")
            yield (
                f"{name} with an interval",
                (metrics.with_interval, known | {"metric": name}),
                asked | {*own},
            )
    for name in dir(privfed):
        kind = getattr(privfed, name)
        if isclass(kind) and hasattr(kind, "fit") and "privacy" in (taken := {*signature(kind).parameters}):
            known = {one: value for one, value in FITS.get(name, FIT).items() if one in taken}
            yield (
                name,
                (partial(estimating, kind), known),
                taken - {"privacy", "run_dir"} | {"X", "y", "groups"},
            )
    known = {"clients": ROWS, "range": (2, 3), "estimator": "dp"}
    taken = {*signature(select_n_clusters).parameters, *signature(privfed.DPKMeans).parameters}
    yield "select_n_clusters", (select_n_clusters, known), taken - {"parameters", "privacy", "run_dir"}


FIT = {"n_clusters": 2, "max_iter": 2, "local_iter": 1}
FITS = {"FederatedFuzzyCMeans": {**FIT, "averaging": "weighted"}}
UNCLAIMED = ("EWFKMeans", "FederatedGaussianMixture", "clients_per_cluster")
"""What has no bound for a record: nothing of it is ever paid."""
CALLS = {name: call for name, call, _ in calls()}
TABLE = [(name, parameter) for name, _, taken in calls() for parameter in sorted(taken)]


def called(name: str, budget: PrivacyBudget, **changed: Any) -> None:
    ask, known = CALLS[name]
    ask(**{"protocol": "plain", **known, "privacy": budget.take(1e-5, reserve=False), **changed})


def budget_in(folder: Path) -> PrivacyBudget:
    return PrivacyBudget(1e6, 1e-6, "record", "add-remove", folder / "budget", domain=BOX)


@pytest.mark.parametrize(("name", "parameter"), TABLE)
@pytest.mark.few(8)
def test_a_wrong_argument_is_refused_unpaid(name: str, parameter: str, tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    for value in some(WRONG.values()):
        before = len(budget.log())
        try:
            called(name, budget, **{parameter: value})
        except UndefinedIndexError:
            continue
        except Exception as error:
            assert len(budget.log()) == before, f"{parameter}={value!r}: {error!r}"


@pytest.mark.parametrize("name", sorted({*CALLS} - {*UNCLAIMED}))
@pytest.mark.few(3)
def test_the_calls_of_this_table_are_right_and_paid(name: str, tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    called(name, budget)
    assert budget.log()


@pytest.mark.parametrize("n_labels", [2.5, True, np.ones((1, 1))])
def test_a_number_of_labels_that_is_none_is_refused_unpaid(n_labels: Any, tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    for name in ("accuracy", "accuracy with an interval"):
        with pytest.raises(ArgumentError):
            called(name, budget, n_labels=n_labels)
    assert not budget.log()


@pytest.mark.parametrize("name", ["davies_bouldin", "calinski_harabasz", "fuzzy_davies_bouldin"])
def test_an_index_of_one_center_is_refused_unpaid(name: str, tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    for one in (name, f"{name} with an interval"):
        with pytest.raises(ArgumentError, match="center"):
            called(one, budget, centers=CENTERS[:1])
    assert not budget.log()
