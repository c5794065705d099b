"""Killed between any two steps of joining a list, a party remembers all its peers' journals, or none."""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path

import pytest

from privfed.core.agreed.agreement import Agreement, JournalCounter
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.stored.encoding import Refusal, decode
from privfed.nodes.party import Party
from privfed.protocols import Masked
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.setup_messages import Joining, WentBack
from tests.default_run import slow
from tests.nodes.journals import SERVER, Asked, question
from tests.nodes.test_peers import NAMES, Parties, driven
from tests.party.killing import KILLED, SURVIVED, killed_at


def joined(folder: Path, agreement: Agreement, policy: ClientPolicy) -> Asked:
    rows = ClientData([[0.0, 1.0], [1.0, 0.0]])
    own = Party(folder).join(agreement, Masked(), rows, data_set="rows", policy=policy)
    return Asked(own, agreement)


def reply_to(listed: bytes, folder: Path, agreement: Agreement, policy: ClientPolicy) -> bytes:
    return joined(folder, agreement, policy).handle(listed)


def to_the_list(parties: Parties, agreement: Agreement) -> bytes:
    """Take all clients to the list of a set-up; return it, as the coordinator sends it to everybody."""
    session = MaskedSession(agreement, SERVER)
    driven(session.open(), parties.clients(agreement))
    return next(session.sum(question(), 0, 0, (0,))).requests[0]


def known(folder: Path) -> dict[bytes, JournalCounter]:
    """Return where a party remembers its peers' journals to stand."""
    return dict(journal_rows(folder))


def journal_rows(folder: Path) -> list[tuple[bytes, JournalCounter]]:
    party = Party(folder)
    with party.journal._database.transaction() as database:
        query = "SELECT public, counter, head, at FROM peers WHERE public != ? ORDER BY counter"
        rows = database.execute(query, (party.own.key.public,)).fetchall()
    return [(public, JournalCounter(counter, head, at)) for public, counter, head, at in rows]


def is_joined(reply: bytes) -> bool:
    return isinstance(decode(reply, Joining | Refusal, sender="a", stage="agree"), Joining)


@pytest.mark.parametrize("stride", [7, slow(1)])
@pytest.mark.parametrize(
    "met", [pytest.param(False, id="first met", marks=pytest.mark.slow), pytest.param(True, id="met before")]
)
def test_killed_before_any_statement_peers_are_known_with_the_list_or_not(
    tmp_path: Path, met: bool, stride: int
) -> None:
    parties = Parties(tmp_path)
    if met:
        parties.fit(0)
    agreement = parties.agreement(1)
    listed = to_the_list(parties, agreement)
    before, codes, remembered = known(tmp_path / "a"), [], []
    for step in itertools.count(0, stride):
        folder = tmp_path / f"a{step}"
        shutil.copytree(tmp_path / "a", folder)
        code, reply = killed_at(step, partial(reply_to, listed, folder, agreement, parties.policy))
        after = known(folder)
        # All of them, and only with the list: the reply leaves when both are on disk.
        assert set(after) in ({*before}, {*parties.public[1:]})
        assert all(after[one].counter >= before[one].counter for one in before)
        Party(folder).journal.entries()
        assert bool(reply) <= (after != before)
        remembered.append(after != before)
        # Whoever was killed joins the same list again, and remembers all its peers then.
        assert is_joined(joined(folder, agreement, parties.policy).handle(listed))
        assert set(known(folder)) == {*parties.public[1:]}
        # What is known refuses an older copy.
        journal, peer = Party(folder).journal, parties.public[1]
        assert journal.identity.meets({peer: (JournalCounter(), b"older")}).keys() == {peer}
        codes.append(code)
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and stride * len(codes) > 20
    assert remembered == sorted(remembered) and remembered[-1]


def test_a_refused_list_shows_what_was_known_and_adds_to_it(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    parties.fit(1)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "copy").rename(tmp_path / "b")
    agreement = parties.agreement(2)
    listed, before = to_the_list(parties, agreement), known(tmp_path / "a")
    reply = joined(tmp_path / "a", agreement, parties.policy).handle(listed)
    shown = decode(reply, WentBack, sender="a", stage="agree")
    assert shown.client == 1 and [one.entry.client for one in shown.statements] == [1, 1]
    # What the others showed stays too, and of the one that went back both: the higher counter is not lost.
    after = journal_rows(tmp_path / "a")
    assert len(before) == len(NAMES) - 1 and {*before.items()} & {*after} == {
        (parties.public[1], before[parties.public[1]])
    }
    assert [public for public, _ in after].count(parties.public[1]) == 2 and len(after) == len(NAMES)
