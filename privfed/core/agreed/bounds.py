"""Absolute bounds on what an agreement names, checked before anything is built from it.

An agreement is a short text, and what follows from it need not be: phases and geometry for each restart, a
direction for each column, shares of a budget for each cluster. Whoever writes one could have all who join it
fill their memory. Each number is compared before an algorithm is built; that a client's own rows have as
many columns as agreed is checked before, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.described import N_CLUSTERS, values_of
from privfed.core.agreed.program import Listed, Of, Value
from privfed.errors import ArgumentError

TOO_LARGE = "agreement:size"
"""Code of the refusal of an agreement with larger numbers."""

MOST_CLUSTERS = 1 << 14
"""Most clusters of an algorithm; all candidates of a selection together."""

MOST_RESTARTS = 1 << 12

MOST_COLUMNS = 1 << 20

MOST_DIRECTIONS = 1 << 20
"""Most restarts times columns: each restart has a few directions in all columns, or 128 MiB of them."""

MOST_NUMBER = 1 << 20
"""Most of all other whole numbers of an algorithm, but for those of which nothing is built."""

_OWN = {"rounds": 1 << 14, "n_classes": 1 << 12}
"""Parameters for each of which forms, or parts of a model, are built."""

_FREE = ("seed", "index", "rows")


def check_size(configuration: Configuration) -> None:
    """Check that nothing that is agreed on is too large to be built by every client.

    Raises:
        ArgumentError: something is.
    """
    agreed = None if configuration.program is None else configuration.program.algorithm
    restarts = max(_whole(values_of(agreed, "n_init")), default=1)
    clusters = max(sum(_whole(values_of(agreed, *N_CLUSTERS))), configuration.n_clusters or 0)
    _check("n_features", configuration.n_features, MOST_COLUMNS)
    _check("n_init", restarts, MOST_RESTARTS)
    _check("n_init times n_features", restarts * configuration.n_features, MOST_DIRECTIONS)
    _check("the numbers of clusters together", clusters, MOST_CLUSTERS)
    metrics = () if configuration.program is None else configuration.program.metrics
    for one in (agreed, *metrics):
        for name, number in _numbers(one):
            _check(name, number, _OWN.get(name, MOST_NUMBER))


def _check(name: str, number: int, most: int) -> None:
    if number > most:
        raise ArgumentError(
            f"{name} must be at most {most} in an agreement, which every client builds before it joins; got "
            f"{number}. Take fewer."
        )


def _whole(values: Iterator[Value]) -> list[int]:
    return [one for one in values if type(one) is int]


def _numbers(value: Value, name: str = "") -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in a value, by the name of their field; an array is as large as its bytes."""
    if isinstance(value, Of):
        for field, one in value.fields.items():
            yield from _numbers(one, field)
    elif isinstance(value, Listed):
        for one in value.items:
            yield from _numbers(one, name)
    elif type(value) is int and name not in _FREE:
        yield name, abs(value)
