"""Where a federation's clients are: an engine tells who they are, and connects what was agreed to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.record.transcript import Kept, Transcript
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.engine import Carrier
from privfed.core.roles.secure_sum import SecureSum, Session
from privfed.core.values.domain import Domain


@dataclass(frozen=True, slots=True)
class Members:
    """Clients whose rows lie elsewhere: what is public of them.

    Args:
        names: by position.
        n_features: number of columns, the same for all.
        columns: names of the columns, where they have any.
        remember: whether they keep what questions have them remember (`Question.remembers`) as long as their
            fit runs, also where this process is stopped.
    """

    names: tuple[str, ...]
    n_features: int
    columns: tuple[str, ...] | None = None
    remember: bool = False


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A federation that is to be opened: what was agreed on, and what an engine may need to connect it.

    Args:
        configuration: what the parties agreed on.
        protocol: the secure sum.
        transcript: the record; of a run that is resumed it holds what was asked so far.
        algorithm: what will run, for replays; None where questions are asked one by one.
        domain: the declared domain, or None.
        policy: what simulated clients answer besides; None for the default, and for clients elsewhere, whose
            policy is their own.
        data: rows by position, for clients in this process; None where they lie elsewhere.
        folder: the run's folder, or None.
    """

    configuration: Configuration
    protocol: SecureSum
    transcript: Transcript
    algorithm: Algorithm[Any] | None = None
    domain: Domain | None = None
    policy: ClientPolicy | None = None
    data: tuple[ClientData, ...] | None = None
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Connected clients.

    Args:
        session: the secure sum's session on the coordinator.
        carrier: what carries the bytes.
        timeout: seconds that a client may take for one reply; None waits for all.
        logs: says where clients' own logs of errors lie; empty where it is not known or none was written.
        late: says which clients took longer than `timeout` in the last exchange, and what to do; or nothing.
    """

    session: Session
    carrier: Carrier
    timeout: float | None = None
    logs: Callable[[], str] = str
    late: Callable[[], str] = str


@runtime_checkable
class Engine(Protocol):
    """Where clients are (`engine=` of the estimators): in this process, or on machines of their own.

    The federation builder calls `connect` once for each federation that it opens. Whatever the engine, the
    builder alone writes the agreement, the transcript and the coordinator's ledger.
    """

    @property
    def members(self) -> Members | None:
        """Its clients, where their rows lie elsewhere; None where rows are passed to `fit`."""

    @property
    def record(self) -> Kept:
        """Whether the transcript keeps masked bytes whole, or their digests."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the engine itself: a copy of an estimator has the same clients.

        Classes that name `Engine` as a base have this.
        """
        return self

    def connect(self, opening: Opening) -> Connection:
        """Bring an agreement to the clients, and return what the coordinator needs to drive them.

        Where clients are elsewhere, each builds its side from `Agreement.to_bytes()`, its position, its own
        identity and rows (`SecureSum.client`, `privfed.party.client.own_client`); the coordinator's session
        is `SecureSum.coordinator`. Where clients open the totals, a client may pass them on to this process.
        The process then reads them, and belongs to the clients' side: the server must not run it.
        """
