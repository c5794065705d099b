"""A coordinator of verified totals that lies, for tests of what clients notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from privfed.errors import RefusedError
from privfed.protocols import Masked
from privfed.protocols.masked.masked_messages import OpenedSum, VerifiedRequest
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.masked.verification import Delivery, Place
from privfed.protocols.setup.simulated import AnnouncingSession
from tests.protocols.federations import Sums

Totals = tuple[OpenedSum, ...]
MODULUS = 1 << 192


def verified(n: int = 5, rounds: Any = (), **options: Any) -> Sums:
    """Return a federation whose clients verify totals."""
    return Sums(Masked(**{"verified": True, "losses": 9, **options}), n, rounds)


def server_of(run: Sums) -> MaskedSession:
    """Return the coordinator's own session."""
    assert isinstance(run.session, AnnouncingSession)
    assert isinstance(run.session.session, MaskedSession)
    return run.session.session


def delivery_of(run: Sums) -> Delivery:
    """Return what the coordinator keeps for the clients."""
    delivery = server_of(run)._delivery
    assert delivery is not None
    return delivery


def lie(run: Sums, change: Callable[[int, Totals], Totals]) -> None:
    """Change the totals that each client is sent from now on."""
    delivery = delivery_of(run)
    honest = delivery.request

    def changed(client: int, collect: Any) -> Any:
        request = honest(client, collect)
        assert isinstance(request, VerifiedRequest)
        return msgspec.structs.replace(request, totals=change(client, request.totals))

    delivery.request = changed  # type: ignore[method-assign]


def refused(run: Sums) -> dict[str, str]:
    """Ask once more; return the codes of the refusals."""
    with pytest.raises(RefusedError) as error:
        run.ask()
    return error.value.codes


def multiplied(data: bytes, factor: int, size: int) -> bytes:
    """Multiply integers of `size` bytes each, modulo 2^(8 size)."""
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    values = [int.from_bytes(one, "little") * factor % (1 << 8 * size) for one in parts]
    return b"".join(one.to_bytes(size, "little") for one in values)


def place_of(run: Sums, one: OpenedSum, head: bytes) -> Place:
    """Return which sum a total is of."""
    session = server_of(run)
    cohort = session._agreement.cohort(one.cohort).digest
    return Place(session._session, one.number, one.index, head, cohort, one.prepared)
