"""A party's journal remembers over all fits, never goes back, and belongs to one identity."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import ClientPolicy
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import ClientData, Position
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PolicyError, PrivacyError, StateError
from privfed.nodes import database
from privfed.nodes.database import KEYS
from privfed.nodes.identity import IDENTITY, SIGNED_KEY, OwnIdentity
from privfed.nodes.journal import FILE, Journal
from privfed.nodes.party import Party
from privfed.party.groups import GROUPS
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.plain import Plain, PlainAnswer
from privfed.questions.nested_cells import NestedCells
from tests.nodes.journals import DOMAIN, SERVER, agreement, client, new_party, question, request
from tests.owners import assert_the_owners, umask
from tests.raised import forbidden_by
from tests.some import some
from tests.undeclared import ANYTHING


def answered(reply: bytes) -> bool:
    return isinstance(decode(reply, PlainAnswer | Refusal, sender="a", stage="collect"), PlainAnswer)


def refused(code: str) -> bytes:
    return encode(Refusal(code))


def test_a_journal_is_its_owners_alone(tmp_path: Path) -> None:
    with umask(0):
        new_party(tmp_path / "party")
    assert_the_owners(tmp_path / "party", {IDENTITY, SIGNED_KEY, FILE})


def test_what_a_fit_did_is_remembered_over_processes(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    agreed = agreement(own)
    assert answered(client(journal, agreed).handle(request(1, 0)))
    again = Journal(tmp_path / "party", own)
    assert not answered(client(again, agreed).handle(request(1, 0)))
    assert answered(client(again, agreed).handle(request(2, 1, question(1.0).to_bytes())))
    (line,) = again.fits
    assert (line.answered, line.data_set, line.agreement) == (2, "rows", agreed.digest.hex())
    kinds = [entry["kind"] for entry in again.entries()]
    # A message that is refused changes nothing, and leaves no entry.
    assert kinds == ["rows", "begin", "rows", "sum", "rows", "sum", "rows"]


def test_a_sum_is_asked_again_with_its_question_only_and_never_an_earlier_one(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    one = client(journal, agreement(own))
    assert answered(one.handle(request(1, 5)))
    assert answered(one.handle(request(2, 5)))
    assert one.handle(request(3, 5, question(1.0).to_bytes())) == refused("journal:question")
    assert one.handle(request(4, 4)) == refused("journal:index")
    assert journal.fits[0].answered == 2


def test_an_agreement_runs_once(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    agreed = agreement(own)
    fit = journal.begin(agreed, 0, "rows", ClientPolicy())
    assert journal.begin(agreed, 0, "rows", ClientPolicy()).number == fit.number
    with pytest.raises(ArgumentError, match="began on data_set='rows'"):
        journal.begin(agreed, 0, "others", ClientPolicy())
    one = client(journal, agreed)
    assert answered(one.handle(request(1, 0)))
    # Its owner's policy as it is now holds for it, too.
    with forbidden_by("policy:min_clients"):
        journal.begin(agreed, 0, "rows", ClientPolicy(min_clients=99))
    journal.end(fit.number)
    with forbidden_by("journal:ran"):
        journal.begin(agreed, 0, "rows", ClientPolicy())
    with pytest.raises(StateError, match="has ended"):
        one.handle(request(2, 1))
    assert journal.begin(agreement(own, seed=1), 0, "rows", ClientPolicy()).number == 2


def test_a_missing_journal_of_an_identity_is_an_error_and_none_is_made(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    one = client(journal, agreement(own))
    (tmp_path / "party" / FILE).unlink()
    with pytest.raises(StateError, match=r"is missing.*make a new identity"):
        one.handle(request(1, 0))
    with pytest.raises(StateError, match="is missing"):
        Journal(tmp_path / "party", own)
    assert not (tmp_path / "party" / FILE).exists()


def test_a_journal_of_another_identity_is_refused(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path / "party")
    new_party(tmp_path / "other")
    shutil.copy(tmp_path / "other" / FILE, tmp_path / "party" / FILE)
    with pytest.raises(StateError, match="another identity"):
        Journal(tmp_path / "party", own)
    # Made anew for the same key, it lacks the id that the identity was born with.
    (tmp_path / "third").mkdir()
    Journal.create(tmp_path / "third", OwnIdentity(own.name, own.key, bytes(16)))
    with pytest.raises(StateError, match="another identity"):
        Journal(tmp_path / "third", own)


def test_an_existing_journal_is_never_replaced(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path / "party")
    with pytest.raises(ArgumentError, match="never replaced"):
        Journal.create(tmp_path / "party", own)


BACK = [
    *(f"UPDATE fits SET {one} = 0" for one in ("answered", "asked", "spent", "losses", "epsilon")),
    *(f"UPDATE fits SET {one} = x'00'" for one in ("question", "agreement")),
    "UPDATE fits SET data_set = 'b'",
    "UPDATE entries SET kind = ''",
    "UPDATE party SET id = x'00'",
    "UPDATE starts SET cells = x'00'",
    "UPDATE party SET name = 'b'",
    "INSERT INTO entries VALUES (99, '', 1, '', '{}', x'00')",
    *(f"DELETE FROM {one}" for one in ("fits", "entries", "party", "starts")),
]


def test_the_file_itself_refuses_to_go_back(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    fit = journal.begin(agreement(own, epsilon=1.0), 0, "rows", ClientPolicy())
    with fit.together(), fit.store("spent").transaction() as ledger:
        fit.answers(question(), 0)
        fit.lost(2)
        ledger.save(0.5)
        fit.answers(cells(4), 1)
    database = sqlite3.connect(tmp_path / "party" / FILE)
    for change in some(BACK):
        with pytest.raises(sqlite3.IntegrityError):
            database.execute(change)
    database.close()


def test_a_payment_never_goes_back(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    fit = journal.begin(agreement(own, epsilon=1.0), 0, "rows", ClientPolicy())
    with fit.store("spent").transaction() as ledger:
        ledger.save(0.5)
    with pytest.raises(StateError, match="never goes back"), fit.store("spent").transaction() as ledger:
        ledger.save(0.25)
    assert journal.fits[0].spent == 0.5


def test_entries_that_were_changed_are_noticed(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    fit = journal.begin(agreement(own), 0, "rows", ClientPolicy())
    fit.lost(1)
    before = journal.head
    assert before.counter == len(journal.entries()) == 5
    database = sqlite3.connect(tmp_path / "party" / FILE)
    database.execute("DROP TRIGGER entries_update")
    database.execute("""UPDATE entries SET content = '{"clients": 9}' WHERE kind = 'lost'""")
    database.commit()
    database.close()
    with pytest.raises(StateError, match="entry 4 is not what was written"):
        journal.entries()
    assert journal.head == before


def test_claims_are_kept_for_each_data_set(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    for seed, (data_set, epsilon) in enumerate([("a", 0.5), ("a", 0.25), ("c", None), ("b", 2.0)]):
        journal.begin(agreement(own, seed, epsilon), 0, data_set, ClientPolicy()).lost(seed + 1)
    given = journal.usage("a")
    assert (given.fits, given.losses, given.unprotected) == (2, 3, 0)
    assert (journal.usage("c").fits, journal.usage("c").unprotected) == (1, 1)
    assert [(one.epsilon, one.delta, one.mechanism) for one in given.claims] == [
        (0.5, 1e-6, "gaussian"),
        (0.25, 1e-6, "gaussian"),
    ]
    assert [one.epsilon for one in journal.usage("b").claims] == [2.0] and journal.usage("d").fits == 0


def test_a_fit_with_another_set_of_clients_counts_before_it_begins(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    policy = ClientPolicy(undeclared=True, max_losses=0)

    def over(seed: int, *others: str) -> Agreement:
        names = ("a", *others)
        keys = (own.key.public, *(OwnIdentity.generate(name).key.public for name in others))
        configuration = Configuration(protocol="plain", algorithm="", clients=names, n_features=2, seed=seed)
        return Agreement(configuration, Registry(keys, SERVER.public))

    journal.begin(over(0), 0, "rows", policy)
    journal.begin(over(1), 0, "rows", policy)
    with forbidden_by("policy:max_losses"):
        journal.begin(over(2, "b"), 0, "rows", policy)
    assert [one.number for one in journal.fits] == [1, 2]
    # Other rows have given no total to compare with.
    journal.begin(over(2, "b"), 0, "others", policy)


def cells(planes: int) -> NestedCells:
    """Return a start of which `planes` says which."""
    return NestedCells(ranges=Ranges(np.zeros(5), np.ones(5), 64), sides=0, planes=planes)


def test_starts_in_other_cells_are_counted_over_all_fits(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    policy = ClientPolicy(undeclared=True, max_starts=2)
    for seed, planes in ((0, 4), (1, 4), (2, 5), (3, 4)):
        fit = journal.begin(agreement(own, seed), 0, "a", policy)
        fit.answers(question(), 0)
        # Where they stand in the program of a fit makes no difference.
        placed = cells(planes).at(Position((), (0, 1 + seed)))
        fit.answers(placed, 1)
        fit.answers(placed, 1)
    assert (journal.usage("a").starts, journal.usage("b").starts) == (2, 0)
    fit = Journal(tmp_path / "party", own).begin(agreement(own, 4), 0, "a", policy)
    with forbidden_by("policy:max_starts"):
        fit.answers(cells(6), 0)
    assert journal.usage("a").starts == 2
    # Other rows have an account of their own, and without a bound all are counted.
    journal.begin(agreement(own, 5), 0, "b", policy).answers(cells(6), 0)
    journal.begin(agreement(own, 6), 0, "a", ClientPolicy()).answers(cells(6), 0)
    assert (journal.usage("a").starts, journal.usage("b").starts) == (3, 1)


def test_a_fit_is_ended_once_by_its_number(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    for seed in range(3):
        journal.begin(agreement(own, seed), 0, "a", ClientPolicy())
    journal.end(2)
    assert [line.closed for line in journal.fits] == [False, True, False]
    for number in (2, 4):
        with pytest.raises(ArgumentError, match=rf"no open fit {number}; open are \[1, 3\]"):
            journal.end(number)
    with forbidden_by("journal:ran"):
        journal.begin(agreement(own, 1), 0, "a", ClientPolicy())


def test_a_transaction_keeps_all_or_nothing(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    fit = journal.begin(agreement(own), 0, "a", ClientPolicy())
    before = journal.head
    with pytest.raises(RuntimeError), fit.together():
        fit.lost(1)
        raise RuntimeError
    assert journal.head == before and journal.fits[0].losses == 0
    # What failed on disk is not kept, whoever catches it.
    with pytest.raises(StateError), fit.together():
        fit.lost(1)
        with pytest.raises(StateError):
            fit.write("lost", {"losses": 0})
    assert journal.head == before and journal.fits[0].losses == 0


def test_damage_and_other_versions_are_errors(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path / "party")
    database = sqlite3.connect(tmp_path / "party" / FILE)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StateError, match="format 99"):
        Journal(tmp_path / "party", own)
    (tmp_path / "party" / FILE).write_bytes(b"secret" * 1000)
    with pytest.raises(StateError, match="cannot be used") as caught:
        Journal(tmp_path / "party", own)
    assert "secret" not in str(caught.value)


def of_0_4_0(folder: Path) -> OwnIdentity:
    """Write a party's folder whose journal version 0.4.0 wrote, and return the party."""
    own = OwnIdentity("a", Identity(bytes(range(1, 33))), bytes(range(16)))
    Journal.create(folder, own)
    for name in (FILE, KEYS):
        (folder / name).unlink()
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.executescript((Path(__file__).parent / "journal_0_4_0.sql").read_text(encoding="utf-8"))
    return own


