"""The checks that a client makes before it sends anything; each says which attack it stops.

Each raises `PolicyError`, whose text is the code of the refusal, or `MessageError`. A dropout
report of a sum is what the server tells a client of its neighbours: which are there, and which dropped out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    equal,
    holds,
)
from privfed.protocols.masked.bindings import upload_data
from privfed.protocols.masked.client_state import Block, Fit, Pending, Proving, box_bytes
from privfed.protocols.masked.masked_messages import CollectRequest, UnmaskRequest
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.rules import Rules, from_bitmap, is_bitmap
from privfed.protocols.setup.setup_messages import Slot, part
from privfed.protocols.valid.proof import sigma_hash_of


def check_slot(keys: Fit, slot: Slot, most: int) -> None:
    """Check that announced sums lie ahead, and that a block keeps the cohort that it was prepared for.

    At most `most` blocks are passed over in a fit. Stops a server that has one number prepared twice, for
    two cohorts, or has chains go on without end.
    """
    known = keys.blocks.get(slot.block)
    if known is None:
        ahead = 0 < slot.block - keys.prepared <= most - keys.skipped + 1
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


def check_challenge(pending: Pending, sigma: bytes) -> Proving:
    """Return what a client has still to prove, by the sigma whose hash its masks are bound to.

    Stops a server that reads other functionals of other clients' answers, or opens one commitment twice.
    """
    if pending.proving is None:
        raise MessageError("proven already", sender="the coordinator", stage="prove")
    if not equal(sigma_hash_of(sigma), pending.proving.challenge):
        raise PolicyError("proof:challenge")
    return pending.proving


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


def survivors(
    agreement: Rules, pending: Pending, me: int, message: UnmaskRequest, living: tuple[int, ...]
) -> bytes:
    """Return all whose answers are said to be in a sum, a bit for each member of the cohort.

    On a sparse graph the server says of the whole cohort who was lost; a lying one may tell a client of its
    neighbours only, and can call none of them both. What each client is told counts.
    """
    cohort = agreement.cohort(pending.cohort)
    n, prepared = len(cohort.members), np.frombuffer(pending.participants, dtype=np.uint8)
    bits = np.frombuffer(message.lost or bytes(len(prepared)), dtype=np.uint8)
    if len(bits) != len(prepared) or (bits & ~prepared).any():
        raise PolicyError("reports:list")
    there = np.unpackbits(prepared & ~bits, count=n)
    if not there[[cohort.place[j] for j in (me, *living)]].all():
        raise PolicyError("reports:list")
    there[[cohort.place[j] for j in set(pending.prepared).difference(living)]] = 0
    return np.packbits(there).tobytes()


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


def check_signatures(pending: Pending, signed: Mapping[int, bytes], signers: bytes) -> None:
    """Check that neighbours signed this client's header: their receipts, or those that came, do not show it.

    Stops what receipts stop. A neighbour that spoils receipts stops nothing: the server asks again with the
    signatures, which any client can check.
    """
    for j, signature in signed.items():
        if not holds(part(signers, j, KEY_BYTES), signature, upload_data(pending.header, j)):
            raise PolicyError("receipts")
