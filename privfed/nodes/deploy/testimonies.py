"""What others know that a party gave which lost its folder and has no record of it: signed testimonies.

The coordinator and at least two other clients write one each, of the agreements with the lost key. A new
identity counts each fit that any of them names. So a testimony can only make budgets smaller than those of a
party that begins anew: who lies can use them up, and fits that one leaves out count where another names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.stored.encoding import Codec
from privfed.core.values.numbers import Items, Number
from privfed.errors import ArgumentError
from privfed.nodes.database import now
from privfed.nodes.datasets import PRIVATE, protection_of
from privfed.nodes.deploy.folders import check_writer
from privfed.nodes.flower.node import agreements
from privfed.nodes.flower.node_messages import Signed
from privfed.nodes.flower.settings import FILE, PARTIES_FILE, FederationFile
from privfed.nodes.identity import Parties, read_identity, read_parties
from privfed.nodes.journal import Journal, begun, raw

_OTHERS = 2
"""Fewest clients that testify, besides the coordinator."""

_Time = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fit of the lost party, as the writer knows it.

    Args:
        agreement: its bytes.
        began: when, in UTC, as an entry of a journal has it.
        answered: sums that the writer answered; 1 where it answers none.
        losses: that the writer counted.
    """

    agreement: bytes
    began: _Time
    answered: Number
    losses: Number


class Testimony(Signed, frozen=True, kw_only=True):
    """What one party knows that another one gave, signed with the writer's key.

    Args:
        parties: the writer's list, which has the lost key.
        writer: its public key.
        lost: the lost party's.
        fits: all that were agreed on with that key.
        cells: in which the writer's own rows were counted, as SHA-256 in hexadecimal digits.
    """

    parties: Parties
    writer: bytes
    lost: bytes
    fits: Items[Known]
    cells: Items[_Hash]

    def check(self) -> None:
        """Check a testimony that came from elsewhere; raises as `Agreement.from_bytes`."""
        self.parties.check()
        clients = {one.public: one for one in self.parties.clients}
        others = {self.parties.server.public: self.parties.server, **clients}
        if self.lost not in clients or self.writer not in others or self.writer == self.lost:
            raise ArgumentError("it is not by one party of its list about another client there.")
        check_writer(self, others[self.writer])
        for one in self.fits:
            if self.lost not in Agreement.from_bytes(one.agreement).registry.clients:
                raise ArgumentError("it names a fit that was not agreed on with the lost key.")


TESTIMONIES: Codec[Testimony] = Codec(Testimony, "testimony about a lost party", 1)


def testify(folder: Path, name: str) -> Testimony:
    """Return what the coordinator, or a client, knows that another client gave.

    Args:
        folder: the federation's, or a node's.
        name: of the client whose folder is lost; its lost key is still in the list.

    Raises:
        ArgumentError: the folder is of no party with a list, or no client there has this name.
        StateError: its journal cannot be used.
    """
    home = FederationFile.read(folder).coordinator if (folder / FILE).exists() else folder
    own, parties = read_identity(home), read_parties(folder / PARTIES_FILE)
    journal, (lost,) = Journal(home, own), parties.registry([name]).clients
    fits = {one["agreement"]: (one["began"], one["answered"], one["losses"]) for one in raw(journal.fits)}
    with_lost = (one for one in agreements(folder).values() if lost in one.registry.clients)
    return Testimony(
        parties=parties,
        writer=own.key.public,
        lost=lost,
        fits=tuple(Known(one.to_bytes(), *fits.get(one.digest, (now(), 1, 0))) for one in with_lost),
        cells=tuple(
            sorted(
                {
                    cell
                    for data_set in {one.data_set for one in journal.fits}
                    for cell in journal.data_set(data_set).kept(False)["cells"]
                }
            )
        ),
    ).signed(own.key)


def carried(
    found: Sequence[Testimony], data_set: str, policy: ClientPolicy
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return data sets and fits for `Journal.carry`: of each fit the most that any testimony says.

    Others cannot tell the lost party's data sets apart, so that one has all fits, nor know its groups.

    Args:
        found: checked testimonies.
        data_set: the owner's name of the rows.
        policy: what the owner approves now.

    Raises:
        ArgumentError: they are not the coordinator's and two other clients', about one lost key, by one list.
    """
    others = {one.writer for one in found} - {found[0].parties.server.public}
    same = {(one.lost, one.parties.fingerprint) for one in found}
    by_server = any(one.writer not in others for one in found)
    if len(same) > 1 or not by_server or len(others) < _OTHERS:
        raise ArgumentError(
            f"these are testimonies of {len(others)} clients, by {len(same)} lists or about as many keys; "
            f"needed are the coordinator's and those of {_OTHERS} clients about one key, by one list "
            "(privfed journal testify), or a record of your own (privfed journal export)."
        )
    fits, protections, cells = dict[bytes, dict[str, Any]](), {PRIVATE}, set[str]()
    for testimony in found:
        cells.update(testimony.cells)
        for one in testimony.fits:
            agreement = Agreement.from_bytes(one.agreement)
            position = agreement.registry.clients.index(testimony.lost)
            known = fits.setdefault(agreement.digest, begun(agreement, position, data_set, policy.order))
            known["began"] = min(known["began"], one.began)
            known["answered"] = max(known.get("answered", 0), one.answered)
            known["losses"] = max(known.get("losses", 0), one.losses)
            protections.add(protection_of(policy, agreement.configuration))
    # Exact or grouped rows come before private ones: no later claim holds for them.
    about = {"protection": min(protections), "cells": sorted(cells), "groups": None}
    return {data_set: about} if fits else {}, sorted(fits.values(), key=lambda one: str(one["began"]))
