"""FederatedImputer: scikit-learn's SimpleImputer on the pooled rows, from sums; private where it is paid."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import privfed
from privfed import (
    Ball,
    Box,
    ClientPolicy,
    DPKMeans,
    DWFKMeans,
    FederatedImputer,
    FederatedPCA,
    FederatedScaler,
    Privacy,
    PrivacyBudget,
)
from privfed.core.values.origin import Origin, origin_of
from privfed.data import ClientTable, ClientTables, load_clients
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.metrics import inertia
from tests.raised import parameter_refused


def tables(n: int = 40, gaps: float = 0.1, seed: int = 0) -> list[np.ndarray]:
    """Return four clients' rows with gaps, in columns of unlike scales."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(4):
        rows = rng.normal(i, 1.0, size=(n + i, 3)) * [1.0, 1e4, 1e-3] + [0.0, 1e6, 0.0]
        rows[rng.random(rows.shape) < gaps] = np.nan
        found.append(rows)
    return found


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_filled_and_scaled_rows_are_those_of_the_pipeline_on_pooled_rows(protocol: str) -> None:
    clients = tables()
    pooled = make_pipeline(SimpleImputer(), StandardScaler()).fit(np.concatenate(clients))
    imputer = FederatedImputer(protocol=protocol).fit(clients)
    np.testing.assert_allclose(imputer.statistics_, pooled[0].statistics_, rtol=1e-9)
    shares = 1.0 - np.isnan(np.concatenate(clients)).mean(axis=0)
    np.testing.assert_allclose(imputer.known_, shares, rtol=1e-9)
    filled = imputer.transform(clients)
    ours = FederatedScaler(protocol=protocol).fit(filled).transform(filled)
    np.testing.assert_allclose(
        np.concatenate(ours), pooled.transform(np.concatenate(clients)), rtol=0, atol=1e-9
    )


def test_groups_of_rows_have_the_same_means_and_gaps_as_the_rows() -> None:
    clients = tables()
    with pytest.warns(UserWarning, match="arrays are grouped anew"):
        imputer = FederatedImputer(policy=ClientPolicy(group_size=5)).fit(clients)
    pooled = np.concatenate(clients)
    np.testing.assert_allclose(imputer.statistics_, SimpleImputer().fit(pooled).statistics_, rtol=1e-9)
    np.testing.assert_allclose(imputer.known_, 1.0 - np.isnan(pooled).mean(axis=0), rtol=1e-9)


def test_frames_are_taken_by_name_and_a_client_without_any_value_is_filled() -> None:
    first, second, third, _ = tables()
    second[:, 0] = np.nan
    frames = {
        name: pl.DataFrame(one, schema=["a", "b", "c"])
        for name, one in zip("xyz", (first, second, third), strict=True)
    }
    frames["y"] = frames["y"].select("c", "a", "b")
    imputer = FederatedImputer().fit(frames)
    expected = SimpleImputer().fit(np.concatenate([first, second, third])).transform(second)
    filled = imputer.transform(frames)["y"]
    np.testing.assert_allclose(filled, expected, rtol=1e-9)
    np.testing.assert_allclose(imputer.transform(second), expected, rtol=1e-9)
    with pytest.raises(DataError, match="fitted on a, b, c"):
        imputer.transform(frames["x"].rename({"a": "other"}))


def test_a_declared_domain_is_that_of_filled_rows() -> None:
    clients = [np.clip(one, [-5, 9e5, -1], [9, 2e6, 1]) for one in tables()]
    box = Box([-5.0, 9e5, -1.0], [9.0, 2e6, 1.0])
    imputer = FederatedImputer(domain=box).fit(clients)
    expected = SimpleImputer().fit(np.concatenate(clients)).statistics_
    np.testing.assert_allclose(imputer.statistics_, expected, rtol=1e-9)
    FederatedScaler("range", domain=box).fit(imputer.transform(clients))


