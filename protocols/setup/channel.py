"""The channel between one client and the coordinator: every message is sealed under their shared key."""

from __future__ import annotations

from typing import Any

from privfed.core.stored.encoding import Message, decode, encode
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import CryptographyError, bound, expand, seal, unseal
from privfed.protocols.setup.messages import Envelope, Stage


class Channel:
    """Seals and opens envelopes between one client and the coordinator.

    Args:
        key: shared key that both derived from their X25519 keys of this fit, 32 bytes.
        session: the fit's session.
        client: position of the client.
    """

    def __init__(self, key: bytes, session: bytes, client: int) -> None:
        self._session, self._client = session, client
        self._down = expand(key, bound("down", session, client))
        self._up = expand(key, bound("up", session, client))

    def _binding(self, number: int, stage: str) -> bytes:
        return bound("envelope", self._session, number, self._client, stage.encode())

    def down(self, number: int, stage: Stage, message: Message) -> bytes:
        """Seal a request to the client."""
        return self._pack(self._down, number, stage, message)

    def up(self, number: int, stage: Stage, message: Message) -> bytes:
        """Seal a reply to the coordinator."""
        return self._pack(self._up, number, stage, message)

    def _pack(self, key: bytes, number: int, stage: Stage, message: Message) -> bytes:
        box = seal(key, encode(message), self._binding(number, stage))
        return encode(Envelope(number, stage, memoryview(box)))

    def open_down(self, envelope: Envelope, expected: Any) -> Any:
        """Open an envelope and return the request in it."""
        return self._open(self._down, envelope, expected, "the coordinator")

    def open_up(self, envelope: Envelope, expected: Any, sender: str) -> Any:
        """Open an envelope and return the reply in it."""
        return self._open(self._up, envelope, expected, sender)

    def _open(self, key: bytes, envelope: Envelope, expected: Any, sender: str) -> Any:
        try:
            data = unseal(key, envelope.box, self._binding(envelope.number, envelope.stage))
        except CryptographyError:
            raise MessageError("does not authenticate", sender=sender, stage=envelope.stage) from None
        return decode(data, expected, sender=sender, stage=envelope.stage)