def test_a_journal_of_0_4_0_is_brought_forward_with_all_that_it_gave(tmp_path: Path) -> None:
    own = of_0_4_0(tmp_path / "party")
    with closing(sqlite3.connect(tmp_path / "party" / FILE)) as database:
        secrets_before = database.execute("SELECT state FROM fits WHERE state IS NOT NULL").fetchall()
        entries = database.execute("SELECT counter, at, fit, kind FROM entries ORDER BY counter").fetchall()
        groups = database.execute("SELECT groups FROM data_sets WHERE name = 'grouped'").fetchone()
    journal = Journal(tmp_path / "party", own)
    assert [(one.data_set, one.epsilon, one.answered) for one in journal.fits] == [
        ("rows", None, 2),
        ("paid", 1.0, 1),
        ("grouped", None, 0),
        ("paid", 1.0, 1),
    ]
    assert all(one.closed for one in some(journal.fits))
    first = [tuple(one[name] for name in ("counter", "at", "fit", "kind")) for one in journal.entries()]
    assert first[: len(entries)] == entries and first[len(entries)][3] == "brought forward"
    assert GROUPS.to_bytes(journal.data_set("grouped")._groups()) == groups[0]  # type: ignore[arg-type]
    # Nothing of a fit that had not ended can be read any more, and the file opens as it is from now on.
    kept, head = (tmp_path / "party" / FILE).read_bytes(), journal.head
    assert len(secrets_before) == 1 and secrets_before[0][0] not in kept
    assert Journal(tmp_path / "party", own).head == head
    # What was given counts for fits to come: 1.2 holds a fit at epsilon .5, and not one after two at 1.
    policy = ClientPolicy(max_epsilon=1.2, max_delta=1e-5, require_privacy=True, undeclared=True)
    with pytest.raises(PolicyError, match=r"^policy:max_epsilon$"):
        journal.begin(agreement(own, 9, epsilon=0.5), 0, "paid", policy)
    journal.begin(agreement(own, 9, epsilon=0.5), 0, "elsewhere", policy)
    with pytest.raises(PolicyError, match=r"^policy:unprotected$"):
        journal.begin(agreement(own, 10, epsilon=0.5), 0, "rows", policy)


