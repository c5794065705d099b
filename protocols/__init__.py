"""Secure sums: protocols by which a cohort's total is opened, imported as `privfed.protocols`."""

from collections.abc import Callable

from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.protocols.ckks.ckks import CKKS
from privfed.protocols.group_masked.group_masked import GroupMasked
from privfed.protocols.masked.masked import Masked
from privfed.protocols.plain import Plain
from privfed.protocols.slotted import PREFIX as SLOTTED
from privfed.protocols.slotted import Slotted

__all__ = ["CKKS", "NAMES", "GroupMasked", "Masked", "Plain", "Slotted", "by_name", "one_key_of"]

_KNOWN: dict[str, Callable[[], SecureSum]] = {
    "plain": Plain,
    "masked": Masked,
    "group-masked": GroupMasked,
    "ckks": CKKS,
}

NAMES = tuple(_KNOWN)
"""Names of the secure sums."""


def by_name(name: str) -> SecureSum:
    """Return a secure sum with its defaults.

    Raises:
        ArgumentError: no secure sum has this name.
    """
    if name not in _KNOWN:
        raise ArgumentError(f"protocol must be one of {', '.join(map(repr, _KNOWN))}, got {name!r}.")
    return _KNOWN[name]()


def one_key_of(name: str) -> bool | None:
    """Say whether one client's key opens every upload of the sum of a recorded name; None if unknown."""
    known = {form: kind for plain, kind in _KNOWN.items() for form in (plain, SLOTTED + plain)}
    return bool(getattr(known[name], "one_key", False)) if name in known else None
