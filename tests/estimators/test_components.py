"""FederatedPCA: scikit-learn's principal components of the pooled rows, from sums of products."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import privfed
from privfed import Box, ClientPolicy, FederatedPCA, Privacy, PrivacyBudget
from privfed.algorithms.summary import ProductSum
from privfed.core.asking.question import ClientData
from privfed.core.record.records import question_of
from privfed.core.values.domain import Ranges
from privfed.data import ClientTable, ClientTables
from privfed.estimators.saving import NotFittedError
from privfed.questions.moments import CentredProducts, symmetric
from tests.default_run import slow_but
from tests.raised import parameter_refused

RNG = np.random.default_rng(8)
MIXED = RNG.normal(size=(4, 4)) * [3.0, 2.0, 1.0, 0.5]
CLIENTS = [RNG.normal(size=(25 + 5 * i, 4)) @ MIXED + [5.0, -3.0, 0.0, 100.0] for i in range(4)]
ROWS = np.concatenate(CLIENTS)


@pytest.mark.parametrize(
    ("n_components", "over"),
    slow_but(
        product([None, 2, 0.9], ["plain", "masked", "masked-verified", "group-masked", "ckks"]),
        *((None, "plain"), (2, "masked"), (0.9, "group-masked")),
    ),
)
def test_components_are_those_of_the_pooled_rows(over: str, n_components: float | None) -> None:
    found, known = FederatedPCA(n_components, protocol=over).fit(CLIENTS), PCA(n_components).fit(ROWS)
    assert (found.n_samples_, found.n_components_) == (len(ROWS), known.n_components_)
    for name in ("mean_", "components_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.singular_values_, known.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(found.noise_variance_, known.noise_variance_, rtol=1e-9, atol=1e-12)
    along = found.transform(ROWS)
    np.testing.assert_allclose(along, known.transform(ROWS), atol=1e-8)
    np.testing.assert_allclose(found.inverse_transform(along), known.inverse_transform(along), atol=1e-9)
    assert list(found.get_feature_names_out()) == [f"federatedpca{i}" for i in range(found.n_components_)]


@pytest.mark.parametrize("over", ["plain", "masked"])
def test_far_from_the_origin_no_digits_are_lost(over: str) -> None:
    far = [rows + 1e7 for rows in CLIENTS]
    found, known = FederatedPCA(protocol=over).fit(far), PCA(svd_solver="full").fit(np.concatenate(far))
    np.testing.assert_allclose(found.explained_variance_, known.explained_variance_, rtol=1e-7)
    np.testing.assert_allclose(found.components_, known.components_, atol=1e-7)


def test_clients_keep_their_form_and_fewer_rows_than_columns_have_fewer_components() -> None:
    found = FederatedPCA(2).fit({f"site{i}": rows for i, rows in enumerate(CLIENTS)})
    named = found.transform({"a": CLIENTS[0], "b": CLIENTS[1]})
    listed = found.transform(CLIENTS[:2])
    assert list(named) == ["a", "b"]
    np.testing.assert_array_equal(named["b"], listed[1])
    assert FederatedPCA(protocol="plain").fit([CLIENTS[0][:2], CLIENTS[1][:1]]).n_components_ == 3


def test_groups_of_rows_give_the_components_of_their_means() -> None:
    tables = ClientTables(tuple(ClientTable(f"c{i}", rows) for i, rows in enumerate(CLIENTS)), tuple("abcd"))
    found = FederatedPCA(policy=ClientPolicy(group_size=5)).fit(tables)
    np.testing.assert_allclose(found.mean_, ROWS.mean(axis=0), rtol=1e-9)
    assert found.explained_variance_.sum() < PCA().fit(ROWS).explained_variance_.sum()


def test_a_run_that_ended_is_read_again_without_asking(tmp_path: Path) -> None:
    found = FederatedPCA(run_dir=tmp_path / "run").fit(CLIENTS)
    again = FederatedPCA(run_dir=tmp_path / "run").resume(CLIENTS)
    np.testing.assert_array_equal(found.components_, again.components_)
    asked = [question_of(one) for one, _ in again.transcript_.totals()]
    assert 1 <= sum(isinstance(one, CentredProducts) for one in asked) <= 2 and len(asked) <= 3


BOX = Box(-40, 40)
LONG = (
    np.linalg.qr(np.random.default_rng(4).normal(size=(8, 8)))[0] * np.r_[5.0, 3.0, np.full(6, 0.5)][:, None]
)
"""Components of columns, of which two are long."""


def claim(**words: Any) -> Privacy:
    return Privacy(
        **(
            {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove", "domain": BOX}
            | words
        )
    )


def drawn(n: int, m: int = 4) -> list[np.ndarray]:
    return np.array_split(BOX.clip(np.random.default_rng(n).normal(size=(n, 8)) @ LONG + 6.0), m)


def captured(components: np.ndarray, rows: np.ndarray) -> float:
    """Return the variance along the first two components, as a share of the most that any two have."""
    axes = np.linalg.qr(components[:2].T)[0]
    return float(np.trace(axes.T @ np.cov(rows.T) @ axes) / PCA(2).fit(rows).explained_variance_.sum())


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_private_components_have_nearly_all_of_the_variance(neighbours: str) -> None:
    clients = drawn(3000)
    fits = [
        FederatedPCA(2, privacy=claim(neighbours=neighbours), protocol="plain").fit(clients) for _ in range(8)
    ]
    rows = np.concatenate(clients)
    # One fit has .99 or more; eight together have .9 but for noise that never comes.
    assert np.mean([captured(one.components_, rows) for one in fits]) > 0.9
    assert np.mean([np.abs(one.mean_ - rows.mean(axis=0)).max() for one in fits]) < 1.5
    for one in fits:
        np.testing.assert_allclose(one.components_ @ one.components_.T, np.eye(2), atol=1e-9)
        assert one.explained_variance_[0] > one.spectral_error_ > 0.0


@pytest.mark.filterwarnings("ignore:epsilon=")
def test_with_little_noise_they_are_the_pooled_ones() -> None:
    clients = drawn(4000)
    found = FederatedPCA(2, privacy=claim(epsilon=1000.0), protocol="plain").fit(clients)
    known = PCA(2).fit(np.concatenate(clients))
    np.testing.assert_allclose(np.abs(np.sum(found.components_ * known.components_, axis=1)), 1.0, atol=0.01)
    np.testing.assert_allclose(found.explained_variance_, known.explained_variance_, rtol=0.15)
    np.testing.assert_allclose(found.mean_, known.mean_, atol=0.2)


def test_they_are_priced_claimed_resumed_and_saved(tmp_path: Path) -> None:
    budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", tmp_path / "budget", domain=BOX)
    found = FederatedPCA(2, privacy=budget.take(1.0), run_dir=tmp_path / "run").fit(drawn(2000))
    assert found.privacy_claim_.epsilon == pytest.approx(1.0) and found.privacy_claim_.unit == "record"
    paid = {one.question for one in found.privacy_claim_.payments}
    assert {"ProductSum", "CenterSum"} <= paid and budget.remaining().share < 1e-6
    asked = [question_of(one) for one, _ in found.transcript_.totals()]
    assert sum(isinstance(one.inner, ProductSum) for one in asked) == 1  # type: ignore[attr-defined]
    again = FederatedPCA(2, privacy=found.privacy, run_dir=tmp_path / "run").resume(drawn(2000))
    np.testing.assert_array_equal(again.components_, found.components_)
    found.save(tmp_path / "pca.npz")
    read = privfed.load(tmp_path / "pca.npz")
    assert read.spectral_error_ == found.spectral_error_
    np.testing.assert_array_equal(read.transform(drawn(50)[0]), found.transform(drawn(50)[0]))


@pytest.mark.filterwarnings("ignore:epsilon=")
def test_at_unit_client_each_client_is_protected() -> None:
    clients = drawn(6000, 60)
    own = claim(unit="client", epsilon=300.0, domain=Box(-40, 40, max_rows=200))
    found = FederatedPCA(2, privacy=own).fit(clients)
    assert found.privacy_claim_ is not None and found.privacy_claim_.unit == "client"
    assert captured(found.components_, np.concatenate(clients)) > 0.9
    assert found.n_samples_ == pytest.approx(6000, rel=0.2)


def test_components_that_may_be_noise_are_counted() -> None:
    with pytest.warns(UserWarning, match="components have a variance that noise alone may give"):
        FederatedPCA(privacy=claim(epsilon=0.2), protocol="plain").fit(drawn(400))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_products_are_those_of_clipped_offsets_and_no_longer(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    ranges = Ranges(-rng.uniform(0.1, 9, d), rng.uniform(0.1, 9, d), 30)
    rows, center = ranges.clip(rng.normal(0, 9, (20, d))), ranges.clip(rng.normal(0, 3, d))
    reach = float(rng.uniform(0.1, 200))
    asked = ProductSum(ranges=ranges, center=center, radius=reach)
    away = rows - center
    away *= np.minimum(1.0, np.sqrt(reach) / np.maximum(np.linalg.norm(away, axis=1), 1e-9))[:, None]
    total = symmetric(asked.answer(ClientData(rows), rng)["sum"][0]) / np.sqrt(2.0 - np.eye(d))
    np.testing.assert_allclose(total, away.T @ away, atol=1e-3 * reach)
    assert np.linalg.norm(asked.answer(ClientData(rows[:1]), rng)["sum"]) <= reach


@pytest.mark.parametrize("n_components", [0, 5, 1.5, True, "mle", float("nan")])
def test_a_number_of_components_that_is_none_is_an_error(n_components: object) -> None:
    with parameter_refused("n_components"):
        FederatedPCA(n_components, protocol="plain").fit(CLIENTS)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        FederatedPCA(n_components).transform(ROWS)  # type: ignore[arg-type]
