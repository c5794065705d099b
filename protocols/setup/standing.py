"""Where the parties' journals stand at a set-up: shown signed, and remembered by all others.

A client that goes on from an older copy of its journal has forgotten what it answered, paid and lost. Its
peers have not: each keeps, over all its fits, the highest counter of every party that it met, and refuses a
list in which one stands further back, or elsewhere at the same counter. Several set-ups may run at once, and
their lists come in any order: what counts is what a party knew when it advertised for this one, as its own
entry in the list says. An older copy that has made more entries than its peers saw before they meet it again
is not noticed; one that is put in place while a set-up waits for its list, at the next.
"""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement, Remembering, Signer, Standing
from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import KEY_BYTES, bound
from privfed.protocols.setup.messages import Advertisement, Listed

_COUNTER_BYTES = 8


def shown(identity: Signer) -> bytes:
    """Return where a party's journal stands, as it is signed; empty where its key belongs to none."""
    if not isinstance(identity, Remembering):
        return b""
    standing = identity.standing()
    return standing.counter.to_bytes(_COUNTER_BYTES, "big") + standing.head


def read(shown: bytes) -> Standing:
    """Return what `shown` wrote.

    Raises:
        PolicyError: it is of another length.
    """
    if not shown:
        return Standing()
    if len(shown) != _COUNTER_BYTES + KEY_BYTES:
        raise PolicyError("roster:standing")
    return Standing(int.from_bytes(shown[:_COUNTER_BYTES], "big"), shown[_COUNTER_BYTES:])


def advertised(identity: Signer, client: int, fit: bytes, agreement: bytes, key: bytes) -> Advertisement:
    """Return a client's advertisement of a fresh public key."""
    standing = shown(identity)
    return Advertisement(key, identity.sign(signed(client, fit, agreement, key, standing)), standing)


def signed(client: int, fit: bytes, agreement: bytes, key: bytes, standing: bytes) -> bytes:
    """Return what a client signs of its advertisement."""
    return bound("advertise", client, fit, agreement, key, standing)


def check_journals(identity: Signer, agreement: Agreement, me: int, clients: tuple[Listed, ...]) -> None:
    """Check that no other client's journal stands further back than this client knows, and remember them.

    Raises:
        PolicyError: one does; the text is the code of the refusal, which names it.
    """
    if not isinstance(identity, Remembering):
        return
    keys = agreement.registry.clients
    shown = {one.client: read(one.standing) for one in clients}
    since = shown.pop(me).counter
    back = identity.meets({keys[client]: standing for client, standing in shown.items()}, since)
    if back is not None:
        raise PolicyError(f"journal:{keys.index(back)}")
