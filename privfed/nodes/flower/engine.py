"""The engine of estimators whose clients are nodes of a Flower deployment: `engine=FlowerEngine(folder)`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import CohortRule
from privfed.core.agreed.program import START_MISSING
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Kept
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange, Replies
from privfed.core.stored.encoding import CODE, Refusal, encode
from privfed.errors import FAILED, ArgumentError, IntegrityError, MessageError, ProtocolError, RefusedError
from privfed.nodes.flower import node_messages as messages
from privfed.nodes.flower.network import (
    DISCONNECTED,
    EXPIRED,
    FAULTS,
    DrivenRun,
    Heard,
    Network,
    RunLostError,
    linked,
)
from privfed.nodes.flower.node import keep_agreement
from privfed.nodes.flower.settings import FILE, FederationFile
from privfed.nodes.identity import OwnIdentity, Parties, read_identity, read_parties
from privfed.nodes.journalled import parties_of
from privfed.nodes.signed import Requests
from privfed.party.replay import TOTAL
from privfed.protocols.crypto.keys import CryptographyError, new_secret
from privfed.protocols.setup.hybrid import new_reader

_STRANGER = "agreement:position"
_POLL, _SAID, _LOOKED = 1.0, 4.0, 10.0
"""Seconds between two looks for nodes, until it is said who is waited for, and to say how a node stands."""

_UNKEPT = "it cannot read or write its journal; its owner finds the reason in log/ of the node's folder"

_RUNS = 4
"""Most Flower runs in which one exchange is tried."""

_LOG = logging.getLogger("privfed")


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A client that gave no reply: a dropout, as the secure sum sees it.

    Args:
        client: name of the client.
        stage: of the exchange.
        number: of the sum, 0 for the set-up.
        what: the fault as Flower describes it; that its journal cannot be kept; or the code with which it
            refused to join.
    """

    client: str
    stage: str
    number: int
    what: str


