"""Lets a server that chooses its questions ask real clients, behind their real protocol.

An oracle drives a federation as an algorithm does, so clients' policies and the protocol refuse what they
would refuse elsewhere. With a decoy, the server asks its target one question and all others another one,
if the coordinator's session can be made to.

Under differential privacy every question costs an equal share of the clients' budget. The server's own
ledger does not stop an attacker; the clients' ledgers do, and they have already paid for any earlier fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from privfed.core.asking.question import Question
from privfed.core.record.records import Began, SumView
from privfed.core.roles.conversation import Ask, Setting, Total, changed
from privfed.core.roles.engine import Exchange
from privfed.core.roles.secure_sum import COLLECT, Session, Steps
from privfed.core.stored.encoding import decode, encode
from privfed.core.values.numbers import check_whole
from privfed.errors import PolicyError
from privfed.federation.driver import Federation
from privfed.privacy.ledger import BudgetLedger
from privfed.protocols.masked.masked_messages import CollectRequest
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.plain import PlainRequest, PlainSession
from privfed.protocols.setup.setup_messages import Envelope

CLIENTS_VERIFY = "clients verify totals, and refuse what their own run of the algorithm does not ask next"
CLIENTS_OPEN = "the clients pose the questions and open the totals; the server does neither"
"""Reason why a server cannot ask questions of its own over sums that clients open."""


class Oracle:
    """Asks clients as an active server, as often as its budget allows.

    Args:
        federation: the clients, behind their protocol: a fitted model's `federation_`, or a fresh one, for
            a server that probes in place of the fit.
        budget: most questions. Under differential privacy each costs 1/budget of the clients' privacy
            budget.

    Raises:
        ArgumentError: the budget is not positive.
    """

    def __init__(self, federation: Federation, budget: int) -> None:
        check_whole("budget", budget, 1)
        self._federation = federation
        self._budget = budget
        self.asked = 0

    @property
    def left(self) -> int:
        """How many questions are left."""
        return self._budget - self.asked

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients, by position."""
        return self._federation.configuration.clients

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._federation.configuration.n_features

    @property
    def setting(self) -> Setting:
        """The public facts that an honest algorithm would start from."""
        return self._federation.setting

    def closed_to(self, client: int | None, *, inconsistent: bool) -> str:
        """Say why a server cannot ask questions of its own here; empty if it can.

        Args:
            client: position of the client whose answers the server wants; None for totals.
            inconsistent: whether the server asks the clients of one sum different questions, so that the
                total shows the answer of one client.
        """
        began = self._federation.transcript.of(Began)[0]
        if began.recipient != "server":
            return CLIENTS_OPEN
        if began.configuration.terms.verified:
            return CLIENTS_VERIFY
        if client is not None and not inconsistent and began.reveals != "contributions":
            return f"it reads the answers of client {client} alone; these sums show a server no single ones"
        if inconsistent and not isinstance(self._federation._session, PlainSession | MaskedSession):
            return f"{type(self._federation._session).__name__} gives its coordinator no question to swap"
        return ""

    def ask(
        self,
        question: Question,
        decoy: Question | None = None,
        target: int = 0,
        *,
        weights: Mapping[str, float] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> SumView:
        """Ask all clients a question; with a decoy, ask the target the question and all others the decoy.

        Args:
            question: what is asked.
            decoy: a question of the same layout and ranges.
            target: position of the client that is asked the question.
            weights: under differential privacy: entry -> its part of the question's cost, at most 1 in
                all; equal parts by default.
            limits: at unit "client": entry -> L2 norm that a client's array is clipped to.

        Returns:
            What the server saw; under differential privacy with the noised question.

        Raises:
            PolicyError: the budget is spent, or this protocol does not let a server ask or read; nothing
                was asked.
            PrivacyError: clients would refuse the question, as it has no proven bound; nothing was asked.
            ProtocolError: clients refused, or the sum could not be opened.
        """
        if self.left < 1:
            raise PolicyError(f"the budget of {self._budget} questions is spent.")
        federation = self._federation
        closed = self.closed_to(None, inconsistent=decoy is not None)
        if closed:
            raise PolicyError(f"{closed}.")
        self.asked += 1
        asks = [self._ask(one, weights, limits) for one in (question, decoy) if one is not None]
        honest, ledger = federation._session, federation.ledger
        if federation.configuration.privacy is not None:
            # The attacker's own ledger starts afresh with every question.
            asks = [BudgetLedger(self._federation.configuration).price(ask) for ask in asks]
            federation.ledger = None
        # The attacker is the coordinator, so the session and its keys are the attacker's own.
        federation._session = honest if decoy is None else _TwoFaced(honest, asks[1].question, target)
        try:
            total = federation.ask(asks[0])
            return SumView(
                index=self.asked,
                purpose="probe",
                question=asks[0].question,
                cohort=total.contributors,
                contributors=total.contributors,
                total=total.statistics,
                answers=total.contributions or {},
                upload_bytes={},
            )
        finally:
            federation._session, federation.ledger = honest, ledger

    def _ask(
        self, question: Question, weights: Mapping[str, float] | None, limits: Mapping[str, float] | None
    ) -> Ask:
        names = [entry.name for entry in question.spec.entries]
        parts = dict.fromkeys(names, 1.0 / len(names)) if weights is None else weights
        shares = {name: part / self._budget for name, part in parts.items()}
        return Ask(question, purpose="probe", weights=shares, limits=limits)


class _TwoFaced:
    """Runs a session, but sends a decoy in place of the question to all clients but one."""

    def __init__(self, honest: Session, decoy: Question, target: int) -> None:
        self._honest, self._decoy, self._target = honest, decoy.to_bytes(), target

    def open(self) -> Steps[None]:
        """Set up as the honest session does."""
        return self._honest.open()

    def close(self) -> Steps[None]:
        """End as the honest session does."""
        return self._honest.close()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Run the honest sum, with the decoy swapped into the requests that carry the question."""
        return changed(self._honest.sum(question, index, cohort, upcoming), self._with_decoy)

    def _with_decoy(self, exchange: Exchange) -> Exchange:
        if exchange.stage != COLLECT:
            return exchange
        requests = {
            client: request if client == self._target else self._swapped(client, request)
            for client, request in exchange.requests.items()
        }
        return Exchange(exchange.stage, exchange.number, requests)

    def _swapped(self, client: int, request: bytes) -> bytes:
        if isinstance(self._honest, PlainSession):
            plain = decode(request, PlainRequest, sender="the attacker", stage=COLLECT)
            return encode(msgspec.structs.replace(plain, question=self._decoy))
        channel = cast(MaskedSession, self._honest)._channels[client]
        envelope = decode(request, Envelope, sender="the attacker", stage=COLLECT)
        honest = channel.down.open(envelope, CollectRequest)
        return channel.down.seal(
            envelope.number, COLLECT, msgspec.structs.replace(honest, question=self._decoy)
        )
