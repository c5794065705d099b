"""The default engine: all clients in this process, their files in a run's folder, and groups of their rows.

It is a simulation: there is no boundary of trust. A fit's folder holds:

    transcript.jsonl              the agreement, then the questions asked and the totals opened
    transcript.values             large tables of answers in clear, to which its lines refer
    clients/<position>.ledger     the share of its budget that each client has spent
    clients/users                 at unit "user" the key by which clients choose among rows of a user
    local/<position>/             a client's own run, whose noised centers it contributes
    payment                       by which a privacy budget knows this run, where one pays for it
    model.npz                     the model, once the fit has ended

The agreement, which is the transcript's first line, is written first, and the other files belong to it. A new
fit begins only in a folder without such files. `resume` continues with all of them, under the same agreement
and with the same rows. It checks the agreement but not the rows: any stored fingerprint of the rows, even a
hash, would reveal something about them to readers of the folder.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.data import in_one_stack
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.record.records import CLIENTS, LOCAL
from privfed.core.record.transcript import Kept, Transcript, has_begun
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Unit
from privfed.core.values.numbers import check_word
from privfed.core.values.origin import Origin, joined
from privfed.data.table import ClientTables
from privfed.engines.in_process import ClientLogs, Fault, InProcessEngine, Pool
from privfed.errors import (
    ArgumentError,
    PolicyError,
    PrivacyError,
    ResumeError,
    RunFolderError,
    StateError,
    warn,
)
from privfed.party.answerer import KEY_BYTES, check_named
from privfed.party.client import Stores, assembled, ledger_in, rows_in_domain
from privfed.party.groups import Groups, RawTable
from privfed.party.program import Program, ProgramState, agreed_program
from privfed.party.state import FileStore, MemoryStore
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import cost

USERS = "users"
"""File with the key by which the simulated clients of a run choose among rows of a user."""


@dataclass(frozen=True, kw_only=True)
class Simulation(Engine):
    """Configures the simulation of clients in this process (`engine=` of the estimators).

    Args:
        faults: the faults to inject.
        record: "digests"; "messages" to keep masked bytes whole in the transcript; or "totals" to keep only
            digests of the answers in clear, too. The last suits long plain runs that nobody attacks.
        logs: folder of the clients' own error logs, with tracebacks. By default `clients` in the run's
            folder; without such a folder, and under differential privacy, where errors depend on rows, a
            new temporary folder `privfed-clients-...`.
    """

    faults: Sequence[Fault] = ()
    record: Kept = "digests"
    logs: str | Path | None = None

    def __post_init__(self) -> None:
        check_word("record", self.record, get_args(Kept))

    @property
    def members(self) -> Members | None:
        """None: rows are passed to `fit`."""
        return None

    def connect(self, opening: Opening) -> Connection:
        """Build the clients in this process, with fresh identities.

        Raises:
            ArgumentError: no rows were passed.
            RunFolderError: of a run that is resumed, a client has forgotten what its answers cost.
        """
        if opening.data is None:
            raise ArgumentError("clients in this process need rows: pass X.")
        known = [one.name for one in opening.protocol.stages]
        for fault in self.faults:
            if fault.stage is not None and fault.stage not in known:
                # Nothing would ever fail.
                raise ArgumentError(
                    f"a fault's stage must be one of {', '.join(known)} over {opening.protocol.name!r}, or "
                    f"None for any; got {fault.stage!r}."
                )
        configuration, policy = opening.configuration, opening.policy or ClientPolicy()
        seeded = configuration.privacy is not None and configuration.privacy.seeded
        positions = range(len(configuration.clients))
        session, sides = opening.protocol.parties(configuration, dict.fromkeys(positions, policy))
        key = user_key(opening.folder, configuration)
        if key is not None:
            for name, given in zip(configuration.clients, opening.data, strict=True):
                check_named(given, name)
        data = in_one_stack(
            [rows_in_domain(given, configuration, opening.domain, key) for given in opening.data]
        )
        logs = self._logs(configuration, opening.folder)
        program = agreed_program(configuration, opening.domain, opening.algorithm)
        state = None if program is None else _state_after(program, opening)
        own_logs = [logs.of(i) for i in positions]
        pool = Pool(data, configuration.clients, configuration.seed, own_logs, seeded=seeded)
        stores = [_stores(opening.folder, i, state) for i in positions]
        clients = {
            i: assembled(
                sides[i], pool.answerer(i), configuration, policy, stores[i], own_logs[i], program=program
            )
            for i in positions
        }
        if configuration.privacy is not None and opening.folder is not None and opening.transcript.records:
            check_ledgers(opening.folder, configuration, opening.transcript)
        carrier = InProcessEngine(clients, pool, self.faults, np.random.default_rng(configuration.seed))
        return Connection(session=session, carrier=carrier, logs=lambda: logs.where)

    def _logs(self, configuration: Configuration, folder: Path | None) -> ClientLogs:
        private = configuration.privacy is not None
        if self.logs is not None:
            return ClientLogs(Path(self.logs), silent=private)
        return ClientLogs(None if folder is None or private else folder / CLIENTS, silent=private)


def _stores(folder: Path | None, client: int, state: ProgramState | None) -> Stores:
    """Return where a client keeps what it must not forget; in the run's folder what a resumed run needs."""
    stores = Stores(program_state=MemoryStore(state))
    if folder is None:
        return stores
    return replace(stores, ledger=ledger_of(folder, client))


