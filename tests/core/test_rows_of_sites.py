"""Each site has a bound of its own on its rows: totals keep to the bounds' sum, and answers to their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Ball, Box, DWFKMeans, FederatedScaler, load
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.data import ClientData
from privfed.core.asking.possible_totals import bounded_by, impossible
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Summed
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, DataError, ImpossibleTotalError
from privfed.metrics import davies_bouldin
from privfed.protocols.masked.statements import ProvenGrid
from privfed.questions.lloyd import LloydSums
from privfed.questions.moments import CentredMoments
from tests.core.question_examples import EXAMPLES

SUMS = ("plain", "masked", "masked-verified", "masked-proven", "group-masked", "ckks")
SIZES = (10, 20, 50, 20, 10)
EACH = {str(i): n for i, n in enumerate(SIZES)}


def rows(sizes: tuple[int, ...] = SIZES) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-1.0, 1.0, (n, 2)) for n in sizes]


def fitted(protocol: str, max_rows: Any) -> Any:
    domain = Box(-1.0, 1.0, max_rows=max_rows)
    return DWFKMeans(2, local_iter=1, max_iter=3, protocol=protocol, domain=domain, random_state=0).fit(
        rows()
    )


@pytest.mark.parametrize("protocol", SUMS)
def test_a_fit_is_the_same_as_with_the_largest_bound_for_all(protocol: str) -> None:
    own, one = (fitted(protocol, most) for most in (EACH, max(SIZES)))
    np.testing.assert_array_equal(np.stack(own.history_), np.stack(one.history_))
    agreed = own.transcript_.configuration
    assert agreed.max_rows == SIZES and agreed.rows_of((4, 2)) == (10, 50)
    assert Configuration.from_bytes(agreed.to_bytes()) == agreed
    assert one.transcript_.configuration.rows_of((4, 2)) == ()


@pytest.mark.parametrize("protocol", SUMS)
def test_a_client_with_few_rows_counts_no_more_than_those(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LloydSums.answer_all

    def lying(self: Any, data: Any, generators: Any) -> list[Statistics]:
        first, *others = honest(self, data, generators)
        # Within the largest bound, and beyond its own by more than all others leave.
        return [Statistics(**{name: 4.9 * one for name, one in first.items()}), *others]

    monkeypatch.setattr(LloydSums, "answer_all", lying)
    assert fitted("masked", 50).n_iter_ > 0
    if protocol == "plain":
        rejected = {i for one in fitted(protocol, EACH).transcript_.of(Summed) for i in one.rejected}
        assert rejected == {0}
    elif protocol == "masked-proven":
        # What is proven is moved into its statement: no more than ten rows.
        counts = [one.statistics["count"].to_numpy().sum() for one in _steps(fitted(protocol, EACH))]
        assert counts and max(counts) <= sum(SIZES) + 1e-6
    else:
        with pytest.raises(ImpossibleTotalError) as error:
            fitted(protocol, EACH)
        assert error.value.entry == "count"
        assert sum(SIZES) <= error.value.high < error.value.value <= 5 * 50


def _steps(model: Any) -> list[Any]:
    return [
        one for one in model.transcript_.of(Summed) if "sum" in one.statistics and "count" in one.statistics
    ]


def test_the_bound_of_a_total_is_the_sum_of_its_contributors_bounds() -> None:
    ranges = Ranges(np.array([-1.0]), np.array([1.0]), 50)
    for question in (
        LloydSums(ranges=ranges, centers=np.array([[-0.5], [0.5]])),
        CentredMoments(ranges=ranges, center=np.array([0.0])),
    ):
        name = question.spec.entries[0].name
        for share, holds in ((1.0, True), (1.01, False)):
            told = dict(question.spec.unflatten(np.zeros(question.spec.size)))
            told[name] = told[name].copy()
            told[name].flat[0] = share * 50.0
            found = impossible(question, Statistics(**told), 3, (10, 30, 10))
            assert (found is None) == holds
            # By the largest bound for all it is possible.
            assert impossible(question, Statistics(**told), 3) is None
        low = bounded_by(question, 10).spec.high
        assert (low <= question.spec.high).all() and (low[1:] < 0.3 * question.spec.high[1:]).all()


@pytest.mark.parametrize("own", [1, 7, 49, 50])
def test_a_statement_has_the_steps_of_all_and_the_rows_of_one(own: int) -> None:
    rng, ranges = np.random.default_rng(own), Ranges(np.full(2, 0.1), np.full(2, 1.3), 50)
    for question in (
        LloydSums(ranges=ranges, centers=rng.uniform(0.1, 1.3, (3, 2))),
        CentredMoments(ranges=ranges, center=np.full(2, 0.7)),
    ):
        grid, shared = ProvenGrid(question, 9, own), ProvenGrid(question, 9)
        np.testing.assert_array_equal(grid.step, shared.step)
        for n in {1, own}:
            for points in (rng.uniform(0.1, 1.3, (n, 2)), np.full((n, 2), 0.1), np.full((n, 2), 1.3)):
                (one,) = question.answer_all([ClientData(points)], [rng])
                vector = question.spec.clip(one.vector)[0]
                words = grid.encode(vector, 0)
                assert grid.statement.holds(words[:-2].view(np.int64))
                # No honest answer is moved: by its own bound it is what it is by that of all.
                np.testing.assert_array_equal(words, shared.encode(vector, 0))
        if own < 50:
            (one,) = question.answer_all([ClientData(rng.uniform(0.1, 1.3, (own + 1, 2)))], [rng])
            beyond = shared.encode(one.vector, 0)[:-2].view(np.int64)
            assert shared.statement.holds(beyond) and not grid.statement.holds(beyond)


def test_counts_of_a_table_are_bounds() -> None:
    """Those of NumPy and pandas are no Python numbers, and were no error before the agreement was encoded."""
    counts = np.array(SIZES)
    for given, agreed in ((dict(enumerate(counts)), SIZES), (counts.max(), 50)):
        assert fitted("masked", given).transcript_.configuration.max_rows == agreed


def test_bounds_that_do_not_fit_the_clients_are_refused() -> None:
    for max_rows in (EACH | {"0": 9}, {i: n for i, n in EACH.items() if i != "3"}):
        with pytest.raises((DataError, ArgumentError)):
            fitted("masked", max_rows)
    for wrong in ({}, {"0": 0}, {"0": 1.5}, {"0": None}):
        for domain in (Box, Ball):
            with pytest.raises(ArgumentError) as error:
                domain(1.0, 2.0, max_rows=wrong)  # type: ignore[arg-type]
            assert error.value.parameters == ("max_rows",)
    agreed = fitted("masked", EACH).transcript_.configuration
    for rows_of in ((3,), (*SIZES[1:], 0), (*SIZES, 3)):
        with pytest.raises(ArgumentError):
            Configuration.from_bytes(msgspec.structs.replace(agreed, max_rows=rows_of).to_bytes())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_questions_in_questions_have_the_same_bound(name: str) -> None:
    ranges = Ranges(np.full(3, -1.0), np.full(3, 2.0), 50)
    question = EXAMPLES[name](ranges, np.random.default_rng(0).uniform(-1.0, 2.0, (4, 3)))
    own = bounded_by(question, 10)
    assert own.ranges.rows == 10 and question.ranges.rows == 50
    inner = [one for one in vars(own).values() if isinstance(one, Question)]
    assert all(one.ranges.rows == 10 for one in inner)
    assert own.spec.size == question.spec.size and (own.spec.high <= question.spec.high + 1e-12).all()


def test_bounds_of_clients_that_are_not_asked_are_left_alone() -> None:
    alone = fitted("masked", EACH)
    for most in (5, 50, 5000):
        more = fitted("masked", EACH | {"elsewhere": most})
        assert more.transcript_.configuration == alone.transcript_.configuration
        np.testing.assert_array_equal(np.stack(more.history_), np.stack(alone.history_))
    # A metric of fewer clients, after a fit of all.
    domain, some = Box(-1.0, 1.0, max_rows=EACH), {str(i): one for i, one in enumerate(rows()) if i != 2}
    assert np.isfinite(davies_bouldin(some, alone.cluster_centers_, domain=domain))


def test_scales_and_saved_models_keep_each_bound(tmp_path: Path) -> None:
    domain = Box(-1.0, 1.0, max_rows=EACH)
    scaler = FederatedScaler(domain=domain, protocol="masked").fit(rows())
    assert scaler.domain.rows_of("1") == 20
    model = DWFKMeans(2, scale="standard", domain=domain, tol=1e9, random_state=0).fit(rows())
    assert model.transcript_.configuration.max_rows == SIZES
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").predict(rows()[0]).shape == (10,)
