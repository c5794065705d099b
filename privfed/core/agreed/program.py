"""What is agreed to run: an algorithm by its registered name, its parameters, and metrics that may follow.

All of it is signed. A client builds the algorithm from it, and needs nothing else of the coordinator's to
know what may be asked. Values keep their types: 1, 1.0 and True are three agreements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

from privfed.core.asking.question import Question, kind_named, wire_name
from privfed.core.names import ALGORITHMS
from privfed.core.stored.encoding import Array, asdict, fits, is_protocol, types_of
from privfed.core.values.guarantee import Word
from privfed.core.values.numbers import Integer, Items, Named
from privfed.errors import ArgumentError
from privfed.version import EQUAL, __version__


class Of(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="of"):
    """A value of a registered class.

    Args:
        name: of the class in `ALGORITHMS`; empty for a mapping of names to values.
        fields: its fields.
    """

    name: str
    fields: Named[Value]


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list"):
    """A tuple of values."""

    items: Items[Value]


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="array"):
    """A float64 array."""

    array: Array


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="question"):
    """A class of questions, by its name on the wire."""

    name: str


Value = Union[None, bool, Integer, float, str, "Of", "Listed", "Numbers", "Asked"]


METRIC = "AskedMetric"
"""How agreements call the class of metrics, each of which asks one question."""

KEPT_START = "KeptStart"
"""How agreements call the class that names a start total of an earlier fit."""

START_MISSING = "start:missing"
"""Code of the refusal of a client that has no such total in its journal."""


class AgreedProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs.

    Args:
        algorithm: what is asked first; None for metrics alone.
        metrics: what may follow it, each at most once, in any order.
        versions: what this party runs (`own_versions`), of which all but privfed's own must be equal.
    """

    algorithm: Of | None
    metrics: Items[Of] = ()
    versions: Named[str]

    @classmethod
    def of(cls, algorithm: object | None, metrics: tuple[object, ...] = ()) -> AgreedProgram:
        """Return how an algorithm and the metrics that may follow are agreed on.

        Raises:
            ArgumentError: a parameter is neither plain nor of a class with a name.
        """
        first = None if algorithm is None else to_agreed(algorithm)
        return cls(algorithm=first, metrics=tuple(map(to_agreed, metrics)), versions=own_versions())

    def check_metrics(self) -> None:
        """Check that what may follow are metrics: algorithms have bounds and approvals of their own.

        Raises:
            ArgumentError: one is something else.
        """
        for one in self.metrics:
            if one.name != METRIC:
                raise ArgumentError(
                    f"{one.name} is no metric, and cannot follow a fit: name a question with AskedMetric, or "
                    "agree on the algorithm in a fit of its own."
                )

    def check_versions(self) -> None:
        """Check that what must be equal is equal here.

        Raises:
            ArgumentError: it is not; the message names both versions, and who changes.
        """
        for name, agreed, here in apart(self.versions):
            raise ArgumentError(
                f"the agreement is for {name} {agreed} (privfed {self.versions.get('privfed')}), here is "
                f"{name} {here} (privfed {__version__}): the party with the lower number installs a newer "
                f"{'numpy' if name == 'numpy' else 'privfed'}, or go on with the versions that agreed."
            )


def values_of(agreed: Of | None, *names: str) -> Iterator[Value]:
    """Yield the values of parameters of an algorithm, and of the algorithms and parts in it."""
    for name, value in ({} if agreed is None else agreed.fields).items():
        if name in names:
            yield from value.items if isinstance(value, Listed) else (value,)
        if isinstance(value, Of):
            yield from values_of(value, *names)


def kept_starts(program: AgreedProgram | None) -> tuple[Of, ...]:
    """Return the start totals of earlier fits from which an agreed algorithm begins."""
    inits = values_of(None if program is None else program.algorithm, "init")
    return tuple(one for one in inits if isinstance(one, Of) and one.name == KEPT_START)


