"""A party's data sets: exact, grouped or private for life, and what questions see of grouped ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, ClientPolicy, DWFKMeans
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.core.stored.encoding import Refusal, decode
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, DataError, PolicyError, PrivFedError, RefusedError
from privfed.federation.opening import open_over
from privfed.nodes.datasets import EXACT, GROUPED, PRIVATE
from privfed.nodes.identity import OwnIdentity
from privfed.nodes.journal import Journal
from privfed.nodes.party import Party, own_client
from privfed.party.client import Stores
from privfed.party.groups import Groups, OwnRows, RawTable, as_ids
from privfed.protocols import Plain
from privfed.protocols.plain import PlainAnswer, PlainClient
from tests.core.question_examples import EXAMPLES
from tests.default_run import slow
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import Asked, agreement, new_party, request
from tests.party.killing import KILLED, SURVIVED, killed_at
from tests.raised import forbidden_by
from tests.some import some
from tests.twins import M, twins

POLICY = ClientPolicy(group_size=M, undeclared=True)


def numbered(n: int, first: int = 0) -> RawTable:
    """Return rows with ids, in the columns of `tests.nodes.journals.agreement`."""
    ids = range(first, first + n)
    return RawTable(np.array([[0.1 * i, 1.0] for i in ids]), None, as_ids(ids), ("x", "y"))


class Log:
    """An owner's log of errors."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def note(self, error: BaseException) -> None:
        self.noted.append(str(error))


def begin(
    journal: Journal,
    own: OwnIdentity,
    table: RawTable | Callable[[], RawTable],
    seed: int,
    m: int = M,
    name: str = "rows",
    log: Any = None,
) -> Groups:
    """Begin another fit on a table, and return the groups that there then are."""
    rows = OwnRows(lambda columns: table() if callable(table) else table)
    policy = ClientPolicy(group_size=m, undeclared=True)
    journal.begin(agreement(own, seed), 0, name, policy, rows, log)
    found = journal.data_set(name)._groups()
    assert found is not None
    return found


