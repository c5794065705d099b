"""Phases: what an algorithm declares of its questions, so that clients can check them without totals.

An algorithm whose questions are to be checked has a method `phases(setting)`. It returns, in order, what may
be asked: a `Phase` is a form of question and how often it may come in a row; a `Cycle` repeats several.
A `Form` names the class of a question (or of a part of one) and a rule for each of its fields. A plain value
means that the field must have just this value. A field that is not named must have its default; one without
default must be named, so that a field that is added later is closed until somebody opens it. So forms say of
each value where it comes from (`Origin`); docs/values.md lists what they say.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from enum import Enum

import msgspec
import numpy as np

from privfed.core.asking.question import COMPARED, Part, Question, fields_of, parts_of, wire_name
from privfed.core.stored.encoding import Array, asdict
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError

Kept = Mapping[str, bytes]
"""What a run must repeat: name of a `Same` -> digest of its value."""

NEAR = 1e-9
"""Largest difference between public arrays that two machines compute from one seed."""


class Origin(Enum):
    """Where a value comes from that reaches a client, from what is compared most to what is not compared.

    Attributes:
        EQUAL: it is what was agreed.
        DERIVED: it follows from what was agreed, the seed, the position and earlier values.
        ANY: whoever asks chooses it. What protects a client's answers holds whatever it is: groups of rows,
            or noise that is charged for. Exact rows have no such protection.
    """

    EQUAL = "equal"
    DERIVED = "derived"
    ANY = "any"

    @classmethod
    def weakest(cls, origins: Iterable[Origin]) -> Origin:
        """Return the one that is compared least; EQUAL of none."""
        return max(origins, key=list(cls).index, default=cls.EQUAL)


class Rule(ABC):
    """What a field of a question may be."""

    @property
    def origin(self) -> Origin | None:
        """Where its values come from; a class of one's own says it, or no form may hold its rules."""
        return None

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
        bounds = [one if isinstance(one, tuple) else (one, one) for one in self.sizes]
        fits = all(low <= size <= high for size, (low, high) in zip(value.shape, bounds, strict=True))
        return kept if fits and np.isfinite(value).all() else None

    def example(self) -> FloatArray:
        """Return one that is allowed, of the least size: zeros."""
        return np.zeros([one[0] if isinstance(one, tuple) else one for one in self.sizes])


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
        rule: for the first value that a client sees, which may be a later one of the run. None allows all, as
            only `OF_THE_RUN` may.
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
        known = {one.name: one for one in fields_of(kind)}
        found: dict[str, object] = {}
        for name, one in known.items():
            found[name] = rules.pop(name, OF_THE_RUN if name == "ranges" else one.default)
            if found[name] is MISSING:
                raise ArgumentError(f"a form of {kind.__name__} needs a rule for its field {name}.")
            origin_of(found[name], f"{kind.__name__}.{name}")
        if rules:
            raise ArgumentError(f"{kind.__name__} has no field {sorted(rules)[0]}; it has {sorted(known)}.")
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "rules", found)

    @classmethod
    def like(cls, example: Question | Part, **rules: object) -> Form:
        """Return the form of questions like an example: same class and options, arrays of the same shapes."""
        found = {name: one for name, one in asdict(example).items() if not isinstance(one, Ranges)}
        for name, value in found.items():
            nested = cls.like(value) if isinstance(value, Question | Part) else value
            found[name] = Shape(*value.shape) if isinstance(value, np.ndarray) else nested
        return cls(type(example), **(found | rules))

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare the class, then each field."""
        if type(value) is not self.kind:
            return None
        found: Kept | None = kept
        for name, one in asdict(value).items():
            found = None if found is None else _read(self.rules[name], one, found)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Questions of one form in a row.

    Args:
        form: theirs.
        least: fewest of them.
        most: most of them.
        purpose: of their asks (`Ask.purpose`), where the coordinator could not tell them from others that may
            be asked instead; clients do not see it.
    """

    form: Form | Among
    least: int = 1
    most: int = 1
    purpose: str = ""

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


def each(phases: Iterable[Phase | Cycle]) -> Iterator[Phase]:
    """Yield all phases, those in cycles too."""
    for one in phases:
        yield from each(one.body) if isinstance(one, Cycle) else (one,)


