"""Phases: what an algorithm declares of its questions, so that clients can check them without totals.

An algorithm whose questions are to be checked has a method `phases(setting)`. It returns, in order, what may
be asked: a `Phase` is a form of question and how often it may come in a row; a `Cycle` repeats several.
A `Form` names the class of a question (or of a part of one) and a rule for each of its fields. A plain value
means that the field must have just this value. A field that is not named must have its default; one without
default must be named, so that a field that is added later is closed until somebody opens it.

    def phases(self, setting):
        centers = Shape(self.n_clusters, setting.n_features)
        return (
            *range_phases(setting),
            *start_phases(self.init, setting, self.n_clusters, rng),
            Phase(Form(SphericalSums, centers=centers), 1, self.max_iter),
        )

`ranges` need no rule: they are those of the run, the same in all its questions.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from privfed.core.asking.question import Part, Question, wire_name
from privfed.core.stored.held import held
from privfed.core.stored.messages import Array
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError

Kept = Mapping[str, bytes]
"""What a run must repeat: name of a `Same` -> digest of its value."""

NEAR = 1e-9
"""Largest difference between public arrays that two machines compute from one seed."""


class Rule(ABC):
    """What a field of a question may be."""

    @abstractmethod
    def read(self, value: object, kept: Kept) -> Kept | None:
        """Return what is kept after this value, or None where the value may not be."""


@dataclass(frozen=True, slots=True)
class Shape(Rule):
    """A finite float64 array of a shape.

    Args:
        sizes: of its dimensions, each a number or (least, most).
    """

    sizes: tuple[int | tuple[int, int], ...]

    def __init__(self, *sizes: int | tuple[int, int]) -> None:
        object.__setattr__(self, "sizes", sizes)

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare shapes."""
        if not isinstance(value, np.ndarray) or value.ndim != len(self.sizes):
            return None
        bounds = [(one, one) if isinstance(one, int) else one for one in self.sizes]
        fits = all(low <= size <= high for size, (low, high) in zip(value.shape, bounds, strict=True))
        return kept if fits and np.isfinite(value).all() else None


@dataclass(frozen=True, slots=True)
class Within(Rule):
    """A number from `low` to `high`; a whole one where both bounds are whole."""

    low: float
    high: float

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare with the bounds."""
        number = _plain(value)
        whole = type(self.low) is int and type(self.high) is int
        if type(number) is int or (type(number) is float and not whole):
            return kept if self.low <= number <= self.high else None
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Near(Rule):
    """One of several arrays, up to the last digits: public geometry that each machine computes itself."""

    arrays: tuple[FloatArray, ...]

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare with each array."""
        if not isinstance(value, np.ndarray):
            return None
        same = (one.shape == value.shape and np.allclose(one, value, 0.0, NEAR) for one in self.arrays)
        return kept if any(same) else None


@dataclass(frozen=True, slots=True)
class Among(Rule):
    """Any value that one of several rules allows."""

    rules: tuple[object, ...]

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Ask each rule."""
        found = (_read(rule, value, kept) for rule in self.rules)
        return next((one for one in found if one is not None), None)


@dataclass(frozen=True, slots=True)
class Same(Rule):
    """The value that the field, or another of this name, had before in the run; at first, what `rule` allows.

    Args:
        name: under which it is remembered. A `Cycle` may forget it.
        rule: for the first value; None allows all.
    """

    name: str
    rule: object = None

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare with the digest that is kept, or keep one."""
        own = _digest(value)
        if self.name in kept:
            return kept if kept[self.name] == own else None
        first = kept if self.rule is None else _read(self.rule, value, kept)
        return None if first is None else {**first, self.name: own}


