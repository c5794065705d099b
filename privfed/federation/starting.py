"""Starts from an earlier fit's total: what is checked of them before anything is agreed."""

from __future__ import annotations

from privfed.algorithms.starts.kept import StartTotal
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.described import kept_starts
from privfed.core.roles.conversation import Total
from privfed.errors import ArgumentError


def start_in(configuration: Configuration, start: StartTotal | None) -> Total | None:
    """Return the total that an agreed algorithm starts from; None where it names none, as for metrics."""
    return start.total if start is not None and kept_starts(configuration.program) else None


def check_start(start: StartTotal, clients: tuple[str, ...], protocol: str, verified: bool) -> None:
    """Check that clients know a start total to be what they summed, and that it is of these clients.

    Args:
        start: the start total.
        clients: names of the fit's clients.
        protocol: name of its secure sum.
        verified: whether its clients verify or open totals.

    Raises:
        ArgumentError: the clients verify no totals, or the total is over others.
    """
    if not verified:
        raise ArgumentError(
            f"clients of {protocol!r} sums verify no totals, and could not tell a start total of an earlier "
            'fit from numbers of the server\'s choice: use init="nested"; or "masked-verified", '
            '"group-masked" or "ckks" sums in both fits.'
        )
    if start.clients != frozenset(clients):
        besides, without = sorted(start.clients - set(clients)), sorted(set(clients) - start.clients)
        raise ArgumentError(
            "a start total must be over exactly the fit's clients; this one is "
            f'also over {besides or "none"}, and not over {without or "none"}: use init="nested", which asks '
            "anew."
        )
