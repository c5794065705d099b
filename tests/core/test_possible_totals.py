"""Totals that no honest clients could give are refused over every sum, and no total of honest clients is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, FederatedFuzzyCMeans, Privacy, metrics
from privfed.algorithms.fuzzy import FuzzySums
from privfed.core.asking.data import ClientData
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Summed
from privfed.core.values.domain import Ranges
from privfed.errors import ImpossibleTotalError
from privfed.protocols.crypto.fixed_point import Grid
from privfed.questions.cluster_spread import ClusterProfiles
from privfed.questions.lloyd import Inertia, LloydSums
from privfed.questions.moments import CentredMoments, CentredProducts
from tests.some import some

SUMS = ("plain", "masked", "masked-verified", "group-masked", "ckks")
CLIENTS = 5


def clients(offset: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [offset + rng.uniform(-1.0, 1.0, size=(20, 2)) for _ in range(CLIENTS)]


def lie(monkeypatch: pytest.MonkeyPatch, kind: type[Question], change: Callable[[Any], Any]) -> None:
    """Let the first client of a table answer otherwise."""
    honest = kind.answer_all

    def lying(self: Any, data: Any, generators: Any) -> list[Statistics]:
        first, *others = honest(self, data, generators)
        return [Statistics(**change(dict(first))), *others]

    monkeypatch.setattr(kind, "answer_all", lying)


@pytest.mark.parametrize("protocol", SUMS)
def test_sums_of_rows_that_nobody_counts_are_refused(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, LloydSums, lambda told: {**told, "sum": told["sum"] * 0.0 + 19.0})
    model = DWFKMeans(2, local_iter=1, protocol=protocol, domain=Box(-1, 1, max_rows=20), random_state=0)
    rows = [0.4 * one - 0.5 for one in clients()]
    if protocol == "plain":
        # Its total is impossible, and every answer is seen: the liar alone is left out.
        model.fit(rows)
        assert {client for one in model.transcript_.of(Summed) for client in one.rejected} == {0}
        assert np.abs(model.cluster_centers_).max() <= 1.0
        return
    with pytest.raises(ImpossibleTotalError) as error:
        model.fit(rows)
    assert error.value.entry == "sum"
    assert not error.value.low <= error.value.value <= error.value.high
    assert error.value.clients == CLIENTS


@pytest.mark.parametrize("word", [1 << 60, (1 << 64) - (1 << 61), 3 << 58])
@pytest.mark.parametrize("protocol", ["masked", "group-masked"])
def test_a_word_beyond_every_range_is_refused(
    protocol: str, word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, spoiled = Grid.encode, list[int]()

    def lying(self: Grid, vector: np.ndarray, clipped: int) -> np.ndarray:
        words = honest(self, vector, clipped)
        if not spoiled:
            spoiled.append(1)
            words[: self.n_front - 2] += np.uint64(word)
        return words

    monkeypatch.setattr(Grid, "encode", lying)
    model = DWFKMeans(2, local_iter=1, protocol=protocol, domain=Box(-1, 1, max_rows=20), random_state=0)
    with pytest.raises(ImpossibleTotalError):
        model.fit(clients())


@pytest.mark.parametrize("offset", [0.0, 1.0, -3.0, 1e6, 1.7e9])
@pytest.mark.parametrize("protocol", SUMS)
def test_rows_on_the_faces_of_their_box_are_no_lie(protocol: str, offset: float) -> None:
    rng = np.random.default_rng(1)
    faces = [offset + 0.1 * rng.integers(-1, 2, size=(20, 2)) for _ in range(CLIENTS)]
    low, high = offset - 0.1, offset + 0.1
    model = DWFKMeans(3, protocol=protocol, local_iter=1, domain=Box(low, high), random_state=0).fit(faces)
    assert metrics.davies_bouldin(faces, model.cluster_centers_, protocol=protocol) > 0.0
    FederatedFuzzyCMeans(2, protocol=protocol, domain=Box(low, high), max_iter=3, random_state=0).fit(faces)


@pytest.mark.parametrize("seed", range(30))
def test_no_honest_total_of_any_question_is_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale, shift = 10.0 ** rng.integers(-9, 10), 10.0 ** rng.integers(-9, 10) * rng.choice([-1, 0, 1])
    low, high = np.sort(shift + scale * rng.normal(size=(2, 3)), axis=0)
    # Every row lies on a face: rounding carries sums of these beyond box times count.
    rows = [np.where(rng.random((40, 3)) < 0.5, low, high) for _ in range(7)]
    ranges, centers = Ranges(low, high, 40), rng.uniform(low, high, size=(2, 3))
    questions = [
        LloydSums(ranges=ranges, centers=centers),
        Inertia(ranges=ranges, centers=centers, directions=np.eye(3)),
        CentredMoments(ranges=ranges, center=centers[0]),
        CentredProducts(ranges=ranges, center=centers[0]),
        ClusterProfiles(ranges=ranges, centers=centers),
        FuzzySums(ranges=ranges, centers=centers, m=2.0),
    ]
    data = [ClientData(one) for one in rows]
    for question in some(questions):
        answers = question.answer_all(data, [rng] * len(data))
        vectors = np.stack([question.spec.flatten(one) for one in answers])
        plain = question.spec.unflatten(vectors.sum(axis=0))
        assert impossible(question, plain, len(data)) is None
        step = Grid(question.spec, len(data)).step
        rounded = question.spec.unflatten((np.rint(vectors / step) * step).sum(axis=0))
        assert impossible(question, rounded, len(data)) is None


def test_totals_with_noise_stay_within_its_tails() -> None:
    privacy = Privacy(epsilon=0.05, delta=1e-6, unit="record", domain=Box(-1, 1), neighbours="add-remove")
    for seed in range(5):
        DPKMeans(2, privacy=privacy, random_state=seed).fit(clients())
