"""Slots: each contribution comes out whole, nobody can tell whose it is, and not more often than agreed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.secure_sum import SecureSum, answer_stages
from privfed.core.stored.encoding import decode
from privfed.core.values.domain import Ranges
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, NotEnoughClientsError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain, Slotted
from privfed.protocols.client_opened import group_client, relay
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import digest
from privfed.protocols.masked.masked_messages import Upload
from privfed.protocols.setup.setup_messages import Envelope
from privfed.protocols.slotted import check_slots, moved, slot_key
from privfed.questions.slots import Slots
from tests.protocols.federations import ANY_DATA, Sums, Vectors, seeded, vectors
from tests.protocols.masked.test_uniform import assert_not_uniform, assert_uniform
from tests.raised import forbidden_by, refused_with

N = 6
OWN = vectors(3)


@pytest.fixture(autouse=True)
def _lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lowest on the list lead: it has the secret before any invitation goes out."""
    for module in (group_client, relay):
        monkeypatch.setattr(module, "leader_of", lambda session, clients: min(clients))


def slots(n: int = N, question: Vectors = OWN) -> Slots:
    return Slots(ranges=ANY_DATA, inner=question, slots=n)


class Contributions(Sums):
    """A federation whose clients answer questions with slots too, each in its first slot."""

    def answerer(self, client: int) -> Any:
        plain = super().answerer(client)

        def answer(question: Any, index: int) -> tuple[Statistics, int]:
            if not isinstance(question, Slots):
                answered: tuple[Statistics, int] = plain(question, index)
                return answered
            return question._first(question.inner.spec.unflatten(self.values[client])), 0

        return answer

    def gather(self, question: Slots, *faults: Fault) -> Total:
        self.draw(OWN)
        self.faults[:] = faults
        return self.federation.ask(Ask(question))

    def shown(self, total: Total, question: Slots) -> list[list[float]]:
        found = [question.inner.spec.flatten(one) for one in question.contributions(total.statistics)]
        return sorted(one.tolist() for one in found)

    def expected(self, clients: Any) -> list[list[float]]:
        # Vectors drawn on the grid come back exactly.
        return sorted(self.values[i].tolist() for i in clients)

    def draw(self, question: Any) -> None:
        super().draw(question)
        self.values = {i: np.rint(one * 2.0**10) / 2.0**10 for i, one in self.values.items()}


def test_every_contribution_comes_out_whole() -> None:
    run = Contributions(Slotted(Masked(), sums=3), N)
    for _ in range(3):
        total = run.gather(slots())
        assert run.shown(total, slots()) == run.expected(range(N))
        assert total.contributors == tuple(range(N)) and total.contributions is None


def test_sums_without_slots_are_those_of_the_inner_protocol() -> None:
    run = Contributions(Slotted(Masked()), N)
    for question in (vectors(), vectors(20)):
        run.assert_exact(run.ask(question), question)
    total = run.gather(slots())
    assert run.shown(total, slots()) == run.expected(range(N))


def test_a_lost_client_leaves_its_slot_empty() -> None:
    run = Contributions(Slotted(Masked(), sums=2), N)
    run.ask(OWN)
    total = run.gather(slots(), Fault(2, "collect"))
    assert 2 not in total.contributors
    assert run.shown(total, slots()) == run.expected(i for i in range(N) if i != 2)


def test_uploads_and_all_sums_of_them_are_uniform_whatever_is_in_the_slots() -> None:
    question = slots(question=vectors(1001))
    with seeded(8):
        run = Contributions(Slotted(Masked(colluders=1, honest=3)), N)
        run.ask(OWN)
        run.draw = lambda question: None  # type: ignore[method-assign]
        run.values = {i: np.full(1001, 2.0**-10 * i) for i in range(N)}
        run.federation.ask(Ask(question))
    grid, uploads = grid_of(question.to_bytes(), N, True), []
    assert grid.n_paired == N * 1001 // 2
    for client, data in next(replies for one, replies in run.engine.log[::-1] if one.stage == "collect"):
        envelope = decode(data, Envelope, sender="", stage="")
        upload = run.session._inner._channels[client].up.open(envelope, Upload, "")  # type: ignore[attr-defined]
        uploads.append(np.frombuffer(upload.words, dtype="<u8").astype(np.uint64))
    assert_not_uniform(grid.encode(np.eye(1, question.spec.size).ravel(), 0))
    for several in (several for k in (1, 2, N - 1, N) for several in itertools.combinations(uploads, k)):
        total = np.zeros(grid.size, dtype=np.uint64)
        for one in several:
            grid.add(total, one)
        # Own masks are still on the sum of all.
        assert_uniform(total)


def slot_of_first(total: Total, run: Contributions) -> int:
    rows = np.column_stack([total.statistics["number"], total.statistics["rest"]])
    return next(i for i in range(N) if rows[i].tolist() == run.values[0].tolist())


