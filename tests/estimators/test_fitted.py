"""What a fitted estimator has, and what it does with new rows."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed import Ball, Box, DWFKMeans, EWFKMeans, WFKMeans
from privfed.errors import DataError
from privfed.estimators.saving import NotFittedError

Clients = list[np.ndarray]
MODELS = [DWFKMeans, EWFKMeans, WFKMeans]


@pytest.fixture
def model(blobs: Clients) -> DWFKMeans:
    return DWFKMeans(3, protocol="plain", max_iter=4).fit(blobs)


@pytest.mark.parametrize("kind", MODELS)
def test_fitted_attributes(kind: type[DWFKMeans], blobs: Clients, protocol: str) -> None:
    fitted = kind(3, protocol=protocol, max_iter=4, tol=0).fit(blobs)
    assert fitted.cluster_centers_.shape == (3, 2) and fitted.cluster_centers_.dtype == np.float64
    assert fitted.n_iter_ == 4 and len(fitted.history_) == 5
    assert all(centers.shape == (3, 2) for centers in fitted.history_)
    np.testing.assert_array_equal(fitted.history_[-1], fitted.cluster_centers_)
    assert fitted.n_features_in_ == 2
    assert fitted.privacy_spent_ is None
    assert isinstance(fitted.inertia_, float) and fitted.inertia_ > 0
    assert fitted.transcript_ is fitted.federation_.transcript
    assert fitted.fit(blobs) is fitted


def test_labels_of_a_list_are_a_list(model: DWFKMeans, blobs: Clients) -> None:
    assert [len(labels) for labels in model.labels_] == [len(rows) for rows in blobs]
    for labels, rows in zip(model.labels_, blobs, strict=True):
        np.testing.assert_array_equal(labels, model.predict(rows))
    for labels, again in zip(
        model.labels_, DWFKMeans(3, protocol="plain", max_iter=4).fit_predict(blobs), strict=True
    ):
        np.testing.assert_array_equal(labels, again)


def test_labels_of_a_table_are_in_its_order(blobs: Clients) -> None:
    rows = np.concatenate(blobs)
    groups = np.random.default_rng(0).integers(0, 5, size=len(rows))
    fitted = DWFKMeans(3, protocol="plain", max_iter=4).fit(rows, groups=groups)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(rows))


def test_prediction_is_the_nearest_center(model: DWFKMeans, blobs: Clients) -> None:
    rows = blobs[0]
    distances = np.linalg.norm(rows[:, None] - model.cluster_centers_[None], axis=2)
    np.testing.assert_array_equal(model.predict(rows), distances.argmin(axis=1))
    np.testing.assert_allclose(model.transform(rows), distances, atol=1e-12)


def test_fit_transform_follows_the_shape_of_its_data(blobs: Clients) -> None:
    fitted = DWFKMeans(3, protocol="plain", max_iter=4)
    listed = fitted.fit_transform(blobs)
    assert [one.shape for one in listed] == [(len(rows), 3) for rows in blobs]
    np.testing.assert_array_equal(listed[0], fitted.transform(blobs[0]))
    assert fitted.fit_transform(np.concatenate(blobs)).shape == (sum(map(len, blobs)), 3)


def test_inertia_is_the_pooled_sum_of_squares(model: DWFKMeans, blobs: Clients) -> None:
    rows = np.concatenate(blobs)
    assert model.inertia_ == pytest.approx(float((model.transform(rows).min(axis=1) ** 2).sum()))


def test_names_of_the_new_features(model: DWFKMeans) -> None:
    assert model.get_feature_names_out().tolist() == ["dwfkmeans0", "dwfkmeans1", "dwfkmeans2"]


def test_what_comes_out_is_the_users_own(model: DWFKMeans, blobs: Clients) -> None:
    # Changing an attribute must not change the record of the run.
    model.cluster_centers_[:] = 0.0
    model.history_[0][:] = 0.0
    view = model.transcript_.view("observer")
    assert view.result["centers"].any()
    with pytest.raises(ValueError, match="read-only"):
        view.result["centers"][0, 0] = 1.0


@pytest.mark.parametrize("ask", ["predict", "transform", "save"])
def test_unfitted_model_is_an_error(ask: str, tmp_path: Any) -> None:
    argument = tmp_path / "model.npz" if ask == "save" else np.zeros((2, 2))
    with pytest.raises(NotFittedError, match="this EWFKMeans is not fitted yet; call fit first"):
        getattr(EWFKMeans(protocol="plain"), ask)(argument)
    assert not list(tmp_path.iterdir())


def test_data_is_not_changed_and_may_be_changed_afterwards(protocol: str) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(20, 2)) for _ in range(6)]
    before = [rows.copy() for rows in clients]
    fitted = DWFKMeans(3, protocol=protocol, max_iter=2, tol=0).fit(clients)
    for rows, old in zip(clients, before, strict=True):
        np.testing.assert_array_equal(rows, old)
        rows[:] = 0.0
    assert fitted.cluster_centers_.any()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_other_numbers_become_float64(dtype: type, protocol: str) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.integers(0, 2, size=(9, 3)).astype(dtype) for _ in range(6)]
    fitted = DWFKMeans(2, protocol=protocol, max_iter=2).fit(clients)
    same = DWFKMeans(2, protocol=protocol, max_iter=2).fit([rows.astype(np.float64) for rows in clients])
    np.testing.assert_array_equal(fitted.cluster_centers_, same.cluster_centers_)


# --- declared domains, one client ---


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param(Box(-10, 20, max_rows=64), id="box"),
        pytest.param(Ball(30, max_rows=40), id="ball", marks=pytest.mark.slow),
    ],
)
def test_fit_in_a_declared_domain(blobs: Clients, protocol: str, domain: Any) -> None:
    start = blobs[0][:3]
    words: dict[str, Any] = {"init": start, "max_iter": 4, "tol": 0, "protocol": protocol}
    inside = DWFKMeans(3, domain=domain, **words).fit(blobs)
    free = DWFKMeans(3, **words).fit(blobs)
    np.testing.assert_allclose(inside.history_, free.history_, rtol=0, atol=1e-6)


def test_data_clipped_to_a_ball_fits_into_it() -> None:
    # The clipped rows' last bits must not be called outside by the range sum.
    rng = np.random.default_rng(0)
    for radius, center in ((0.3, 0.1), (1e-3, 1e6), (1.0, [0.1, 0.7])):
        ball = Ball(radius, center)
        clients = [ball.clip(center + 3 * radius * rng.normal(size=(50, 2))) for _ in range(4)]
        DWFKMeans(2, protocol="plain", domain=ball, max_iter=2, tol=0).fit(clients)


def test_one_client_over_plain_sums_and_over_no_other(blobs: Clients, protocol: str) -> None:
    words: dict[str, Any] = {"max_iter": 2, "protocol": protocol}
    if protocol != "plain":
        with pytest.raises(ValueError, match="client"):
            DWFKMeans(2, **words).fit(blobs[:1])
        return
    for X in (blobs[:1], blobs[0]):
        assert DWFKMeans(2, **words).fit(X).cluster_centers_.shape == (2, 2)


def test_clients_of_one_row_each(protocol: str) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 2))
    fitted = DWFKMeans(3, protocol=protocol, max_iter=3).fit([row[None] for row in rows])
    assert [len(labels) for labels in fitted.labels_] == [1] * 12


# --- tables with named columns ---


def frames(blobs: Clients, *columns: str) -> list[pl.DataFrame]:
    return [pl.DataFrame(np.array(rows), schema=list(columns)) for rows in blobs]


def test_frames_are_their_numbers_and_their_names_are_kept(blobs: Clients) -> None:
    fitted = DWFKMeans(3, protocol="plain", max_iter=2).fit(frames(blobs, "age", "height"))
    plain = DWFKMeans(3, protocol="plain", max_iter=2).fit(blobs)
    np.testing.assert_array_equal(fitted.cluster_centers_, plain.cluster_centers_)
    assert fitted.feature_names_in_.tolist() == ["age", "height"]
    np.testing.assert_array_equal(fitted.predict(frames(blobs, "age", "height")[0]), plain.predict(blobs[0]))
    assert not hasattr(fitted.fit(blobs), "feature_names_in_")


def test_frame_with_other_columns_than_in_the_fit_is_an_error(blobs: Clients) -> None:
    fitted = DWFKMeans(3, protocol="plain", max_iter=2).fit(frames(blobs, "age", "height"))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frames(blobs, "height", "age")[0])


def test_one_frame_with_groups(blobs: Clients) -> None:
    table = pl.concat(frames(blobs, "age", "height"))
    groups = pl.Series([f"site {i}" for i, rows in enumerate(blobs) for _ in rows])
    fitted = DWFKMeans(3, protocol="plain", max_iter=2).fit(table, groups=groups)
    assert fitted.feature_names_in_.tolist() == ["age", "height"]
    assert len(fitted.transcript_.configuration.clients) == 10


def test_clients_with_other_column_names_are_an_error(blobs: Clients) -> None:
    mixed = [*frames(blobs[:2], "age", "height"), *frames(blobs[2:3], "age", "weight")]
    with pytest.raises(DataError, match="client 2 has columns age, weight; client 0 has age, height"):
        DWFKMeans(3, protocol="plain").fit(mixed)
