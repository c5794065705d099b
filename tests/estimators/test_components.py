"""FederatedPCA: scikit-learn's principal components of the pooled rows, from sums of products."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from privfed import Box, ClientPolicy, FederatedPCA, Privacy
from privfed.core.record.records import question_of
from privfed.data import ClientTable, ClientTables
from privfed.errors import PrivacyError
from privfed.estimators.saving import NotFittedError
from privfed.questions.moments import CentredProducts
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


def test_a_claim_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-200, 200))
    with pytest.raises(PrivacyError, match="no bound for differential privacy; leave privacy= out"):
        FederatedPCA(privacy=privacy, run_dir=tmp_path / "run").fit(CLIENTS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_components", [0, 5, 1.5, True, "mle", float("nan")])
def test_a_number_of_components_that_is_none_is_an_error(n_components: object) -> None:
    with parameter_refused("n_components"):
        FederatedPCA(n_components, protocol="plain").fit(CLIENTS)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        FederatedPCA(n_components).transform(ROWS)  # type: ignore[arg-type]
