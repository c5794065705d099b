"""The checks that a client makes before it sends anything; each says which attack it stops.

Each raises `PolicyError`, whose text is the code of the refusal, or `MessageError`. A dropout
report of a sum is what the server tells a client of its neighbours: which are there, and which dropped out.
"""

from __future__ import annotations

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    equal,
    mac,
)
from privfed.protocols.crypto.shared import APART, Shared
from privfed.protocols.masked.bindings import receipt_data
from privfed.protocols.masked.messages import CollectRequest, UnmaskRequest
from privfed.protocols.masked.state import BOX_BYTES, Fit, Pending, Secrets
from privfed.protocols.setup.bindings import part
from privfed.protocols.setup.messages import Slot
from privfed.protocols.setup.rules import Rules, from_bitmap, is_bitmap


def check_slot(keys: Fit, slot: Slot) -> None:
    """Check that an announced sum lies ahead and keeps the cohort that it was prepared for.

    Stops a server that has one number prepared twice, for two cohorts.
    """
    known = keys.secrets.get(slot.number)
    if (
        slot.number <= keys.last
        or slot.cohort < 0
        or (known is not None and known.sent.cohort != slot.cohort)
    ):
        raise MessageError("not an upcoming sum", sender="the coordinator", stage="prepare")


def check_label(configuration: Configuration, label: int) -> None:
    """Check that the label of a drawn cohort does not exceed the number of sums in the fit.

    Stops a server that tries label after label until its colluders fill a cohort.
    """
    if configuration.cohorts.kind == "sampled" and label > configuration.terms.max_sums:
        raise PolicyError("policy:cohort")


def check_number(keys: Fit, number: int, message: CollectRequest, max_sums: int) -> Secrets:
    """Check that a sum was prepared for this cohort and follows every answered one, and that R is not spent.

    Stops replays, reopened sums, and a server that asks without end.
    """
    secrets = keys.secrets.get(number)
    if number <= keys.last or secrets is None or secrets.sent.cohort != message.cohort:
        raise MessageError("not a sum that was prepared", sender="the coordinator", stage="collect")
    if keys.answered >= max_sums:
        raise PolicyError("policy:max_sums")
    return secrets


def check_prepared(
    agreement: Rules, session: bytes, me: int, message: CollectRequest
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Check the list of prepared clients.

    Stops a server that has a client mask its answer with fewer neighbours than the threshold.

    Returns:
        The prepared neighbours, and the abscissae at which the client holds their shares.
    """
    cohort, flags = agreement.cohort(message.cohort), message.prepared
    if not is_bitmap(flags, len(cohort.members)) or not flags[cohort.place[me]]:
        raise PolicyError("prepared:list")
    neighbours = agreement.neighbours(session, message.cohort, me)
    slots = [slot for slot, place in enumerate(neighbours.places.tolist()) if flags[place]]
    if len(slots) < agreement.threshold(message.cohort):
        raise PolicyError("prepared:few")
    parts = ((message.mask_keys, KEY_BYTES), (message.seed_hashes, KEY_BYTES), (message.boxes, BOX_BYTES))
    if any(len(data) != size * len(slots) for data, size in parts):
        raise PolicyError("prepared:lengths")
    return tuple([neighbours.clients[i] for i in slots]), tuple([neighbours.held[i] for i in slots])


def check_pending(keys: Fit, number: int) -> Pending:
    """Check that this is the latest sum, and that it was not unmasked before.

    Stops a server that asks twice with different reports, or for a sum that a later one has closed.
    """
    if keys.pending is None or keys.pending.number != number or number != keys.last:
        raise MessageError(
            "not the latest sum, or unmasked already", sender="the coordinator", stage="unmask"
        )
    return keys.pending


def check_reports(
    agreement: Rules, pending: Pending, message: UnmaskRequest
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Check that each prepared neighbour is called either alive or dead; return the living and the dead.

    Stops a server that calls a client both alive and dead, or that opens a sum over too few clients.
    """
    dead = from_bitmap(pending.prepared, message.dead)
    if dead is None:
        raise PolicyError("reports:list")
    living = tuple([j for j in pending.prepared if j not in dead])
    if len(living) < agreement.threshold(pending.cohort):
        raise PolicyError("reports:few")
    return living, tuple([j for j in pending.prepared if j in dead])


def all_lost(
    agreement: Rules, pending: Pending, me: int, message: UnmaskRequest, living: tuple[int, ...]
) -> frozenset[int]:
    """Return all members of the cohort that a sum is said to be without.

    On a sparse graph the server says of the whole cohort who was lost; a lying one may tell a client of its
    neighbours only, and can call none of them both. What each client is told counts.
    """
    members = agreement.cohort(pending.cohort).members
    bits = np.unpackbits(np.frombuffer(message.lost, dtype=np.uint8))
    if len(bits) not in (0, -len(members) % 8 + len(members)) or bits[len(members) :].any():
        raise PolicyError("reports:list")
    others = {members[place] for place in np.flatnonzero(bits).tolist()}
    if others & {me, *living}:
        raise PolicyError("reports:list")
    dead = set(pending.prepared).difference(living)
    return frozenset({*pending.missing, *dead, *others})


def check_receipts(
    keys: Fit, pending: Pending, me: int, living: tuple[int, ...], receipts: bytes, shared: Shared = APART
) -> tuple[int, ...]:
    """Return the living neighbours whose receipts prove that they masked under this client's header.

    Stops a server that tells clients different questions, lists or cohorts.
    """
    if len(receipts) != RECEIPT_BYTES * len(living):
        raise PolicyError("receipts:length")
    held = shared.held("receipt", pending.number, pending.header)
    good = []
    for place, j in enumerate(living):
        key = keys.pairs[j].receipt
        expected = held.pop((key, j, me), None)
        if expected is None:
            expected = mac(key, receipt_data(pending.number, j, me, pending.header))
        if equal(part(receipts, place, RECEIPT_BYTES), expected):
            good.append(j)
    return tuple(good)