def privacy(**changed: Any) -> Privacy:
    low, high = [-4.0, 9e5, -0.01], [8.0, 1.1e6, 0.01]
    words = {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove", "noise_seed": 1}
    return Privacy(**(words | {"domain": Box(low, high)} | changed))


def test_under_privacy_means_are_near_and_in_the_domain() -> None:
    clients = tables(n=600)
    imputer = FederatedImputer(privacy=privacy(), protocol="plain").fit(clients)
    exact = SimpleImputer().fit(np.concatenate(clients)).statistics_
    width = np.array([12.0, 2e5, 0.02])
    np.testing.assert_allclose(imputer.statistics_ / width, exact / width, atol=0.02)
    np.testing.assert_allclose(imputer.known_, 0.9, atol=0.05)
    starved = FederatedImputer(privacy=privacy(epsilon=0.01), protocol="plain")
    starved.fit([np.full((1, 3), np.nan) for _ in range(3)])
    assert privacy().domain.contains(starved.statistics_[None]).all()


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([FederatedImputer(protocol="plain")])
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_imputer_scaler_and_fit_are_paid_from_one_budget(tmp_path: Path) -> None:
    clients, box = tables(n=600), privacy().domain
    budget = PrivacyBudget(9.0, 1e-6, "record", "add-remove", tmp_path / "b.db", domain=box)
    imputer = FederatedImputer(privacy=budget.take(0.2), protocol="plain").fit(clients)
    filled = imputer.transform(clients)
    scaler = FederatedScaler(privacy=budget.take(0.2), protocol="plain").fit(filled)
    claim = budget.take(0.6, domain=scaler.transform_domain())
    DPKMeans(2, privacy=claim, protocol="plain").fit(scaler.transform(filled))
    assert budget.remaining().share == 0.0
    assert imputer.privacy_spent_ is not None and imputer.privacy_spent_.unit == "record"


def through_the_path(clients: list[np.ndarray]) -> bytes:
    """Return all that imputer, scaler and fit release, with noise that repeats."""
    imputer = FederatedImputer(privacy=privacy(), protocol="plain").fit(clients)
    filled = imputer.transform(clients)
    scaler = FederatedScaler(privacy=privacy(noise_seed=2), protocol="plain").fit(filled)
    claim = privacy(noise_seed=3, domain=scaler.transform_domain())
    model = DPKMeans(2, privacy=claim, protocol="plain").fit(scaler.transform(filled))
    released = [imputer.statistics_, imputer.known_, scaler.mean_, scaler.scale_, model.cluster_centers_]
    return b"".join(np.ascontiguousarray(one).tobytes() for one in released)


def test_rows_that_the_domain_makes_equal_release_the_same_bytes() -> None:
    clients, others = tables(n=300), tables(n=300)
    clients[0][0], others[0][0] = [1e3, np.nan, 5.0], [1e5, np.nan, 7.0]
    assert through_the_path(clients) == through_the_path(others)
    others[0][0, 0] = 0.0
    assert through_the_path(clients) != through_the_path(others)


def test_wrong_use_is_an_error() -> None:
    clients = tables()
    with parameter_refused("domain"):
        FederatedImputer(domain=Ball(1.0)).fit(clients)
    with pytest.raises(DataError, match="column 1; leave"):
        FederatedImputer().fit([one * [1.0, np.nan, 1.0] for one in clients])
    with pytest.raises(DataError, match="numbers or NaN"):
        FederatedImputer().fit([np.array([["x", "y"]])])
    with pytest.raises(ArgumentError, match="schema"):
        FederatedImputer().fit()
    assert clone(FederatedImputer(protocol="plain")).protocol == "plain"


def people(n: int = 150, **options: Any) -> ClientTables:
    """Return the tables as those of people, of whom each has three rows at a client."""
    return ClientTables(
        tuple(
            ClientTable(f"site {i}", one, None, tuple(f"{i}-{row // 3}" for row in range(len(one))))
            for i, one in enumerate(tables(n))
        ),
        ("a", "b", "c"),
        **options,
    )


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_tables_with_ids_are_filled_and_keep_all_they_have(protocol: str) -> None:
    held = people()
    imputer = FederatedImputer(protocol=protocol)
    filled = imputer.fit_transform(held)
    np.testing.assert_allclose(
        np.concatenate(filled.arrays), SimpleImputer().fit_transform(np.concatenate(held.arrays)), rtol=1e-9
    )
    assert [one.ids for one in filled.tables] == [one.ids for one in held.tables]
    assert filled.names == held.names and filled.columns == held.columns
    assert list(imputer.feature_names_in_) == list(held.columns)
    asked = [np.concatenate([one, ~np.isnan(one)], axis=1).shape[1] for one in held.arrays]
    assert asked == [imputer.federation_.setting.n_features] * 4
    model = DWFKMeans(2, protocol=protocol, random_state=0, scale="standard").fit(filled)
    listed = DWFKMeans(2, protocol=protocol, random_state=0, scale="standard").fit(filled.arrays)
    np.testing.assert_allclose(model.cluster_centers_, listed.cluster_centers_, rtol=1e-9)
    with pytest.raises(DataError, match="fitted on a, b, c"):
        imputer.transform(ClientTables(held.tables, ("a", "b", "other")))


@pytest.mark.filterwarnings("ignore:all centers lie at one end")  # Noise may put both there.
@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_people_are_protected_through_a_pipeline(protocol: str) -> None:
    user = {"unit": "user", "rows_per_user": 2, "noise_seed": None}
    steps = [
        FederatedImputer(protocol=protocol, privacy=privacy(**user)),
        DPKMeans(2, protocol=protocol, privacy=privacy(**user)),
    ]
    model = make_pipeline(*steps).fit(people(450))
    for one in model:
        assert one.privacy_spent_.unit == "user" and one.privacy_spent_.epsilon == 8.0
    # Of three rows of each person two are asked: 4 * 300 and some.
    assert abs(model[0].n_samples_seen_ - 1205) < 250
    assert origin_of(model[0].statistics_) == Origin.CLAIMED
    with pytest.raises(ArgumentError, match="whose each row is"):
        FederatedImputer(protocol=protocol, privacy=privacy(**user)).fit(tables())


def test_one_set_of_groups_stands_for_gaps_and_filled_rows() -> None:
    held, given = people(), {"protocol": "plain", "policy": ClientPolicy(group_size=5)}
    imputer = FederatedImputer(**given).fit(held)
    again = FederatedImputer(domain=Box([-9.0, 8e5, -1.0], [9.0, 2e6, 1.0]), **given).fit(held)
    np.testing.assert_allclose(imputer.statistics_, again.statistics_, rtol=1e-9)
    filled = imputer.transform(held)
    scaler = FederatedScaler(**given).fit(filled)
    # A group's mean of filled rows is the mean of its rows' values with the means in its gaps.
    np.testing.assert_allclose(scaler.mean_, imputer.statistics_, rtol=1e-6)
    assert scaler.n_samples_seen_ == imputer.n_samples_seen_


def test_rows_that_exact_means_filled_go_under_no_claim(tmp_path: Path) -> None:
    held, box = people(), privacy().domain
    claim, exact = privacy(noise_seed=None), FederatedImputer(protocol="plain")
    noised = FederatedImputer(protocol="plain", privacy=privacy(noise_seed=None))
    exact.fit(held).save(tmp_path / "exact.npz")
    for imputer in (exact, privfed.load(tmp_path / "exact.npz")):
        filled = imputer.transform(held)
        for one in (filled, pickle.loads(pickle.dumps(filled)), replace(filled, private=True)):
            with pytest.raises(PrivacyError) as found:
                DPKMeans(2, privacy=claim, protocol="plain").fit(one)
            assert list(found.value.parameters) == ["filling_or_scaling"]
    scaled = FederatedScaler(protocol="plain", domain=box)
    inside = noised.fit(held).transform(held)
    inside = replace(inside, tables=tuple(replace(x, features=box.clip(x.features)) for x in inside.tables))
    assert scaled.fit(inside).transform(inside).prepared == Origin.EXACT
    ranges = FederatedScaler("range", protocol="plain", domain=box).fit(inside)
    assert ranges.transform(inside).prepared == inside.prepared == Origin.CLAIMED
    DPKMeans(2, privacy=privacy(noise_seed=None), protocol="plain").fit(inside)
    DPKMeans(2, privacy=privacy(), protocol="plain").fit(exact.transform(held))  # It claims nothing.


def test_arrays_that_exact_numbers_filled_or_scaled_go_under_no_claim() -> None:
    rng, names = np.random.default_rng(2), ["a", "b", "c", "d"]
    rows = [rng.normal(0.0, 1.0, (60 + i, 3)) for i in range(4)]
    of = np.repeat(names, list(map(len, rows)))

    def claim(d: int) -> Privacy:
        return privacy(noise_seed=None, domain=Box([-9.0] * d, [9.0] * d))

    exact = [FederatedScaler("standard", protocol="plain"), FederatedImputer(protocol="plain")]
    for model in [*exact, FederatedPCA(2, protocol="plain")]:
        found = model.fit(rows).transform(rows)
        d = found[0].shape[1]
        for fit in (
            lambda d=d, found=found: DPKMeans(2, privacy=claim(d), protocol="plain").fit(found),
            lambda d=d, found=found: DPKMeans(2, privacy=claim(d), protocol="plain").fit(
                dict(zip(names, found, strict=True))
            ),
            lambda d=d, found=found: DPKMeans(2, privacy=claim(d), protocol="plain").fit(
                [one[5:] for one in found]
            ),
            lambda d=d, found=found: DPKMeans(2, privacy=claim(d), protocol="plain").fit(
                np.vstack(found), groups=of, client_names=names
            ),
            lambda d=d, found=found: FederatedImputer(privacy=claim(d), protocol="plain").fit(found),
            lambda d=d, found=found: inertia(found, np.zeros((1, d)), privacy=claim(d), protocol="plain"),
        ):
            with pytest.raises(PrivacyError) as refused:
                fit()
            assert list(refused.value.parameters) == ["filling_or_scaling"]
        # The owner's word.
        DPKMeans(2, privacy=claim(d), protocol="plain").fit([np.array(one) for one in found])
    components = FederatedPCA(2, protocol="plain").fit(rows)
    assert origin_of(components.inverse_transform(components.transform(rows[0]))) == Origin.EXACT
    assert origin_of(DWFKMeans(2, protocol="plain").fit(rows).transform(rows[0])) == Origin.EXACT
    noised = FederatedScaler("standard", protocol="plain", privacy=claim(3)).fit(rows)
    assert {origin_of(one) for one in noised.transform(rows)} == {Origin.CLAIMED}
    assert origin_of(noised.transform(exact[0].transform(rows[0]))) == Origin.EXACT


@pytest.mark.parametrize("private", [True, False])
def test_a_file_with_gaps_is_kept_for_the_imputer(private: bool, tmp_path: Path) -> None:
    lines = ["who,a,b", "p,1.0,", "p,2.0,4.0", "q,,6.0", "r,inf,8.0", ""]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    held = load_clients(tmp_path / "t.csv", id="who", missing="keep", private=private)
    assert np.isnan(held.arrays[0]).sum() == 3 and len(held.arrays[0]) == 4
    filled = FederatedImputer(protocol="plain").fit_transform(held)
    np.testing.assert_allclose(filled.arrays[0], [[1.0, 6.0], [2.0, 4.0], [1.5, 6.0], [1.5, 8.0]])
    with pytest.raises(DataError):
        load_clients(tmp_path / "t.csv", id="who")
