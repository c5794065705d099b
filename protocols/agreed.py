"""The secure sum of an agreement, as a client builds it on its own machine."""

from __future__ import annotations

from privfed.core.agreed.configuration import Configuration
from privfed.core.roles.secure_sum import SecureSum
from privfed.protocols.registry import SECURE_SUMS
from privfed.protocols.slotted import PREFIX, Slotted


def agreed_sum(configuration: Configuration) -> SecureSum:
    """Return the agreed secure sum, one that is registered here; what it is configured by is in the terms.

    Raises:
        ArgumentError: no secure sum of this name is registered.
    """
    name, terms = configuration.protocol, configuration.terms
    if not name.startswith(PREFIX):
        return SECURE_SUMS.find(name)()
    inner = SECURE_SUMS.find(name.removeprefix(PREFIX))()
    return Slotted(inner, sums=terms.slotted, contributors=terms.slot_contributors)
