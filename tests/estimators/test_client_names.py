"""The list of clients: declared or read off the rows, and clients that hold none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import (
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedScaler,
    FederatedSummary,
    Privacy,
    metrics,
    select_n_clusters,
)
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.estimators.choosing import local_cluster_counts

ROWS = np.random.default_rng(0).uniform(-1, 1, (60, 2))
GROUPS = np.array(["b", "a", "d"])[np.arange(60) % 3]
NAMES = ["d", "c", "b", "a"]
CENTERS = ROWS[:3]

Ask = Callable[..., Any]


def claim(unit: str = "record", **words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "neighbours": "add-remove", "domain": Box(-1, 1)}
    return Privacy(**(known | words), unit=unit, noise_seed=1)  # type: ignore[arg-type]


def fit(model: Any) -> Ask:
    return lambda X, *, groups=None, client_names=None, **words: model.set_params(**words).fit(
        X, groups=groups, client_names=client_names
    )


EVERYTHING: dict[str, Ask] = {
    "fit": fit(DWFKMeans(2, local_iter=1, protocol="plain")),
    "scaler": fit(FederatedScaler(protocol="plain")),
    "summary": fit(FederatedSummary(4, protocol="plain")),
    "metric": lambda X, **words: metrics.score(X, CENTERS, protocol="plain", **words),
    "labels": lambda X, **words: metrics.labels_agreement(
        X, CENTERS, np.arange(60) % 2, n_labels=2, protocol="plain", **words
    ),
    "selection": lambda X, **words: select_n_clusters(
        X, [2, 3], estimator="lloyd", protocol="plain", **words
    ),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_under_privacy_a_list_of_clients_that_is_read_off_the_rows_is_an_error(name: str) -> None:
    with pytest.raises(PrivacyError, match=r"client_names=\[...\]"):
        EVERYTHING[name](ROWS, groups=GROUPS, privacy=claim())


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_declared_client_may_hold_no_rows_under_privacy_only(name: str) -> None:
    EVERYTHING[name](ROWS, groups=GROUPS, client_names=NAMES, privacy=claim())
    with pytest.raises(DataError, match=r"client c: the data needs rows, got shape \(0, 2\)"):
        EVERYTHING[name](ROWS, groups=GROUPS, client_names=NAMES, privacy=None)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_declared_clients_stand_in_the_agreement_in_their_order(unit: str) -> None:
    words = {"protocol": "plain", "privacy": claim(unit)}
    model = DPKMeans(2, **words).fit(ROWS, groups=GROUPS, client_names=NAMES)
    assert model.transcript_.configuration.clients == ("d", "c", "b", "a")
    np.testing.assert_array_equal(model.labels_, model.predict(ROWS))
    lists = [ROWS[name == GROUPS] for name in NAMES]
    again = DPKMeans(2, **words).fit(lists, client_names=NAMES)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    assert [len(own) for own in again.labels_] == [20, 0, 20, 20]


def test_without_privacy_declared_clients_are_those_that_are_found() -> None:
    model = DWFKMeans(2, protocol="plain")
    found = model.fit(ROWS, groups=GROUPS).cluster_centers_
    assert model.transcript_.configuration.clients == ("a", "b", "d")
    declared = model.fit(ROWS, groups=GROUPS, client_names=["a", "b", "d"])
    np.testing.assert_array_equal(declared.cluster_centers_, found)
    np.testing.assert_array_equal(model.fit_predict(ROWS, None, GROUPS, ["d", "b", "a"]), model.labels_)


def test_numbers_name_clients_as_their_text_does() -> None:
    model = DWFKMeans(2, protocol="plain").fit(ROWS, groups=np.arange(60) % 3, client_names=[2, 0, 1])
    assert model.transcript_.configuration.clients == ("2", "0", "1")


@pytest.mark.parametrize(
    ("X", "words", "kind", "message"),
    [
        pytest.param(
            ROWS, {"groups": GROUPS, "client_names": ["a", "b"]}, DataError, "client 'd', which", id="unknown"
        ),
        pytest.param(
            ROWS,
            {"groups": GROUPS, "client_names": ["a", "b", "d", "a"]},
            DataError,
            "repeated: a",
            id="twice",
        ),
        pytest.param(
            ROWS, {"groups": GROUPS, "client_names": "abd"}, ArgumentError, "a list of names", id="text"
        ),
        pytest.param(
            ROWS, {"groups": GROUPS, "client_names": 3}, ArgumentError, "a list of names", id="number"
        ),
        pytest.param(
            ROWS, {"groups": GROUPS, "client_names": []}, DataError, "which client_names does not", id="none"
        ),
        pytest.param(ROWS, {"client_names": ["a"]}, ArgumentError, "goes with groups", id="no-groups"),
        pytest.param([ROWS, ROWS], {"client_names": ["a"]}, DataError, "1 names do not fit 2", id="too-few"),
    ],
)
@pytest.mark.parametrize("privacy", [None, claim()])
def test_names_that_do_not_fit_are_an_error(
    X: Any, words: dict[str, Any], kind: type[Exception], message: str, privacy: Privacy | None
) -> None:
    with pytest.raises(kind, match=message):
        DWFKMeans(2, local_iter=1, protocol="plain", privacy=privacy).fit(X, **words)


def test_a_table_without_rows_is_an_error_without_privacy_and_noise_with_it() -> None:
    words: dict[str, Any] = {"groups": [], "client_names": ["a", "b"]}
    with pytest.raises(ValueError, match="0 sample"):
        DWFKMeans(2, protocol="plain").fit(ROWS[:0], **words)
    model = DPKMeans(2, protocol="plain", privacy=claim()).fit(ROWS[:0], **words)
    assert np.isfinite(model.cluster_centers_).all() and len(model.labels_) == 0


def test_a_client_without_rows_is_none_of_those_that_say_how_many_clusters_they_find() -> None:
    clients = [ROWS[i::3] for i in range(3)]
    with pytest.warns(UserWarning, match="promises very little"):
        words: dict[str, Any] = {"privacy": claim("client", epsilon=1e6), "protocol": "plain"}
    assert sum(local_cluster_counts([*clients, ROWS[:0]], **words).clients) == 3
