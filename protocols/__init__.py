"""Secure sums: protocols that open the total of a cohort's answers; imported as `privfed.protocols`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily
from privfed.protocols.secure_sums import SECURE_SUMS, by_name

if TYPE_CHECKING:
    from privfed.protocols.ckks.ckks import CKKS
    from privfed.protocols.group_masked.group_masked import GroupMasked
    from privfed.protocols.masked.masked import Masked
    from privfed.protocols.plain import Plain
    from privfed.protocols.slotted import Slotted

__all__ = ["CKKS", "SECURE_SUMS", "GroupMasked", "Masked", "Plain", "Slotted", "by_name"]

__getattr__ = lazily(
    __name__,
    {
        "CKKS": "privfed.protocols.ckks.ckks",
        "GroupMasked": "privfed.protocols.group_masked.group_masked",
        "Masked": "privfed.protocols.masked.masked",
        "Plain": "privfed.protocols.plain",
        "Slotted": "privfed.protocols.slotted",
    },
)
