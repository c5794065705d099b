"""Clients count lost clients, since whoever reads two totals that differ by one client reads its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, DWFKMeans, Privacy, Simulation
from privfed.core.agreed.configuration import Configuration
from privfed.core.stored.encoding import encode
from privfed.engines.in_process import Fault
from privfed.errors import RefusedError
from privfed.protocols import Masked
from privfed.protocols.masked.client_state import closed
from privfed.protocols.masked.round_state import RoundState
from privfed.protocols.setup.advertising import advertise_request
from privfed.protocols.setup.losses import Losses, after_total, begun, checked, joins
from privfed.testing.sum_runs import Sums
from tests.protocols.sparse import small_graphs
from tests.raised import parameter_refused

N = 12


def refused(run: Sums, *faults: Fault) -> bool:
    """Open one sum with faults; say whether clients refused for its losses."""
    try:
        run.ask(None, 0, (0,), *faults)
    except RefusedError as error:
        assert set(error.codes.values()) == {"policy:losses"}
        return True
    return False


def counts(run: Sums) -> list[int]:
    return [run.state(i).keys.losses.count for i in range(run.n)]


def test_so_many_losses_as_were_agreed_are_opened_and_no_more() -> None:
    run = Sums(Masked(losses=2), N)
    assert not refused(run)
    for times, lost in enumerate((3, 3, 4, 3, 4), 1):
        assert not refused(run, Fault(lost, "collect"))
        # It comes back: all are there again, which is no other set of clients. Nor is it to lose it again.
        assert not refused(run)
        assert set(counts(run)) == {1 if times < 3 else 2}
    with pytest.raises(RefusedError, match=r"\(losses=2\)\. More clients were lost.*Masked\(losses=\.\.\.\)"):
        run.ask(None, 0, (0,), Fault(5, "collect"))
    # Nothing was opened of that sum, and the fit goes on while nobody is lost.
    assert run.transcript.totals()[-1][0].index == 10


def test_two_equal_sums_with_one_client_lost_are_bounded_by_the_signed_number() -> None:
    # A lying server names another client lost in each sum, all of which ask the same.
    run = Sums(Masked(losses=3), N)
    assert not refused(run)
    singled_out = sum(not refused(run, Fault(i, "collect", "lost-reply")) for i in range(N))
    assert 1 <= singled_out <= 3
    assert len(run.transcript.totals()) == 1 + singled_out


def test_clients_that_are_lost_together_count_once_and_once_more_when_only_some_are_back() -> None:
    run = Sums(Masked(losses=3, colluders=1), N)
    assert not refused(run)
    away = [Fault(i, stage) for i in (0, 1, 2) for stage in ("prepare", "collect")]
    assert not refused(run, *away) and not refused(run, *away)
    assert max(counts(run)) == 1
    # Others are lost while one is back: the set is another, and one total shows one difference.
    assert not refused(run, *away[2:], Fault(7, "collect"))
    assert {counts(run)[i] for i in range(3, N) if i != 7} == {2}
    assert not refused(run)
    assert max(counts(run)) == 2


def test_a_list_that_leaves_out_who_was_prepared_before_counts_too() -> None:
    run = Sums(Masked(losses=0), N)
    assert not refused(run)
    assert refused(run, Fault(4, "prepare"), Fault(4, "collect"))


def test_clients_in_no_list_from_the_beginning_do_not_count() -> None:
    run = Sums(Masked(losses=0), N)
    assert not refused(run, Fault(4, "advertise"))
    assert not refused(run)
    assert max(run.state(i).keys.losses.count for i in range(N) if i != 4) == 0
    # Other fits may have had it: over all fits it counts.
    assert {run.state(i).losses_so_far for i in range(N) if i != 4} == {1}


@pytest.mark.parametrize("kind", ["drop", "lost-reply"])
def test_a_lost_reply_of_the_second_exchange_does_not_count(kind: Any) -> None:
    run = Sums(Masked(losses=0), N)
    for lost in (2, 5, 2):
        assert not refused(run, Fault(lost, "unmask", kind))
        # The client is in that sum, and hears with the next request who else was.
        assert not refused(run)
        assert len({run.state(i).keys.losses for i in range(N)}) == 1
    assert counts(run) == [0] * N


@pytest.mark.parametrize(
    "protocol", [Masked(losses=3), Masked(losses=3, verified=True)], ids=["masked", "verified"]
)
def test_a_client_that_was_away_for_some_sums_is_back_at_the_next(protocol: Masked) -> None:
    run = Sums(protocol, N)
    run.ask()
    for missed in (1, 2, 4):
        for _ in range(missed):
            assert 3 not in run.ask(None, 0, (0,), Fault(3, "prepare"), Fault(3, "collect")).contributors
        back = run.ask()
        assert 3 in back.contributors or 3 in run.ask().contributors
        assert len({run.state(i).keys.losses for i in range(N)}) == 1


def test_a_new_set_up_goes_on_counting() -> None:
    run = Sums(Masked(losses=5), N)
    run.ask()
    run.ask(None, 0, (0,), Fault(3, "collect", "lost-reply"))
    known = closed(run.state(0)).losses
    assert known == run.state(0).keys.losses and (known.count, known.away) == (1, (3,))
    assert closed(closed(run.state(3))) == closed(run.state(3))
    assert closed(run.state(0)).losses_so_far == run.state(0).losses_so_far == 1


AGREED = Configuration(
    protocol="masked", algorithm="", clients=tuple("abcdef"), n_features=1, terms=Masked().terms(6, 6, 9)
)


def test_cohorts_that_are_agreed_to_differ_are_no_losses() -> None:
    counted = begun(Losses(), [])
    for cohort in ((0, 1, 2), (2, 3, 4), (0, 4, 5)):
        counted = checked(after_total(counted, cohort, []), AGREED)
    assert counted == Losses((), ((),))


def test_who_was_lost_in_one_cohort_returns_only_in_a_cohort_of_its_own() -> None:
    counted = after_total(begun(Losses(), []), (0, 1, 2), [1])
    assert (counted.count, counted.over_fits) == (0, 1)
    assert after_total(counted, (3, 4, 5), []) == counted
    assert after_total(counted, (1, 4, 5), []) == Losses((), ((1,), ()))
    # Somebody else is still away: that set is another.
    other = after_total(counted, (3, 4, 5), [3])
    assert after_total(other, (1, 4, 5), []) == Losses((3,), ((1,), (1, 3), (3,)))


def test_a_set_that_was_there_before_costs_nothing() -> None:
    counts, counted = [], begun(Losses(), [])
    for lost in ([], [1], [1], [], [2], [1], [1, 2], [2]):
        counted = after_total(counted, (0, 1, 2), lost)
        counts.append(counted.count)
    assert counts == [0, 1, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("sets", "joined"),
    [([(), (1,), (2,), (3,)], False), ([(1,), (1, 2)], False), ([(1, 2), (2, 3), (1, 3)], True)],
)
def test_three_sets_join_where_two_of_them_say_of_each_client_what_none_says_of_all(
    sets: list[tuple[int, ...]], joined: bool
) -> None:
    assert joins(tuple(sets)) is joined


MEMBERS = st.frozensets(st.integers(0, 5), min_size=3)


@given(MEMBERS, st.lists(st.tuples(MEMBERS, st.frozensets(st.integers(0, 5), max_size=3)), max_size=12))
def test_a_cohorts_totals_are_over_at_most_one_more_set_than_is_counted(
    first: frozenset[int], sums: list[tuple[frozenset[int], frozenset[int]]]
) -> None:
    """Law: rank of the differences of the sets that totals of one cohort are over <= count."""
    counted = begun(Losses(), set(range(6)) - first)
    over: dict[frozenset[int], list[frozenset[int]]] = {}
    for cohort, lost in [(frozenset(range(6)), frozenset(range(6)) - first), *sums]:
        counted = after_total(counted, cohort, lost & cohort)
        over.setdefault(cohort, []).append(cohort - lost)
        # Whoever loses nobody, or the same again, spends nothing.
        assert after_total(counted, cohort, lost & cohort) == counted
    for sets in over.values():
        present = np.array([[i in one for i in range(6)] for one in sets], dtype=float)
        assert len(set(sets)) <= counted.count + 1
        apart = present[1:] - present[0]
        assert not len(apart) or np.linalg.matrix_rank(apart) <= counted.count


@given(st.lists(st.tuples(st.frozensets(st.integers(0, 5), min_size=3), st.booleans()), max_size=12))
def test_a_client_that_is_lost_for_good_counts_once_in_whatever_cohorts(
    cohorts: list[tuple[frozenset[int], bool]],
) -> None:
    counted, gone = begun(Losses(), []), False
    for cohort, loses in cohorts or [(frozenset(range(6)), True)]:
        gone = gone or (loses and 0 in cohort)
        counted = after_total(counted, cohort, {0} & cohort if gone else ())
    assert counted.count <= counted.over_fits == gone


def test_noise_of_the_server_lifts_no_limit() -> None:
    """It takes its noise off the totals that a client tells it, and the difference of two is one client's."""
    claim: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "neighbours": "add-remove",
        "domain": Box(-1, 1),
    }
    for noise, most in (("server", AGREED.terms.losses), ("distributed", None), ("local", None)):
        claimed = msgspec.structs.replace(AGREED, privacy=Privacy(**claim, noise=noise).terms())
        assert claimed.most_losses == most