OF_THE_RUN = Same("ranges")
"""The rule for ranges that no form names."""


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Form(Rule):
    """A question, or a part of one, of one class.

    Args:
        kind: its class; a subclass is another question.
        rules: name of a field -> a rule, or the value that it must have.

    Raises:
        ArgumentError: a field is named that the class does not have, or one without default is not named.
    """

    kind: type[Question | Part]
    rules: Mapping[str, object] = field(repr=False)

    def __init__(self, kind: type[Question | Part], **rules: object) -> None:
        known = {one.name: one for one in _fields(kind)}
        found: dict[str, object] = {}
        for name, one in known.items():
            default = OF_THE_RUN if name == "ranges" else one.default
            found[name] = rules.pop(name, default)
            if found[name] is MISSING:
                raise ArgumentError(f"a form of {kind.__name__} needs a rule for its field {name}.")
        if rules:
            raise ArgumentError(f"{kind.__name__} has no field {sorted(rules)[0]}; it has {sorted(known)}.")
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "rules", found)

    @classmethod
    def like(cls, example: Question | Part, **rules: object) -> Form:
        """Return the form of questions like an example: same class and options, arrays of the same shapes."""
        found: dict[str, object] = {}
        for name, value in held(example).items():
            if isinstance(value, np.ndarray):
                found[name] = Shape(*value.shape)
            elif isinstance(value, Question | Part):
                found[name] = cls.like(value)
            elif not isinstance(value, Ranges):
                found[name] = value
        return cls(type(example), **(found | rules))

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare the class, then each field."""
        if type(value) is not self.kind:
            return None
        found: Kept | None = kept
        for name, one in held(value).items():
            found = None if found is None else _read(self.rules[name], one, found)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Questions of one form in a row.

    Args:
        form: theirs.
        least: fewest of them.
        most: most of them.
    """

    form: Form | Among
    least: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        _check_counts(self.least, self.most)


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """Several phases that repeat.

    Args:
        body: what repeats, in order.
        least: fewest turns.
        most: most turns.
        forgets: names of `Same` whose values may be others in each turn.
    """

    body: tuple[Phase | Cycle, ...]
    least: int = 1
    most: int = 1
    forgets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_counts(self.least, self.most)


Phases = tuple[Phase | Cycle, ...]


@runtime_checkable
class Phased(Protocol):
    """An algorithm (or a metric) that declares what it asks."""

    def phases(self, setting: Any) -> Phases:
        """Return what may be asked, in order, given what the algorithm may know before it asks."""


class Metric(Phased, Protocol):
    """A metric that an agreement names."""

    @property
    def name(self) -> str:
        """What is asked, in a word."""

    @property
    def n_clusters(self) -> int | None:
        """About how many centers it asks; None about none."""

    def after_a_fit(self) -> Metric:
        """Return it as it follows a fit, which has found the ranges."""

    def alone(self) -> Metric:
        """Return it as it is asked alone, so that ranges are found first."""


def _check_counts(least: int, most: int) -> None:
    if not 0 <= least <= most:
        raise ArgumentError(f"a phase needs 0 <= least <= most, got {least} and {most}.")


def _read(rule: object, value: object, kept: Kept) -> Kept | None:
    if isinstance(rule, Rule):
        return rule.read(value, kept)
    # 1, 1.0 and True are equal, but other options on the wire.
    same = type(_plain(rule)) is type(_plain(value)) and _digest(rule) == _digest(value)
    return kept if same else None


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    """Return the fields of a class of questions or parts, all of which are dataclasses."""
    return fields(kind)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return Array.of(value)
    if isinstance(value, Ranges):
        return [Array.of(value.low), Array.of(value.high), value.rows]
    if isinstance(value, Part | Question):
        named = [[name, _plain(one)] for name, one in held(value).items()]
        return [wire_name(type(value)), named]
    return value.item() if isinstance(value, np.generic) else value


def _digest(value: object) -> bytes:
    """Return a digest of a field's value, the same on all machines."""
    return hashlib.sha256(b"privfed phases|" + msgspec.msgpack.encode(_plain(value))).digest()
