"""FederatedScaler: scikit-learn's scalers on the pooled rows, from sums."""

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from privfed import (
    Ball,
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedScaler,
    FederatedSummary,
    Privacy,
    PrivacyBudget,
    Simulation,
)
from privfed.core.record.records import Asked
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, DataError, NotEnoughClientsError
from privfed.estimators.saving import NotFittedError
from tests.default_run import examples

Clients = list[np.ndarray]
SUMS = pytest.mark.parametrize("over", ["plain", "masked"])


def assert_is_scikit_learns(ours: FederatedScaler, rows: np.ndarray) -> None:
    theirs = StandardScaler().fit(rows)
    size = np.abs(rows).max(axis=0) + 1e-300
    np.testing.assert_allclose(ours.mean_ / size, theirs.mean_ / size, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-9, atol=1e-24 * (size**2).max())
    np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-9)
    assert ours.n_samples_seen_ == theirs.n_samples_seen_
    np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows), rtol=0, atol=1e-9)


# --- the numbers ---


@SUMS
@pytest.mark.parametrize("n_features", [1, 2, 30])
def test_standard_is_scikit_learns_on_the_pooled_rows(n_features: int, over: str) -> None:
    rng = np.random.default_rng(n_features)
    spread = 10.0 ** rng.uniform(-3, 3, size=n_features)
    clients = [spread * rng.normal(i, 1.0, size=(n, n_features)) for i, n in enumerate((40, 1, 7, 12))]
    assert_is_scikit_learns(FederatedScaler(protocol=over).fit(clients), np.concatenate(clients))


@SUMS
def test_data_far_from_the_origin_keeps_its_variance(over: str) -> None:
    rng = np.random.default_rng(0)
    clients = [1e6 + rng.normal(size=(n, 2)) * [1.0, 1e-3] for n in (30, 20, 9)]
    ours, theirs = FederatedScaler(protocol=over).fit(clients), StandardScaler().fit(np.concatenate(clients))
    # At 1e6 a float64 has steps of 1e-10, so that the second feature's variance has no more digits.
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-9)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-14)


