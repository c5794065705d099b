"""Which two data sets count as neighbours: the relation that a guarantee is stated for."""

from __future__ import annotations

from enum import Enum


class Neighbours(Enum):
    """The neighbouring relation of a differential-privacy guarantee.

    A sensitivity, a cost and an epsilon mean nothing without it: replacing a record moves a sum by
    up to twice as much as adding one. The unit that is added or replaced (a record or all rows of a
    client) is stated apart.
    """

    ADD_REMOVE = "add-remove"
    """One data set has one unit more than the other; the number of units is protected too."""

    REPLACE_ONE = "replace-one"
    """Both have the same number of units, which is public, and differ in one of them."""