class FlowerEngine(Engine):
    """Clients are nodes of a Flower deployment; this process is the coordinator, on the SuperLink's machine.

    Where the SuperLink is lost, a fit waits for it (`wait` in federation.toml) and goes on once it is back;
    after that it ends with `ProtocolError`, and `resume` goes on.

    Args:
        folder: of the federation, made by `privfed flower add`.
        network: the nodes, for a process that has them already, as a ServerApp of one's own
            (`privfed.nodes.flower.apps.GridNetwork(grid)`); None for the SuperLink's here.
        record: whether the transcript keeps masked bytes whole, as for `Simulation`.
        clients: names of those that take part, of the list of parties; None for all. A list with a new client
            need not be at all the others before they go on among themselves.
        columns: of the nodes' columns those that are answered from, in this order; the name of a column of
            categories means all of them. None for all columns.

    Raises:
        ArgumentError: the folder lacks something, or one of `clients` or `columns` is not in its list.

    Attributes:
        faults: clients that gave no reply so far, and what Flower said of it.
    """

    record: Kept = "digests"

    def __init__(
        self,
        folder: str | Path,
        *,
        network: Network | None = None,
        record: Kept = "digests",
        clients: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
    ) -> None:
        self.file = FederationFile.read(Path(folder))
        self.own: OwnIdentity = read_identity(self.file.coordinator)
        self.parties: Parties = read_parties(self.file.parties)
        self.network = DrivenRun(linked(self.file)) if network is None else network
        self.faults: list[NodeFault] = []
        self._fits: list[FlowerFit] = []
        self.record = record
        listed = tuple(one.name for one in self.parties.clients)
        chosen = set(listed if clients is None else clients)
        if unknown := sorted(chosen - set(listed)):
            raise ArgumentError(f"clients={unknown[0]!r} is not in the list of parties: {', '.join(listed)}.")
        self._names = tuple(name for name in listed if name in chosen)
        self.columns = self.file.columns if columns is None else self._columns(columns)

    def _columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return columns by their names."""
        there = self.file.columns
        found = {name: [one for one in there if name in (one, one.partition("=")[0])] for name in names}
        if unknown := [name for name, own in found.items() if not own]:
            raise ArgumentError(
                f"columns={unknown[0]!r} is none of the nodes' columns: {', '.join(there)}.",
                parameters=["columns"],
            )
        return tuple(dict.fromkeys(one for own in found.values() for one in own))

    def among(self, clients: Iterable[str]) -> FlowerEngine:
        """Return an engine of some of its clients, over the same network, for fits of their own."""
        others: dict[str, Any] = {"network": self.network, "record": self.record, "columns": self.columns}
        return FlowerEngine(self.file.folder, clients=clients, **others)

    @property
    def members(self) -> Members:
        """The clients in the list of parties that take part."""
        names = self._names
        return Members(names, len(self.columns), self.columns, remember=True)

    def connect(self, opening: Opening) -> Connection:
        """Bring the agreement to the nodes, and wait for those of all clients.

        Raises:
            RefusedError: all clients that are there refuse to take part, or one lacks an agreed start total.
            ProtocolError: no node takes part, or the SuperLink cannot be reached.
        """
        configuration = opening.configuration
        agreement = Agreement(configuration, self.parties.registry(configuration.clients))
        agreement.check_coordinator(self.own.key)
        fit = FlowerFit(self, agreement, bool(opening.transcript.of(Asked)))
        self._fits.append(fit)
        fit.gather()
        # What it can testify, should a client lose its folder.
        keep_agreement(self.file.folder, agreement, fit.reader)
        session = opening.protocol.coordinator(agreement, self.own.key, fit)
        return Connection(session=session, carrier=fit, timeout=self.file.timeout, late=fit.late)

    def standing(self, seconds: float = _LOOKED) -> dict[str, messages.About]:
        """Ask the nodes that are connected how they stand; return what those say that answer in time.

        Args:
            seconds: that they have.

        Raises:
            RunLostError: the SuperLink cannot be reached.
        """
        nonce, clients = new_secret(), self.parties.registry(self._names).clients
        asked = messages.Look(nonce=nonce, parties=parties_of(clients, CohortRule())).signed(self.own.key)
        heard = self.network.send(dict.fromkeys(self.network.nodes(), encode(asked)), seconds)
        names = {one.public: one.name for one in self.parties.clients}
        found = {}
        for data in heard.replies.values():
            with suppress(CryptographyError, KeyError, MessageError):
                answer = messages.read_up(data, "a node")
                if isinstance(answer, messages.Standing):
                    answer.check_by(answer.client, nonce)
                    found[names[answer.client]] = answer.about
        return dict(sorted(found.items()))

    def end_fits(self) -> None:
        """Have the nodes close the fits (metrics, selections, summaries) of this engine in their journals.

        Their keys are erased: nothing more can be asked in these fits, and none can be resumed. What they
        gave stays in the journals. A node that is not reached keeps its keys until its owner ends the fit
        (`privfed journal end`).
        """
        for fit in self._fits:
            fit.end()
        self._fits = []

    def close(self) -> None:
        """Leave the SuperLink; fits stay open in the nodes' journals, so that they can be resumed.

        Those in which no sum was asked are ended: nothing of them is to be resumed, and they count nowhere.
        """
        for fit in self._fits:
            if not fit.asked:
                fit.end(_LOOKED)
        self._fits = []
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FlowerFit:
    """The nodes of one agreement: carries its exchanges, and keeps the totals that its clients opened.

    Args:
        engine: has the network.
        agreement: what the nodes take part in.

        asked: whether clients may have answered a sum of it, before this process.
    """

    def __init__(self, engine: FlowerEngine, agreement: Agreement, asked: bool) -> None:
        self._engine, self._agreement, self.asked = engine, agreement, asked
        self._requests = Requests(agreement, engine.own.key)
        self._secret, self.reader = new_reader()
        asked_to = messages.Join(agreement=agreement.to_bytes(), reader=self.reader)
        self._join = encode(asked_to.signed(engine.own.key))
        self._nodes: dict[int, int] = {}
        self._known: set[int] = set()
        self._declined: dict[int, str] = {}
        self._unsigned: dict[str, str] = {}
        self._totals: dict[int, bytes] = {}
        self._late: list[str] = []

    @property
    def _names(self) -> tuple[str, ...]:
        return self._agreement.configuration.clients

    def gather(self) -> None:
        """Ask nodes to join until each client has one or refuses, or the time to wait is over.

        A client that refuses is left out of the fit, as one that is lost at the set-up; whether enough are
        left is for the secure sum to say.

        Raises:
            RefusedError: none takes part, and some refuse; or one lacks an agreed start total.
            ProtocolError: none takes part.
        """
        began = said = time.monotonic()
        while True:
            self._ask_newcomers()
            here, now = self._nodes.keys() | self._declined.keys(), time.monotonic()
            if len(here) == len(self._names) or now - began > self._engine.file.wait:
                break
            if now - said >= _SAID:
                said = now
                _LOG.warning(
                    "waiting for %s to connect, for %.0f s more; their move",
                    ", ".join(name for i, name in enumerate(self._names) if i not in here),
                    self._engine.file.wait - (now - began),
                )
            time.sleep(_POLL)
        codes = {self._names[i]: code for i, code in self._declined.items()}
        if START_MISSING in codes.values() or (not self._nodes and (codes or self._unsigned)):
            raise RefusedError(codes or self._unsigned, stage="join")
        if not self._nodes:
            faults = ", ".join(sorted({one.what for one in self._engine.faults})) or "none"
            raise ProtocolError(
                f"none of the {len(self._names)} clients has a node that is connected and takes part within "
                f"{self._engine.file.wait:g} s (wait= in the federation's file). Faults: {faults}."
            )

    def _ask_newcomers(self) -> None:
        """Ask nodes that came since to join; each client has one node, found by its signature."""
        fresh = [node for node in self._engine.network.nodes() if node not in self._known]
        if not fresh:
            return
        agreement = self._agreement
        heard = self._engine.network.send(dict.fromkeys(fresh, self._join), self._engine.file.timeout)
        for node, data in heard.replies.items():
            self._known.add(node)
            answer = self._read(data, f"node {node}")
            if isinstance(answer, messages.Joined | messages.Declined):
                # A message that another node sent in a client's place has not its signature.
                with suppress(CryptographyError):
                    answer.check_client(agreement.digest, self.reader, agreement.registry.clients)
                    self._place(node, answer) if isinstance(answer, messages.Joined) else self._leave_out(
                        answer
                    )
            elif isinstance(answer, Refusal) and answer.code != _STRANGER:
                # Whoever is connected may say so; it is no client's word.
                self._unsigned[f"node {node}"] = answer.code
                self._note(f"node {node}", "join", 0, f"refused: {answer.code}")
            elif isinstance(answer, messages.Silent):
                self._note(f"node {node}", "join", 0, _UNKEPT)
        for node, code in heard.faults.items():
            self._note(f"node {node}", "join", 0, FAULTS.get(code, FAULTS[0]))

    def _leave_out(self, answer: messages.Declined) -> None:
        """Note that a client refuses."""
        code = answer.code if re.fullmatch(CODE, answer.code) else FAILED
        if answer.position not in self._nodes and self._declined.get(answer.position) != code:
            self._declined[answer.position] = code
            self._note(self._names[answer.position], "join", 0, f"refused: {code}")
            _LOG.warning("%s takes no part: %s", self._names[answer.position], code)

    def _place(self, node: int, answer: messages.Joined) -> None:
        self._nodes[answer.position] = node
        self._declined.pop(answer.position, None)
        if answer.totals:
            self._keep(answer.position, answer.totals)

    def _read(self, data: bytes, sender: str) -> messages.Up | None:
        try:
            return messages.read_up(data, sender)
        except MessageError:
            return None

    def _note(self, client: str, stage: str, number: int, what: str) -> None:
        self._engine.faults.append(NodeFault(client, stage, number, what))

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Deliver the requests; a client without a node, or whose node gives no reply, is a dropout.

        Where the Flower run is lost, the same requests are sent in another one: a client that had answered
        gives the same reply again.

        Raises:
            RunLostError: no other run could be started in the time to wait.
        """
        signed = self._requests.signed(exchange)
        self.asked = self.asked or exchange.number > 0
        for left in reversed(range(_RUNS)):
            try:
                return self._carried(signed, timeout)
            except RunLostError as error:
                if not left:
                    raise
                self._rejoin(error)
        return []

    def _rejoin(self, lost: RunLostError) -> None:
        """Start another Flower run, once the SuperLink is back, and let the nodes join again."""
        wait = self._engine.file.wait
        _LOG.warning("%s Waiting for the SuperLink for up to %g s.", lost, wait)
        self._nodes.clear()
        self._known.clear()
        self._declined.clear()
        self._unsigned.clear()
        until = time.monotonic() + wait
        while True:
            try:
                return self.gather()
            except RunLostError:
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL)

    def _carried(self, exchange: Exchange, timeout: float | None) -> Replies:
        if any(i not in self._nodes for i in exchange.requests):
            self._ask_newcomers()
        nodes = {i: self._nodes[i] for i in exchange.requests if i in self._nodes}
        digest = self._agreement.digest
        sent = {node: encode(messages.Ask(digest, exchange.requests[i])) for i, node in nodes.items()}
        heard = self._engine.network.send(sent, self._engine.file.timeout if timeout is None else timeout)
        self._late = [self._names[i] for i, node in nodes.items() if heard.faults.get(node) == EXPIRED]
        if self._late:
            _LOG.warning(self.late())
        for i, node in nodes.items():
            if (code := heard.faults.get(node)) is not None:
                if code == DISCONNECTED:
                    # It may come back, also as another one.
                    self._known.discard(self._nodes.pop(i))
                self._note(self._names[i], exchange.stage, exchange.number, FAULTS.get(code, FAULTS[0]))
        # Of who refused to join the secure sum hears the code, and says it where too few are left.
        declined = [(i, encode(Refusal(self._declined[i]))) for i in exchange.requests if i in self._declined]
        return self._replies(exchange, nodes, heard.replies) + declined

    def late(self) -> str:
        """Say which clients gave no reply in time in the last exchange, and what to do; or nothing."""
        file = self._engine.file
        if not self._late:
            return ""
        return (
            f"{', '.join(self._late)} gave no reply within {file.timeout:g} s, and a node ends what takes "
            f"longer. Where training does, raise timeout in {file.folder / FILE}, and resume the fit "
            "(run_dir=, or --resume): what was opened is kept."
        )

    def _replies(self, exchange: Exchange, nodes: Mapping[int, int], replies: Mapping[int, bytes]) -> Replies:
        found: Replies = []
        for i, data in ((i, replies[node]) for i, node in nodes.items() if node in replies):
            answer = self._read(data, self._names[i])
            if isinstance(answer, messages.Answered):
                found.append((i, answer.reply))
                if answer.totals:
                    self._keep(i, answer.totals)
            elif isinstance(answer, Refusal):
                found.append((i, encode(answer)))
            else:
                self._note(self._names[i], exchange.stage, exchange.number, _UNKEPT)
        return found

    def end(self, seconds: float | None = None) -> None:
        """Have the nodes close the fit; those that are not reached in time are faults."""
        engine, limit = self._engine, self._engine.file.timeout if seconds is None else seconds
        over = encode(messages.End(digest=self._agreement.digest).signed(engine.own.key))
        try:
            heard = engine.network.send(dict.fromkeys(self._nodes.values(), over), limit)
        except RunLostError:
            heard = Heard(faults=dict.fromkeys(self._nodes.values(), DISCONNECTED))
        for client, node in self._nodes.items():
            if node in heard.faults:
                self._note(self._names[client], "end", 0, FAULTS.get(heard.faults[node], FAULTS[0]))

    def _keep(self, client: int, box: bytes) -> None:
        for index, total in messages.unseal_totals(box, self._agreement.digest, client, self._secret):
            if self._totals.setdefault(index, total) != total:
                raise IntegrityError(f"clients opened different totals of sum {index}; begin a new fit.")

    def read(self, index: int) -> Total | None:
        """Return a total that clients opened and passed on; None where none did."""
        return TOTAL.from_bytes(self._totals[index]).total() if index in self._totals else None
