"""Fits of the same rows add up: one view of what a party saw of several."""

from dataclasses import replace

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks import Differencing, Prior, Report, Truth, evaluate, pooled
from privfed.attacks.evidence.cells import evidence_of
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from tests.attacks.figures import real

# Fits with the default words may go back and forth to the last round: what they show counts here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def seen(clients: list[FloatArray], seed: int, n_clusters: int = 10, protocol: str = "plain") -> View:
    """Return what the server saw of a fit with the default words."""
    model = DWFKMeans(n_clusters, protocol=protocol, random_state=seed).fit(clients)
    return model.transcript_.view("server")


def on_totals(clients: list[FloatArray], views: list[View]) -> Report:
    found = Differencing().run(pooled(views), Prior(), np.random.default_rng(0))
    return evaluate(found, Truth(clients, tolerance=1e-4))


def test_three_fits_show_several_times_the_rows_of_one() -> None:
    clients = real("wine", 0)
    views = [seen(clients, seed) for seed in range(3)]
    one, three = on_totals(clients, views[:1]), on_totals(clients, views)
    assert one.recovered <= 0.2
    assert three.recovered >= 0.5
    assert three.precision >= 0.95
    assert three.recovered <= three.bound


@pytest.mark.slow
def test_five_default_fits_show_nearly_all_rows_over_masked_totals() -> None:
    # README, SECURITY and docs/threat-model.md: what is said of a fit is said of one fit.
    one, five = [], []
    for seed in range(3):
        clients = real("wine", seed)
        views = [seen(clients, 10 * seed + fit, protocol="masked") for fit in range(5)]
        one.append(on_totals(clients, views[:1]).recovered)
        five.append(on_totals(clients, views))
    assert max(one) <= 0.25
    assert min(report.recovered for report in five) >= 0.8
    assert min(report.precision for report in five) >= 0.98


def test_fits_of_different_numbers_of_clusters_are_pooled() -> None:
    clients = real("iris", 0)
    views = [seen(clients, k, n_clusters=k) for k in (3, 4)]
    both = evidence_of(pooled(views), None)
    apart = [evidence_of(view, None) for view in views]
    assert len(both.observations) == sum(len(one.observations) for one in apart)
    widths: dict[int, set[int]] = {}
    for one in both.observations:
        widths.setdefault(one.sequence, set()).add(len(one.counts))
    assert all(len(one) == 1 for one in widths.values())
    assert on_totals(clients, views).precision >= 0.95


def test_pooled_sums_are_numbered_anew() -> None:
    view = View("server", (), ("a", "b"), (), {})
    run = seen(real("iris", 0), 0, n_clusters=3)
    twice = pooled([run, run])
    assert [one.index for one in twice.sums] == list(range(2 * len(run.sums)))
    assert pooled([run]).sums == run.sums
    assert pooled([view]) == view


@pytest.mark.parametrize(
    "other",
    [{"party": "observer"}, {"colluding": (1,)}],
    ids=lambda one: next(iter(one)),
)
def test_views_of_other_parties_are_refused(other: dict[str, object]) -> None:
    view = View("server", (), ("a", "b"), (), {})
    with pytest.raises(ArgumentError, match=f"agree on {next(iter(other))}"):
        pooled([view, replace(view, **other)])
    with pytest.raises(ArgumentError, match="one View or more"):
        pooled([])
