"""The checks that a client makes before it sends anything; each says which attack it stops.

Each raises `PolicyError`, whose text is the code of the refusal, or `MessageError`. A dropout
report of a sum is what the server tells a client of its neighbours: which are there, and which dropped out.
"""

from __future__ import annotations

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import RECEIPT_BYTES, equal
from privfed.protocols.masked.client_state import Block, Fit, Pending, box_bytes
from privfed.protocols.masked.masked_messages import CollectRequest, UnmaskRequest
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.rules import Rules, from_bitmap, is_bitmap
from privfed.protocols.setup.setup_messages import Slot, part

MOST_SKIPPED = 1 << 16
"""Most blocks that are left out between two: chains go forward through all of them."""


def check_slot(keys: Fit, slot: Slot) -> None:
    """Check that announced sums lie ahead, and that a block keeps the cohort that it was prepared for.

    Stops a server that has one number prepared twice, for two cohorts, or has chains go on without end.
    """
    known = keys.blocks.get(slot.block)
    if known is None:
        ahead = 0 < slot.block - keys.prepared <= MOST_SKIPPED
    else:
        ahead = known.cohort == slot.cohort and known.sent is not None
    if not ahead:
        raise MessageError("not upcoming sums", sender="the coordinator", stage="prepare")


def check_label(configuration: Configuration, label: int) -> None:
    """Check that the label of a drawn cohort does not exceed the number of sums in the fit.

    Stops a server that tries label after label until its colluders fill a cohort.
    """
    if configuration.cohorts.kind == "sampled" and label > configuration.terms.max_sums:
        raise PolicyError("policy:cohort")


def check_number(keys: Fit, number: int, block: int, message: CollectRequest, max_sums: int) -> Block:
    """Check that a sum was prepared for this cohort and follows every answered one, and that R is not spent.

    Stops replays, reopened sums, and a server that asks without end.
    """
    prepared = keys.blocks.get(block)
    if number <= keys.last or prepared is None or prepared.cohort != message.cohort:
        raise MessageError("not a sum that was prepared", sender="the coordinator", stage="collect")
    if keys.answered >= max_sums:
        raise PolicyError("policy:max_sums")
    return prepared


def check_prepared(
    agreement: Rules, neighbours: Neighbours, me: int, message: CollectRequest
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Check the list of prepared clients.

    Stops a server that has a client mask its answer with fewer neighbours than the threshold.

    Returns:
        The places of the prepared ones among the client's neighbours, and of those whose boxes come.
    """
    cohort, flags = agreement.cohort(message.cohort), message.prepared
    if not is_bitmap(flags, len(cohort.members)) or not flags[cohort.place[me]]:
        raise PolicyError("prepared:list")
    slots = tuple([slot for slot, place in enumerate(neighbours.places.tolist()) if flags[place]])
    if len(slots) < agreement.threshold(message.cohort):
        raise PolicyError("prepared:few")
    if not is_bitmap(message.brought, len(slots)):
        raise PolicyError("prepared:lengths")
    brought = tuple([slot for slot, flag in zip(slots, message.brought, strict=True) if flag])
    if len(message.boxes) != box_bytes(agreement.block_size) * len(brought):
        raise PolicyError("prepared:lengths")
    return slots, brought


def check_opened(block: Block, neighbours: Neighbours, slots: tuple[int, ...]) -> None:
    """Check that the box of each prepared neighbour came and opened, for this sum or an earlier one.

    Stops a server that spoils boxes, so that a client masks with others that hold no share of its secrets.
    """
    for slot in slots:
        if not block.opened[slot]:
            raise PolicyError(f"box:{neighbours.clients[slot]}")


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


def check_receipts(pending: Pending, living: tuple[int, ...], receipts: bytes) -> tuple[int, ...]:
    """Return the living neighbours whose receipts prove that they masked under this client's header.

    Stops a server that tells clients different questions, lists or cohorts.
    """
    if len(receipts) != RECEIPT_BYTES * len(living):
        raise PolicyError("receipts:length")
    where = {j: place for place, j in enumerate(pending.prepared)}
    pairs = [
        (part(receipts, place, RECEIPT_BYTES), part(pending.receipts, where[j], RECEIPT_BYTES))
        for place, j in enumerate(living)
    ]
    return tuple([j for j, (came, expected) in zip(living, pairs, strict=True) if equal(came, expected)])