def test_privacy_has_no_limit() -> None:
    claim = Privacy(
        epsilon=5.0,
        delta=1e-6,
        unit="record",
        domain=Box(-5, 5, max_rows=64),
        neighbours="add-remove",
        spare=0.5,
        noise_seed=1,
    )
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(30, 2)).clip(-4, 4) for _ in range(N)]
    faults = [Fault(i, "collect", sums=frozenset({i + 2})) for i in range(4)]
    model = DWFKMeans(
        2,
        local_iter=1,
        init="random",
        protocol=Masked(losses=0),
        privacy=claim,
        engine=Simulation(faults=faults),
    )
    assert sum(len(total.dropped) for _, total in model.fit(clients).transcript_.totals()) >= 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_ended_for_its_losses_is_resumed_with_a_larger_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(30, 2)) for _ in range(N)]
    faults = [Fault(i, "collect", sums=frozenset({2 * i + 3})) for i in range(4)]

    def model(losses: int | None, folder: Path | None) -> DWFKMeans:
        words: dict[str, Any] = {"local_iter": 1, "init": "random", "tol": 0, "max_iter": 10}
        words |= {"protocol": Masked(losses=losses), "engine": Simulation(faults=faults), "run_dir": folder}
        return DWFKMeans(3, **words)

    with pytest.raises(RefusedError, match=r"policy:losses.*\(losses=1\)"):
        model(None, tmp_path / "run").fit(clients)
    resumed = model(100, tmp_path / "run").resume(clients)
    assert resumed.n_iter_ == 10
    assert model(100, None).fit(clients).n_iter_ == 10


