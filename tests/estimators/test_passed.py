"""Tables by the clients' names, a column of groups, and columns in any order are what users have."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, KFold

from privfed import DWFKMeans, FederatedScaler, metrics, select_n_clusters
from privfed.errors import ArgumentError, DataError
from tests.raised import parameter_refused

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 2)) + np.repeat([[0.0, 0.0], [9.0, 1.0], [0.0, 8.0]], 10, axis=0)
SITES = np.array(["b", "a", "c"] * 10)
BY_NAME = {name: ROWS[name == SITES] for name in ("b", "a", "c")}


def model(**words: Any) -> DWFKMeans:
    return DWFKMeans(3, protocol="plain", **words)


def centers(given: Any, **words: Any) -> list[list[float]]:
    fitted: Any = model().fit(given, **words)
    return sorted(fitted.cluster_centers_.tolist())


def test_a_dict_is_a_list_with_names() -> None:
    fitted = model().fit(BY_NAME)
    assert fitted.federation_.configuration.clients == ("b", "a", "c")
    other = model().fit(list(BY_NAME.values()), client_names=list(BY_NAME))
    assert fitted.cluster_centers_.tolist() == other.cluster_centers_.tolist()
    assert [own.tolist() for own in fitted.labels_] == [own.tolist() for own in other.labels_]
    assert [one.shape for one in model().fit_transform(BY_NAME)] == [(10, 3)] * 3


def test_groups_may_be_a_column() -> None:
    table = pl.DataFrame({"x": ROWS[:, 0], "site": SITES, "y": ROWS[:, 1]})
    fitted = model().fit(table, groups="site")
    assert fitted.federation_.configuration.clients == ("a", "b", "c")
    assert fitted.feature_names_in_.tolist() == ["x", "y"]
    assert fitted.labels_.tolist() == model().fit(ROWS, groups=SITES).labels_.tolist()
    assert model().fit_transform(table, groups="site").shape == (30, 3)


def test_columns_are_matched_by_name() -> None:
    tables = {name: pl.DataFrame({"x": own[:, 0], "y": own[:, 1]}) for name, own in BY_NAME.items()}
    mixed = tables | {"a": tables["a"][["y", "x"]]}
    assert centers(mixed) == centers(tables)
    assert centers(list(mixed.values())) == centers(tables)
    with pytest.raises(DataError, match="client a has columns"):
        model().fit(tables | {"a": pl.DataFrame({"x": ROWS[:5, 0], "z": ROWS[:5, 1]})})


def test_labels_may_be_a_dict_too() -> None:
    codes = {name: np.arange(10) % 3 for name in BY_NAME}
    fitted = model(metrics={"accuracy": {"n_labels": 3}}).fit(BY_NAME, y=dict(reversed(codes.items())))
    other = model(metrics={"accuracy": {"n_labels": 3}}).fit(list(BY_NAME.values()), y=list(codes.values()))
    found = [metrics.accuracy(one.federation_, one.cluster_centers_, n_labels=3) for one in (fitted, other)]
    assert found[0] == found[1]
    with pytest.raises(DataError, match="the same keys"):
        model().fit(BY_NAME, y={"a": codes["a"]})


def test_metrics_scalers_and_selections_take_them_too() -> None:
    middle = np.array([[0.0, 0.0], [9.0, 1.0], [0.0, 8.0]])
    assert metrics.inertia(BY_NAME, middle) == pytest.approx(metrics.inertia(list(BY_NAME.values()), middle))
    scaled = FederatedScaler(protocol="plain").fit(BY_NAME).transform(BY_NAME)
    assert set(scaled) == set(BY_NAME)
    np.testing.assert_allclose(np.concatenate(list(scaled.values())).mean(axis=0), 0.0, atol=1e-9)
    assert select_n_clusters(BY_NAME, range(2, 5), protocol="plain").n_clusters == 3


@pytest.mark.parametrize("words", [{"groups": SITES}, {"client_names": ["a", "b", "c"]}])
def test_clients_are_not_named_twice(words: dict[str, Any]) -> None:
    with parameter_refused("client_names"):
        model().fit(BY_NAME, **words)


@pytest.mark.parametrize("given", [ROWS, pl.DataFrame(ROWS, schema=["x", "y"])])
def test_a_column_of_groups_that_is_not_there_is_an_error(given: Any) -> None:
    with pytest.raises(ArgumentError, match="groups='site' is no column of X"):
        model().fit(given, groups="site")


def test_score_is_of_rows_at_hand() -> None:
    fitted = model().fit(BY_NAME)
    assert fitted.score(ROWS) == pytest.approx(-fitted.inertia_)
    scaled = model(scale="standard").fit(BY_NAME)
    assert scaled.score(ROWS) == pytest.approx(-scaled.inertia_)


def test_a_grid_search_of_scikit_learn_routes_the_clients() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(middle, 1.0, (40, 2)) for middle in (0.0, 8.0, 16.0)])
    clients = rng.permutation(np.repeat(["a", "b", "c", "d"], 30))
    with sklearn.config_context(enable_metadata_routing=True):
        model = DWFKMeans(2, random_state=0).set_fit_request(groups=True)
        found = GridSearchCV(model, {"n_clusters": [2, 3]}, cv=KFold(3, shuffle=True, random_state=0))
        found.fit(rows, groups=clients)
    assert found.best_params_ == {"n_clusters": 3}
    assert found.best_estimator_.federation_.configuration.clients == ("a", "b", "c", "d")


def test_rows_to_predict_are_one_table() -> None:
    tables = {name: np.random.default_rng(i).normal(size=(9, 2)) for i, name in enumerate("abc")}
    model = DWFKMeans(2).fit(tables)
    for method in (model.predict, model.score, model.transform):
        with pytest.raises(ArgumentError, match=r"a dict of 3: pass X\['a'\], client by client"):
            method(tables)
