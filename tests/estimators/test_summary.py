"""FederatedSummary: counts, means, deviations and histograms of the pooled rows, from sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import privfed
from privfed import Box, FederatedSummary, Privacy
from privfed.algorithms.summary import FeatureSummary
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PrivacyError
from privfed.federation.driver import Federation
from privfed.federation.opening import open_over
from privfed.party.program import Program, ProgramState
from privfed.questions.histograms import MOST_BINS, FeatureHistograms

RNG = np.random.default_rng(4)
CLIENTS = [RNG.normal([1.0, -2.0], [1.0, 3.0], (30 + 5 * i, 2)) for i in range(4)]
ROWS = np.concatenate(CLIENTS)
UNEVEN = [[-1.0, 0.0, 1.0], [-9.0, -4.0, -2.0, 0.0, 0.5]]


def private(unit: str, epsilon: float = 8.0, **words: Any) -> Privacy:
    return Privacy(
        epsilon=epsilon, delta=1e-6, unit=unit, neighbours="add-remove", domain=Box(-20.0, 20.0), **words
    )


@pytest.mark.parametrize("over", ["plain", "masked", "masked-verified", "group-masked", "ckks"])
def test_numbers_are_those_of_the_pooled_rows(over: str) -> None:
    found = FederatedSummary(UNEVEN, protocol=over).fit(CLIENTS)
    assert found.n_samples_seen_ == len(ROWS)
    np.testing.assert_allclose(found.mean_, ROWS.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.std_, ROWS.std(axis=0), rtol=1e-12)
    assert (found.data_min_ <= ROWS.min(axis=0)).all() and (found.data_max_ >= ROWS.max(axis=0)).all()
    for j, edges in enumerate(UNEVEN):
        np.testing.assert_array_equal(found.histograms_[j], np.histogram(ROWS[:, j], edges)[0])
        assert found.edges_[j].tolist() == edges
        assert found.below_[j] == (ROWS[:, j] < edges[0]).sum()
        assert found.above_[j] == (ROWS[:, j] > edges[-1]).sum()
    assert found.noise_std_ == 0.0 and found.privacy_spent_ is None


@pytest.mark.parametrize("over", ["plain", "masked", "masked-verified", "group-masked", "ckks"])
def test_a_site_in_another_unit_shows_between_clients(over: str) -> None:
    tables = [table.copy() for table in CLIENTS]
    tables[1][:, 1] = 1.8 * tables[1][:, 1] + 32.0
    found = FederatedSummary(between=True, protocol=over).fit(tables)
    means, pooled = np.stack([table.mean(axis=0) for table in tables]), np.concatenate(tables)
    known = np.minimum(means.var(axis=0) / pooled.var(axis=0), 1.0)
    np.testing.assert_allclose(found.between_, known, rtol=1e-6)
    assert found.between_[0] < 0.1 < 0.6 < found.between_[1]
    assert not hasattr(FederatedSummary(protocol=over).fit(CLIENTS), "between_")


def test_what_lies_between_clients_is_kept_and_zero_for_a_constant(tmp_path: Path) -> None:
    tables = [np.column_stack([table, np.full(len(table), 7.0)]) for table in CLIENTS]
    found = FederatedSummary(between=True, run_dir=tmp_path / "run").fit(tables)
    again = FederatedSummary(between=True, run_dir=tmp_path / "run").resume(tables)
    np.testing.assert_array_equal(found.between_, again.between_)
    assert found.between_[2] == 0.0


def test_where_it_would_tell_single_clients_apart_it_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at least 4 clients, got 3"):
        FederatedSummary(between=True).fit(CLIENTS[:3])
    # Each client says so, whatever a coordinator writes into an agreement.
    with pytest.raises(ArgumentError, match="at least 4 clients, got 3"):
        open_over(CLIENTS[:3], algorithm=FeatureSummary(between=True))
    with pytest.raises(PrivacyError, match="no bound for differential privacy"):
        FederatedSummary(between=True, privacy=private("record")).fit(CLIENTS)


def test_bins_of_equal_width_are_numpys_over_the_declared_domain() -> None:
    found = FederatedSummary(7, protocol="plain", domain=Box(-20.0, 20.0)).fit(CLIENTS)
    for j in (0, 1):
        np.testing.assert_array_equal(found.histograms_[j], np.histogram(ROWS[:, j], 7, (-20.0, 20.0))[0])
    assert not found.below_.any() and not found.above_.any()
    assert found.data_min_.tolist() == [-20.0, -20.0]


@given(
    arrays(np.float64, st.tuples(st.integers(1, 30), st.just(1)), elements=st.floats(-4, 4).map(np.round)),
    st.lists(st.integers(-3, 3), min_size=2, max_size=7, unique=True).map(sorted),
    st.integers(0, 3),
)
def test_bins_are_numpys_whatever_lies_on_an_edge(rows: np.ndarray, edges: list[int], repeated: int) -> None:
    """counts == below, numpy.histogram, above; an edge that is repeated adds an empty bin."""
    table = np.array([[*edges, *[edges[-1]] * repeated]], dtype=np.float64)
    question = FeatureHistograms(ranges=Ranges([-4.0], [4.0], 30), edges=table)
    counts = question.answer(ClientData(rows), RNG)["feature_0"]
    inner, n = np.histogram(rows, edges)[0], len(edges) - 1
    assert counts[1 : n + 1].tolist() == inner.tolist() and not counts[n + 1 : -1].any()
    assert counts[0] == (rows < edges[0]).sum() and counts[-1] == (rows > edges[-1]).sum()


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("bins", [None, 5, UNEVEN], ids=["none", "even", "edges"])
def test_every_question_is_its_programs(unit: str, bins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Federation, Any]] = []
    run = Federation.run
    monkeypatch.setattr(Federation, "run", lambda self, one: (ran.append((self, one)), run(self, one))[1])
    FederatedSummary(bins, protocol="plain").fit(CLIENTS)
    FederatedSummary(bins, privacy=private(unit)).fit(CLIENTS)
    for federation, algorithm in ran:
        asked = [question_from_bytes(one.question) for one in federation.transcript.of(Asked)]
        assert len(asked) <= algorithm.max_sums
        program, followed = Program.of(algorithm, federation.setting), ProgramState()
        for index, question in enumerate(asked):
            followed = program.after(followed, question, index)
        assert followed.index == len(asked) - 1
    assert len(ran) == 2


def test_other_edges_than_the_agreed_are_refused() -> None:
    model = FederatedSummary(UNEVEN, protocol="plain").fit(CLIENTS)
    with pytest.raises(privfed.errors.RefusedError, match="program"):
        model.federation_.ask(
            privfed.core.roles.conversation.Ask(
                FeatureHistograms(
                    ranges=question_from_bytes(model.transcript_.of(Asked)[-1].question).ranges, n_bins=64
                )
            )
        )


def test_noise_is_as_large_as_is_said() -> None:
    found = [
        FederatedSummary(8, privacy=private("record", noise_seed=seed), random_state=seed).fit(CLIENTS)
        for seed in range(12)
    ]
    wrong = np.concatenate(
        [
            (own - np.histogram(ROWS[:, j], 8, (-20, 20))[0])[2:6]  # Where no noise was cut off at zero.
            for one in found
            for j, own in enumerate(one.histograms_)
        ]
    )
    filled = wrong[np.abs(wrong) > 0]
    assert 0.7 < np.std(filled) / found[0].noise_std_ < 1.3
    assert abs(np.mean([one.n_samples_seen_ for one in found]) - len(ROWS)) < 5.0


@pytest.mark.filterwarnings("ignore:the variances of")
@pytest.mark.parametrize(("epsilon", "n"), [(4.0, 10_000), (0.5, 40_000)])
def test_a_few_rows_far_from_all_others_count_where_they_are_seen(epsilon: float, n: int) -> None:
    """As of a rare category: most rows are equal, and clipping to where they lie left nothing of the rest."""
    rows = (np.random.default_rng(0).random((n, 2)) < 0.03).astype(np.float64)
    for seed in range(4):
        claim = private("record", epsilon, noise_seed=seed)
        claim = replace(claim, domain=Box(0.0, 1.0))
        found = FederatedSummary(privacy=claim, protocol="plain").fit(np.array_split(rows, 4))
        assert (np.abs(found.mean_ - rows.mean(axis=0)) < 5.0 * found.mean_error_).all()
        assert (np.abs(found.std_**2 - rows.var(axis=0)) < 5.0 * found.var_error_).all()


@pytest.mark.parametrize(("place", "share"), [((0.9, 0.9), 0.05), ((0.9, 0.0), 0.01), ((-1.0, 1.0), 0.1)])
def test_rows_beyond_what_the_search_looks_at_may_lie_anywhere(
    place: tuple[float, ...], share: float
) -> None:
    """Its outermost shell has all of them, and the error of the mean was said as if they lay within it."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((20_000, 1)) < share, place, 0.0) + 0.02 * rng.standard_normal((20_000, 2))
    rows = np.clip(rows, -1.0, 1.0)
    for seed in range(4):
        claim = replace(private("record", 2.0, noise_seed=seed), domain=Box(-1.0, 1.0))
        found = FederatedSummary(privacy=claim, protocol="plain").fit(np.array_split(rows, 4))
        assert (np.abs(found.mean_ - rows.mean(axis=0)) < 5.0 * found.mean_error_).all()
        assert (np.abs(found.std_**2 - rows.var(axis=0)) < 5.0 * found.var_error_).all()
        assert (found.mean_error_ < 0.01).all()