def user_key(folder: Path | None, configuration: Configuration) -> bytes | None:
    """Return the key by which clients choose among rows of a user; None at other units.

    It is kept in the run's folder, so that a resumed run, or an audit, chooses the same rows; a seeded run's
    repeats.
    """
    terms = configuration.privacy
    if terms is None or terms.unit != Unit.USER:
        return None
    if terms.seeded:
        return hashlib.sha256(f"privfed user key|{configuration.seed}".encode()).digest()
    if folder is None:
        return secrets.token_bytes(KEY_BYTES)
    with FileStore(folder / CLIENTS / USERS, bytes, bytes).transaction() as transaction:
        key = transaction.load() or secrets.token_bytes(KEY_BYTES)
        transaction.save(key)
    return key


def _state_after(program: Program, opening: Opening) -> ProgramState:
    """Return the position of the clients of a resumed run: they have answered the sums on record.

    Raises:
        ResumeError: these are not of the agreed program.
    """
    try:
        return program.state_after((one.index, one.question) for one, _ in opening.transcript.totals())
    except PolicyError:
        raise ResumeError(
            "the transcript holds questions that the agreed program does not ask: it is of another run, or "
            "of another version of privfed. Begin a new run in another folder."
        ) from None


_ROUNDING = 1e-9


def folder_to_resume(run_dir: str | Path | None) -> Path:
    """Return the folder of the run to resume.

    Raises:
        ArgumentError: none was given.
    """
    if run_dir is None:
        raise ArgumentError("resume needs run_dir, the folder of the run that is to be finished.")
    return Path(run_dir)


def check_fresh(folder: Path) -> None:
    """Check that a fit may begin in a folder.

    Raises:
        RunFolderError: it is a file, or holds a run, or clients' ledgers or local runs of another fit.
    """
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; name a folder.")
    if has_begun(folder):
        raise RunFolderError(f"{folder} already holds a run; resume it or name another folder.")
    for left in (folder / CLIENTS, folder / LOCAL):
        if left.exists() and any(left.iterdir()):
            raise RunFolderError(
                f"{left} was left by another fit and depends on its rows; name another folder for this one."
            )


def folders_of(run_dir: Path) -> list[Path]:
    """Return the folders of the clients' own runs in a run's folder, ordered by position."""
    found = [one for one in (run_dir / LOCAL).glob("*") if one.name.isdecimal()]
    return sorted(found, key=lambda one: int(one.name))


def ledger_of(folder: Path, client: int) -> FileStore:
    """Return the store of the share of its budget that a client has spent."""
    return ledger_in(folder / CLIENTS / f"{client}.ledger")


def check_ledgers(folder: Path, configuration: Configuration, transcript: Transcript) -> None:
    """Check that each client's ledger contains the costs of its answers in a transcript.

    Raises:
        RunFolderError: a ledger is missing, damaged, or an older copy.
    """
    paid = [0.0] * len(configuration.clients)
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        share = cost(question, configuration) if isinstance(question, Noised) else 0.0
        for i in total.contributors:
            paid[i] += share
    for i, name in enumerate(configuration.clients):
        try:
            spent = ledger_of(folder, i).load() or 0.0
        except StateError as error:
            raise RunFolderError(f"{error} Begin a new run in another folder.") from None
        if spent < paid[i] - _ROUNDING:
            raise RunFolderError(
                f"{folder / CLIENTS} does not show what client {name!r} spent on its answers: its ledger is "
                "missing, or an older copy. Begin a new run in another folder."
            )


KEPT = "groups"
"""Under which name a clients object keeps them (`ClientTables.kept`)."""


