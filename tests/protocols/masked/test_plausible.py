"""Plain bounds that clients check verified totals by, stories that must agree, questions that are alike."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Total
from privfed.core.values.domain import Ranges
from privfed.errors import RefusedError
from privfed.privacy.noised import Noised
from privfed.protocols.masked.masked_messages import UnmaskRequest
from privfed.protocols.masked.round_state import RoundState
from privfed.protocols.masked.verifier import Checked, _rows_of, alike, counts_plausible
from privfed.questions.cells import CellSums
from privfed.questions.lloyd import LloydSums
from privfed.questions.ranges import FeatureRanges
from tests.protocols.federations import vectors
from tests.protocols.masked.lying import lie, refused, verified

RANGES = Ranges(np.zeros(2), np.ones(2), 50)
LLOYD = LloydSums(ranges=RANGES, centers=np.array([[0.2, 0.3], [0.8, 0.5]]))


def counted(*counts: float) -> Checked:
    statistics = LLOYD.spec.unflatten(np.array([*counts, 0.0, 0.0, 0.0, 0.0]))
    return Checked(Total(statistics, (0, 1)), b"", b"", None)


@pytest.mark.parametrize(("value", "holds"), [(30.0, True), (-30.0, True), (30.1, False), (-31.0, False)])
def test_a_total_keeps_to_the_ranges_of_its_answers(value: float, holds: bool) -> None:
    question = vectors()
    total = question.spec.unflatten(np.array([0.0, value, 0.0]))
    assert (impossible(question, total, 3) is None) == holds


def test_noised_totals_may_leave_the_ranges_by_what_noise_may_add() -> None:
    noised = Noised(ranges=RANGES, inner=LLOYD, sigma=np.ones(2), limits=np.array([1.0, 1.0]))
    for share, holds in ((2.0, True), (2.1, False)):
        total = noised.spec.unflatten(share * noised.spec.high)
        assert (impossible(noised, total, 2) is None) == holds
    assert counts_plausible(noised.to_bytes(), counted(9.0, 9.0), 1.0)


@pytest.mark.parametrize(("counts", "holds"), [((3.0, 4.0), True), ((4.0, 4.0), True), ((5.0, 4.0), False)])
def test_clusters_count_no_more_rows_than_their_clients_hold(counts: tuple[float, ...], holds: bool) -> None:
    # Sums on the grid may be one more.
    assert counts_plausible(LLOYD.to_bytes(), counted(*counts), 7.0) == holds
    assert counts_plausible(LLOYD.to_bytes(), counted(*counts), None)


def test_only_a_question_that_counts_all_rows_says_how_many_there_are() -> None:
    question = FeatureRanges(ranges=RANGES, find_ranges=False)
    values = np.zeros(question.spec.size)
    total = Total(question.spec.unflatten(values + 4.0), (0, 1))
    assert _rows_of(question, total) == 4.0
    assert _rows_of(LLOYD, counted(3.0, 4.0).total) is None


@pytest.mark.parametrize(("more", "codes"), [(40.0, {"total"}), (0.0, set())])
def test_a_client_that_counts_more_rows_than_there_are_ends_the_fit(
    more: float, codes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, honest = np.random.default_rng(0), LloydSums.answer_all

    def lying(self: LloydSums, clients: Any, generators: Any) -> list[Statistics]:
        first, *others = honest(self, clients, generators)
        told = {name: one + more if name == "count" else one for name, one in first.items()}
        return [Statistics(**told), *others]

    monkeypatch.setattr(LloydSums, "answer_all", lying)
    model = DWFKMeans(2, local_iter=1, protocol="masked-verified", random_state=0)
    with pytest.raises(RefusedError) if codes else nullcontext() as error:
        # The server knows the most rows of a client, 90, and the clients the rows of all together, 120.
        model.fit([rng.normal(size=(n, 2)) for n in (10, 10, 10, 90)])
    assert set(error.value.codes.values() if error is not None else ()) == codes


# --- stories ---


def test_a_client_that_was_told_another_story_of_the_lost_ends_its_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = verified(6)
    run.ask()
    honest = RoundState.unmask_request

    def told(self: RoundState, client: int, upcoming: Any) -> UnmaskRequest:
        request = honest(self, client, upcoming)
        if client != 0:
            return request
        # Client 0 is told that its first neighbour, client 1, is lost.
        return msgspec.structs.replace(request, dead=b"\1" + request.dead[1:], receipts=request.receipts[16:])

    monkeypatch.setattr(RoundState, "unmask_request", told)
    # Its answer, under another story, helps to open nothing, and the others' open the sum.
    assert run.ask().contributors == (0, 1, 2, 3, 4, 5)
    monkeypatch.undo()
    assert run.ask().contributors == (1, 2, 3, 4, 5)
    assert run.state(0).keys is None and run.state(1).keys is not None


# --- questions that are the same ---


def with_centers(centers: np.ndarray) -> LloydSums:
    return LloydSums(ranges=RANGES, centers=centers)


def test_centers_may_differ_by_the_last_digits_of_their_ranges() -> None:
    assert alike(LLOYD, with_centers(LLOYD.centers + 9e-10))
    assert not alike(LLOYD, with_centers(LLOYD.centers + 2e-9))
    assert not alike(LLOYD, with_centers(LLOYD.centers[:1]))


def test_a_narrow_feature_allows_less_than_a_wide_one() -> None:
    narrow = Ranges(np.array([0.0, 0.0]), np.array([1e-3, 1.0]), 50)
    one = LloydSums(ranges=narrow, centers=np.array([[5e-4, 0.5]]))
    assert alike(one, LloydSums(ranges=narrow, centers=one.centers + np.array([0.0, 5e-10])))
    assert not alike(one, LloydSums(ranges=narrow, centers=one.centers + np.array([5e-10, 0.0])))


def test_arrays_that_are_no_centers_are_held_to_their_own_size() -> None:
    wide = Ranges(np.full(2, -1e6), np.full(2, 1e6), 50)
    one = CellSums(ranges=wide, center=np.zeros(2), normals=np.eye(2), per_axis=0)
    other = CellSums(ranges=wide, center=np.zeros(2), normals=np.eye(2) + 1e-6, per_axis=0)
    assert alike(one, CellSums(ranges=wide, center=np.zeros(2), normals=np.eye(2) + 1e-12, per_axis=0))
    assert not alike(one, other)


def test_other_ranges_rows_and_classes_are_other_questions() -> None:
    for ranges in (Ranges(np.zeros(2), np.ones(2), 51), Ranges(np.zeros(2), np.array([1.0, 1.1]), 50)):
        assert not alike(LLOYD, LloydSums(ranges=ranges, centers=LLOYD.centers))
    assert not alike(LLOYD, FeatureRanges(ranges=RANGES, find_ranges=False))


def test_too_few_of_the_prepared_in_a_total_are_refused() -> None:
    run = verified(5)
    run.ask()
    few = bytes([1, 0, 0, 0, 0])
    lie(run, lambda client, told: tuple(msgspec.structs.replace(one, contributors=few) for one in told))
    assert set(refused(run).values()) == {"total"}
