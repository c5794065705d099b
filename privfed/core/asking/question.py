"""Questions: the only code that touches a client's data.

A question is a frozen value of public arrays and options. It has the specification of its statistics,
and computes the answer of one client, or of many simulated clients in one pass. On the wire it states its
position in the program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import Field, dataclass, fields
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, cast, get_args, get_origin

import msgspec
import numpy as np

from privfed.core.asking.data import ClientData as ClientData
from privfed.core.asking.declaration import (
    STEP,
    TOO_LARGE,
    WORKINGS,
    Cost,
    CostError,
    Declaration,
    Effort,
    Remembered,
)
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.names import PLACES, same_definition
from privfed.core.stored.encoding import Array, asdict, encode, fits, types_of
from privfed.core.values.domain import FloatArray, Ranges, unwritable
from privfed.core.values.guarantee import Word
from privfed.core.values.numbers import Integer, Items, Named
from privfed.errors import ArgumentError, MessageError, PolicyError, PrivacyError

ERRORS = (BaseException,)
"""Errors of a question's code that are caught: all, for a panic of compiled code is no Exception. Before it
KeyboardInterrupt is raised again, which stops the process."""


class AdditiveOver(Enum):
    """Whether a question's statistics are sums over records, or only sums over clients."""

    RECORDS = "records"
    CLIENTS = "clients"


Option = Integer | float | str | bool | None


Place = Items[Integer]
"""A place in phases: (part, turn), and for a cycle the place within its body after it; empty at the start."""


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, cache_hash=True):
    """Where a question stands in a program.

    Args:
        used: metrics that were asked, ascending but for the last of them, which may not have ended.
        place: within the algorithm's phases, or within those of the last metric; empty before the first.
    """

    used: Items[Integer] = ()
    place: Place = ()


class QuestionMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question on the wire: its registered name, arrays and options, and its position in the program."""

    name: str
    arrays: Named[Array]
    options: Named[Option]
    position: Position | None = None


class Part:
    """A public component of questions: a frozen dataclass of arrays and scalars."""

    trains: ClassVar[bool] = False
    """Whether clients train models on their rows by it."""

    @property
    def declaration(self) -> Declaration | None:
        """What the part declares; None declares nothing."""
        return None

    def effort(self, n_features: int) -> Effort:
        """Return what its options add to the cost of a question about rows of so many columns."""
        return Effort()


_REGISTRY: dict[str, type[Question | Part]] = {}
BOUNDED_FORMS: dict[type[Question], Callable[..., Question]] = {}
"""Class of a question -> class of its bounded form (`privfed.privacy.bounds.bounded_form_of`)."""
_malformed = partial(MessageError, sender="the coordinator", stage="question")
_DECODER = msgspec.msgpack.Decoder(QuestionMessage)
Registered = TypeVar("Registered", bound="type[Question | Part]")


RANGES = "Ranges"
"""What ranges are called on the wire."""


def wire_name(kind: type[Question | Part]) -> str:
    """Return what a class is called in messages, policies and ledgers: the name that it declares, or its own.

    A class that is renamed declares its former name, `wire_name: ClassVar[str] = "Former"`, so that what was
    recorded is still read. A subclass does not inherit it, for it may ask something else.
    """
    return str(vars(kind).get("wire_name", kind.__name__))


def register(kind: Registered) -> Registered:
    """Register a question or part under its wire name, so that it can be decoded (a class decorator).

    The same definition may be run again, as in a notebook.

    Raises:
        ArgumentError: another class has the name, or the class was defined with other code before; or a field
            holds what no form can declare.
    """
    name = wire_name(kind)
    hints: Mapping[str, Any] = types_of(cast(Any, kind))
    for one in fields_of(kind):
        if not all(
            isinstance(kind, type) and issubclass(kind, COMPARED) for kind in _allowed(hints[one.name])
        ):
            raise ArgumentError(
                f"{name}.{one.name} is a {hints[one.name]}, which no client can compare with what is agreed: "
                "take float64 arrays, numbers, texts, None, Ranges, questions or parts."
            )
    known = _REGISTRY.get(name)
    place = PLACES.get(name, kind.__module__) if known is None else known.__module__
    if place != kind.__module__ or (known is not None and not same_definition(known, kind)):
        raise ArgumentError(
            f"a question or part named {name} is known already, as another class of {place}: "
            "messages with that name would change their meaning. Choose another name; if you changed your "
            "own class, start a new process."
        )
    _REGISTRY[name] = kind
    return kind


def unbounded(kind: type[Question]) -> PrivacyError:
    """Return the error that a question has no bound on what a record contributes, and what helps."""
    return PrivacyError(
        f"{kind.__name__} has no proven bound for one record: a client's answer to it may depend on each of "
        f"its rows as a whole. {kind.alternative}"
    )


def kind_named(name: str) -> type[Question | Part]:
    """Return the class of a wire name; one of privfed's own is imported when it is first received.

    Raises:
        KeyError: no class has the name.
    """
    if name not in _REGISTRY and name in PLACES:
        import_module(PLACES[name])
    return _REGISTRY[name]


def unknown_name(data: bytes) -> str | None:
    """Return the wire name of an encoded question that no class here has; None for any other bytes."""
    try:
        name = _DECODER.decode(data).name
    except msgspec.MsgspecError:
        return None
    return None if name in _REGISTRY or name in PLACES else name


def own_names() -> tuple[str, ...]:
    """Return the registered names that are not privfed's own."""
    return tuple(sorted(_REGISTRY.keys() - PLACES.keys()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Question(ABC):
    """A question that every client of a cohort is asked.

    Subclasses are frozen dataclasses whose fields are float64 arrays, scalars, `Ranges`, parts or one
    other question.

    Args:
        ranges: ranges of the data; the client clips its rows to them before it answers.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    """Over what its statistics are sums; a question that says nothing adds up over clients only."""
    alternative: ClassVar[str] = 'Use DPKMeans, one local step (local_iter=1), or unit="client".'
    """What to ask under differential privacy instead, where there is no bounded form."""
    trains: ClassVar[bool] = False
    """Whether clients train models on their rows by it."""
    remembers: ClassVar[Remembered[Any] | None] = None
    """What it has a client remember until its fit ends; None for nothing. No answer may rely on more."""
    ranges: Ranges

    @property
    def asks_all_clients(self) -> bool:
        """Whether clients without rows are asked, too; elsewhere they answer zeros."""
        return False

    @property
    def declaration(self) -> Declaration | None:
        """What the question declares; None declares nothing."""
        return None

    def effort(self, n_features: int) -> Effort:
        """Return what its options add to its cost, beside what its arrays and its layout say."""
        return Effort()

    def bounded(self, reach: float | None = None, **limits: Any) -> Question:
        """Return the same question with a proven bound on one record's contribution (sensitivity).

        Args:
            reach: radius of a ball around the midpoint of the ranges that contains all rows; None where rows
                are only known to lie in the ranges.
            **limits: other fields of the bounded form, such as `radius`.

        Raises:
            PrivacyError: there is none; the message names the alternative.
        """
        # A subclass may ask something else, so that it does not inherit the bounded form.
        form = BOUNDED_FORMS.get(type(self))
        if form is None:
            raise unbounded(type(self))
        return form(**asdict(self), reach=reach, **limits)

    @property
    def noise_reach(self) -> FloatArray | None:
        """Largest change of each number of a total by noise of the server; None where answers are exact."""
        return None

    @property
    def client_limits(self) -> Mapping[str, float] | None:
        """L2 limit of each entry for an answer that describes a client as a whole; None where rows add up."""
        return None

    @property
    @abstractmethod
    def spec(self) -> StatisticsSpec:
        """Layout and per-entry ranges of one client's answer."""

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass, each exactly as if it were asked alone."""
        return [self.of_rows(client.features) for client in clients]

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows; a question writes this, or `answer_all`."""
        raise NotImplementedError(f"{type(self).__name__} needs of_rows() or answer_all().")

    def answer(self, data: ClientData, generator: np.random.Generator) -> Statistics:
        """Answer for one client."""
        return self.answer_all([data], [generator])[0]

    @property
    def position(self) -> Position | None:
        """Where it stands in the agreed program; None where that was not stated. It is part of no answer."""
        return self.__dict__.get("_position")

    def at(self, position: Position | None) -> Self:
        """Return the same question, which states a position."""
        placed = copy(self)
        placed.__dict__.pop("_encoded", None)
        placed.__dict__["_position"] = position
        return placed

    def to_bytes(self) -> bytes:
        """Return the canonical encoding, which is sent and which masks are bound to."""
        if "_encoded" in self.__dict__:
            return cast(bytes, self.__dict__["_encoded"])
        arrays: dict[str, Array] = {}
        options: dict[str, Option] = {}
        _write(self, "", arrays, options)
        encoded = encode(QuestionMessage(wire_name(type(self)), arrays, options, self.position))
        held = (one for part in parts_of(self) for one in asdict(part).values())
        if all(unwritable(one) for one in held if isinstance(one, np.ndarray) and one.size):
            self.__dict__["_encoded"] = encoded
        return encoded


COMPARED = (np.ndarray, bool, int, float, str, NoneType, Ranges, Word, Question, Part)
"""What fields of questions and parts may hold."""


def _write(value: Any, prefix: str, arrays: dict[str, Array], options: dict[str, Option]) -> None:
    """Write the fields of a dataclass; those of a nested value get its name as a prefix."""
    for field_name, one in asdict(value).items():
        name = prefix + field_name
        if isinstance(one, np.ndarray):
            arrays[name] = Array.from_numpy(one)
        elif isinstance(one, Ranges):
            options[name] = RANGES
            _write(one, f"{name}.", arrays, options)
        elif isinstance(one, Part | Question):
            options[name] = wire_name(type(one))
            _write(one, f"{name}.", arrays, options)
        else:
            options[name] = one.item() if isinstance(one, np.generic) else one


def parts_of(question: Any) -> Iterator[Question | Part]:
    """Yield a question or part, then all questions and parts nested in it."""
    yield question
    for one in asdict(question).values():
        if isinstance(one, Question | Part):
            yield from parts_of(one)


def memories_of(question: Question) -> dict[str, Remembered[Any]]:
    """Return what a question and those in it have a client remember, by name."""
    kinds = [part.remembers for part in parts_of(question) if isinstance(part, Question)]
    return {one.name: one for one in kinds if one is not None}


def centers_of(question: Question) -> tuple[FloatArray, ...]:
    """Return the centers that a question and the questions and parts in it declare, outermost first."""
    declared = [part.declaration for part in parts_of(question)]
    return tuple(center for one in declared if one is not None for center in one.centers)


def cost_of(question: Question) -> Cost:
    """Return what one client's answer takes; nothing of its layout's size is made.

    Raises:
        CostError: it is beyond the ceiling.
    """
    n_features, parts = question.ranges.n_features, tuple(parts_of(question))
    found = Cost()
    for part in parts:
        arrays = [one for one in asdict(part).values() if isinstance(one, np.ndarray)]
        size, effort = sum(one.size for one in arrays), part.effort(n_features)
        vectors = effort.vectors + sum(len(one) if one.ndim > 1 else 1 for one in arrays)
        met = size + (effort.vectors + 1) * n_features
        own = Cost(size + effort.numbers, vectors, effort.work, effort.turns * met + effort.row_work)
        own.check()  # One by one: what a part's options take off would pay for another.
        found += own
    found.check()
    # Only what is not too much already has a layout; where a bound overflows, its entry is an error.
    with np.errstate(all="ignore"):
        layout = WORKINGS * sum(part.spec.size for part in parts if isinstance(part, Question))
        found += Cost(numbers=layout, work=STEP + layout)
    found.check()
    return found


def fields_of(kind: Any) -> tuple[Field[Any], ...]:
    """Return the fields of a class of questions or parts, all of which are dataclasses."""
    return fields(kind)


@lru_cache(maxsize=1 << 8)
def _allowed(hint: Any) -> frozenset[Any]:
    """Return the classes that a type allows."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return frozenset(get_origin(kind) or kind for kind in kinds)


def _read(kind: Any, prefix: str, values: dict[str, object]) -> Any:
    """Build a dataclass from the values under a prefix, each checked against its annotation."""
    hints, built = types_of(kind), {}
    for one in fields(kind):
        name, hint = prefix + one.name, hints[one.name]
        value = values.pop(name)
        if hint is Ranges or (isinstance(hint, type) and issubclass(hint, Part | Question)):
            value = _read(Ranges if hint is Ranges else kind_named(str(value)), f"{name}.", values)
        if isinstance(hint, type) and issubclass(hint, Word):
            value = hint(str(value))
        if not fits(value, hint):
            raise TypeError(name)
        built[one.name] = value
    made = kind(**built)
    if isinstance(made, Question):
        # Before a question around it asks for its layout. What overflows is refused where it matters.
        with np.errstate(all="ignore"):
            cost_of(made)
    return made


def question_of(message: QuestionMessage) -> Question:
    """Return the question that a message states; errors are those of what is wrong with it, as they come."""
    values: dict[str, object] = {name: array.to_numpy() for name, array in message.arrays.items()}
    values |= message.options
    question = _read(kind_named(message.name), "", values)
    if values or not isinstance(question, Question):
        raise TypeError("not a question, or fields that it does not have")
    return question if message.position is None else question.at(message.position)


_READ = list[tuple[bytes, Question]]()
"""The questions that were read last, since simulated clients read the same."""


def question_from_bytes(data: bytes) -> Question:
    """Return the question that `data` encodes.

    Raises:
        MessageError: not a well-formed question, or one that this party does not know.
        PolicyError: it takes too much memory or work (`cost_of`); the text is the code of the refusal.
    """
    # Long questions are sooner compared than hashed.
    for known, read in _READ:
        if known == data:
            return read
    try:
        question = question_of(_DECODER.decode(data))
    except CostError:
        raise PolicyError(TOO_LARGE) from None
    except (msgspec.MsgspecError, ArgumentError, KeyError, TypeError, ValueError, RecursionError):
        raise _malformed("not a well-formed question of this version: read it with its own") from None
    if question.to_bytes() != data:
        raise _malformed("question is not in its canonical encoding")
    question.__dict__["_encoded"] = data
    _READ[:] = [(data, question), *_READ[:1]]
    return question
