"""The configuration of encrypted sums, as users write it (docs/protocols/ckks.md)."""

from __future__ import annotations

from typing import Literal

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import default_losses
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Stage
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.privacy.pricing import reach_of
from privfed.protocols.answering import FEWEST_SUMMED
from privfed.protocols.ckks.grid import MAX_CLIENTS, SlotGrid
from privfed.protocols.ckks.scheme import CkksScheme
from privfed.protocols.client_opened.client_opened import ClientOpenedSum

LEAST_BUDGET = 5e-4
"""Least budget mu^2 for noise of the server; below it, float rounding in the encoding would matter."""

FEWEST = 3
"""Default of `honest`: in a total of two answers, each of the two clients learns the other's."""


class CKKS(ClientOpenedSum):
    """Sums homomorphically encrypted answers: the server adds ciphertexts, the clients open the total.

    Reveals to every client: every total, whose answers are in it, and every question, including those of
    sums that it is not in. Reveals to the server: who contributed, who was lost and when, message lengths
    and times; no question, no total, no answer.

    Protects answers and totals from a server that may lie about everything and colludes with *no* client:
    all clients hold the key of the fit, so a single colluding client can open every answer. A server alone
    changes nothing unnoticed (a wrong total passes with probability 2^-69), but it chooses whose answers
    are in a total, at least `honest` of them. Assumes identities that the parties exchanged before (a
    registry) and state that is never restored from a copy. Assumes ring-LWE with the parameters of
    `privfed.protocols.ckks.grid` at 128 bits, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519. Any
    client can spoil or stop a sum. If the server adds the noise (`Privacy(noise="server")`), it can also
    change totals as it likes, except whose answers they name.

    Args:
        honest: fewest clients in a total; clients refuse to open a total of fewer.
        repeats: how often in a fit a client contributes again to a sum whose total it never got.
        losses: in how many sums of a fit, over all its set-ups, other clients may be lost than before, until
            it ends: the totals are then over at most one more sets of clients, whose differences show single
            answers, and a server can invent losses. By default one, or a tenth of 30 clients or more. It
            does not bind under differential privacy.
    """

    name = "ckks"
    recipient: Literal["clients"] = "clients"
    reveals: Literal["sums"] = "sums"
    one_key = True
    """One client's key opens every upload: shares of noise do not protect against it and the server."""
    slotted_sums = 0
    verified = False

    stages = (
        Stage("advertise", "it is out of the fit"),
        Stage("prepare", "it is out of the fit"),
        Stage(COLLECT, "its answer is not in the sum", answers=True),
        Stage("close", "it does not have the last total"),
    )
    assumptions = Assumptions(
        honest="the server may lie about everything",
        colluding="no client colludes with it: one that does opens every answer",
        besides="identities were exchanged before, a client's state is never restored from a copy, and "
        "ring-LWE at 128 bits, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519 hold",
    )

    def __init__(self, *, honest: int = FEWEST, repeats: int = 3, losses: int | None = None) -> None:
        check_whole("honest", honest, 2)
        check_whole("repeats", repeats, 0)
        check_whole("losses", losses, 0, or_none=True)
        self.honest, self.repeats, self.losses = honest, repeats, losses

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms that protect a client.

        Raises:
            ArgumentError: a cohort is smaller than `honest`, or there are more clients than one sum can hold.
        """
        if not 2 <= self.honest <= smallest_cohort or smallest_cohort < FEWEST_SUMMED:
            raise ArgumentError(
                f"an encrypted sum needs 2 <= honest <= {smallest_cohort} (the smallest cohort), got honest="
                f"{self.honest}, and at least {FEWEST_SUMMED} clients in every cohort: a total of few "
                "clients shows their answers to each other. Take more clients, or draw more of them for a "
                'round, or use protocol="plain", which hides nothing.'
            )
        if clients > MAX_CLIENTS:
            raise ArgumentError(f"an encrypted sum is for at most {MAX_CLIENTS} clients, got {clients}.")
        return Terms(
            min_clients=smallest_cohort,
            honest=self.honest,
            max_sums=max_sums,
            repeats=self.repeats,
            losses=default_losses(clients) if self.losses is None else self.losses,
        )

    def scheme(self, configuration: Configuration) -> CkksScheme:
        """Return the scheme that encrypts answers.

        Raises:
            ArgumentError: a planned sum with noise does not fit its slots, or the server would add more noise
                than the encoding's float precision allows.
        """
        terms = configuration.privacy
        # The planned sums are checked before the first, so that no budget is spent on a fit that must fail.
        for added in () if terms is None else terms.schedule:
            smallest = configuration.cohorts.smallest(len(configuration.clients))
            SlotGrid(added.spec, smallest, reach_of(added))
        if terms is not None and configuration.noised_by_server and terms.budget < LEAST_BUDGET:
            raise ArgumentError(
                f'noise="server" over encrypted sums needs a budget of mu^2 >= {LEAST_BUDGET:g} (epsilon of '
                f"about 0.1 or more), got epsilon={terms.epsilon:g}: with wider noise, float rounding would "
                'reveal too much. Use protocol="group-masked".'
            )
        return CkksScheme(configuration.terms, by_server=configuration.noised_by_server)
