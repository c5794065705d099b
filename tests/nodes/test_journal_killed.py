"""Killed between any two steps, a party never answers a sum twice and never forgets a payment."""

from __future__ import annotations

import itertools
import os
from functools import partial
from pathlib import Path

import pytest

from privfed import ClientPolicy
from privfed.core.stored.encoding import Refusal, decode
from privfed.nodes.identity import OwnIdentity
from privfed.nodes.journal import Journal
from privfed.protocols.plain import PlainAnswer
from tests.default_run import slow
from tests.nodes.journals import agreement, client, new_party, noised_question, request
from tests.party.killing import KILLED, SURVIVED, die, killed_at


def answer_of(journal: Journal, own: OwnIdentity) -> bytes:
    """Return the reply of the party's client to the first request, which asks for a noised sum."""
    agreed = agreement(own, epsilon=1.0)
    return client(journal, agreed).handle(request(1, 0, noised_question(agreed).to_bytes()))


def answer_in(folder: Path, own: OwnIdentity) -> bytes:
    return answer_of(Journal(folder, own), own)


def is_answer(reply: bytes) -> bool:
    return isinstance(decode(reply, PlainAnswer | Refusal, sender="a", stage="collect"), PlainAnswer)


@pytest.mark.parametrize("stride", [7, slow(1)])
def test_killed_before_any_statement_a_sum_is_answered_once(tmp_path: Path, stride: int) -> None:
    codes, remembered = [], []
    for step in itertools.count(0, stride):
        folder = tmp_path / str(step)
        own, _ = new_party(folder)
        code, reply = killed_at(step, partial(answer_in, folder, own))
        journal = Journal(folder, own)
        journal.entries()
        sums = sum(line.answered for line in journal.fits)
        # Either nothing left and nothing is known of it, or all of it is.
        assert bool(reply) <= (sums == 1)
        assert sum(line.spent for line in journal.fits) == pytest.approx(0.35 * sums)
        assert is_answer(answer_of(journal, own)) == (sums == 0)
        (line,) = journal.fits
        assert line.answered == 1 and line.spent == pytest.approx(0.35)
        codes.append(code)
        remembered.append(sums)
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and stride * len(codes) > 20
    # Once it is remembered, it stays so.
    assert remembered == sorted(remembered) and remembered[-1] == 1


def test_a_payment_and_the_sum_it_is_for_are_kept_together(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    fit = journal.begin(agreement(own, epsilon=1.0), 0, "rows", ClientPolicy())
    child = os.fork()
    if not child:
        with fit.together():
            fit.lost(1)
            with fit.store("spent").transaction() as ledger:
                ledger.save(0.25)
            # The inner transaction has ended, the outer has not: nothing may be on disk yet.
            die()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    (line,) = Journal(tmp_path, own).fits
    assert (line.losses, line.spent) == (0, 0.0)


def test_two_processes_lose_no_count(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    fit = journal.begin(agreement(own), 0, "rows", ClientPolicy())
    children = []
    for _ in range(2):
        children.append(os.fork())
        if not children[-1]:
            for _ in range(5):
                fit.lost(1)
            os._exit(SURVIVED)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [SURVIVED] * 2
    assert journal.fits[0].losses == 10
    assert [one["kind"] for one in journal.entries()].count("lost") == 10
