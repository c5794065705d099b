"""An algorithm that moves more than centers: rounds, agreements and saved models read its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
import privfed.extend as px
from privfed.algorithms.rounds import stated
from privfed.core.asking.phases import Phase, Shape
from privfed.core.roles.conversation import Setting
from privfed.errors import ArgumentError, RunFolderError
from privfed.testing import EstimatorContract, QuestionContract


@px.register
@dataclass(frozen=True, kw_only=True, eq=False)
class WideSums(px.Question):
    """Ask for counts, sums and distances of the rows nearest to each center in units of its own width."""

    additive_over = px.AdditiveOver.RECORDS
    centers: np.ndarray[Any, np.dtype[np.float64]]
    widths: np.ndarray[Any, np.dtype[np.float64]]

    def __post_init__(self) -> None:
        px.check_centers(self.centers, self.ranges)
        if self.widths.shape != self.centers.shape[:1] or not np.isfinite(self.widths).all():
            raise px.ArgumentError("widths need one finite number a center.")

    @property
    def declaration(self) -> px.Declaration:
        return px.Declaration(("count",), (self.centers,))

    @property
    def spec(self) -> px.StatisticsSpec:
        (k, d), rows, r = self.centers.shape, self.ranges.rows, self.ranges
        low, high = rows * np.minimum(r.low, 0.0) * 1.001, rows * np.maximum(r.high, 0.0) * 1.001
        far = np.maximum(np.abs(self.centers - r.low), np.abs(self.centers - r.high)).sum(axis=1) + 1e-9
        return px.StatisticsSpec(
            px.Entry("count", (k,), 0.0, rows, 2.0**-30),
            px.Entry("sum", (k, d), low, high, np.maximum(np.abs(r.high), np.abs(r.low)) * 2.0**-30 + 1e-12),
            px.Entry("far", (k,), 0.0, rows * far * 1.001, far * 2.0**-30),
        )

    def answer_all(self, clients: Any, generators: Any) -> list[px.Statistics]:
        return [self._answer(client.features) for client in clients]

    def _answer(self, rows: Any) -> px.Statistics:
        far = np.abs(rows[:, None] - self.centers).sum(axis=2)
        marks = np.eye(len(self.centers))[(far / np.maximum(np.abs(self.widths), 1e-9)).argmin(axis=1)]
        return px.Statistics(count=marks.sum(axis=0), sum=marks.T @ rows, far=(marks * far).sum(axis=0))


@px.register_algorithm
class Wide(px.RoundsAlgorithm):
    """Lloyd's algorithm with a width for each cluster, and its last counts, which are not sent."""

    inertia = False

    def state(self, n_features: int) -> dict[str, Shape]:
        k = self.n_clusters
        return {"centers": Shape(k, n_features), "widths": Shape(k), "counts": Shape(k)}

    def begin(self, located: Any, centers: Any) -> Iterator[Any]:
        yield from ()
        return {"centers": centers, "widths": np.ones(len(centers)), "counts": np.zeros(len(centers))}

    def ask(self, ranges: Any, centers: Any, widths: Any, counts: Any) -> WideSums:
        return WideSums(ranges=ranges, centers=centers, widths=widths)

    def move(self, question: Any, total: Any) -> dict[str, Any]:
        n = np.maximum(total["count"], 1.0)
        moved = np.where((total["count"] > 0.5)[:, None], total["sum"] / n[:, None], question.centers)
        return {"centers": moved, "widths": 0.1 + total["far"] / n, "counts": total["count"]}


class WideKMeans(px.RoundsClusterer):
    """Wide."""

    algorithm = Wide


class TestWideSums(QuestionContract):
    def make(self, ranges: Any, centers: Any) -> WideSums:
        return WideSums(ranges=ranges, centers=centers, widths=np.arange(1.0, len(centers) + 1.0))


class TestWideKMeans(EstimatorContract):
    kind = WideKMeans
    parameters = {"n_clusters": 4, "random_state": 1}  # noqa: RUF012

    def test_all_that_a_round_moves_is_kept_ended_saved_and_loaded(self, tmp_path: Path) -> None:
        model = self.make(run_dir=tmp_path).fit(self.clients())
        assert [set(one) for one in model.states_] == [{"centers", "widths", "counts"}] * (model.n_iter_ + 1)
        assert model.states_[-1]["counts"].sum() == model.n_rows_
        result = model.transcript_.view("server").result
        for one in (privfed.load(tmp_path, estimators=[WideKMeans]), self.make().fit(self.clients())):
            assert [again.layout for again in one.states_] == [own.layout for own in model.states_]
            for own, again in zip(model.states_, one.states_, strict=True):
                np.testing.assert_array_equal(own.vector, again.vector)
        for name, last in model.states_[-1].items():
            np.testing.assert_array_equal(result[name], last)

    def test_a_file_with_states_of_other_columns_is_refused(self, tmp_path: Path) -> None:
        model = self.make().fit(self.clients())
        model.n_features_in_ = 5
        model.save(tmp_path / "model.npz")
        with pytest.raises(RunFolderError):
            privfed.load(tmp_path / "model.npz", estimators=[WideKMeans])

    def test_movements_are_of_the_centers(self) -> None:
        model = self.make(tol=1e-9, init="random").fit(self.clients())
        moved = [np.linalg.norm(b["centers"] - a["centers"]) for a, b in pairwise(model.states_)]
        assert model.converged_ and moved[-1] < 1e-9 <= min(moved[:-1], default=1.0)


def test_clients_compare_each_array_of_a_question_with_the_declaration() -> None:
    ranges = px.Ranges(np.zeros(2), np.ones(2), 9)
    (phase,) = Wide(n_clusters=3).round_phases(Setting(("a", "b", "c"), 2), 0)
    assert isinstance(phase, Phase)
    read = {
        k: phase.form.read(WideSums(ranges=ranges, centers=np.zeros((k, 2)), widths=np.ones(k)), {})
        for k in (2, 3, 4)
    }
    assert read[3] is not None and read[2] is None and read[4] is None


@pytest.mark.parametrize(
    "found",
    [
        {"centers": np.zeros((3, 2))},
        {"centers": np.zeros((3, 2)), "widths": np.zeros(3), "more": np.zeros(3)},
        {"centers": np.zeros((3, 2)), "widths": np.zeros(4)},
        {"centers": np.full((3, 2), np.nan), "widths": np.zeros(3)},
        {"centers": np.zeros((3, 2)), "widths": np.full(3, np.inf)},
        np.zeros((3, 2)),
    ],
)
def test_a_state_that_is_not_what_was_declared_is_an_error(found: Any) -> None:
    with pytest.raises(ArgumentError):
        stated(found, {"centers": Shape(3, 2), "widths": Shape(3)})


def test_an_array_alone_is_a_state_of_one_array() -> None:
    one = stated(np.eye(2), {"centers": Shape(2, 2)})
    assert list(one) == ["centers"]
    np.testing.assert_array_equal(one["centers"], np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        one["centers"][0] = 1.0
