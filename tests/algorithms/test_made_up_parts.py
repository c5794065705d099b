"""A liar that claims a part of a row moves no mean: rows are whole, and other weights have a box."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import (
    FKM,
    KFED,
    Box,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedMiniBatchKMeans,
    FederatedPCA,
    FederatedScaler,
    WFKMeans,
    metrics,
)
from privfed.algorithms.fuzzy import FuzzySums
from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.algorithms.mixtures import MixtureSums
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.errors import ArgumentError
from privfed.questions.cluster_spread import ClusterProfiles
from privfed.questions.lloyd import LloydSums
from privfed.questions.local_points import PointSums
from privfed.questions.moments import CentredMoments, CentredProducts

CLIENTS = 5
BOX = Box(-1.0, 1.0, max_rows=20)
START = np.array([[0.0, 0.0], [1.0, -1.0]])
"""No row is near the second center."""


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1.0, 0.0, size=(20, 2)) for _ in range(CLIENTS)]


def parts_of_rows(patch: pytest.MonkeyPatch, kind: type[Question]) -> list[int]:
    """Let the first client claim 2^-30 of a row where nobody has one, with sums far beyond the box."""
    honest, told = kind.answer_all, list[int]()

    def lying(self: Any, data: Any, generators: Any) -> list[Statistics]:
        answers = honest(self, data, generators)
        count, total = self.spec.entries[0].name, self.spec.entries[1].name
        changed = dict(answers[0])
        free = np.flatnonzero(sum(one[count] for one in answers) == 0)
        for name, value in ((count, 2.0**-30), (total, -(2.0**-28))):
            changed[name] = changed[name].copy()
            changed[name][free] = value
        told.extend(free.tolist())
        return [Statistics(**changed), *answers[1:]]

    patch.setattr(kind, "answer_all", lying)
    return told


def halved(update: Any) -> np.ndarray:
    """Return weights that are no whole rows."""
    return np.minimum(update.counts / 3.0, 1.0)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize(
    ("asked", "model"),
    [
        (LloydSums, lambda **words: DWFKMeans(2, local_iter=1, **words)),
        (WeightedCentroids, lambda **words: DWFKMeans(2, local_iter=2, **words)),
        (WeightedCentroids, lambda **words: EWFKMeans(2, local_iter=2, **words)),
        (WeightedCentroids, lambda **words: WFKMeans(2, local_iter=2, weights=halved, **words)),
        (PointSums, lambda **words: KFED(2, **words)),
        (PointSums, lambda **words: FKM(2, merge="summed", **words)),
        (PointSums, lambda **words: FederatedFuzzyCMeans(2, **words)),
    ],
    ids=["DWF", "DWF, 2 steps", "EWF", "own weights", "k-FED", "FKM", "fuzzy"],
)
def test_a_center_without_a_row_stays_in_the_box(
    asked: type[Question], model: Callable[..., Any], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"init": START, "protocol": protocol, "domain": BOX, "random_state": 0}
    honest = model(**words).fit(rows())
    told = parts_of_rows(monkeypatch, asked)
    found = model(**words).fit(rows())
    # A part that is not in the statement of any weighting is a weight like others; it stays near the box.
    assert np.abs(found.cluster_centers_).max() <= 1.0 + 2.0**-9
    if told and model(**words).get_params().get("weights") in (None, "dynamic", "equal"):
        np.testing.assert_array_equal(found.cluster_centers_, honest.cluster_centers_)


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        (FuzzySums, lambda **words: FederatedFuzzyCMeans(2, averaging="weighted", local_iter=1, **words)),
        (MiniBatchMovements, lambda **words: FederatedMiniBatchKMeans(2, **words)),
        (MixtureSums, lambda **words: FederatedGaussianMixture(2, **words)),
    ],
    ids=["fuzzy", "mini-batch", "mixture"],
)
def test_weights_that_are_not_whole_have_a_least_one(
    asked: type[Question], model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = asked.answer_all
    weights, sums = {
        FuzzySums: ("weight", "weighted"),
        MiniBatchMovements: ("weight", "movement"),
        MixtureSums: ("weight", "sum"),
    }[asked]

    def lying(self: Any, data: Any, generators: Any) -> list[Statistics]:
        answers = [dict(one) for one in honest(self, data, generators)]
        for place, one in enumerate(answers):
            # Nobody has any of the last cluster but the liar, who has hardly any.
            for name, value in ((weights, 2.0**-30), (sums, -(2.0**-28))):
                one[name] = one[name].copy()
                one[name][-1] = 0.0 if place else value
        return [Statistics(**one) for one in answers]

    monkeypatch.setattr(asked, "answer_all", lying)
    with warnings.catch_warnings():
        # A movement without weight is clipped, and that is said.
        warnings.simplefilter("ignore", UserWarning)
        found = model(init=START, protocol="masked", domain=BOX, random_state=0).fit(rows())
    assert np.abs(getattr(found, "cluster_centers_", getattr(found, "means_", None))).max() <= 1.0 + 2.0**-9


def test_a_cluster_of_a_part_of_a_row_has_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts_of_rows(monkeypatch, ClusterProfiles) == []
    found = metrics.profiles(rows(), START, domain=BOX, protocol="masked")
    assert np.isnan(found.means[1]).all() and np.isfinite(found.means[0]).all()


@pytest.mark.parametrize("asked", [CentredMoments, CentredProducts])
def test_moments_of_no_whole_row_divide_by_one(
    asked: type[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = asked.answer_all

    def lying(self: Any, data: Any, generators: Any) -> list[Statistics]:
        answers = [{name: 0.0 * one for name, one in own.items()} for own in honest(self, data, generators)]
        answers[0]["rows"] = np.array([2.0**-10])
        return [Statistics(**one) for one in answers]

    monkeypatch.setattr(asked, "answer_all", lying)
    words: dict[str, Any] = {"domain": BOX, "protocol": "masked"}
    if asked is CentredMoments:
        found = FederatedScaler(**words).fit(rows())
        assert np.isfinite(found.mean_).all() and np.abs(found.mean_).max() <= 1.0
    else:
        with pytest.raises(ArgumentError):
            FederatedPCA(**words).fit(rows())
