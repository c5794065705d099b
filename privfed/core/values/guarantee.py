"""Terms of a guarantee of differential privacy: whom it protects, who adds which noise, steps of DP-SGD.

Unit, neighbours, noise and mechanism are enums. Their values are the strings that users write and that
messages and files hold. A string is taken wherever a user or a file gives one, and equals its member.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

import msgspec

from privfed.core.values.numbers import LEAST_BOUND, Number, check_number, check_whole
from privfed.errors import ArgumentError


class Word(StrEnum):
    """A word out of a closed list."""

    def __repr__(self) -> str:
        return str.__repr__(self)

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """Return the member that a user's value names.

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
        raise ArgumentError(f"{name} must be {allowed}, got {name}={value!r}.", parameters=[name])

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Return the strings of all members."""
        return tuple(one.value for one in cls)


class Unit(Word):
    """What is protected."""

    RECORD = "record"
    """One row of one client."""

    USER = "user"
    """The rows of one user at one client, of which a client uses a declared number."""

    CLIENT = "client"
    """All rows of one client."""

    @property
    def of_rows(self) -> bool:
        """Whether single rows are bounded, rather than a client's answer as a whole."""
        return self is not Unit.CLIENT


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
AnyUnit = Unit | Literal["record", "user", "client"]
AnyNeighbours = Neighbours | Literal["add-remove", "replace-one"]
AnyNoise = Noise | Literal["distributed", "local", "server"]
AnyMechanism = Mechanism | Literal["gaussian", "skellam"]


LEAST_NOISE, MOST_NOISE = 2.0**-4, 2.0**10
"""Least and largest noise multiplier: what accounting takes grows with the inverse square, and draws on the
grid stay within int64."""

LEAST_RATE = 2.0**-40
"""Least chance of a record to be in a batch."""

MOST_CHOICE_NOISE = 2.0**20
"""Largest noise multiplier of a choice."""

MOST_STEPS = 1_000_000
"""Most steps of one training."""

MOST_IN_ALL = 1 << 21
"""Most steps of all trainings of a fit: whoever joins it accounts for them before."""


MOST_ORDER = 4096
"""Largest order of a Renyi filter: a step of DP-SGD has as many terms."""


class SampledSteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The steps of a client's training: Poisson-sampled rows, clipped gradients, Gaussian noise.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to `max_grad_norm`.
        sample_rate: chance of each row to be in a step's batch.
        max_grad_norm: L2 norm that a row's gradient is clipped to.
        steps: of one training.
        trainings: how often a client trains in a fit at most.
        first_rate: `sample_rate` of the first round's training, where it is another one; 0 for none. A client
            that paid before does not take part in it.
        first_steps: steps of that training; 0 for none.
        choice_noise: a client may choose among models by how many of its rows each gets right. This is the
            ratio of these counts' noise to their L2 sensitivity; 0 for no choices. Each training comes with
            one choice at most.
    """

    noise_multiplier: float
    sample_rate: float
    max_grad_norm: float
    steps: Number
    trainings: Number
    first_rate: float = 0.0
    first_steps: Number = 0
    choice_noise: float = 0.0

    def __post_init__(self) -> None:
        check_number("noise_multiplier", self.noise_multiplier, f"[{LEAST_NOISE}, {MOST_NOISE}]")
        check_number("sample_rate", self.sample_rate, f"[{LEAST_RATE}, 1]")
        check_number("max_grad_norm", self.max_grad_norm, f"[{LEAST_BOUND}, {2.0**100})")
        check_whole("steps", self.steps, 1, MOST_STEPS)
        check_whole("trainings", self.trainings, 1)
        if (self.first_rate, self.first_steps) != (0.0, 0):
            check_number("first_rate", self.first_rate, f"[{LEAST_RATE}, 1]")
            check_whole("first_steps", self.first_steps, 1, MOST_STEPS)
        if self.choice_noise != 0.0:
            check_number("choice_noise", self.choice_noise, f"[{LEAST_NOISE}, {MOST_CHOICE_NOISE}]")
        remedy = "; take fewer rounds or epochs, or a larger sample_rate"
        check_number("total", self.total, f"[1, {MOST_IN_ALL}]", whole=True, remedy=remedy)

    @property
    def total(self) -> int:
        """Steps of all trainings."""
        return (self.first_steps or self.steps) + self.steps * (self.trainings - 1)
