"""What every kind of message of a secure sum may cost, given the agreement, checked before it is used.

A field of bytes or entries has a most length (`Ceiling.most`), by its name, since a name means the same in
all messages. A kind of message has a most size, the sum over its fields. There are n clients, each with d
neighbours, d <= n - 1.

| work | at most |
|---|---|
| of a list of clients | n signatures, n key agreements of X25519, n encapsulations |
| of any other request | n encapsulations and n of their inverse; `MOST_SLOTS` blocks with d boxes each |
| of chains that go forward | d times `Ceiling.skipped` steps in a fit, and d for each prepared block |
| of a question | `privfed.core.asking.declaration.CEILING`, whatever the rows |
| of bytes | their number: they are decrypted, decoded and hashed once |

Questions, answers, totals and a scheme's own secret may fill a message, 1 GiB. How long they have to be
follows from what they are for, and is checked where that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, get_args

from privfed.core.agreed.configuration import Configuration
from privfed.core.stored.encoding import MAX_MESSAGE_BYTES, decode
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import (
    CIPHERTEXT_BYTES,
    ENCAPSULATION_BYTES,
    KEY_BYTES,
    NONCE_BYTES,
    RECEIPT_BYTES,
    TAG_BYTES,
)
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Direction, Envelope
from privfed.protocols.setup.simulated import totals_kept

MOST_SLOTS = 4
"""Most blocks of future sums that a request names, and that a client holds key material for."""

MOST_STEPS = 1 << 20
"""Most steps of chains through blocks that are passed over in a fit, some .5 s, whatever was agreed."""

SECRET_BYTES = 3 * KEY_BYTES
"""A client's secrets for one number, or shares of them: b, e and a, in this order."""

_HEAD = 64
"""More bytes than stand before a field, or than a number, a short text, a key or a seal takes."""


def box_bytes(count: int) -> int:
    """Return the size of a sealed box with the shares for `count` numbers."""
    return NONCE_BYTES + SECRET_BYTES * count + TAG_BYTES


class Ceiling:
    """Holds the most that messages may cost under one agreement.

    Args:
        n: how many clients the agreement has.
        max_sums: most sums of a fit.
        kept: most totals that a request brings.
        **known: most bytes of further fields, or of those that may fill a message.

    Attributes:
        most: name of a field -> most entries, and bytes of each; of bytes, their number and 1.
        skipped: most blocks that a client passes over in a fit. Each sum may fail and take another block.
        bytes_of: most bytes of a kind of message, or of several kinds.
    """

    def __init__(self, n: int, max_sums: int, kept: int, **known: int) -> None:
        d, whole = min(n - 1, MAX_HOLDERS), MAX_MESSAGE_BYTES
        boxes, block = d * box_bytes(BLOCK), KEY_BYTES * BLOCK
        self.skipped = min(MOST_STEPS // d, 2 * max_sums + 16)
        self.most = {
            "clients": (n, 8 * _HEAD),
            "statements": (2, 10 * _HEAD),
            "keys": (n, ENCAPSULATION_BYTES + _HEAD),
            "capsules": (n, CIPHERTEXT_BYTES + 2 * _HEAD),
            "invitations": (n, 3 * _HEAD),
            "upcoming": (MOST_SLOTS, _HEAD),
            "preparations": (MOST_SLOTS, boxes + (2 * d + 2) * block + 8 * _HEAD),
            **dict.fromkeys(("totals", "earlier"), (kept, whole)),
            **dict.fromkeys(("prepared", "brought", "contributors", "dead", "lost"), (n, 1)),
            **dict.fromkeys(
                ("question", "words", "proof", "body", "invitation", "box", "envelope"), (whole, 1)
            ),
            "encapsulation": (ENCAPSULATION_BYTES, 1),
            "ciphertext": (CIPHERTEXT_BYTES, 1),
            "signature": (64, 1),
            "commitments": (2 * block, 1),
            "recovery": (d * block, 1),
            "boxes": (boxes, 1),
            "receipts": (d * RECEIPT_BYTES, 1),
            "answer_shares": (d * KEY_BYTES, 1),
            "locked": (d * KEY_BYTES + _HEAD, 1),
            "history": (2 * max_sums + 16, n // 4 + 5 * _HEAD),
            "survivors": (n // 8 + 1, 1),
            "signatures": (64 * d, 1),
            **dict.fromkeys(("key_hashes", "leaves"), (KEY_BYTES * d, 1)),
            "secret": (KEY_BYTES, 1),
            "sealed_box": (box_bytes(BLOCK), 1),
            **{name: (length, 1) for name, length in known.items()},
        }
        self.bytes_of = lru_cache(self._bytes_of)

    @staticmethod
    def of(configuration: Configuration, **known: int) -> Ceiling:
        """Return the ceiling of an agreement; all clients of a simulation share one."""
        sizes = len(configuration.clients), configuration.terms.max_sums, totals_kept(configuration)
        return _shared(*sizes, **known)

    def _bytes_of(self, kinds: Any) -> int:
        """Return the most bytes of a kind of message, or of one of several."""
        return max(
            _HEAD + sum(_HEAD + prod(self.most.get(name, (0,))) for name in one.__struct_fields__)
            for one in get_args(kinds) or (kinds,)
        )

    def read(
        self, data: Any, kinds: Any, *, sender: str, stage: str, opened: Callable[..., Any] = decode
    ) -> Any:
        """Return a message of one of some kinds.

        Args:
            data: its bytes.
            kinds: what it may be.
            sender: who sent it, for errors.
            stage: in which stage, likewise.
            opened: makes the bytes a message.

        Raises:
            MessageError: it or one of its fields is too long, or it is malformed.
        """
        if len(data) > (most := self.bytes_of(kinds)):
            raise MessageError(f"{len(data)} bytes, expected at most {most}", sender=sender, stage=stage)
        message = opened(data, kinds, sender=sender, stage=stage)
        for one in (message, getattr(message, "collect", message)):
            for name in one.__struct_fields__:
                # Who checks a proof refuses another length, too, and names its sender.
                if name in self.most and len(getattr(one, name)) > self.most[name][0] and name != "proof":
                    raise MessageError(f"a longer {name} than agreed", sender=sender, stage=stage)
        return message

    def unsealed(self, way: Direction, one: Envelope, kinds: Any, sender: str = "the coordinator") -> Any:
        """Return the message in an envelope; raises as `read`."""
        return self.read(
            one.box,
            kinds,
            sender=sender,
            stage=one.stage,
            opened=lambda *_, **__: way.open(one, kinds, sender),
        )


_shared = lru_cache(maxsize=64)(Ceiling)
