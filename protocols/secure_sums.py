"""Secure sums by name, and the one of an agreement, as a client builds it on its own machine."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from privfed.core.agreed.configuration import SLOTTED, Configuration
from privfed.core.names import Registry
from privfed.core.roles.secure_sum import SecureSum
from privfed.errors import ArgumentError

SECURE_SUMS: Registry[Callable[..., SecureSum]] = Registry(
    "protocol",
    "privfed.secure_sums",
    {
        "plain": "privfed.protocols.plain:Plain",
        "masked": "privfed.protocols.masked.masked:Masked",
        "masked-verified": "privfed.protocols.masked.masked:VerifiedMasked",
        "masked-proven": "privfed.protocols.masked.masked:ProvenMasked",
        "group-masked": "privfed.protocols.group_masked.group_masked:GroupMasked",
        "ckks": "privfed.protocols.ckks.ckks:CKKS",
    },
)
"""Secure sums by name. Packages add theirs by entry points of `privfed.secure_sums`."""


def by_author(protocol: SecureSum) -> bool:
    """Say whether a secure sum, or the one that it wraps, is not privfed's own.

    Then only its author says what it hides, whatever it is called: a subclass of a sum of privfed is another.
    """
    if not type(protocol).__module__.startswith("privfed.protocols."):
        return True
    if not protocol.slotted_sums:
        return False
    # Imported here, as most fits need no slots.
    from privfed.protocols.slotted import Slotted

    return isinstance(protocol, Slotted) and by_author(protocol.inner)


def one_key_of(name: str) -> bool | None:
    """Say whether one client's key opens every upload, for a sum's recorded name; None if it is unknown."""
    plain = name.removeprefix(SLOTTED)
    return SECURE_SUMS.find(plain).one_key if plain in SECURE_SUMS else None  # type: ignore[attr-defined]


def by_name(name: str) -> SecureSum:
    """Return a secure sum with its defaults, by its registered name.

    A parameter may come from a saved model, so that no module is imported because it names one.

    Raises:
        ArgumentError: no secure sum has this name, or it cannot be made without arguments.
    """
    return made(name, SECURE_SUMS.find(name))


def made(name: str, kind: Callable[..., SecureSum]) -> SecureSum:
    """Return a secure sum with its defaults.

    Args:
        name: what a person wrote, for messages.
        kind: what this names.

    Raises:
        ArgumentError: it cannot be made without arguments.
    """
    try:
        signature(kind).bind()
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"protocol must name a class that is made without arguments, got {name!r} ({error}).",
            parameters=["protocol"],
        ) from None
    return kind()


def agreed_sum(configuration: Configuration) -> SecureSum:
    """Return the agreed secure sum, one that is registered here; what it is configured by is in the terms.

    Raises:
        ArgumentError: no secure sum of this name is registered.
    """
    from privfed.protocols.slotted import Slotted

    name, terms = configuration.protocol, configuration.terms
    if not name.startswith(SLOTTED):
        return SECURE_SUMS.find(name)()
    inner = SECURE_SUMS.find(name.removeprefix(SLOTTED))()
    return Slotted(inner, sums=terms.slotted, contributors=terms.slot_contributors)
