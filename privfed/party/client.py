"""One client as a whole: its side of a secure sum before its answerer, with its ledger and stores.

The same on its own machine and in a simulation; only where answers come from and states are kept differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.phases import fixed
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Admitting, Answerer, Check, Client, ClientSide, ErrorLog, StateStore
from privfed.core.values.domain import Domain
from privfed.errors import ArgumentError, PolicyError
from privfed.party.answerer import check_columns, of_users, own_answerer
from privfed.party.program import Program, ProgramCheck, agreed_program, refuse_seeded
from privfed.party.state import FileStore, MemoryStore, RememberingAnswerer
from privfed.privacy.dp_sgd import ClientSteps
from privfed.privacy.ledger import ClientBudget

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
        program_state: where it stands in the agreed program.
        memory: what questions have it remember; None where that lies in the memory of this process.
        journalled: enters each sum in its party's journal before it is answered; None where none is kept.
    """

    state: StateStore = field(default_factory=MemoryStore)
    ledger: StateStore = field(default_factory=MemoryStore)
    program_state: StateStore = field(default_factory=MemoryStore)
    memory: StateStore | None = None
    journalled: Check | None = None


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
    """Return a client that answers with `answerer` what its program asks, and pays for it.

    Args:
        side: its side of the secure sum.
        answerer: answers from its rows.
        configuration: what it agreed to.
        policy: what it answers besides.
        stores: where it keeps what it must not forget.
        log: its own log of errors.
        program: of what it agreed to (`agreed_program`); clients of a simulation share one.

    Raises:
        ArgumentError: nothing is declared of what will be asked, and the policy does not allow that.
        PrivacyError: the agreed budget, or steps, are more than the agreed epsilon and delta allow.
    """
    if program is None and not policy.undeclared:
        raise ArgumentError(UNDECLARED)
    # What the program does not ask is refused first: it is neither entered nor paid.
    checks: list[Check] = [] if program is None else [ProgramCheck(program, stores.program_state)]
    if stores.journalled is not None:
        checks.append(stores.journalled)
    terms = configuration.privacy
    if terms is not None and terms.steps is None:
        checks.append(ClientBudget(configuration, stores.ledger))
    elif terms is not None:
        checks.append(ClientSteps(configuration, stores.ledger, stores.memory))
    return Client(side, stores.state, Admitting(answerer, checks, silent=terms is not None), log)


def rows_in_domain(
    data: ClientData, configuration: Configuration, domain: Domain | None, key: bytes | None = None
) -> ClientData:
    """Return the rows that a client answers from: under differential privacy those inside the domain.

    Questions only know the bounding box of a ball, so that clients clip their rows to the ball here. At unit
    "user" at most the agreed number of rows of each user are left (`privfed.party.answerer`).

    Args:
        data: the client's rows.
        configuration: what it agreed to.
        domain: the declared domain; needed under differential privacy.
        key: the client's own, by which it chooses among rows of a user; needed at unit "user".

    Raises:
        ArgumentError: differential privacy is claimed, and the domain is not given, or not the agreed one; or
            at unit "user" nothing says whose the rows are.
    """
    if configuration.privacy is None:
        return data
    if domain is None or configuration.low is None or configuration.high is None:
        raise ArgumentError("under differential privacy a client needs the agreed domain: pass domain=.")
    low, high = domain.bounds(configuration.n_features)
    if (low.tobytes(), high.tobytes()) != (configuration.low.data, configuration.high.data):
        raise ArgumentError(f"domain={domain!r} is not the one in the agreement; take that one.")
    return of_users(data, configuration.privacy, key).inside(domain)


def check_uses(data: ClientData, program: Program | None) -> None:
    """Check that a program uses labels and times of rows as their owner allows, before anything is asked.

    Raises:
        PolicyError: it does not; the text is the code of the refusal.
    """
    if program is None:
        return
    if code := data.unusable(
        one.declaration for one in fixed((*program.phases, *chain.from_iterable(program.metrics)))
    ):
        raise PolicyError(code)


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
    user_key: bytes | None = None,
) -> Client:
    """Return a client on its own machine, from its own rows alone.

    Args:
        side: its side of the secure sum (`SecureSum.client`), behind the coordinator's signature
            (`privfed.nodes.signed`).
        position: its number on the wire.
        data: its rows.
        configuration: what it agreed to.
        policy: what it answers besides.
        stores: where it keeps what it must not forget.
        domain: the declared domain; needed under differential privacy.
        log: its own log of errors.
        user_key: its own, by which it chooses among rows of a user; needed at unit "user".

    Raises:
        ArgumentError: the rows have other columns than was agreed, the domain is another one, or the agreed
            program cannot be followed here; or rows come without the groups that the policy wants.
        PrivacyError: the agreed budget is more than the agreed epsilon and delta allow.
        PolicyError: the agreed noise follows from a seed; the text is the code.
    """
    refuse_seeded(configuration)
    check_columns(data, configuration)
    if policy.group_size > 1 and not data.grouped:
        raise ArgumentError(
            f"group_size={policy.group_size} needs groups of the rows that outlast this fit: join with "
            "privfed.nodes.party.Party, whose journal keeps them."
        )
    rows = rows_in_domain(data, configuration, domain, user_key).anew()
    answerer = own_answerer(configuration.clients[position], rows, configuration.seed, log)
    if stores.memory is not None:
        answerer = RememberingAnswerer(answerer, rows.memory, stores.memory)
    program = agreed_program(configuration, domain)
    check_uses(data, program)
    return assembled(side, answerer, configuration, policy, stores, log, program=program)