@pytest.mark.parametrize(("n", "losses"), [(3, 1), (29, 1), (30, 3), (31, 4), (1001, 101)])
def test_one_loss_or_a_tenth_of_30_clients_is_allowed_by_default(n: int, losses: int) -> None:
    assert Masked().terms(n, n, 1).losses == losses


@pytest.mark.parametrize("losses", [-1, 1.5, True, "3"])
def test_a_wrong_number_is_an_error_that_names_it(losses: Any) -> None:
    with parameter_refused("losses"):
        Masked(losses=losses)


def test_nobody_but_the_coordinator_begins_a_fit_and_an_old_request_begins_none() -> None:
    run = Sums(Masked(), N)
    run.ask()
    session: Any = run.session
    genuine = advertise_request(session._agreement, session._identity, bytes(range(32)))
    forged = msgspec.structs.replace(genuine, fit=bytes(32))
    before = run.state(1)
    assert b"setup:signature" in run.clients[1].handle(encode(forged))
    assert run.state(1) == before
    assert b"setup" not in run.clients[1].handle(encode(genuine))
    other = advertise_request(session._agreement, session._identity, bytes(32))
    assert b"setup" not in run.clients[1].handle(encode(other))
    before = run.state(1)
    assert b"setup:again" in run.clients[1].handle(encode(genuine))
    assert run.state(1) == before and before.fit == bytes(32)


def test_on_a_sparse_graph_everybody_counts_all_that_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of ten neighbours, six must be there: no three losses cut a client off, whatever graph is drawn.
    small_graphs(monkeypatch, 10)
    run = Sums(Masked(losses=1, colluders=0), 14)
    assert not refused(run)
    assert not refused(run, Fault(3, "collect"), Fault(9, "collect"))
    assert {count for i, count in enumerate(counts(run)) if i not in (3, 9)} == {1}
    # Whom a client shares with makes no difference: one more is too many for each of them.
    with pytest.raises(RefusedError) as caught:
        run.ask(None, 0, (0,), Fault(3, "collect"), Fault(9, "collect"), Fault(5, "collect"))
    assert len(caught.value.codes) == 11


@pytest.mark.parametrize("whom", ["a living neighbour", "the client itself", "nobody, at length", "too many"])
def test_a_list_of_the_lost_that_cannot_be_is_refused(whom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, 6)
    run = Sums(Masked(losses=9, colluders=0), 14)
    run.ask()
    rules: Any = run.session._agreement  # type: ignore[attr-defined]
    near = rules.neighbours(run.state(2).keys.session, 0, 2).clients

    def lied(state: Any, client: int, upcoming: Any) -> Any:
        request = honest(state, client, upcoming)
        lost = np.zeros(14 if whom != "too many" else 24, dtype=np.uint8)
        lost[{"a living neighbour": near[0], "the client itself": 2}.get(whom, 13)] = 1
        bits = np.packbits(lost).tobytes()
        if whom == "nobody, at length":
            bits = bytes([0, 1])
        return msgspec.structs.replace(request, lost=bits) if client == 2 else request

    honest = RoundState.unmask_request
    monkeypatch.setattr(RoundState, "unmask_request", lied)
    run.ask()
    state = run.state(2)
    # Nothing was given: the client still waits for the list that holds.
    assert state.keys.pending is not None and state.keys.losses.count == 0