@SUMS
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7.3, 1e-9, 1e6, 123456.789])
def test_constant_features_are_left_unscaled(value: float, over: str) -> None:
    rng = np.random.default_rng(0)
    clients = [np.column_stack([np.full(n, value), rng.normal(size=n)]) for n in (5, 40, 9, 3)]
    ours = FederatedScaler(protocol=over).fit(clients)
    assert ours.scale_[0] == 1.0
    assert ours.mean_[0] == pytest.approx(value, rel=1e-12, abs=1e-18)
    np.testing.assert_allclose(ours.transform(clients[1])[:, 0], 0.0, atol=1e-9)


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-9, 1e-3, 1.0, 1e6]))
def test_masked_numbers_are_plains(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    offset = rng.choice([0.0, 1.0, 50.0], size=3) * scale
    clients = [offset + scale * rng.normal(size=(rng.integers(1, 20), 3)) for _ in range(4)]
    plain, masked = (FederatedScaler(protocol=over).fit(clients) for over in ("plain", "masked"))
    np.testing.assert_allclose(masked.mean_, plain.mean_, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(masked.var_, plain.var_, rtol=1e-9)


@SUMS
def test_range_of_a_declared_domain_is_that_domain(over: str) -> None:
    clients = [np.random.default_rng(i).uniform(0.2, 0.7, size=(9, 2)) for i in range(4)]
    domain = Box([-1.0, 0.0], [1.0, 4.0])
    ours = FederatedScaler("range", protocol=over, domain=domain).fit(clients)
    theirs = MinMaxScaler().fit(np.array([[-1.0, 0.0], [1.0, 4.0]]))
    for name in ("data_min_", "data_max_", "data_range_", "scale_", "min_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-15)
    np.testing.assert_allclose(ours.transform(clients[0]), theirs.transform(clients[0]), rtol=1e-14)
    assert len(ours.transcript_.of(Asked)) == 1


def test_range_that_was_found_holds_all_rows_and_little_more() -> None:
    rng = np.random.default_rng(0)
    clients = [rng.uniform([-3.0, 10.0], [5.0, 20.0], size=(50, 2)) for _ in range(4)]
    rows, ours = np.concatenate(clients), FederatedScaler("range", protocol="plain").fit(clients)
    assert (ours.data_min_ <= rows.min(axis=0)).all() and (ours.data_max_ >= rows.max(axis=0)).all()
    assert (np.abs(ours.data_max_ - rows.max(axis=0)) <= np.abs(rows.max(axis=0)) / 16).all()
    assert (np.abs(ours.data_min_ - rows.min(axis=0)) <= np.abs(rows.min(axis=0)) / 16).all()
    scaled = ours.transform(rows)
    assert scaled.min() >= 0.0 and scaled.max() <= 1.0


def test_a_balls_range_is_the_box_around_it() -> None:
    ours = FederatedScaler("range", protocol="plain", domain=Ball(2.0, [1.0, 0.0])).fit([[[1.0, 0.5]]])
    assert ours.data_min_.tolist() == [-1.0, -2.0] and ours.data_max_.tolist() == [3.0, 2.0]


def test_clients_that_are_lost_are_not_in_the_moments(blobs: Clients) -> None:
    lost = Simulation(faults=[Fault(0, "collect", sums=frozenset({2}))])
    ours = FederatedScaler(protocol="masked", engine=lost).fit(blobs)
    assert_is_scikit_learns(ours, np.concatenate(blobs[1:]))
    with pytest.raises(NotEnoughClientsError):
        faults = [Fault(i, "collect", sums=frozenset({2})) for i in range(8)]
        FederatedScaler(protocol="masked", engine=Simulation(faults=faults)).fit(blobs)


# --- the sums ---


def test_standard_takes_two_sums_and_a_third_only_where_digits_are_lost(blobs: Clients) -> None:
    for over in ("plain", "masked"):
        asked = FederatedScaler(protocol=over).fit(blobs).transcript_.of(Asked)
        assert [one.purpose for one in asked] == ["range", "moments"]
    with_constant = [np.column_stack([rows, np.full(len(rows), 0.1)]) for rows in blobs]
    asked = FederatedScaler(protocol="masked").fit(with_constant).transcript_.of(Asked)
    assert [one.purpose for one in asked] == ["range", "range", "moments"]


# --- a transformer ---


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([FederatedScaler(protocol="plain"), FederatedScaler("range", protocol="plain")])
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("scaling", ["standard", "range"])
def test_lists_are_scaled_client_by_client_and_back(blobs: Clients, scaling: str) -> None:
    ours = FederatedScaler(scaling, protocol="plain")
    scaled = ours.fit_transform(blobs)
    assert [one.shape for one in scaled] == [one.shape for one in blobs]
    np.testing.assert_array_equal(np.concatenate(scaled), ours.transform(np.concatenate(blobs)))
    for rows, again in zip(blobs, ours.inverse_transform(scaled), strict=True):
        np.testing.assert_allclose(again, rows, atol=1e-12)


@pytest.mark.parametrize("scaling", ["standard", "range", "robust"])
@pytest.mark.parametrize("ball", [False, True])
def test_scaled_rows_lie_in_the_scaled_domain(scaling: str, ball: bool) -> None:
    rng = np.random.default_rng(3)
    rows = [rng.uniform(-1.0, 1.0, (40, 3)) * [0.5, 0.1, 0.57] + [0.0, 0.5, 0.0] for _ in range(3)]
    declared = Ball(2.0, max_rows=50) if ball else Box((-1, -1, -0.6), 1.0, max_rows=50)
    scaler = FederatedScaler(scaling, protocol="plain", domain=declared).fit(rows)
    domain = scaler.transform_domain()
    corners = np.stack([*declared.bounds(3), *rows[0]])
    low, high = domain.bounds(3)
    assert ((low <= scaler.transform(corners)) & (scaler.transform(corners) <= high)).all()
    assert domain.max_rows == 50
    np.testing.assert_allclose(
        scaler.inverse_transform(np.stack([low, high])), declared.bounds(3), atol=1e-12
    )
    DWFKMeans(2, protocol="plain", domain=domain).fit(scaler.transform(rows))
    with pytest.raises(ArgumentError, match="nothing was declared"):
        FederatedScaler(protocol="plain").fit(rows).transform_domain()


def test_scaling_and_fit_draw_from_one_budget(tmp_path: Any) -> None:
    """Widths that differ by a thousand are one after scaling, and both are paid under one claim."""
    rng = np.random.default_rng(5)
    middles = np.array([[-4.0, 2000.0], [4.0, -2000.0], [4.0, 2000.0]])
    rows = middles[np.arange(3000) % 3] + rng.standard_normal((3000, 2)) * [0.5, 250.0]
    clients = np.array_split(rows, 3)
    box = Box((-10, -5000), (10, 5000), max_rows=2000)
    budget = PrivacyBudget(3.0, 1e-6, "record", "add-remove", tmp_path / "b.db", domain=box)
    scaler = FederatedScaler(privacy=budget.take(0.2), protocol="plain").fit(clients)
    claim = budget.take(0.8, domain=scaler.transform_domain())
    model = DPKMeans(3, privacy=claim, protocol="plain", random_state=0).fit(scaler.transform(clients))
    np.testing.assert_allclose(scaler.transform(rows).std(axis=0), 1.0, atol=0.1)
    low, high = box.bounds(2)
    found = scaler.inverse_transform(model.cluster_centers_)
    assert ((low - 1e-9 <= found) & (found <= high + 1e-9)).all()
    assert budget.remaining().share == 0.0


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.few(1)
def test_a_wide_column_adds_no_noise_to_a_narrow_one(unit: Any) -> None:
    """Under privacy a column's error is a part of its own declared width, whatever the others' are."""
    rng, widths = np.random.default_rng(5), np.array([1e-3, 1.0, 1e4])
    clients = [rng.normal(0.2, 0.1, (30, 3)) * widths for _ in range(100)]
    box = Box(-widths, widths, max_rows=40)
    claim: dict[str, Any] = {"delta": 1e-6, "unit": unit, "neighbours": "add-remove", "noise_seed": 3}
    privacy = Privacy(epsilon=4.0 if unit == "record" else 9.9, domain=box, **claim)
    found = FederatedSummary(privacy=privacy, protocol="masked").fit(clients)
    np.testing.assert_allclose(found.mean_ / widths, 0.2, atol=0.1)
    np.testing.assert_allclose(found.std_ / widths, 0.1, atol=0.15)


def test_a_table_with_groups_is_a_list_of_clients(blobs: Clients) -> None:
    rows, groups = np.concatenate(blobs), np.repeat(np.arange(10), [len(one) for one in blobs])
    ours = FederatedScaler().fit(rows, groups=groups)
    assert ours.transcript_.configuration.clients == tuple(map(str, range(10)))
    np.testing.assert_array_equal(ours.mean_, FederatedScaler().fit(blobs).mean_)


def test_a_scaler_before_an_estimator_in_a_pipeline(blobs: Clients) -> None:
    rows, groups = np.concatenate(blobs), np.repeat(np.arange(10), [len(one) for one in blobs])
    pipeline = make_pipeline(FederatedScaler(), DWFKMeans(4, max_iter=5))
    pipeline.fit(rows, federatedscaler__groups=groups, dwfkmeans__groups=groups)
    assert pipeline.predict(rows).shape == (len(rows),)


def test_names_of_the_columns_are_kept() -> None:
    tables = [pl.DataFrame({"age": [1.0, 2.0], "pulse": [60.0, 70.0 + i]}) for i in range(3)]
    ours = FederatedScaler(protocol="plain").fit(tables)
    assert ours.feature_names_in_.tolist() == ["age", "pulse"]
    assert ours.get_feature_names_out().tolist() == ["age", "pulse"]
    ours.fit([np.zeros((2, 2)), np.ones((2, 2))])
    assert not hasattr(ours, "feature_names_in_")
    assert ours.get_feature_names_out().tolist() == ["x0", "x1"]


def test_another_fit_leaves_nothing_of_the_last(blobs: Clients) -> None:
    ours = FederatedScaler("range", protocol="plain").fit(blobs)
    ours.set_params(scaling="standard").fit(blobs)
    assert not hasattr(ours, "min_")
    assert_is_scikit_learns(ours, np.concatenate(blobs))
    ours.set_params(scaling="range").fit(blobs)
    assert not hasattr(ours, "mean_") and not hasattr(ours, "var_")


def test_clone_and_pickle(blobs: Clients) -> None:
    fitted = FederatedScaler(protocol="plain", random_state=3).fit(blobs)
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(blobs[0]), fitted.transform(blobs[0]))
    assert not hasattr(again, "federation_")
    assert again.transcript_.records == fitted.transcript_.records


def test_the_transcript_is_kept_in_run_dir(blobs: Clients, tmp_path: Any) -> None:
    FederatedScaler(protocol="plain", run_dir=tmp_path / "scaler").fit(blobs)
    assert (tmp_path / "scaler" / "transcript.jsonl").exists()


# --- bad input ---


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("scaling", "minmax"),
        ("scaling", None),
        ("protocol", "nonsense"),
        ("privacy", 1.0),
        ("engine", "flower"),
        ("policy", "strict"),
        ("domain", (0, 1)),
        ("run_dir", 5),
        ("random_state", -1),
    ],
)
def test_bad_word_is_an_error_that_names_it(blobs: Clients, word: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=word):
        FederatedScaler(**{"protocol": "plain", word: value}).fit(blobs)


def test_bad_data_is_an_error(blobs: Clients) -> None:
    with pytest.raises(DataError, match="client 1 has 3 columns"):
        FederatedScaler(protocol="plain").fit([blobs[0], np.zeros((2, 3))])
    with pytest.raises(DataError, match="outside the domain"):
        FederatedScaler(protocol="plain", domain=Box(0, 1)).fit(blobs)
    with pytest.raises(DataError, match="no clients"):
        FederatedScaler(protocol="plain").fit([])
    with pytest.raises(ArgumentError):
        FederatedScaler().fit(blobs[:1])


def test_a_scaler_that_is_not_fitted_says_so(blobs: Clients) -> None:
    for ask in (FederatedScaler().transform, FederatedScaler().inverse_transform):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask(blobs[0])
    fitted = FederatedScaler(protocol="plain").fit(blobs)
    with pytest.raises(ValueError, match="3 features, but FederatedScaler is expecting 2"):
        fitted.transform(np.zeros((4, 3)))
