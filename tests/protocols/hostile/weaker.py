"""Weaker forms of the protocol: each takes one guard out of the real client."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from privfed.protocols.crypto.keys import KEY_BYTES, encapsulate, new_seed
from privfed.protocols.masked import bindings, blocks, checks
from privfed.protocols.masked import masked_client as code
from privfed.protocols.masked.bindings import lock_key, pair_prefix, receipt_from, self_stream
from privfed.protocols.masked.client_state import Block, Fit, Pending, State
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.masked.masked_messages import CollectRequest, Preparation, UnmaskRequest
from privfed.protocols.setup import advertising, graph, hybrid, parties, rules
from privfed.protocols.setup.rules import Rules, sum_header
from privfed.protocols.setup.setup_messages import AdvertiseRequest, RosterRequest, Slot

Patch = Callable[[pytest.MonkeyPatch], None]


def without_lock(patch: pytest.MonkeyPatch) -> None:
    """Lock answers under a key that the server knows, not under the client's answer key."""
    patch.setattr(code, "lock_key", lambda answer, *bound_to: lock_key(bytes(32), *bound_to))


def without_receipts(patch: pytest.MonkeyPatch) -> None:
    """Give shares of all who are called alive, whatever they masked under."""
    patch.setattr(checks, "check_receipts", lambda pending, living, receipts: living)


def without_direction(patch: pytest.MonkeyPatch) -> None:
    """Make receipts that do not say who made them for whom."""
    patch.setattr(bindings, "receipt_from", lambda me, other: receipt_from(0, 1))


def without_header(patch: pytest.MonkeyPatch) -> None:
    """Do not bind masks and receipts of two clients to the sum."""
    patch.setattr(bindings, "pair_prefix", lambda header: pair_prefix(b""))


def without_recovery_key(patch: pytest.MonkeyPatch) -> None:
    """Give the coordinator the secrets of pairs as they are."""
    hidden = blocks.recovery_pad

    def nothing(secret: bytes, session: bytes, number: int, client: int, neighbours: int) -> Any:
        return 0 * hidden(secret, session, number, client, neighbours)

    patch.setattr(blocks, "recovery_pad", nothing)


def without_counts(patch: pytest.MonkeyPatch) -> None:
    """Answer however few are prepared, alive, or have receipts; shares keep their threshold."""
    patch.setattr(Rules, "threshold", lambda self, label: 0)


def without_question(patch: pytest.MonkeyPatch) -> None:
    """Do not bind masks and receipts to the question."""
    patch.setattr(
        code,
        "sum_header",
        lambda session, number, index, question, cohort, prepared, history=b"", head=b"": sum_header(
            session, number, index, b"", cohort, prepared, history, head
        ),
    )


def without_signatures(patch: pytest.MonkeyPatch) -> None:
    """Believe any list of clients."""
    patch.setattr(advertising, "_is_signed", lambda public, agreement, fit, one: True)


def without_own_mask(patch: pytest.MonkeyPatch) -> None:
    """Mask with pair masks only, as before Bonawitz et al."""
    patch.setattr(bindings, "self_stream", lambda seed, *bound_to: self_stream(bytes(32), *bound_to))


def without_number(patch: pytest.MonkeyPatch) -> None:
    """Do not bind boxes to the block of their sum, nor have chains go on."""
    patch.setattr(blocks, "ratcheted", lambda pair, block: msgspec.structs.replace(pair, block=block))
    patch.setattr(
        blocks, "block_prefix", lambda session, block, *rest: bindings.block_prefix(session, 0, *rest)
    )
    patch.setattr(
        blocks, "box_binding", lambda session, block, *rest: bindings.box_binding(session, 0, *rest)
    )


def without_session(patch: pytest.MonkeyPatch) -> None:
    """Give every set-up the same session."""
    for module in (code, parties):
        patch.setattr(module, "session_of", lambda agreement, fit, clients: agreement.digest)


def with_ciphertexts_again(patch: pytest.MonkeyPatch) -> None:
    """Encapsulate the same to the same key, whenever it comes."""
    patch.setattr(hybrid, "encapsulate", lru_cache(encapsulate))


def without_slots(patch: pytest.MonkeyPatch) -> None:
    """Prepare for any cohort that the server names."""
    patch.setattr(checks, "check_slot", lambda *told: None)