def test_rows_in_a_small_part_of_the_domain_have_no_others_far_away() -> None:
    """The outermost shell of a later search holds the tail of these very rows."""
    rows = 0.3 + 0.003 * np.random.default_rng(1).standard_normal((10_000, 1))
    for seed in range(6):
        claim = replace(private("record", 2.0, noise_seed=seed), domain=Box(-1.0, 1.0))
        found = FederatedSummary(privacy=claim, protocol="plain", random_state=seed).fit([rows])
        assert found.std_ == pytest.approx(rows.std(axis=0), rel=0.1)


def test_half_the_budget_is_for_histograms_and_all_is_claimed_once() -> None:
    alone = FederatedSummary(privacy=private("record", noise_seed=1)).fit(CLIENTS)
    both = FederatedSummary(5, privacy=private("record", noise_seed=1)).fit(CLIENTS)
    assert not hasattr(alone, "histograms_") and alone.privacy_claim_.epsilon == both.privacy_claim_.epsilon
    spent = privfed.FederatedSummary(5, privacy=private("record")).fit(CLIENTS).privacy_spent_
    assert spent is not None and spent.epsilon == 8.0


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        (0, "bins must be a whole number in"),
        (MOST_BINS + 1, "bins must be a whole number in"),
        (True, "bins must be None, a number, edges"),
        ("auto", "bins must be None, a number, edges"),
        ([], "bins must be None, a number, edges"),
        ([1.0], "2 to 65 numbers"),
        ([2.0, 1.0], "must ascend"),
        ([0.0, 0.0, 1.0], "must ascend"),
        ([0.0, np.nan], "edges"),
        ([[0, 1], [0, 1], [0, 1]], "edges must be 2 rows"),
        ([[0, 1], []], "one is empty"),
        (np.arange(MOST_BINS + 2), "2 to 65 numbers"),
    ],
)
def test_bins_that_are_none_are_an_error(bins: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        FederatedSummary(bins, protocol="plain").fit(CLIENTS)


def test_a_transcript_is_kept_and_a_second_fit_forgets_the_first(tmp_path: Path) -> None:
    model = FederatedSummary(3, protocol="plain", run_dir=tmp_path / "run").fit(CLIENTS)
    assert [one.purpose for one in model.transcript_.of(Asked)] == ["range", "moments", "histogram"]
    again = model.set_params(bins=None, run_dir=None).fit(CLIENTS)
    assert not hasattr(again, "edges_") and again.n_samples_seen_ == len(ROWS)
