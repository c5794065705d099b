"""A party on its own machine: it joins a fit from its folder, an agreement and its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Client, ErrorLog
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import Domain
from privfed.errors import ArgumentError
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.nodes.signed import SignedSide
from privfed.party.answerer import check_columns
from privfed.party.client import own_client
from privfed.party.groups import OwnRows
from privfed.party.program import refuse_seeded, sized_algorithm
from privfed.party.replay import OpenedTotal, own_run, reads_totals


class Party:
    """A party with what its folder keeps: its identity, and its one journal (`privfed keys new`).

    Args:
        folder: the party's.

    Raises:
        ArgumentError: there is no identity, or others may read it.
        StateError: its journal is missing, of another identity, or cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.own = read_identity(folder)
        self.journal = Journal(folder, self.own)

    def position(self, agreement: Agreement) -> int:
        """Return this party's number in an agreement.

        Raises:
            ArgumentError: its key is not among the agreement's.
        """
        try:
            return agreement.registry.clients.index(self.own.key.public)
        except ValueError:
            raise ArgumentError(
                f"the agreement is not of {self.own.name!r}: none of its {len(agreement.registry.clients)} "
                "keys is this party's; take the agreement that was made from your public key."
            ) from None

    def join(
        self,
        agreement: Agreement,
        protocol: SecureSum,
        data: ClientData | OwnRows,
        *,
        data_set: str,
        policy: ClientPolicy,
        domain: Domain | None = None,
        log: ErrorLog | None = None,
        tells: Callable[[int, OpenedTotal], None] = lambda index, total: None,
    ) -> Client:
        """Begin a fit, or go on with one, also in another process: all that counts lies in the journal.

        The client answers no requests but those that the coordinator signed (`privfed.nodes.signed`).

        Args:
            agreement: what was agreed, and not given by the coordinator alone.
            protocol: the agreed secure sum.
            data: the party's rows, or how they are read.
            data_set: its own name of these rows; what they give is added up over all fits.
            policy: what it answers besides.
            domain: the declared domain; needed under differential privacy.
            log: its own log of errors.
            tells: hears each total that this party opens or verifies, where it gets any.

        Raises:
            PolicyError: the agreement has run, or the policy refuses it; the text is the code.
            ArgumentError: the agreement is not of this party, or its rows or versions do not fit.
            StateError: the journal cannot be used.
        """
        configuration, position = agreement.configuration, self.position(agreement)
        if protocol.name != configuration.protocol:
            raise ArgumentError(
                f"the agreement is for {configuration.protocol!r} sums, got protocol={protocol.name!r}."
            )
        if isinstance(data, ClientData):
            check_columns(data, configuration)
        rows = data if isinstance(data, OwnRows) else OwnRows.of(data)
        refuse_seeded(configuration)
        verified = reads_totals(protocol.recipient, configuration)
        sized_algorithm(configuration, domain, totals=verified)
        start = self.journal.start_of(agreement, data_set, verified)
        # A client without a run of its own checks the form of each question.
        replay: Any = None
        following: dict[str, Any] = {}
        # Of an agreement that is refused nothing is kept: it costs no fit and no epsilon.
        with self.journal.together():
            fit = self.journal.begin(agreement, position, data_set, policy, rows, log)
            if verified:

                def told(index: int, total: OpenedTotal) -> None:
                    fit.keep_start(agreement, index, own.asked(index), total)
                    tells(index, total)

                own = replay = own_run(
                    configuration, fit.store("totals"), domain=domain, tells=told, start=start
                )
                following = {"follow": own.follow}
            own_side = protocol.client(agreement, position, self.journal.identity, policy, replay)
            side = SignedSide(own_side, agreement, position, **following)
            seen = self.journal.data_set(data_set).answering(rows, configuration)
            return own_client(
                side,
                position,
                replace(seen, classes=rows.n_classes, times=rows.times),
                configuration,
                policy,
                fit.stores(side),
                domain=domain,
                log=log,
                user_key=self.own.user_key,
            )