def without_labels(patch: pytest.MonkeyPatch) -> None:
    """Draw a cohort for any label."""
    patch.setattr(checks, "check_label", lambda *told: None)


def without_larger_colluders(patch: pytest.MonkeyPatch) -> None:
    """Assume as few colluders when everyone is asked as in the smallest cohort."""
    patch.setattr(graph, "colluders_in", lambda n, terms: terms.colluders)
    patch.setattr(rules, "sizes", graph.sizes.__wrapped__)


def with_overlap(patch: pytest.MonkeyPatch) -> None:
    """Let a server call a client both alive and dead: who is called dead stays among the living."""
    real = checks.check_reports

    def overlap(agreement: Rules, pending: Pending, message: UnmaskRequest) -> Any:
        return pending.prepared, real(agreement, pending, message)[1]

    patch.setattr(checks, "check_reports", overlap)


def with_numbers_again(patch: pytest.MonkeyPatch) -> None:
    """Answer a number as often as it is asked."""
    kept: dict[tuple[bytes, int], Block] = {}

    def again(keys: Fit, number: int, block: int, message: CollectRequest, max_sums: int) -> Block:
        if block in keys.blocks and number in keys.blocks[block].own:
            kept[keys.channel, number] = keys.blocks[block]
        return kept[keys.channel, number]

    patch.setattr(checks, "check_number", again)


def without_max_sums(patch: pytest.MonkeyPatch) -> None:
    """Answer without end."""
    real = checks.check_number
    patch.setattr(
        checks,
        "check_number",
        lambda keys, number, block, message, _: real(keys, number, block, message, 1 << 30),
    )


def with_threshold(t: int) -> Patch:
    """Return a patch after which clients share with a threshold that the server chose."""

    def patch_threshold(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(code, "threshold", lambda n, terms: t)
        patch.setattr(Rules, "threshold", lambda self, label: t)

    return patch_threshold


class KeepsKeys(MaskedClient):
    """Advertises the same keys for every fit."""

    _kept = b""

    def advertise(self, state: State, message: AdvertiseRequest) -> tuple[State, bytes]:
        self._kept = self._kept or new_seed()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parties, "new_secret", lambda: self._kept[:KEY_BYTES])
            patch.setattr(parties, "new_seed", lambda: self._kept)
            return super().advertise(state, message)


class ForgetsAnswers(MaskedClient):
    """Starts the count of its answers anew with each set-up."""

    def join(self, state: State, message: RosterRequest) -> tuple[State, bytes]:
        keys = None if state.keys is None else msgspec.structs.replace(state.keys, answered=0)
        return super().join(msgspec.structs.replace(state, keys=keys, answered=0), message)


class ReusesSecrets(MaskedClient):
    """Makes its secrets once, not once a block."""

    _first: Block | None = None

    def _with_block(self, keys: Fit, slot: Slot) -> Fit:
        if self._first is not None:
            return share_again(self, self._first, keys, slot)
        keys = super()._with_block(keys, slot)
        self._first = keys.blocks[slot.block]
        return keys


class PreparesTwice(MaskedClient):
    """Shares the same secrets again where it is asked to prepare a block for a second cohort."""

    def _prepare(self, keys: Fit, upcoming: tuple[Slot, ...]) -> tuple[Fit, tuple[Preparation, ...]]:
        sent: list[Preparation] = []
        for slot in upcoming:
            checks.check_slot(keys, slot, self.ceiling.skipped)
            known = keys.blocks.get(slot.block)
            if known is not None and known.cohort != slot.cohort:
                twice = share_again(self, known, keys, slot).blocks[slot.block].sent
                sent += [] if twice is None else [twice]
                continue
            keys, prepared = super()._prepare(keys, (slot,))
            sent += prepared
        return keys, tuple(sent)


def share_again(client: MaskedClient, first: Block, keys: Fit, slot: Slot) -> Fit:
    """Share secrets that were shared before."""
    secrets = b"".join(first.own.values())
    again = iter([secrets[i : i + KEY_BYTES] for i in range(0, len(secrets), KEY_BYTES)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "new_secret", lambda: next(again))
        return MaskedClient._with_block(client, keys, slot)
