"""One client as a whole: its side of a secure sum before its answerer, with its guard, ledger and stores.

The same on its own machine and in a simulation; only where answers come from and states are kept differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Answerer, Client, ClientSide, ErrorLog, StateStore
from privfed.core.values.domain import Domain
from privfed.errors import ArgumentError
from privfed.party.answerer import own_answerer
from privfed.party.guard import MOVES, GuardedAnswerer
from privfed.party.journalled import JournalledFit, JournallingAnswerer
from privfed.party.program import Program, ProgramAnswerer, agreed_program
from privfed.party.readings import FOLLOWED
from privfed.party.remembering import MEMORIES, RememberingAnswerer
from privfed.party.state import FileStore, MemoryStore
from privfed.privacy.ledger import PayingAnswerer
from privfed.privacy.stepped import SteppedAnswerer

UNDECLARED = (
    "nothing is declared of what will be asked here, so that clients could not check it: name an algorithm "
    "with phases(setting) or metrics (docs/extending.md), or let clients answer anything, with "
    "policy=ClientPolicy(undeclared=True)."
)
"""Why a client takes no part where no program is agreed."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Where a client keeps what it must not forget; by default in memory, for a simulation.

    Args:
        state: of its side of the secure sum.
        ledger: how much of its privacy budget it has spent.
        moves: what its guard remembers of the questions so far.
        followed: where it stands in the agreed program.
        memory: what questions have it remember; None where that lies in the memory of this process.
        journalled: the fit in its party's journal, which is told of each sum; None where none is kept.
    """

    state: StateStore = field(default_factory=MemoryStore)
    ledger: StateStore = field(default_factory=MemoryStore)
    moves: StateStore = field(default_factory=MemoryStore)
    followed: StateStore = field(default_factory=MemoryStore)
    memory: StateStore | None = None
    journalled: JournalledFit | None = None

    @classmethod
    def in_journal(cls, fit: JournalledFit, side: ClientSide) -> Stores:
        """Return stores in the journal of the client's party, which change together."""
        return cls(fit.state(side.codec), fit.ledger, fit.moves, fit.followed, fit.memory, fit)

    @classmethod
    def in_folder(cls, folder: Path, side: ClientSide) -> Stores:
        """Return stores in files of a folder of the client's own, one folder an agreement."""
        codec = side.codec
        return cls(
            FileStore(folder / "state", codec.to_bytes, codec.from_bytes),
            ledger_in(folder / "ledger"),
            FileStore(folder / "moves", MOVES.to_bytes, MOVES.from_bytes),
            FileStore(folder / "followed", FOLLOWED.to_bytes, FOLLOWED.from_bytes),
            FileStore(folder / "memory", MEMORIES.to_bytes, MEMORIES.from_bytes),
        )


def ledger_in(path: Path) -> FileStore:
    """Return the store of the share of its budget that a client has spent."""

    def read(content: bytes) -> float:
        spent = float(content)
        if not 0.0 <= spent <= 2.0:
            raise ValueError("not a share of a budget")
        return spent

    return FileStore(path, lambda spent: repr(spent).encode(), read)


def assembled(
    side: ClientSide,
    answerer: Answerer,
    configuration: Configuration,
    policy: ClientPolicy,
    stores: Stores,
    log: ErrorLog | None = None,
    *,
    program: Program | None,
) -> Client:
    """Return a client that answers with `answerer` what its program asks, pays for it and guards it.

    Args:
        side: its side of the secure sum.
        answerer: answers from its rows.
        configuration: what it agreed to.
        policy: what it answers besides.
        stores: where it keeps what it must not forget.
        log: its own log of errors.
        program: of what it agreed to (`agreed_program`); clients of a simulation share one.

    Raises:
        ArgumentError: the policy measures centroids, and no domain is declared; or nothing is declared of
            what will be asked, and the policy does not allow that.
        PrivacyError: the agreed budget, or steps, are more than the agreed epsilon and delta allow.
    """
    if configuration.privacy is not None:
        if configuration.privacy.steps is None:
            answerer = PayingAnswerer(answerer, configuration, stores.ledger)
        else:
            answerer = SteppedAnswerer(answerer, configuration, stores.ledger, stores.memory)
    if policy.guards:
        answerer = GuardedAnswerer(answerer, policy, stores.moves, configuration)
    if stores.journalled is not None:
        answerer = JournallingAnswerer(answerer, stores.journalled)
    # What the program does not ask is refused first: it is neither entered nor paid.
    if program is not None:
        answerer = ProgramAnswerer(answerer, program, stores.followed)
    elif not policy.undeclared:
        raise ArgumentError(UNDECLARED)
    return Client(side, stores.state, answerer, log)


def rows_in_domain(data: ClientData, configuration: Configuration, domain: Domain | None) -> ClientData:
    """Return the rows that a client answers from: under differential privacy those inside the domain.

    Questions only know the bounding box of a ball, so that clients clip their rows to the ball here.

    Raises:
        ArgumentError: differential privacy is claimed, and the domain is not given, or not the agreed one.
    """
    if configuration.privacy is None:
        return data
    if domain is None or configuration.low is None or configuration.high is None:
        raise ArgumentError("under differential privacy a client needs the agreed domain: pass domain=.")
    low, high = domain.bounds(configuration.n_features)
    if (low.tobytes(), high.tobytes()) != (configuration.low.data, configuration.high.data):
        raise ArgumentError(f"domain={domain!r} is not the one in the agreement; take that one.")
    return data.inside(domain)


def check_columns(data: ClientData, configuration: Configuration) -> None:
    """Check that rows have as many columns as was agreed, before anything is built for them.

    Raises:
        ArgumentError: they have others.
    """
    if data.n_features != configuration.n_features:
        raise ArgumentError(
            f"the rows have {data.n_features} columns, the agreement says {configuration.n_features}."
        )


def own_client(
    side: ClientSide,
    position: int,
    data: ClientData,
    configuration: Configuration,
    policy: ClientPolicy,
    stores: Stores,
    *,
    domain: Domain | None = None,
    log: ErrorLog | None = None,
) -> Client:
    """Return a client on its own machine, from its own rows alone.

    Args:
        side: its side of the secure sum (`SecureSum.client`).
        position: its number on the wire.
        data: its rows.
        configuration: what it agreed to.
        policy: what it answers besides.
        stores: where it keeps what it must not forget.
        domain: the declared domain; needed under differential privacy.
        log: its own log of errors.

    Raises:
        ArgumentError: the rows have other columns than was agreed, the domain is another one, or the agreed
            program cannot be followed here.
        PrivacyError: the agreed budget is more than the agreed epsilon and delta allow.
    """
    check_columns(data, configuration)
    rows = rows_in_domain(data, configuration, domain)
    answerer = own_answerer(configuration.clients[position], rows, configuration.seed, log)
    if stores.memory is not None:
        answerer = RememberingAnswerer(answerer, rows.memory, stores.memory)
    program = agreed_program(configuration, domain)
    return assembled(side, answerer, configuration, policy, stores, log, program=program)
