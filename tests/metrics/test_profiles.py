"""Profiles of clusters: sizes, means and spreads are those of the pooled rows, from one sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Ball, Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, PrivacyBudget, metrics
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from privfed.errors import PrivacyError
from privfed.federation.clients import gather
from privfed.metrics import Profiles
from privfed.questions.bounded.bounded_metrics import BoundedProfiles
from privfed.questions.cluster_spread import ClusterProfiles
from tests.some import some

RNG = np.random.default_rng(3)
ROWS = np.concatenate([RNG.normal(middle, 1.0, (30, 2)) for middle in (0.0, 9.0, 30.0)])[RNG.permutation(90)]
CLIENTS = np.array_split(ROWS, 4)
CENTERS = np.array([[0.0, 0.0], [9.0, 9.0], [30.0, 30.0]])


def assert_profiles_of(found: Profiles, rows: np.ndarray, centers: np.ndarray) -> None:
    labels = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    size = np.abs(rows).max()
    assert found.sizes.tolist() == np.bincount(labels, minlength=len(centers)).tolist()
    for i in range(len(centers)):
        own = rows[labels == i]
        if not len(own):
            assert np.isnan(found.means[i]).all() and np.isnan(found.stds[i]).all()
            continue
        np.testing.assert_allclose(found.means[i], own.mean(axis=0), rtol=0, atol=1e-9 * size)
        np.testing.assert_allclose(found.stds[i], own.std(axis=0), rtol=0, atol=1e-7 * size)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(found.std, rows.std(axis=0), rtol=0, atol=1e-7 * size)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_they_are_those_of_the_pooled_rows(protocol: str) -> None:
    assert_profiles_of(metrics.profiles(CLIENTS, CENTERS, protocol=protocol), ROWS, CENTERS)


def test_data_far_from_the_origin_keeps_its_spread() -> None:
    far = [rows + 1e6 for rows in CLIENTS]
    found = metrics.profiles(far, CENTERS + 1e6, protocol="plain")
    np.testing.assert_allclose(found.std, ROWS.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_how_many_clients_have_rows_in_a_cluster(protocol: str) -> None:
    there = [rows[rows[:, 0] < 18.0] if i else rows for i, rows in enumerate(CLIENTS)]
    centers = np.vstack([CENTERS, [[500.0, 500.0]]])
    assert metrics.clients_per_cluster(there, centers, protocol=protocol).tolist() == [4.0, 4.0, 1.0, 0.0]


def test_a_cluster_without_rows_has_none() -> None:
    centers = np.vstack([CENTERS, [[500.0, 500.0]]])
    found = metrics.profiles(CLIENTS, centers, protocol="plain")
    assert_profiles_of(found, ROWS, centers)
    assert json.loads(json.dumps(found.to_dict()))["means"][3] == [None, None]
    again = Profiles.from_dict(found.to_dict())
    np.testing.assert_array_equal(again.means, found.means)


def test_after_a_fit_they_are_asked_once_where_they_were_agreed_on() -> None:
    model = DWFKMeans(3, protocol="masked", metrics=["profiles"]).fit(CLIENTS)
    asked = len(model.transcript_.totals())
    found = metrics.profiles(model.federation_, model.cluster_centers_)
    assert_profiles_of(found, ROWS, model.cluster_centers_)
    assert len(model.transcript_.totals()) == asked + 1
    assert not model.federation_.others


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_mapped_profiles_are_those_of_mapped_rows(shift: float, scale: float) -> None:
    one = Profiles(
        np.array([3.0, 2.0]), np.array([[1.0], [4.0]]), np.array([[0.5], [0.0]]), np.ones(1), np.ones(1)
    )
    there = one.mapped(np.array([shift]), np.array([scale]))
    np.testing.assert_allclose(there.apart, one.apart, atol=1e-9 * (1.0 + abs(shift) / scale))
    np.testing.assert_allclose(there.stds, one.stds * scale)


def test_a_mean_that_noise_hides_is_not_told_as_that_of_all_rows() -> None:
    unknown, known = np.full(2, np.nan), np.array([2.0, 0.0])
    means = np.array([[1.0, 3.0], [np.nan, np.nan]])
    hidden = Profiles(np.ones(2), means, np.ones((2, 2)), unknown, unknown)
    assert np.isnan(hidden.apart).all()
    shown = Profiles(np.ones(2), means, np.ones((2, 2)), np.zeros(2), known)
    np.testing.assert_array_equal(shown.apart, [[0.5, 0.0], [np.nan, np.nan]])


def test_a_column_that_does_not_vary_sets_nothing_apart() -> None:
    rows = [np.column_stack([own[:, 0], np.full(len(own), 7.0)]) for own in CLIENTS]
    found = metrics.profiles(rows, np.array([[0.0, 7.0], [20.0, 7.0]]), protocol="plain")
    assert found.apart[:, 1].tolist() == [0.0, 0.0] and (np.abs(found.apart[:, 0]) > 0.5).all()


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_groups_of_rows_have_the_profiles_of_their_means() -> None:
    policy = ClientPolicy(group_size=3)
    clients = gather(CLIENTS)
    model = DWFKMeans(3, policy=policy, metrics=["profiles"]).fit_clients(clients)
    means = np.concatenate([one.features for one in clients.answering(policy) or ()])
    found = metrics.profiles(model.federation_, model.cluster_centers_)
    assert_profiles_of(found, means, model.cluster_centers_)


WIDE = np.array([1.0, 100.0])
BOX = Box(-WIDE, WIDE)
MIDDLES = np.array([[-0.5, -0.5], [0.5, 0.5], [0.5, -0.5]]) * WIDE


def claim(**words: Any) -> Privacy:
    return Privacy(
        **(
            {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove", "domain": BOX}
            | words
        )
    )


def drawn(seed: int, n: int = 900, m: int = 3) -> list[np.ndarray]:
    """Return rows around the middles, in columns of unlike units, at m clients."""
    rng = np.random.default_rng(seed)
    rows = MIDDLES[rng.choice(3, n, p=[0.5, 0.3, 0.2])] + rng.normal(0, 0.2, (n, 2)) * WIDE
    return np.array_split(BOX.clip(rows), m)


def exact(rows: np.ndarray, centers: np.ndarray, radius: float | None) -> dict[str, np.ndarray]:
    """Return sizes, means and spreads of rows clipped at a radius."""
    labels = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    away = rows - centers[labels]
    length = np.linalg.norm(away, axis=1, keepdims=True)
    away = away if radius is None else away * np.minimum(1.0, radius / np.maximum(length, radius))
    own = [away[labels == i] for i in range(len(centers))]
    return {
        "sizes": np.array([len(one) for one in own], dtype=float),
        "means": centers + [one.mean(axis=0) for one in own],
        "stds": np.array([one.std(axis=0) for one in own]),
    }


@pytest.mark.parametrize(
    ("words", "radius"),
    [
        ({}, None),
        ({"neighbours": "replace-one"}, None),
        ({"epsilon": 0.5}, None),
        ({}, 30.0),
        ({"domain": Ball(150.0)}, None),
        ({"domain": Ball(150.0)}, 20.0),
    ],
    ids=str,
)
def test_intervals_cover_what_the_sums_would_say_without_noise(
    words: dict[str, Any], radius: float | None
) -> None:
    covered: dict[str, list[np.ndarray]] = {"sizes": [], "means": [], "stds": []}
    for seed in range(60):
        clients = drawn(seed)
        found = metrics.profiles(clients, MIDDLES, privacy=claim(**words), protocol="plain", radius=radius)
        for name, value in some(exact(np.vstack(clients), MIDDLES, radius).items()):
            low, noised, high = (getattr(one, name) for one in (found.low, found, found.high))
            known = np.isfinite(noised)
            assert ((low <= noised) & (noised <= high))[known].all()
            covered[name].append(((low - 1e-6 <= value) & (value <= high + 1e-6))[known])
    for name, each in some(covered.items()):
        # Of 180 cells six deviations below .95; those of spreads are wider than the level needs.
        assert np.concatenate(each).mean() > 0.85, name


@pytest.mark.filterwarnings("ignore:epsilon=2000")
@pytest.mark.parametrize(("radius", "within"), [(None, 0.01), (20.0, 0.05)])
def test_with_little_noise_they_are_those_of_clipped_rows(radius: float | None, within: float) -> None:
    clients = drawn(1, 6000)
    found = metrics.profiles(clients, MIDDLES, privacy=claim(epsilon=2000.0), protocol="plain", radius=radius)
    for name, value in some(exact(np.vstack(clients), MIDDLES, radius).items()):
        unit = {"sizes": 6000.0}.get(name, WIDE if radius is None else radius)
        np.testing.assert_allclose(getattr(found, name) / unit, value / unit, atol=within)
    if radius is None:
        np.testing.assert_allclose(found.mean / WIDE, np.vstack(clients).mean(axis=0) / WIDE, atol=within)
        np.testing.assert_allclose(found.std / WIDE, np.vstack(clients).std(axis=0) / WIDE, atol=within)
    assert found.radius == radius


def test_a_cluster_that_noise_may_hide_is_withheld() -> None:
    centers = np.vstack([MIDDLES, [[0.0, 99.0]]])
    clients = [rows[rows[:, 1] < 70.0] for rows in drawn(2, 3000)]
    found = metrics.profiles(clients, centers, privacy=claim(), protocol="plain", level=1 - 1e-9)
    assert found.low is not None and found.high is not None
    assert np.isnan([found.means[3], found.stds[3], found.low.means[3], found.high.stds[3]]).all()
    assert found.low.sizes[3] == 0.0 < found.high.sizes[3] and np.isfinite(found.means[:2]).all()


def test_clusters_without_rows_do_not_move_the_mean_of_all_rows() -> None:
    rng, box = np.random.default_rng(7), Box(-10.0, 10.0)
    centers = np.vstack([np.full((1, 2), -6.0), rng.uniform(0.0, 10.0, (199, 2))])
    clients = [box.clip(rng.normal(-6.0, 0.5, (4000, 2))) for _ in range(3)]
    ask = [metrics.profiles(clients, centers, privacy=claim(domain=box), protocol="plain") for _ in range(40)]
    means = np.stack([one.mean for one in ask]) - np.vstack(clients).mean(axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    # Noised counts raised to zero would move it by some fourteen of these.
    assert (np.abs(means.mean(axis=0)) < 6.0 * error).all()
    none = metrics.profiles(
        [np.zeros((0, 2))] * 2, centers, privacy=claim(domain=box), protocol="plain", level=1 - 1e-9
    )
    assert np.isnan([none.mean, none.std]).all()


@pytest.mark.filterwarnings("ignore:epsilon=2000")
def test_rows_clipped_around_a_center_outside_the_domain_have_their_mean_there() -> None:
    clients, center = drawn(4, 3000), np.array([[45.0, 0.0]])
    own = claim(epsilon=2000.0)
    found = metrics.profiles(clients, center, privacy=own, protocol="plain", radius=0.5)
    wanted = exact(np.vstack(clients), center, 0.5)
    for name in ("sizes", "means", "stds"):
        np.testing.assert_allclose(getattr(found, name), wanted[name], rtol=1e-2, atol=1e-2)


def test_they_are_paid_once_say_their_claim_and_are_read_again(tmp_path: Path) -> None:
    budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", tmp_path / "budget", domain=BOX)
    found = metrics.profiles(drawn(3), MIDDLES, privacy=budget.take(1.0))
    assert found.claim is not None and found.claim.epsilon == pytest.approx(1.0) and found.level == 0.95
    assert len(found.claim.payments) == 1 and budget.remaining().share < 1e-6
    assert "epsilon 1" in found._repr_html_()
    again = Profiles.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.claim == found.claim and again.level == found.level and again.low is not None
    np.testing.assert_allclose(again.low.means, found.low.means)  # type: ignore[union-attr]
    mapped = found.mapped(np.array([5.0, 0.0]), np.array([2.0, 0.1]))
    np.testing.assert_allclose(mapped.high.means, found.high.means * [2.0, 0.1] + [5.0, 0.0])  # type: ignore[union-attr]
    np.testing.assert_allclose(mapped.low.stds, found.low.stds * [2.0, 0.1])  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore")
def test_centers_of_a_private_fit_bring_their_radius_and_its_budget_is_spent() -> None:
    box = Box(-10, 40, max_rows=100)
    own = claim(epsilon=4, domain=box)
    model = DPKMeans(3, privacy=own, protocol="plain").fit(CLIENTS)
    with pytest.raises(PrivacyError):
        metrics.profiles(model.federation_, model.cluster_centers_)
    assert model.intervals().means.shape == (3, 2)
    found = metrics.profiles(CLIENTS, model.cluster_centers_, privacy=own, protocol="plain")
    assert found.radius == pytest.approx(model.intervals().radius)
    whole = metrics.profiles(CLIENTS, model.cluster_centers_, privacy=own, protocol="plain", radius=None)
    assert whole.radius is None


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.sampled_from([None, 0.3, 2.0]))
def test_records_keep_to_their_bounds_and_squares_differ_by_no_more(
    seed: int, d: int, k: int, radius: float | None
) -> None:
    rng = np.random.default_rng(seed)
    ranges = Ranges(-rng.uniform(0.01, 50, d), rng.uniform(0.01, 50, d), 9)
    centers = ranges.clip(rng.normal(0, 20, (k, d)))
    question = BoundedProfiles(ranges=ranges, centers=centers, radius=radius)
    rows = ranges.clip(rng.normal(0, 60, (12, d)))
    each = [question.answer(ClientData(row[None]), rng) for row in rows]
    for name, bound in some(question.bounds.items()):
        values = np.stack([one[name].ravel() for one in each])
        apart = np.linalg.norm(values[:, None] - values, axis=2).max()
        assert np.linalg.norm(values, axis=1).max() <= bound.l2
        assert apart <= bound.l2 * np.sqrt(max(bound.stay, bound.move)) * (1 + 1e-12)
    if radius is None:
        plain = ClusterProfiles(ranges=ranges, centers=centers).of_rows(rows)
        for name, power in (("offset", 1), ("square", 2)):
            total = np.sum([one[name] for one in each], axis=0) * question.units**power
            np.testing.assert_allclose(total, plain[name], atol=1e-4 * 100**power)