def unasked(phases: Iterable[Phase | Cycle], question: Question) -> str:
    """Say in words what of a question no phase allows; empty where only its turn is wrong."""
    asked, kind = [one.form for one in each(phases)], type(question)
    forms = [form for one in asked for form in (one.rules if isinstance(one, Among) else (one,))]
    known = [one for one in forms if isinstance(one, Form) and one.kind is kind]
    if not known:
        return f"No phase of what was agreed asks {kind.__name__}."
    for name, value in asdict(question).items():
        if all(_read(one.rules[name], value, {}) is None for one in known):
            shown = f"of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
            return f"No phase of what was agreed allows {kind.__name__} whose {name} is {shown}."
    return ""


def fixed(phases: Iterable[Phase | Cycle]) -> Iterator[Question | Part]:
    """Yield the parts of questions that phases fix, such as a round's training."""
    rules: list[object] = [one.form for one in each(phases)]
    while rules:
        rule = rules.pop(0)
        if isinstance(rule, Question | Part):
            yield from parts_of(rule)
        rules += rule.rules.values() if isinstance(rule, Form) else ()
        rules += rule.rules if isinstance(rule, Among) else ()


def origin_of(rule: object, name: str = "a value") -> Origin:
    """Return where the values come from that a rule allows: one of several values is any of them.

    Raises:
        ArgumentError: a rule does not say, or no client can compare it with what it gets.
    """
    found: Origin | None = Origin.EQUAL if isinstance(rule, (np.generic, *COMPARED)) else None
    if isinstance(rule, Shape):
        found = Origin.EQUAL if 0 in rule.sizes else Origin.ANY
    elif isinstance(rule, Within):
        same = rule.high - rule.low <= 4.0 * NEAR * abs(rule.high)
        found = Origin.ANY if not same else Origin.DERIVED if rule.low < rule.high else Origin.EQUAL
    elif isinstance(rule, Near):
        found = Origin.DERIVED if len(rule.arrays) == 1 else Origin.ANY
    elif isinstance(rule, Among):
        inner = [origin_of(one, name) for one in rule.rules]
        found = Origin.ANY if len(inner) > 1 else Origin.weakest(inner)
    elif isinstance(rule, Same):
        # What comes later in the run is derived from its first value, which a client may have missed.
        found = origin_of(rule.rule, name) if rule.rule is not None else None
        found = Origin.ANY if rule is OF_THE_RUN else found
    elif isinstance(rule, Form):
        found = Origin.weakest(origin_of(one) for one in rule.rules.values())
    elif isinstance(rule, Rule):
        found = rule.origin
    if found is None:
        raise ArgumentError(
            f"{name} may be {rule!r}, which does not say where values come from: take a number, word, array, "
            "question, part or rule of privfed.core.asking.phases, or give your own rule an `origin`."
        )
    return found


def _check_counts(least: int, most: int) -> None:
    if not 0 <= least <= most:
        raise ArgumentError(f"a phase needs 0 <= least <= most, got {least} and {most}.")


def _read(rule: object, value: object, kept: Kept) -> Kept | None:
    if isinstance(rule, Rule):
        return rule.read(value, kept)
    return kept if _same(rule, value) else None


def _same(one: object, other: object) -> bool:
    """Say whether two values are the same on the wire, where 1, 1.0 and True are others."""
    if isinstance(one, Part | Question) and type(one) is type(other):
        return all(_same(*pair) for pair in zip(asdict(one).values(), asdict(other).values(), strict=True))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape != other.shape:
        return False
    return type(_plain(one)) is type(_plain(other)) and _digest(one) == _digest(other)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return Array.from_numpy(value)
    if isinstance(value, Ranges):
        return [Array.from_numpy(value.low), Array.from_numpy(value.high), value.rows]
    if isinstance(value, Part | Question):
        return [wire_name(type(value)), [[name, _plain(one)] for name, one in asdict(value).items()]]
    return value.item() if isinstance(value, np.generic) else value


def _digest(value: object) -> bytes:
    """Return a digest of a field's value, the same on all machines."""
    found = hashlib.sha256(b"privfed phases|")
    found.update(msgspec.msgpack.encode(_plain(value)))
    return found.digest()