def own_versions() -> dict[str, str]:
    """Return what this party runs, as agreements name it: what must be equal, and privfed's own version.

    Numpy may change what follows from a seed with the second number of its version.
    """
    return {**EQUAL, "numpy": ".".join(np.__version__.split(".")[:2]), "privfed": __version__}


def apart(versions: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the name of what must be equal and is not, what `versions` has of it, and what is here."""
    return [
        (name, versions.get(name, "none"), here)
        # A newer party may name more that must be equal: an older one has none of it, and refuses.
        for name, here in {**dict.fromkeys(versions, "none"), **own_versions()}.items()
        if name != "privfed" and versions.get(name) != here
    ]


def check_parameters(kind: Any) -> None:
    """Check that values of a class can be agreed on, so that clients compare each of its parameters.

    Raises:
        ArgumentError: a field is of a type that is not.
    """
    for one in fields(kind):
        if not _is_written(hint := types_of(kind)[one.name]):
            raise ArgumentError(
                f"{kind.__name__}.{one.name} is a {hint}, which no agreement holds and no client "
                "compares: take numbers, texts, tuples, arrays, questions or frozen dataclasses of these."
            )


def _is_written(hint: Any) -> bool:
    kind, plain = get_origin(hint) or hint, (bool, int, float, str, NoneType, np.ndarray, Mapping)
    if kind in (Union, UnionType, tuple):
        return all(one is Ellipsis or _is_written(one) for one in get_args(hint))
    named = kind in (None, Literal, type) or is_protocol(kind) or is_dataclass(kind)
    return named or (isinstance(kind, type) and issubclass(kind, plain))


def name_of(kind: type[Any]) -> str:
    """Return what agreements call a class: its registered name, or module:Class."""
    return ALGORITHMS.name_of(kind) or f"{kind.__module__}:{kind.__qualname__}"


def to_agreed(value: object) -> Of:
    """Return how a value of a dataclass is agreed on.

    Raises:
        ArgumentError: it is no dataclass, or a field is neither plain, an array, a question nor a dataclass.
    """
    if not is_dataclass(value) or isinstance(value, type):
        raise ArgumentError(
            f"{type(value).__name__} cannot be agreed on: write it as a frozen dataclass of numbers, texts, "
            "arrays and other such dataclasses."
        )
    return Of(name_of(type(value)), {name: _written(one) for name, one in asdict(value).items()})


def _written(value: object) -> Value:
    if isinstance(value, np.ndarray):
        return Numbers(Array.from_numpy(value))
    if isinstance(value, np.generic):
        return _written(value.item())
    if isinstance(value, Word):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return Listed(tuple(map(_written, value)))
    if isinstance(value, Mapping):
        return Of("", {str(name): _written(one) for name, one in sorted(value.items())})
    if isinstance(value, type) and issubclass(value, Question):
        return Asked(wire_name(value))
    return to_agreed(value)


def from_agreed(agreed: Of) -> Any:
    """Return the value that was agreed on; each field must be of its declared type.

    Raises:
        ArgumentError: its class is not registered here, or a field is missing, unknown or of another type.
    """
    kind: Any = ALGORITHMS.find(agreed.name)
    try:
        hints = types_of(kind)
        values = {name: _built(one) for name, one in agreed.fields.items()}
        for one in fields(kind):
            if not fits(values[one.name], hints[one.name]):
                raise TypeError(one.name)
        return kind(**values)
    except (KeyError, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"the agreed {agreed.name} has a field that it cannot have: {error}.") from None


def _built(value: Value) -> object:
    if isinstance(value, Numbers):
        return value.array.to_numpy()
    if isinstance(value, Listed):
        return tuple(map(_built, value.items))
    if isinstance(value, Asked):
        return kind_named(value.name)
    if isinstance(value, Of):
        if not value.name:
            return {name: _built(one) for name, one in value.fields.items()}
        return from_agreed(value)
    return value
