"""The configuration of masked sums, as users write it.

Bonawitz et al.: Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017
(double masking, Shamir shares), with the sparse graph of Bell et al., CCS 2020, above 200 clients
and the changes of docs/protocols/masked.md: secrets are made a block of sums ahead, so that a sum costs
two exchanges. Unmasking answers are locked: different dropout reports to different clients open nothing.
After the set-up everything is symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy, default_losses
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Replay, Session, Stage, TotalReader
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_flag, check_number, check_whole
from privfed.errors import ArgumentError
from privfed.protocols.answering import check_promised
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import InOneProcess
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.masked.statements import PROVEN, proven_grid_of
from privfed.protocols.setup.rules import check_cohort, default_terms
from privfed.protocols.setup.simulated import AnnouncingSession, SimulatedReplay, fresh_agreement, totals_kept
from privfed.protocols.valid.proof import check_compiled

VERIFIED = "masked-verified"
"""The name of masked sums whose totals clients verify."""


class Masked:
    """Lets the server open totals without seeing any client's answer, even if clients drop out.

    Reveals to the server: the total over the clients whose upload arrived, who they are, who was lost
    and when, message lengths and times. Clients learn only what the server tells them; with `verified`
    every client gets every total, also of sums that it is not in, and can attack totals as the server can.

    Protects each client from a server that may lie about everything and colludes with at most
    `colluders` clients of a cohort: each opened total is over at least `honest` honest clients with
    the same question. Assumes identities that the parties exchanged before (a registry), state that
    is never restored from a copy, and AES-256, SHA-256, SHAKE256, Ed25519. What is recorded opens to nobody,
    the server included, while X25519 or ML-KEM-768 holds. It does not hide totals, and any client can spoil
    or stop a sum.

    Args:
        colluders: most clients of the smallest cohort that collude with the server; by default a tenth,
            one more where that costs nothing. Larger cohorts withstand at least a tenth of their size.
        honest: fewest honest clients in an opened sum; by default about half of the honest ones.
        threshold: fewest clients that must be left to open a sum; by default the smallest safe number.
            In cohorts of at most 200 the clients enforce it; in larger ones they enforce only `honest`.
        dropouts: share of a cohort above 200 clients that may be lost in one sum; a larger share needs
            more neighbours. Smaller cohorts tolerate the loss of almost half.
        losses: in how many sums of a fit, over all its set-ups, other clients may be lost than before, until
            it ends: the totals are then over at most one more sets of clients, whose differences show single
            answers, and a server can invent losses. By default one, or a tenth of 30 clients or more. It
            does not bind under differential privacy.
        verified: whether every client gets every total, checks it, and answers only the question that its own
            run of the algorithm asks next. While no client colludes with the server, totals, who is in them
            and their order are then exact but for 2^-64; a client that gives the server the clients' secret
            undoes that, and nothing else. Not with slots.
        proofs: whether each client proves that its answer is one that rows in the declared ranges can give,
            as far as the question's specification says (`privfed.protocols.masked.statements`): a client that
            lies weighs no more than `max_rows` rows, and is named where it violates this. One exchange a sum
            more. Not audited: a flaw in it may show answers. Moments and products are coarser: a variance is
            lost below some 2^-50 of the squared range. Needs numba; not with verified totals, slots or
            privacy.
    """

    name = "masked"
    recipient: Literal["server"] = "server"
    reveals: Literal["sums"] = "sums"
    one_key = False
    slotted_sums = 0
    stages: tuple[Stage, ...] = (
        Stage("advertise", "it is out of the fit"),
        Stage("agree", "it is not in the first sum, and back as soon as the others have its keys"),
        Stage("prepare", "it is not in the sums that its keys were for"),
        Stage(COLLECT, "its answer is not in the sum; the others' masks with it are taken off", answers=True),
        Stage("unmask", "its answer is in the sum, as long as enough others help to open it"),
    )

    def __init__(
        self,
        *,
        colluders: int | None = None,
        honest: int | None = None,
        threshold: int | None = None,
        dropouts: float = 0.1,
        verified: bool = False,
        losses: int | None = None,
        proofs: bool = False,
    ) -> None:
        check_whole("colluders", colluders, 0, or_none=True)
        check_whole("honest", honest, 2, or_none=True)
        check_whole("threshold", threshold, 1, or_none=True)
        check_number("dropouts", dropouts, "[0, 1)")
        check_flag("verified", verified)
        check_flag("proofs", proofs)
        if verified and proofs:
            raise ArgumentError(
                "verified totals and proofs of answers do not go together yet; leave one out.",
                parameters=["verified", "proofs"],
            )
        self.colluders, self.honest, self.threshold = colluders, honest, threshold
        check_whole("losses", losses, 0, or_none=True)
        self.dropouts, self.verified, self.losses, self.proofs = dropouts, verified, losses, proofs
        if verified:
            self.name = VERIFIED
        if proofs:
            check_compiled()
            self.name = PROVEN
            lost = "it proves nothing, so that its answer is not in the sum; the others' masks are taken off"
            self.stages = (*self.stages[:-1], Stage("prove", lost), self.stages[-1])

    @property
    def assumptions(self) -> Assumptions:
        """Assumptions behind its promises."""
        most = "the agreed number of" if self.colluders is None else str(self.colluders)
        lies = "; a total or question that it changes is noticed while no client colludes with it"
        return Assumptions(
            honest="the server may lie about everything" + lies * self.verified,
            colluding=f"at most {most} clients of a cohort collude with it",
            besides="identities were exchanged before, a client's state is never restored from a copy, and "
            "X25519 or ML-KEM-768, AES-256, SHA-256, SHAKE256 and Ed25519 hold",
        )

    def steps(self, question: bytes, n_clients: int) -> FloatArray:
        """Return the steps of the grid in the total of an encoded question, float64 of shape (spec.size,)."""
        return (proven_grid_of if self.proofs else grid_of)(question, n_clients).step

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms that protect a client.

        Raises:
            ArgumentError: there are too few clients to protect, or the threshold is out of bounds.
        """
        c, m = default_terms(smallest_cohort, colluders=self.colluders, honest=self.honest)
        check_whole("threshold", self.threshold, 1, smallest_cohort, or_none=True)
        terms = Terms(
            min_clients=smallest_cohort,
            colluders=c,
            honest=m,
            max_sums=max_sums,
            threshold=self.threshold or 0,
            dropouts=self.dropouts,
            verified=self.verified,
            losses=default_losses(clients) if self.losses is None else self.losses,
        )
        check_cohort(smallest_cohort, terms)
        check_cohort(clients, terms)
        return terms

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session.

        Raises:
            ArgumentError: the key is not the registered one.
        """
        agreement.check_coordinator(identity)
        self._check_claim(agreement.configuration)
        return MaskedSession(agreement, identity)

    def _check_claim(self, configuration: Configuration) -> None:
        """Check that no noise is on answers that are proven.

        Raises:
            ArgumentError: some is.
        """
        if self.proofs and configuration.privacy is not None:
            raise ArgumentError(
                "clients do not prove answers with noise, which lie outside what rows can give: leave proofs "
                "out (protocol='masked') under a claim of differential privacy, or the claim.",
                parameters=["protocol", "privacy"],
            )

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side.

        Raises:
            ArgumentError: the key is not the registered one, or totals are verified and there is no replay.
            PolicyError: the agreement promises fewer than two honest clients, has a cohort of two, or says
                otherwise than this sum whether totals are verified.
        """
        agreement.check_client(position, identity)
        check_promised(agreement.configuration, verified=self.verified)
        self._check_claim(agreement.configuration)
        if self.verified and replay is None:
            raise ArgumentError(
                "a client of verified sums answers only what follows from the totals, and needs its own run "
                "of the algorithm to know that: pass replay=."
            )
        return MaskedClient(position, agreement, identity, policy, replay if self.verified else None)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all of them hold.

        With verified totals one replay stands for those of all clients, which are identical.
        """
        self._check_claim(configuration)
        agreement, server, identities = fresh_agreement(configuration, policies)
        replay = SimulatedReplay(totals_kept(configuration)) if configuration.terms.verified else None
        shared = InOneProcess()
        sides: dict[int, ClientSide] = {
            i: MaskedClient(i, agreement, identity, policies[i], replay, shared)
            for i, identity in identities.items()
        }
        session = MaskedSession(agreement, server, resumes=False)
        return session if replay is None else AnnouncingSession(session, replay), sides


class ProvenMasked(Masked):
    """Is `Masked(proofs=True)`, by a name of its own."""

    name = PROVEN

    def __init__(self, **words: Any) -> None:
        super().__init__(**{"proofs": True, **words})


class VerifiedMasked(Masked):
    """Is `Masked(verified=True)`, by a name of its own."""

    name = VERIFIED

    def __init__(self, **words: Any) -> None:
        super().__init__(**{"verified": True, **words})
