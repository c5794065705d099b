"""The configuration of group-masked sums, as users write it (docs/protocols/group-masked.md)."""

from __future__ import annotations

from typing import Literal

from privfed.core.agreed.assumptions import COLLECT, Assumptions, Stage
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import default_losses
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.protocols.client_opened.bindings import needed
from privfed.protocols.client_opened.secure_sum import ClientOpenedSum
from privfed.protocols.group_masked.masks import MaskScheme
from privfed.protocols.setup.rules import default_terms

MAX_CLIENTS = 200
"""Most clients. Every client masks with every other, so the cost of all grows with their number squared."""


class GroupMasked(ClientOpenedSum):
    """Lets the clients open totals, while the server sees only who took part.

    Reveals to every client: every total and every question, including those of sums that it is not in.
    Reveals to the server: who contributed, who was lost and when, message lengths and times; no
    question, no total, no answer.

    Protects answers from a server that may lie about everything and colludes with at most `colluders`
    clients of a cohort. Together they read totals, each over at least `honest` honest clients. By naming
    clients lost they can also obtain differences of totals, at most `repeats` times in a fit. A server
    that colludes with no client reads nothing and changes nothing unnoticed (a wrong total passes with
    probability 2^-64). Assumes identities that the parties exchanged before (a registry), state that is
    never restored from a copy, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519. Any client
    can spoil or stop a sum. Masks of lost clients are not recovered: the sum is asked again without
    these clients, and they are out until the next fit. If the server adds the noise
    (`Privacy(noise="server")`), it can also change totals as it likes, except the number of contributors,
    and with one colluding client it sees totals without noise.

    Args:
        colluders: most clients of the smallest cohort that collude with the server; larger cohorts are
            assumed to have the same share. By default a tenth, one more where that costs nothing.
        honest: fewest honest clients in a sum; by default about half of the honest ones.
        repeats: how often in a fit a sum may be asked again without clients that were lost.
        losses: in how many sums of a fit, over all its set-ups, other clients may be lost than before, until
            it ends: the totals are then over at most one more sets of clients, whose differences show single
            answers, and a server can invent losses. By default one, or a tenth of 30 clients or more. It
            does not bind under differential privacy.
    """

    name = "group-masked"
    recipient: Literal["clients"] = "clients"
    reveals: Literal["sums"] = "sums"
    one_key = False
    slotted_sums = 0
    verified = False
    stages = (
        Stage("advertise", "it is out of the fit"),
        Stage("prepare", "it is out of the fit"),
        Stage(COLLECT, "it is out of the fit, and the sum is asked again without it", answers=True),
        Stage("close", "it does not have the last total"),
    )

    def __init__(
        self,
        *,
        colluders: int | None = None,
        honest: int | None = None,
        repeats: int = 3,
        losses: int | None = None,
    ) -> None:
        check_whole("colluders", colluders, 0, or_none=True)
        check_whole("honest", honest, 2, or_none=True)
        check_whole("repeats", repeats, 0)
        check_whole("losses", losses, 0, or_none=True)
        self.colluders, self.honest, self.repeats, self.losses = colluders, honest, repeats, losses

    @property
    def assumptions(self) -> Assumptions:
        """Assumptions behind its promises."""
        most = "the agreed number of" if self.colluders is None else str(self.colluders)
        return Assumptions(
            honest="the server may lie about everything; a total that it changes is noticed while no client "
            "colludes with it",
            colluding=f"at most {most} clients of a cohort collude with it; together they read totals",
            besides="identities were exchanged before, a client's state is never restored from a copy, and "
            "X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519 hold",
        )

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms that protect a client.

        Raises:
            ArgumentError: there are too few clients to protect, or more than `MAX_CLIENTS`.
        """
        c, m = default_terms(smallest_cohort, colluders=self.colluders, honest=self.honest)
        if clients > MAX_CLIENTS:
            raise ArgumentError(
                f"a group-masked sum is for at most {MAX_CLIENTS} clients, got {clients}: each masks with "
                'every other. Use protocol="masked".'
            )
        terms = Terms(
            min_clients=smallest_cohort,
            colluders=c,
            honest=m,
            max_sums=max_sums,
            repeats=self.repeats,
            losses=default_losses(clients) if self.losses is None else self.losses,
        )
        if needed(clients, terms) > clients:
            raise ArgumentError(
                f"a cohort of all {clients} clients cannot have {m} honest ones, if it has the same share of "
                f"colluders as a cohort of {smallest_cohort} with {c}; assume fewer colluders, or ask more "
                "clients a round."
            )
        return terms

    def scheme(self, configuration: Configuration) -> MaskScheme:
        """Return the scheme that masks answers."""
        return MaskScheme(by_server=configuration.noised_by_server)
