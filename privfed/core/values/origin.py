"""Where a public input comes from: it was declared, rows gave it exactly, or a claim protects what gave it.

A guarantee covers what noised sums say of rows. An input that these rows gave without noise, such as a
domain, a scale, a category or a start, would tell of them past the noise. So a claim refuses it. What
privfed writes and returns carries its origin: schemas, scalings, saved models and domains, names of clients
that were found in rows, and the arrays of fitted models.

An array carries it, and so do its copies, its parts (`centers[:2]`), pickles, and arrays that are put
together.
So do rows that `transform` scaled or filled by fitted numbers (of `privfed.data.ClientTables`: `prepared`).
Whatever else is computed of it, and `np.array(centers)`, is the word of who computed it, as is an array or
frame of another library: `Box(X.min(), X.max())` is exact, and nothing shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np

from privfed.errors import PrivacyError


class Origin(StrEnum):
    """Where a public input comes from."""

    DECLARED = "declared"
    EXACT = "exact"
    CLAIMED = "claimed"


class Released(np.ndarray):
    """An array that carries where it comes from.

    Attributes:
        origin: of the array.
        radius: of centers, the length to which the fit clipped offsets from them, as its noised totals gave
            it; None where there is none.
        scaled: whether these are rows that a fit's `scaling_` scaled, or centers among them.
    """

    origin = Origin.DECLARED
    radius: float | None = None
    scaled = False

    def __reduce__(self) -> tuple[Callable[..., Released], tuple[Any, ...]]:
        """Return what makes a copy of it from a pickle."""
        return released, (np.array(self), self.origin, self.radius, self.scaled)

    def __array_finalize__(self, source: object) -> None:
        """Let copies and parts of it carry the same."""
        self.origin, self.radius, self.scaled = origin_of(source), radius_of(source), scaled_of(source)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let rows that are put together carry the same; columns that are, whether the first were scaled."""
        found = super().__array_function__(function, types, args, kwargs)
        return (
            released(
                found,
                joined(*map(origin_of, args[0])),
                # Columns that are put beside scaled ones are not those that centers have.
                scaled=all(map(scaled_of, args[0]))
                or (1 in (*args[1:2], kwargs.get("axis")) and scaled_of(args[0][0])),
            )
            if function is np.concatenate
            else found
        )

    def __array_wrap__(self, array: Any, context: object = None, return_scalar: bool = False) -> Any:
        """Return what is computed of it as any other array."""
        return np.asarray(array)[()]

    def __repr__(self) -> str:
        """Return it as any array is shown."""
        return repr(np.asarray(self))


def released(array: Any, origin: Origin, radius: float | None = None, scaled: bool = False) -> Released:
    """Return an array that carries where it comes from."""
    found = np.asarray(array).view(Released)
    found.origin, found.radius, found.scaled = origin, radius, scaled
    return found


def origin_of(array: object) -> Origin:
    """Return where an array comes from: an array of another library, or a number, is declared."""
    return array.origin if isinstance(array, Released) else Origin.DECLARED


def carrying(array: Any, *sources: object) -> Released:
    """Return an array that carries where those arrays come from, of which it was made."""
    return released(array, joined(*map(origin_of, sources)))


def radius_of(centers: object) -> float | None:
    """Return the radius that centers carry, or None."""
    return centers.radius if isinstance(centers, Released) else None


def scaled_of(array: object) -> bool:
    """Say whether an array carries that it is of scaled rows."""
    return isinstance(array, Released) and array.scaled


def joined(*origins: Origin) -> Origin:
    """Return where several inputs together come from: exact if one is, and otherwise claimed if one is."""
    return next((one for one in (Origin.EXACT, Origin.CLAIMED) if one in origins), Origin.DECLARED)


def origin_under(claim: object) -> Origin:
    """Return the origin of what a run gave, from its `privacy_spent_`."""
    return Origin.EXACT if claim is None else Origin.CLAIMED


def check_origins(**inputs: Origin) -> None:
    """Check that rows gave no public input exactly, before anything is claimed.

    Raises:
        PrivacyError: they gave one.
    """
    if exact := [name for name, one in inputs.items() if one == Origin.EXACT]:
        raise PrivacyError(
            f"rows gave {', '.join(exact)} without noise, and a claim would not cover what that tells. "
            "Declare it, or learn it under a claim. If those rows are public, a copy by np.array or new "
            "objects with the same values are your word for it.",
            parameters=exact,
        )
