"""Neighbouring relations: which two data sets a differential-privacy guarantee compares."""

from __future__ import annotations

from enum import Enum


class Neighbours(Enum):
    """The neighbouring relation of a differential-privacy guarantee.

    Sensitivities, costs and epsilons are defined only relative to it: replacing a record changes a sum by up
    to twice as much as adding one. The unit that is added or replaced (a record or all rows of a client) is
    stated separately.
    """

    ADD_REMOVE = "add-remove"
    """One data set has one unit more than the other; the number of units is protected too."""

    REPLACE_ONE = "replace-one"
    """Both have the same number of units, which is public, and differ in one of them."""
