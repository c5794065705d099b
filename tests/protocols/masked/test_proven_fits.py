"""Whole fits over sums whose answers are proven: the same as over masked sums, but for coarser grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import (
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedMiniBatchKMeans,
    FederatedSummary,
    Privacy,
)
from privfed.errors import ArgumentError
from privfed.protocols import Masked
from privfed.protocols.slotted import Slotted

ROWS = [
    np.clip(np.random.default_rng(i).normal([[0.2, 0.2], [0.8, 0.8], [0.2, 0.8]] * 8, 0.1), 0.0, 1.0)
    for i in range(4)
]
WORDS: dict[str, Any] = {"random_state": 0, "max_iter": 3, "domain": Box(0.0, 1.0, max_rows=40)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (DWFKMeans, "cluster_centers_"),
        (FederatedFuzzyCMeans, "cluster_centers_"),
        (FederatedMiniBatchKMeans, "cluster_centers_"),
        (FederatedGaussianMixture, "means_"),
    ],
)
def test_a_fit_over_proven_sums_is_that_over_masked_sums(kind: Any, found: str) -> None:
    proven, masked = (kind(3, protocol=one, **WORDS).fit(ROWS) for one in ("masked-proven", "masked"))
    np.testing.assert_allclose(getattr(proven, found), getattr(masked, found), atol=1e-6)
    assert not any(one.rejected for one in proven.transcript_.records if hasattr(one, "rejected"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ranges_moments_and_histograms_are_proven_without_a_domain() -> None:
    proven, masked = (FederatedSummary(protocol=one).fit(ROWS) for one in ("masked-proven", "masked"))
    np.testing.assert_allclose(proven.mean_, masked.mean_, atol=1e-6)


def test_what_is_not_proven_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError):
        Masked(verified=True, proofs=True)
    with pytest.raises(ArgumentError):
        Masked(proofs=1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        Slotted(Masked(proofs=True))
    words = {"random_state": 0}
    privacy = Privacy(epsilon=2.0, delta=1e-6, unit="record", neighbours="add-remove", domain=WORDS["domain"])
    with pytest.raises(ArgumentError) as caught:
        DPKMeans(3, protocol="masked-proven", privacy=privacy, **words).fit(ROWS)
    assert caught.value.parameters == ("protocol", "privacy")
