"""A client's check of the list of clients (the roster)."""

from __future__ import annotations

from functools import lru_cache

from privfed.core.agreed.agreement import Agreement, Registry
from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import CryptographyError, equal, verify
from privfed.protocols.setup.advertising import check_signed
from privfed.protocols.setup.journal_counter import signed
from privfed.protocols.setup.messages import Listed, RosterRequest


def check_roster(
    agreement: Agreement, me: int, key: bytes, encapsulation: bytes, fit: bytes, message: RosterRequest
) -> None:
    """Check that the roster holds only registered clients, each once, with keys that they signed.

    The coordinator signed the whole list, this client's fresh keys in it: an old list sets up nothing. Stops
    a server that invents clients, or replaces their keys with its own.

    Args:
        agreement: what the client was given.
        me: the client's position.
        key: its fresh public X25519 key.
        encapsulation: hash of its fresh ML-KEM-768 key.
        fit: identifier of the fit.
        message: the list.

    Raises:
        PolicyError: the roster fails a check; the text is the code of the refusal.
    """
    registry = agreement.registry
    _check_listed(registry, agreement.digest, fit, message.clients)
    own = [one.key + one.encapsulation for one in message.clients if one.client == me]
    if not any(equal(one, key + encapsulation) for one in own):
        raise PolicyError("roster:self")
    check_signed(agreement, fit, message)


@lru_cache(maxsize=2)
def _check_listed(registry: Registry, agreement: bytes, fit: bytes, listed: tuple[Listed, ...]) -> None:
    """Check what does not depend on the client; cached, as all simulated clients get the same list."""
    positions = [one.client for one in listed]
    if positions != sorted(set(positions)) or not set(positions) <= set(range(len(registry.clients))):
        raise PolicyError("roster:clients")
    for one in listed:
        what = signed(one.client, fit, agreement, one.key, one.encapsulation, one.journal_counter)
        _signed(registry.clients[one.client], one.signature, what)


def _signed(public: bytes, signature: bytes, message: bytes) -> None:
    try:
        verify(public, signature, message)
    except CryptographyError:
        raise PolicyError("roster:signature") from None