def test_slots_are_drawn_anew_for_each_sum_and_fit() -> None:
    # 60 draws of one of six slots: each comes up, none more than 25 times (p < 1e-4 together).
    found: Counter[int] = Counter()
    for _ in range(5):
        run = Contributions(Slotted(Masked(), sums=12), N)
        found.update(slot_of_first(run.gather(slots()), run) for _ in range(12))
    assert set(found) == set(range(N)) and max(found.values()) <= 25


def test_slots_are_a_permutation() -> None:
    one = Statistics(x=np.eye(1, 9)[0])
    for key in (bytes(32), bytes(range(32))):
        places = [int(np.argmax(moved(one, key, 9, client)["x"])) for client in range(9)]
        assert sorted(places) == list(range(9))
    assert moved(one, bytes(32), 9, 0)["x"].tolist() != moved(one, bytes(range(32)), 9, 0)["x"].tolist()


# --- what is refused ---


def test_no_more_sums_show_contributions_than_agreed() -> None:
    run = Contributions(Slotted(Masked()), N)
    run.gather(slots())
    with refused_with("policy:slots"):
        run.gather(slots())


def test_a_new_set_up_gives_no_new_ones() -> None:
    run = Contributions(Slotted(Masked()), N)
    run.gather(slots())
    before = run.state(0).group
    run.federation._drive(run.session.found(), 0)  # type: ignore[attr-defined]
    after = run.state(0).group
    assert after.group.secret not in (b"", before.group.secret)
    assert after.slotted == before.slotted == 1


@pytest.mark.parametrize("n_slots", [N - 1, N + 1, 1])
def test_there_is_one_slot_for_each_client(n_slots: int) -> None:
    with refused_with("policy:slots"):
        Contributions(Slotted(Masked()), N).gather(slots(n_slots))


def test_contributions_of_few_are_an_error_before_the_fit() -> None:
    with pytest.raises(ArgumentError, match=r"needs 7 clients, .* cohort of 6"):
        Contributions(Slotted(Masked(), contributors=N + 1), N)


def test_contributions_of_few_that_are_left_are_not_opened() -> None:
    run = Contributions(Slotted(Masked(), contributors=N), N)
    run.ask(OWN)
    with pytest.raises(NotEnoughClientsError, match=f"needs {N}"):
        run.gather(slots(), Fault(2, "collect"))


def test_a_client_refuses_slots_where_its_agreement_lets_sums_of_few_open() -> None:
    run = Contributions(Slotted(Masked()), N)
    terms = msgspec.structs.replace(run.configuration.terms, threshold=4)
    few = msgspec.structs.replace(run.configuration, terms=terms)
    question = slots()
    assert check_slots(question, run.configuration, 0) is question
    with forbidden_by("policy:slots"):
        check_slots(question, few, 0)


def test_a_sum_that_offers_no_slots_adds_up() -> None:
    run = Contributions(Masked(), N)
    total = run.gather(slots())
    added = np.sum([run.values[i] for i in range(N)], axis=0)
    shown = run.shown(total, slots())
    assert len(shown) == 1
    np.testing.assert_allclose(shown[0], added, atol=1e-9)


def test_whoever_opens_and_has_the_secret_links_every_contribution() -> None:
    # A client that colludes with the server; where clients open the totals, each of them.
    run = Contributions(Slotted(Masked()), N)
    total, question = run.gather(slots()), slots()
    group = run.state(3).group.group
    key = slot_key(group.secret, group.session, digest("slotted", 0, question.to_bytes()))
    rows = np.column_stack([total.statistics["number"], total.statistics["rest"]])
    one = Statistics(x=np.eye(1, N)[0])
    places = [int(np.argmax(moved(one, key, N, client)["x"])) for client in range(N)]
    assert all(rows[place].tolist() == run.values[i].tolist() for i, place in enumerate(places))


@pytest.mark.parametrize("inner", [GroupMasked, CKKS])
def test_there_are_no_slots_where_clients_open(inner: Callable[[], SecureSum]) -> None:
    with pytest.raises(ArgumentError, match="each could tell whose every contribution is"):
        Slotted(inner())


def test_a_policy_sees_the_question_in_the_slots() -> None:
    only_slots = ClientPolicy(questions=frozenset({"Slots"}))
    with refused_with("policy:question"):
        Contributions(Slotted(Masked()), N, policy=only_slots).gather(slots())
    both = ClientPolicy(questions=frozenset({"Slots", "Vectors"}))
    Contributions(Slotted(Masked()), N, policy=both).gather(slots())


# --- the set-up beside masked sums ---