class KeptGroups:
    """The groups of one data set of simulated clients: made from its whole tables when first needed.

    Args:
        tables: each client's own rows.
    """

    def __init__(self, tables: Sequence[RawTable]) -> None:
        self._tables = tuple(tables)
        self._groups: tuple[Groups, ...] = ()

    @property
    def size(self) -> int:
        """Fewest ids of a group; 1 before they are made."""
        return self._groups[0].m if self._groups else 1

    @classmethod
    def of(cls, tables: ClientTables) -> KeptGroups | MappedGroups:
        """Return what a clients object keeps."""
        if KEPT not in tables.kept:
            own = (RawTable(one.features, one.labels, one.ids, tables.columns) for one in tables.tables)
            tables.kept[KEPT] = cls(tuple(own))
        return cast(KeptGroups | MappedGroups, tables.kept[KEPT])

    def grouped(self, m: int) -> tuple[Groups, ...]:
        """Return each client's groups of at least `m` ids.

        Warns:
            UserWarning: the groups are of more already, which stays so.
        """
        if not self._groups:
            self._groups = tuple(Groups.begun(one, m) for one in self._tables)
        elif m > self.size:
            self._groups = tuple(one.updated(None, m) for one in self._groups)
        elif m < self.size:
            warn(
                f"these rows are in groups of {self.size}: group_size={m} changes nothing; "
                "load them anew for another data set.",
            )
        return self._groups


class MappedGroups:
    """The same groups after an affine map of each column, which maps means to means.

    Args:
        source: the groups before.
        mapped: maps rows of shape (n, n_features), one by one.
    """

    def __init__(self, source: KeptGroups | MappedGroups, mapped: Callable[[FloatArray], FloatArray]) -> None:
        self._source, self._mapped = source, mapped

    @property
    def size(self) -> int:
        """Fewest ids of a group; 1 before they are made."""
        return self._source.size

    def grouped(self, m: int) -> tuple[Groups, ...]:
        """Return each client's groups of at least `m` ids."""
        return tuple(one.mapped(self._mapped(one.means.to_numpy())) for one in self._source.grouped(m))


def check_no_privacy(m: int, private: bool) -> None:
    """Check that groups do not go with differential privacy.

    Raises:
        PrivacyError: they do.
    """
    if private and m > 1:
        raise PrivacyError(
            f"group_size={m} goes with no guarantee of differential privacy: one row would move a group, and "
            "the noise hides one row's own share only. Take one of the two."
        )


def answering(
    data: Sequence[ClientData], groups: KeptGroups | MappedGroups | None, m: int
) -> tuple[ClientData, ...]:
    """Return what questions see of clients' rows: the mean of each row's group, which has at least `m` ids.

    Args:
        data: each client's rows.
        groups: those that were kept; None where arrays were passed.
        m: fewest ids of a group; 1 for the rows themselves.

    Warns:
        UserWarning: arrays were passed, whose groups no later call knows; or rows are read that were grouped;
            or a client has too few rows for a group.
    """
    if m == 1:
        if groups is not None and groups.size > 1:
            warn(
                f"these rows were in groups of {groups.size}, and this call reads single rows: nothing is "
                f"claimed of both. Pass policy=ClientPolicy(group_size={groups.size}), or load them anew.",
            )
        return tuple(data)
    if groups is None:
        warn(
            "arrays are grouped anew in each call, so nothing is claimed of several calls together: pass "
            "privfed.data.ClientTables (load_clients), which keep their groups.",
        )
        groups = KeptGroups([RawTable(own.features, own.labels) for own in data])
    seen = tuple(one.expanded() for one in groups.grouped(m))
    silent = sum(own.n_rows > 0 == one.n_rows for own, one in zip(data, seen, strict=True))
    if silent:
        warn(
            f"{silent} of {len(data)} clients have too few rows for a group of {m}, and answer as clients "
            "without rows: take a smaller group_size, or leave them out.",
        )
    return seen


def mapped_tables(
    tables: ClientTables,
    mapped: Callable[[FloatArray], FloatArray],
    origin: Origin,
    like: ClientTables | None = None,
) -> ClientTables:
    """Return clients with rows after an affine map, in the same groups.

    Args:
        tables: the clients.
        mapped: maps rows of shape (n, n_features), one by one.
        origin: of the map's numbers.
        like: the same clients, with the columns of mapped rows; None for the same columns.
    """
    own = tuple(replace(one, features=mapped(one.features)) for one in tables.tables)
    found = replace(like or tables, tables=own, prepared=joined(tables.prepared, origin))
    found.kept[KEPT] = MappedGroups(KeptGroups.of(tables), mapped)
    return found
