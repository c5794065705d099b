"""Profiles of clusters: sizes, means and spreads are those of the pooled rows, from one sum."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, metrics
from privfed.errors import PrivacyError
from privfed.federation.clients import gather
from privfed.metrics import Profiles

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


@pytest.mark.filterwarnings("ignore")
def test_a_private_fit_refuses_them_and_has_intervals() -> None:
    box = Box(-10, 40, max_rows=100)
    claim = Privacy(epsilon=4, delta=1e-6, unit="record", neighbours="add-remove", domain=box)
    model = DPKMeans(3, privacy=claim, protocol="plain").fit(CLIENTS)
    with pytest.raises(PrivacyError, match="ClusterProfiles has no proven bound"):
        metrics.profiles(model.federation_, model.cluster_centers_)
    assert model.intervals().means.shape == (3, 2)