def test_a_journal_of_0_4_0_that_was_changed_is_refused_and_stays(tmp_path: Path) -> None:
    own = of_0_4_0(tmp_path / "party")
    kept = tmp_path / "party" / FILE
    with closing(sqlite3.connect(kept)) as database:
        database.execute("DROP TRIGGER entries_update")
        database.execute("UPDATE entries SET at = '2026-01-01T00:00:00+00:00' WHERE counter = 3")
        database.commit()
    before = kept.read_bytes()
    with pytest.raises(StateError):
        Journal(tmp_path / "party", own)
    assert kept.read_bytes() == before


def test_processes_that_open_a_journal_of_0_4_0_at_once_bring_it_forward_once(tmp_path: Path) -> None:
    for number in range(6):
        own = of_0_4_0(folder := tmp_path / str(number))
        with ThreadPoolExecutor(4) as pool:
            journals = list(pool.map(Journal, [folder] * 4, [own] * 4))
        assert len({one.head for one in journals}) == 1
        assert [one["kind"] for one in journals[0].entries()].count("brought forward") == 1


def test_a_journal_of_0_4_0_is_brought_forward_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = of_0_4_0(tmp_path / "party")

    def full(*values: Any, **content: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        # The last that is written of it.
        patch.setattr(database.Database, "enter", full)
        with pytest.raises(StateError):
            Journal(tmp_path / "party", own)
    with closing(sqlite3.connect(tmp_path / "party" / FILE)) as kept:
        assert kept.execute("PRAGMA user_version").fetchone() == (database.BEFORE,)
    journal = Journal(tmp_path / "party", own)
    assert [one["kind"] for one in journal.entries()].count("brought forward") == 1
    assert sum(one.answered for one in some(journal.fits)) == 4


def test_noised_sums_are_paid_in_the_journal(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    one = client(journal, agreement(own, epsilon=1.0))
    # An exact question is refused under differential privacy, and remembered as asked.
    assert one.handle(request(1, 0)) == refused("policy:noise")
    assert [line.spent for line in some(journal.fits)] == [0.0] and journal.fits[0].answered == 1


@dataclass(frozen=True)
class Lossy:
    """The state of a client's side that counts losses."""

    losses_so_far: int

    def to_bytes(self, value: Any) -> bytes:
        return bytes([value.losses_so_far])

    def from_bytes(self, data: bytes) -> Any:
        return Lossy(data[0])


def test_losses_that_a_state_counts_are_in_the_journal_and_bounded_over_all_fits(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    policy = ClientPolicy(undeclared=True, max_losses=4)
    for seed, losses in ((1, 3), (2, 1)):
        store = journal.begin(agreement(own, seed), 0, "rows", policy).store("state", Lossy(0))
        for lost in (0, losses, losses):
            with store.transaction() as transaction:
                transaction.save(Lossy(lost))
    assert journal.usage("rows").losses == 4
    store = journal.begin(agreement(own, 2), 0, "rows", policy).store("state", Lossy(0))
    with forbidden_by("policy:max_losses"), store.transaction() as transaction:
        transaction.save(Lossy(2))
    assert journal.usage("rows").losses == 4
    with store.transaction() as transaction:
        assert transaction.load() == Lossy(1)


def test_an_agreement_that_claims_less_than_its_noise_gives_costs_no_fit_and_no_epsilon(
    tmp_path: Path,
) -> None:
    own, _ = new_party(tmp_path)
    honest = agreement(own, epsilon=1.0)
    terms = honest.configuration.privacy
    assert terms is not None
    low = msgspec.structs.replace(terms, budget=2.0 * terms.budget)
    crafted = msgspec.structs.replace(honest.configuration, privacy=low)
    words: dict[str, Any] = {"data_set": "rows", "policy": ANYTHING, "domain": DOMAIN}
    rows, party = ClientData(np.zeros((9, 2))), Party(tmp_path)
    for _ in range(3):
        with pytest.raises(PrivacyError, match="more than epsilon=1 and delta=1e-06 allow"):
            party.join(Agreement(crafted, honest.registry), Plain(), rows, **words)
    assert party.journal.fits == ()
    party.join(honest, Plain(), rows, **words)
    assert [one.epsilon for one in party.journal.fits] == [pytest.approx(1.0)]
