"""The secret of clients that verify totals, who draws it, and what goes with verified totals."""

from __future__ import annotations

import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, RefusedError
from privfed.protocols import CKKS, GroupMasked, Masked, Slotted
from privfed.protocols.masked.masked_messages import CollectRequest, VerifiedRequest
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.simulated import AnnouncingSession
from tests.protocols.federations import Sums, vectors
from tests.protocols.masked.lying import delivery_of, server_of, verified

QUESTION = vectors()


# --- the clients' secret ---


def test_the_secret_of_another_leader_or_client_is_refused() -> None:
    for lie in ({4: 3}, {4: 5, 5: 4}):
        run = verified(9)
        run.ask(QUESTION, 0, (0,), Fault(4, "collect"), Fault(5, "collect"))
        delivery = delivery_of(run)
        delivery._boxes |= {to: delivery._boxes[of] for to, of in lie.items()}
        total = run.ask()
        # No evidence says whether the leader lied or whoever refused: one such pair is out.
        assert total.contributors == tuple(
            {*range(9)} - {0, min(lie)} - (lie.keys() if len(lie) > 1 else set())
        )
        assert set(total.rejected) == {0, 4}


def test_who_was_lost_in_all_sums_of_a_process_is_not_accused_in_the_next_one() -> None:
    """It has another chain, and so signs another header: it was said to have forged its signature."""
    run = verified(7)
    before, session = server_of(run), run.session
    before._resumes = True
    for _ in range(2):
        run.ask(QUESTION, 0, (0,), Fault(5, "collect"))
    again = MaskedSession(before._agreement, before._identity)
    again.recall(before.relayed(), 2)
    assert isinstance(session, AnnouncingSession) and again._earlier
    run.session = AnnouncingSession(again, session.replay)
    run.federation._session = run.session
    run.federation._opened = False
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.dropped == {5: "collect"} and not total.rejected
    assert again._out == {}


def test_the_servers_own_box_is_refused() -> None:
    run = verified(7)
    run.ask(QUESTION, 0, (0,), Fault(4, "collect"))
    delivery_of(run)._boxes[4] = bytes(60)
    assert run.ask().contributors == (1, 2, 3, 5, 6)


def test_the_server_never_holds_the_secret() -> None:
    run = verified(4)
    secrets: set[bytes] = set()
    sent: list[bytes] = []
    run.engine.change_replies = lambda exchange, replies: (sent.extend(d for _, d in replies), replies)[1]
    for _ in range(3):
        run.ask()
    secrets.update(run.state(i).keys.chain.secret for i in range(4))
    assert len(secrets) == 1 and not any(secret in data for secret in secrets for data in sent)
    boxes = delivery_of(run)._boxes.values()
    assert len({bytes(one) for one in boxes}) == 3


def test_unverified_clients_take_no_verified_request() -> None:
    run = Sums(Masked(), 4)
    run.ask()
    session = run.session
    collect = CollectRequest(0, 1, (), b"", QUESTION.to_bytes(), bytes(4), b"", b"", b"", ())
    data = session._channels[0].down.seal(9, "collect", VerifiedRequest(collect, 0, b"", ()))  # type: ignore[attr-defined]
    before = run.state(0)
    run.clients[0].handle(data)
    assert run.state(0) == before


# --- what goes with it ---


def test_slots_and_verified_totals_do_not_go_together() -> None:
    with pytest.raises(ArgumentError, match="slots and verified totals do not go together"):
        Slotted(Masked(verified=True))


@pytest.mark.parametrize(("wanted", "over"), [(True, Masked()), (False, Masked(verified=True))])
def test_a_policy_insists_on_verified_totals_or_refuses_them(wanted: bool, over: Masked) -> None:
    for accepts in (None, not wanted):
        Sums(over, 4, policy=ClientPolicy(verified=accepts)).ask()
    with pytest.raises(RefusedError, match=r"policy:verified.*every client then reads every total"):
        Sums(over, 4, policy=ClientPolicy(verified=wanted)).ask()
    with pytest.raises(ArgumentError, match="verified must be None, True or False, got verified='no'"):
        ClientPolicy(verified="no")  # type: ignore[arg-type]


def test_verified_is_true_or_false() -> None:
    with pytest.raises(ArgumentError, match="verified must be True or False, got verified='yes'"):
        Masked(verified="yes")  # type: ignore[arg-type]


def test_sums_that_clients_open_take_no_such_word() -> None:
    for kind in (GroupMasked, CKKS):
        with pytest.raises(TypeError):
            kind(verified=True)  # type: ignore[call-arg]
