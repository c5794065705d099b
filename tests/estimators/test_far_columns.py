"""Columns far from zero give what they give around zero: over all sums, for all that reads ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from privfed import (
    FKM,
    KFED,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    metrics,
    select_n_clusters,
)
from privfed.errors import CoarseTotalError
from tests.default_run import covering

SUMS = ("plain", "masked", "masked-verified", "group-masked", "ckks")
OFFSETS = (1e6, 1.7e9, -2e10, 1e12)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
LABELS = np.arange(240) % 4


def corners(offset: float) -> np.ndarray:
    """Return four clusters around the corners of a square, at an offset."""
    noise = np.random.default_rng(1).normal(0.0, 0.05, (240, 2))
    return CORNERS[LABELS] + noise + offset


def found(model: Any, offset: float) -> float:
    """Return how well the clusters of a fit agree with the true ones."""
    labels = np.concatenate(model.fit(np.array_split(corners(offset), 4)).labels_)
    return float(adjusted_rand_score(LABELS, labels))


@pytest.mark.parametrize(("over", "offset"), covering(SUMS, OFFSETS))
def test_inertia_and_indices(over: str, offset: float) -> None:
    rows = np.array_split(corners(offset), 4)
    model = DWFKMeans(4, protocol=over, random_state=0).fit(rows)
    near = DWFKMeans(4, protocol="plain", random_state=0).fit([one - offset for one in rows])
    assert model.inertia_ == pytest.approx(near.inertia_, rel=1e-3)
    for index in (metrics.davies_bouldin, metrics.calinski_harabasz, metrics.simplified_silhouette):
        expected = index(near.federation_, near.cluster_centers_)
        assert index(model.federation_, model.cluster_centers_) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("over", "offset"), covering(SUMS, OFFSETS))
def test_selection(over: str, offset: float) -> None:
    rows = np.array_split(corners(offset), 4)
    for index in ("calinski_harabasz", "davies_bouldin"):
        assert select_n_clusters(rows, range(2, 7), index=index, protocol=over).n_clusters == 4


STARTS: dict[str, Any] = {
    "random": lambda **words: DWFKMeans(4, init="random", n_init=10, **words),
    "kfed": lambda **words: DWFKMeans(4, init="kfed", **words),
    "nested": lambda **words: DWFKMeans(4, init="nested", **words),
    "fuzzy": lambda **words: FederatedFuzzyCMeans(4, **words),
    "fuzzy, weighted": lambda **words: FederatedFuzzyCMeans(4, averaging="weighted", **words),
    "mini-batch": lambda **words: FederatedMiniBatchKMeans(4, max_iter=20, tol=0.0, **words),
    "FKM": lambda **words: FKM(4, **words),
    "KFED": lambda **words: KFED(4, **words),
}


@pytest.mark.parametrize(("name", "over"), covering(tuple(STARTS), SUMS))
@pytest.mark.parametrize("offset", OFFSETS[1::2])
def test_starts_and_algorithms(name: str, over: str, offset: float) -> None:
    assert found(STARTS[name](protocol=over, random_state=0), offset) == 1.0


@pytest.mark.parametrize(("over", "offset"), covering(SUMS, OFFSETS))
@pytest.mark.parametrize("scaling", ["standard", "range", "robust"])
def test_scaling(over: str, offset: float, scaling: str) -> None:
    rows = np.array_split(corners(offset), 4)
    scaler, near = FederatedScaler(scaling, protocol=over), FederatedScaler(scaling, protocol="plain")
    _, scale = scaler.fit(rows).shift_and_scale()
    _, expected = near.fit([one - offset for one in rows]).shift_and_scale()
    np.testing.assert_allclose(scale, expected, rtol=0.07)


@pytest.mark.filterwarnings("ignore:inertia_ is not known:UserWarning")
@pytest.mark.parametrize("over", SUMS[1:])
def test_an_index_whose_total_has_few_steps_is_an_error_that_names_the_column(over: str) -> None:
    rows = corners(0.0)
    rows[:, 1] += 1e9 * (LABELS > 1)
    model = DWFKMeans(4, protocol=over, random_state=0).fit(np.array_split(rows, 4))
    with pytest.raises(CoarseTotalError) as caught:
        metrics.calinski_harabasz(model.federation_, model.cluster_centers_)
    assert (caught.value.entry, caught.value.column) == ("square", "1")
    assert caught.value.quanta < 2**10
    assert caught.value.parameters == ("scale",)
    with pytest.raises(CoarseTotalError):
        select_n_clusters(np.array_split(rows, 4), [4], index="calinski_harabasz", protocol=over)


def test_a_masked_fit_whose_ranges_are_not_loose_asks_no_sum_and_no_exchange_more() -> None:
    near, far = (np.array_split(corners(offset), 4) for offset in (-0.5, 1.7e9))
    fits = [DWFKMeans(4, max_iter=3, tol=0.0, random_state=0).fit(one) for one in (near, far)]
    sums = [fit.transcript_.view("server").sums for fit in fits]
    assert [[one.purpose for one in own].count("range") for own in sums] == [1, 2]
    exchanges = [fit.federation_.traffic.exchanges for fit in fits]
    assert exchanges[1] - exchanges[0] == 2
