"""The words of a guarantee of differential privacy: whom it protects, and whose noise of which kind does it.

Each is an enum whose values are the strings that users write and that messages and files hold: a string is
taken wherever a user or a file gives one, and equals its member.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from privfed.errors import ArgumentError


class Word(StrEnum):
    """A word out of a closed list."""

    __repr__ = str.__repr__

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """Return the member that a user's value stands for.

        Args:
            name: of the parameter, for the message.
            value: a member, or its string.

        Raises:
            ArgumentError: there is no such word.
        """
        for one in cls:
            if isinstance(value, str) and one == value:
                return one
        allowed = " or ".join(map(repr, cls))
        raise ArgumentError(f"{name} must be {allowed}, got {name}={value!r}.")

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Return the strings of all members."""
        return tuple(one.value for one in cls)


class Unit(Word):
    """What is protected."""

    RECORD = "record"
    """One row of one client."""

    CLIENT = "client"
    """All rows of one client."""


class Neighbours(Word):
    """Which two data sets the guarantee compares.

    Sensitivities, costs and epsilons are defined only relative to it: replacing a unit changes a sum by up to
    twice as much as adding one.
    """

    ADD_REMOVE = "add-remove"
    """One data set has one unit more than the other; the number of units is protected too."""

    REPLACE_ONE = "replace-one"
    """Both have the same number of units, which is public, and differ in one of them."""


class Noise(Word):
    """Who adds the noise."""

    DISTRIBUTED = "distributed"
    """The clients of a sum: the shares of its honest clients suffice together."""

    LOCAL = "local"
    """Each client: its share suffices alone."""

    SERVER = "server"
    """The server, to sums that it cannot read."""


class Mechanism(Word):
    """Which distribution the noise has."""

    GAUSSIAN = "gaussian"
    """The discrete Gaussian."""

    SKELLAM = "skellam"
    """Skellam: shares add up exactly."""


# What users may write for them, for type checkers.
AnyUnit = Unit | Literal["record", "client"]
AnyNeighbours = Neighbours | Literal["add-remove", "replace-one"]
AnyNoise = Noise | Literal["distributed", "local", "server"]
AnyMechanism = Mechanism | Literal["gaussian", "skellam"]
