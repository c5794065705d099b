"""The numbers of masked sums: the table of docs/protocols/masked.md, and what is refused before a fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, DWFKMeans
from privfed.core.agreed.configuration import Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, BoundsError, NotEnoughClientsError, RefusedError
from privfed.protocols import Masked, Plain, by_name
from privfed.protocols.setup.graph import FULL_GRAPH
from privfed.protocols.setup.rules import (
    bitmap,
    check_cohort,
    default_terms,
    from_bitmap,
    needed_to_open,
    threshold,
)
from tests.protocols.federations import Sums, vectors
from tests.raised import out_of_bounds, refused_with

VECTORS = vectors()

TABLE = [
    # n, c, m, t, losses that still open
    (3, 1, 2, 2, 0),
    (5, 1, 3, 3, 1),
    (10, 2, 5, 6, 3),
    (20, 2, 10, 11, 8),
    (50, 6, 23, 28, 21),
    (100, 10, 46, 55, 44),
    (200, 20, 91, 110, 89),
]


@pytest.mark.parametrize(("n", "c", "m", "t", "losses"), TABLE)
def test_the_table_of_defaults(n: int, c: int, m: int, t: int, losses: int) -> None:
    terms = Masked().terms(n, n, 7)
    assert (terms.colluders, terms.honest) == (c, m)
    assert threshold(n, terms) == t
    assert n - needed_to_open(n, terms) == losses
    assert (terms.min_clients, terms.max_sums, terms.threshold) == (n, 7, 0)


@pytest.mark.parametrize(("n", "losses"), [(n, losses) for n, _, _, _, losses in TABLE if n <= 20])
def test_so_many_losses_still_open_and_one_more_does_not(n: int, losses: int) -> None:
    run = Sums(Masked(losses=n), n)
    run.assert_exact(total := run.ask(None, 0, (0,), *(Fault(i, "collect") for i in range(losses))), VECTORS)
    assert total.contributors == tuple(range(losses, n))
    with pytest.raises(NotEnoughClientsError):
        run.ask(None, 0, (0,), *(Fault(i, "collect") for i in range(losses + 1)))


@given(st.integers(3, FULL_GRAPH))
def test_defaults_are_safe_and_as_large_as_they_can_be_without_cost(n: int) -> None:
    c, m = default_terms(n, colluders=None, honest=None)
    terms, more_colluders = Terms(colluders=c, honest=m), Terms(colluders=c + 1, honest=2)
    t = threshold(n, terms)
    assert c in (n // 10, n // 10 + 1)
    # More than half of the neighbours and the colluders: two stories cannot both have t.
    assert 2 * t > n - 1 + c
    # Each opened sum is over t - c + 1 honest clients at least.
    assert t - c + 1 >= m
    assert t == threshold(n, Terms(colluders=n // 10, honest=2))
    assert threshold(n, Terms(colluders=c, honest=m + 1)) > t
    assert threshold(n, more_colluders) > t
    check_cohort(n, terms)


@given(st.integers(3, 60), st.data())
def test_any_terms_that_are_accepted_are_safe(n: int, data: st.DataObject) -> None:
    colluders, honest = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    needed = data.draw(st.integers(0, n))
    try:
        terms = Masked(colluders=colluders, honest=honest, threshold=needed or None).terms(n, n, 1)
    except ArgumentError:
        return
    t = threshold(n, terms)
    assert 2 * t > n - 1 + colluders and t - colluders + 1 >= honest >= 2
    assert max(needed, t + 1) <= needed_to_open(n, terms) <= n


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_three_clients_are_an_error_that_says_why(n: int) -> None:
    with pytest.raises(ArgumentError, match=f"at least 3 clients in every cohort, got {n}") as error:
        Masked().terms(n, n, 1)
    assert 'use protocol="plain"' in str(error.value)
    with pytest.raises(ArgumentError, match="at least 3 clients"):
        Masked().terms(10, n, 1)


@pytest.mark.parametrize("threshold", [-1, 0])
def test_a_threshold_of_nobody_is_an_error(threshold: int) -> None:
    for protocol in (Masked, Plain):
        with out_of_bounds("threshold", "[1, inf)" if protocol is Masked else "[1, 10]", threshold):
            protocol(threshold=threshold).terms(20, 10, 1)


@pytest.mark.parametrize("threshold", [11, 100])
def test_a_threshold_beyond_the_clients_is_an_error(threshold: int) -> None:
    for protocol in (Masked(threshold=threshold), Plain(threshold=threshold)):
        with out_of_bounds("threshold", "[1, 10]", threshold):
            protocol.terms(20, 10, 1)


def test_a_threshold_below_the_safe_one_is_raised_to_it() -> None:
    assert needed_to_open(10, Masked(threshold=1).terms(10, 10, 1)) == 7
    assert needed_to_open(10, Masked(threshold=9).terms(10, 10, 1)) == 9
    assert needed_to_open(10, Masked(threshold=10).terms(10, 10, 1)) == 10


@pytest.mark.parametrize(("colluders", "honest"), [(9, None), (None, 9), (5, 6), (10, 2)])
def test_colluders_and_honest_that_do_not_fit_are_an_error(colluders: int | None, honest: int | None) -> None:
    with pytest.raises(ArgumentError, match=r"do not fit into a cohort of 10"):
        Masked(colluders=colluders, honest=honest).terms(10, 10, 1)


@pytest.mark.parametrize(("options", "least"), [({"colluders": -1}, 0), ({"honest": 1}, 2)])
def test_colluders_and_honest_are_numbers_of_clients(options: dict[str, int], least: int) -> None:
    with pytest.raises(BoundsError) as found:
        Masked(**options)
    assert (found.value.parameter, found.value.bounds) == (*options, f"[{least}, inf)")


@pytest.mark.parametrize("colluders", [8, 7])
def test_colluders_that_leave_no_dropout_are_allowed_up_to_the_last(colluders: int) -> None:
    terms = Masked(colluders=colluders, honest=2).terms(10, 10, 1)
    assert needed_to_open(10, terms) == 10 if colluders == 8 else 9


def test_a_cohort_that_cannot_keep_its_threshold_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"cohort of 5 cannot keep a threshold of 7"):
        check_cohort(5, Terms(colluders=2, honest=5))


def test_a_name_that_no_protocol_has_is_an_error() -> None:
    assert [by_name(name).name for name in ("plain", "masked")] == ["plain", "masked"]
    with pytest.raises(ArgumentError, match=r"protocol must be one of plain, masked.*got 'secret'"):
        by_name("secret")


@given(st.sets(st.integers(0, 30)), st.data())
def test_bitmaps_go_back_and_forth(members: set[int], data: st.DataObject) -> None:
    listed = tuple(sorted(members))
    chosen = data.draw(st.sets(st.sampled_from(listed))) if listed else set()
    assert from_bitmap(listed, bitmap(listed, chosen)) == chosen
    assert from_bitmap(listed, bitmap(listed, chosen) + b"\0") is None
    assert from_bitmap((*listed, 31), bitmap(listed, chosen) + b"\2") is None


# --- a client's policy, before anything is sent ---

CONFIGURED = [
    pytest.param(ClientPolicy(min_clients=6), "policy:min_clients", id="min-clients"),
    pytest.param(ClientPolicy(min_honest=4), "policy:min_honest", id="min-honest"),
    pytest.param(ClientPolicy(max_sums=99), "policy:max_sums", id="max-sums"),
]


@pytest.mark.parametrize(("policy", "code"), CONFIGURED)
def test_a_policy_that_the_configuration_does_not_meet_ends_the_fit_before_it(
    policy: ClientPolicy, code: str
) -> None:
    run = Sums(Masked(), 5, max_sums=100, policy=policy)
    with pytest.raises(RefusedError, match=f"clinic-0: {code}") as error:
        run.ask()
    assert error.value.stage == "advertise"
    assert set(error.value.codes.values()) == {code} and len(error.value.codes) == 5
    assert run.exchanges == 1
    assert run.state(0).key == b"" and not run.transcript.totals()


@pytest.mark.parametrize(("policy", "code"), CONFIGURED)
def test_one_client_whose_policy_is_not_met_stays_out(policy: ClientPolicy, code: str) -> None:
    run = Sums(Masked(), 5, max_sums=100, policies={2: policy})
    total = run.ask()
    assert total.contributors == (0, 1, 3, 4)
    run.assert_exact(total, VECTORS)


@pytest.mark.parametrize("protocol", [Plain(), Masked()])
def test_a_policy_that_is_met_joins(protocol: Plain | Masked) -> None:
    policy = ClientPolicy(min_clients=5, min_honest=1, max_sums=100, questions=frozenset({"Vectors"}))
    assert Sums(protocol, 5, max_sums=100, policy=policy).ask().contributors == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("protocol", [Plain(), Masked()])
def test_a_question_that_the_policy_does_not_answer_is_refused_and_the_next_is_answered(
    protocol: Plain | Masked,
) -> None:
    run = Sums(protocol, 5, policy=ClientPolicy(questions=frozenset({"LloydSums"})))
    with pytest.raises(RefusedError, match="policy:question") as error:
        run.ask()
    assert error.value.stage == "collect" and not run.transcript.totals()
    run = Sums(protocol, 5, policy=ClientPolicy(domain=Box(-7, 7)))
    with refused_with("policy:ranges"):
        run.ask()


def test_no_more_sums_are_answered_than_were_agreed_on() -> None:
    run = Sums(Masked(), 5, max_sums=2)
    run.ask(), run.ask()
    with refused_with("policy:max_sums"):
        run.ask()
    assert len(run.transcript.totals()) == 2


@pytest.mark.parametrize(("n", "said"), [(1, "cannot protect a single client"), (2, "at least 3 clients")])
def test_an_estimator_says_so_before_the_fit(n: int, said: str) -> None:
    rows = np.random.default_rng(0).normal(size=(n, 10, 2))
    with pytest.raises(ArgumentError, match=said):
        DWFKMeans(n_clusters=2, protocol="masked").fit(list(rows))
    with out_of_bounds("threshold", "[1, 5]", 6):
        DWFKMeans(n_clusters=2, protocol=Masked(threshold=6)).fit([rows[0]] * 5)


def test_an_estimator_passes_the_policy_on() -> None:
    rows = [np.random.default_rng(i).normal(size=(10, 2)) for i in range(4)]
    with refused_with("policy:min_clients"):
        DWFKMeans(n_clusters=2, protocol="masked", policy=ClientPolicy(min_clients=5)).fit(rows)