def test_a_data_set_is_exact_grouped_or_private_for_life(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    exact, table = ClientPolicy(undeclared=True), OwnRows.of(ClientData(np.ones((9, 2))))
    kinds: dict[str, tuple[ClientPolicy, float | None]] = {
        "exact": (exact, None),
        "grouped": (POLICY, None),
        "private": (exact, 1.0),
    }
    for first, (policy, epsilon) in some(kinds.items()):
        seed = itertools.count(100 * len(journal.fits))
        journal.begin(agreement(own, next(seed), epsilon), 0, first, policy, table)
        for other, (another, budget) in kinds.items():
            asked = agreement(own, next(seed), budget)
            if other == first:
                journal.begin(asked, 0, first, another, table)
                continue
            with pytest.raises(PolicyError, match=f"^journal:{first}$"):
                journal.begin(asked, 0, first, another, table)
    assert len(journal.fits) == 6


def test_a_fit_that_runs_is_not_answered_from_rows_once_its_owner_takes_groups_away(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    begin(journal, own, numbered(9), 0)
    with forbidden_by("journal:grouped"):
        journal.begin(agreement(own, 0), 0, "rows", ClientPolicy(undeclared=True))


def test_groups_and_a_guarantee_are_refused_by_name(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    with forbidden_by("policy:groups"):
        journal.begin(agreement(own, 0, 1.0), 0, "rows", POLICY)


def test_a_table_without_ids_is_read_once_for_life(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    table = RawTable(np.random.default_rng(0).normal(size=(20, 2)))
    groups = begin(journal, own, table, 0)

    def gone() -> RawTable:
        raise AssertionError("it was read again")

    assert begin(Journal(tmp_path, own), own, gone, 1) == groups
    united = begin(Journal(tmp_path, own), own, gone, 2, m=2 * M)
    assert united == groups.updated(None, 2 * M) != groups


def test_a_table_that_cannot_be_read_leaves_groups_as_they_are_and_its_owner_a_line(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    groups = begin(journal, own, numbered(9), 0)
    for seed, error in enumerate((DataError("a word"), FileNotFoundError("no file")), start=1):
        log = Log()

        def broken(error: Exception = error) -> RawTable:
            raise error

        assert begin(journal, own, broken, seed, log=log) == groups and log.noted == [str(error)]
    log = Log()
    assert begin(journal, own, RawTable(np.ones((9, 2))), 3, log=log) == groups
    assert "had ids" in log.noted[0]
    with pytest.raises(DataError, match="a word"):
        begin(journal, own, partial(broken, DataError("a word")), 4, name="never read")
    assert "never read" not in {one.data_set for one in journal.fits}


def test_groups_follow_the_table_from_fit_to_fit_and_what_left_is_erased(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    first = begin(journal, own, numbered(9), 0)
    later = begin(journal, own, numbered(21), 1)
    assert sum(later.ids) == 21 and set(first.members) < set(later.members)
    left = begin(journal, own, numbered(20, first=1), 2)
    assert sum(left.ids) < 21 and "0" in left.known
    file = (tmp_path / "journal.sqlite").read_bytes()
    before, after = ({row.tobytes() for row in one.means.to_numpy()} for one in (later, left))
    assert after <= {row for row in before if row in file} == after and before - after


def test_ids_of_one_data_set_are_left_out_of_another(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    begin(journal, own, numbered(9), 0, name="a")
    log = Log()
    groups = begin(journal, own, numbered(12), 1, name="b", log=log)
    assert groups.known == as_ids([10, 11, 9])
    begin(journal, own, numbered(12), 2, name="b", log=log)
    assert log.noted == ["9 ids are those of another data set; they are left out."] * 2
    more = begin(journal, own, numbered(30), 3, name="a")
    assert set(more.known) == set(as_ids(range(30))) - set(groups.known)


def answer_in(folder: Path, own: OwnIdentity, seed: int, table: RawTable) -> bytes:
    """Return the reply of the party to the first request of a fit, as a new process would give it."""
    party, agreed = Party(folder), agreement(own, seed)
    rows = OwnRows(lambda columns: table)
    client = party.join(agreed, Plain(), rows, data_set="rows", policy=POLICY)
    return Asked(client, agreed).handle(request(1, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize("stride", [7, slow(1)])
def test_killed_at_any_step_groups_are_made_once(tmp_path: Path, stride: int) -> None:
    codes = []
    for step in itertools.count(0, stride):
        folder = tmp_path / str(step)
        own, _ = new_party(folder)
        answer_in(folder, own, 0, numbered(9))
        # The second fit takes ten new ids along, and unites nothing.
        code, reply = killed_at(step, partial(answer_in, folder, own, 1, numbered(21)))
        journal = Journal(folder, own)
        journal.entries()
        groups = journal.data_set("rows")._groups()
        assert groups is not None and sum(groups.ids) == (21 if len(journal.fits) == 2 else 9)
        if reply:
            answer = decode(reply, PlainAnswer | Refusal, sender="a", stage="collect")
            assert isinstance(answer, PlainAnswer) and sum(groups.ids) == 21
        # Whatever was done, what follows is what an undisturbed party does.
        answer_in(folder, own, 2, numbered(21))
        undisturbed = journal.data_set("rows")._groups()
        assert undisturbed is not None and sum(undisturbed.ids) == 21
        codes.append(code)
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and stride * len(codes) > 20


def test_columns_are_chosen_from_the_groups_of_the_whole_table(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path)
    party, rng = Party(tmp_path), np.random.default_rng(0)
    table = RawTable(rng.normal(size=(20, 3)), None, None, ("a", "b", "c"))
    groups = Groups.begun(table, M)

    def join(seed: int, columns: tuple[str, ...] | None, width: int) -> Any:
        rows = OwnRows(lambda wanted: table, columns)
        agreed = agreement(own, seed, n_features=width)
        party.join(agreed, Plain(), rows, data_set="rows", policy=POLICY)
        return party.journal.data_set("rows").answering(rows, agreed.configuration).features

    np.testing.assert_array_equal(join(0, None, 3), groups.expanded().features)
    np.testing.assert_array_equal(join(1, ("c", "a"), 2), groups.expanded().features[:, [2, 0]])
    with pytest.raises(DataError, match="without the column 'd'"):
        join(2, ("d",), 1)
    with pytest.raises(ArgumentError, match="the rows have 3 columns, the agreement says 2"):
        join(3, None, 2)
    assert len(party.journal.fits) == 2


def test_a_client_without_a_journal_answers_from_no_groups(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path)
    agreed = agreement(own)
    side = PlainClient(agreed.configuration, POLICY)
    with pytest.raises(ArgumentError, match="group_size=3 needs groups"):
        own_client(side, 0, ClientData(np.ones((9, 2))), agreed.configuration, POLICY, Stores())  # type: ignore[arg-type]


class Heard(Elsewhere):
    """Clients elsewhere, of which every byte is kept that they send."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.sent: list[bytes] = []

    def exchange(self, exchange: Any, timeout: float | None = None) -> Any:
        replies = super().exchange(exchange, timeout)
        self.sent += [reply for _, reply in replies]
        return replies


def side_by_side(folder: Path, d: int = 2) -> list[Heard]:
    pairs = [twins(seed, d) for seed in range(3)]
    engines = []
    for side in (0, 1):
        tables = [pair[side] for pair in pairs]
        labels = [table.classes for table in tables if table.classes is not None]
        engines.append(Heard(folder / str(side), [one.features for one in tables], POLICY, labels))
    return engines


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"Noised"}))
@pytest.mark.few(8)
def test_parties_with_one_group_table_send_the_same_bytes_whatever_is_asked(
    name: str, tmp_path: Path
) -> None:
    ranges, centers = Ranges([-1.0] * 2, [1.0] * 2, 40), np.random.default_rng(2).uniform(-1, 1, (3, 2))
    question, said = EXAMPLES[name](ranges, centers), []
    engines = side_by_side(tmp_path)
    for engine in engines:
        try:
            open_over(None, engine=engine, protocol="plain", n_clusters=4).ask(Ask(question, purpose="test"))
            said.append("")
        except PrivFedError as error:
            said.append(str(error))
    assert engines[0].sent == engines[1].sent and said[0] == said[1]
    assert engines[0].sent


@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", ["plain", "masked", "masked-verified", "group-masked"])
def test_fits_over_parties_see_group_means_alone(protocol: str, tmp_path: Path) -> None:
    engines = side_by_side(tmp_path)
    fits = [DWFKMeans(2, engine=engine, protocol=protocol, max_iter=4, tol=0).fit() for engine in engines]
    assert fits[0].cluster_centers_.tobytes() == fits[1].cluster_centers_.tobytes()
    assert fits[0].n_rows_ == fits[1].n_rows_ == 84
    # The session draws who leads, and its messages are longer.
    assert sorted(map(len, engines[0].sent)) == sorted(map(len, engines[1].sent))
    if protocol == "plain":
        assert engines[0].sent == engines[1].sent
    again = DWFKMeans(2, engine=engines[0], protocol=protocol, max_iter=4, tol=0).fit()
    assert again.cluster_centers_.tobytes() == fits[0].cluster_centers_.tobytes()


def test_rows_far_outside_the_agreed_domain_are_not_noticed_in_a_group(tmp_path: Path) -> None:
    domain, sent = Box(-8.0, 8.0, max_rows=30), []
    for side, far in enumerate((0.0, 1000.0)):
        rows = [np.vstack([twins(i)[0].features, [[far, far]] * 2]) for i in range(3)]
        labels = [np.append(twins(i)[0].classes, [2, 2]) for i in range(3)]  # type: ignore[arg-type]
        engine = Heard(tmp_path / str(side), rows, POLICY, labels)
        DWFKMeans(2, engine=engine, protocol="plain", domain=domain, max_iter=2, tol=0).fit()
        sent.append(engine.sent)
    assert sent[0] == sent[1]


@pytest.mark.parametrize("found", [None, 9])
def test_whatever_fails_while_rows_are_grouped_is_a_line_in_the_owners_log(
    found: int | None, tmp_path: Path
) -> None:
    own, journal = new_party(tmp_path)
    policy, agreed = ClientPolicy(group_size=M, undeclared=True), itertools.count()
    if found is not None:
        begin(journal, own, numbered(found), next(agreed))
    before = journal.data_set("rows")._groups()

    class Unreadable(tuple[str, ...]):
        def __iter__(self) -> Any:
            raise MemoryError("ids")

    odd, log = replace(numbered(30), ids=Unreadable(map(str, range(30)))), Log()
    journal.begin(agreement(own, next(agreed) + 7), 0, "rows", policy, OwnRows(lambda columns: odd), log)
    assert journal.data_set("rows")._groups() == before and log.noted == ["ids"]


@pytest.mark.parametrize("known", [EXACT, GROUPED, PRIVATE])
def test_a_refusal_says_that_a_data_set_is_protected_otherwise(known: str) -> None:
    refused = RefusedError({"a": f"journal:{known}"}, stage="join")
    assert "for life" in str(refused) and "data_set in node.toml" in str(refused)