@pytest.mark.parametrize("stage", ["invite"])
@pytest.mark.parametrize("kind", ["drop", "lost-reply", "garbage"])
def test_a_client_that_misses_the_secret_answers_no_sum_with_slots(stage: Any, kind: Any) -> None:
    run = Contributions(Slotted(Masked(losses=3), sums=2), N)
    run.draw(OWN)
    run.faults[:] = [Fault(1, stage, kind)]
    total = run.federation.ask(Ask(slots()))
    left = [0, 2, 3, 4, 5] if kind == "drop" else list(range(N))
    assert run.shown(total, slots()) == run.expected(left)
    run.assert_exact(run.ask(OWN), OWN)


def test_a_client_with_the_secret_of_another_set_up_answers_no_sum_with_slots() -> None:
    """Its slot would be another's: two answers in one, which show the server whose they are."""
    run = Contributions(Slotted(Masked(losses=3), sums=2), N)
    # The leader drew a secret, and the set-up began again without it.
    total = run.gather(slots(), Fault(0, "prepare", "lost-reply", frozenset({0})))
    assert run.state(0).group.group.secret != run.state(1).group.group.secret
    assert list(total.contributors) == list(range(1, N))
    assert run.shown(total, slots()) == run.expected(range(1, N))
    run.assert_exact(run.ask(OWN), OWN)


@pytest.mark.parametrize("stage", ["advertise", "prepare", "invite"])
def test_a_client_that_missed_a_later_set_up_answers_no_sum_with_slots(stage: str) -> None:
    """It keeps the secret of the group before, and would answer in another's slot."""
    run = Contributions(Slotted(Masked(losses=5), sums=4), N)
    assert run.gather(slots()).contributors == tuple(range(N))
    before = run.state(2).group.group
    run.faults[:] = [Fault(2, stage)]
    run.federation._drive(run.session.found(), 1)  # type: ignore[attr-defined]
    assert run.state(0).group.group.session != before.session
    assert stage == "invite" or run.state(2).group.group == before
    for _ in range(2):
        total = run.gather(slots())
        assert total.contributors == (0, 1, 3, 4, 5)
        assert run.shown(total, slots()) == run.expected(total.contributors)
    run.assert_exact(run.ask(OWN), OWN)


def test_the_server_of_masked_sums_never_has_the_secret() -> None:
    run = Contributions(Slotted(Masked()), N)
    run.gather(slots())
    secrets = {run.state(i).group.group.secret for i in range(N)}
    assert len(secrets) == 1
    secret = secrets.pop()
    assert len(secret) == 32
    for exchange, replies in run.engine.log:
        assert not any(secret in data for data in exchange.requests.values())
        assert not any(secret in data for _, data in replies)
    assert repr(run.state(0)) == "SlottedState(group=State(...), inner=State(...))"


def test_what_is_no_message_of_the_set_up_is_refused() -> None:
    run = Contributions(Slotted(Masked()), N)
    for data in (b"", b"?", msgspec.msgpack.encode(["ForGroup", b"?"])):
        before = run.state(0)
        run.clients[0].handle(data)
        assert before is None or run.state(0) == before


# --- words ---


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Slotted(Plain()), "use masked sums"),
        (lambda: Slotted(Masked(), sums=0), "sums must be a whole number in"),
        (lambda: Slotted(Masked(), contributors=1), "contributors must be a whole number in"),
        (lambda: slots(0), "slots must be a whole number in"),
        (lambda: Slots(ranges=ANY_DATA, inner=slots(), slots=3), "no slots itself"),  # type: ignore[arg-type]
        (
            lambda: Slots(ranges=Ranges(np.zeros(1), np.ones(1), 2), inner=OWN, slots=3),
            "must have the same ranges",
        ),
    ],
)
def test_words_out_of_bounds(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        make()


def test_a_slotted_sum_says_what_it_reveals() -> None:
    protocol = Slotted(Masked())
    assert (protocol.name, protocol.recipient, protocol.reveals) == (
        "slotted masked",
        "server",
        "unlinked contributions",
    )


def test_a_slotted_sum_assumes_what_the_inner_one_does_and_that_nobody_colludes() -> None:
    protocol, inner = Slotted(Masked(colluders=2)), Masked(colluders=2)
    assert "at most 2 clients" in protocol.assumptions.colluding
    assert str(inner.assumptions.besides) in str(protocol.assumptions)
    run = Contributions(protocol, N)
    run.ask(OWN)
    seen = {exchange.stage for exchange, _ in run.engine.log}
    declared = [one.name for one in protocol.stages]
    assert seen <= set(declared) and len(set(declared)) == len(declared) and "invite" in seen
    assert answer_stages(protocol.stages) == answer_stages(inner.stages) == ("collect",)


def test_too_few_left_open_nothing() -> None:
    run = Contributions(Slotted(Masked()), N)
    run.ask(OWN)
    with pytest.raises(NotEnoughClientsError):
        run.gather(slots(), *(Fault(i, "collect") for i in range(3)))
