"""Questions: the only code that touches a client's data.

A question is a frozen value of public arrays and options. It has the specification of its statistics,
and computes the answer of one client, or of many simulated clients in one pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from importlib import import_module
from types import UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.memory import Remembered
from privfed.core.asking.stack import Stack
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.names.definitions import same_definition
from privfed.core.names.own_questions import PLACES
from privfed.core.stored.held import held, types_of
from privfed.core.stored.messages import Array, encode
from privfed.core.values.domain import Domain, FloatArray, Ranges, frozen_array
from privfed.core.values.guarantee import Word
from privfed.errors import ArgumentError, DataError, MessageError, PolicyError, PrivacyError

ERRORS = (BaseException,)
"""Errors of a question's code that are caught: all, for a panic of compiled code is no Exception. Before it
KeyboardInterrupt is raised again, which stops the process."""


class AdditiveOver(Enum):
    """Whether a question's statistics are sums over records, or only sums over clients."""

    RECORDS = "records"
    CLIENTS = "clients"


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """One client's rows, and their labels where it has them.

    Args:
        features: float64 of shape (n_rows, n_features), finite. A client without rows is asked only
            questions whose answers are noised.
        labels: int64 codes of shape (n_rows,), or None.
        cache: what questions would compute again (local centroids, clipped rows); it never leaves the client.
        memory: what questions have the client remember until its fit ends (`Question.remembers`), by name.
        errors: errors in whose place zeros were answered (`Noised`), for the client's own log.
        stack: the table in which the rows lie with those of other simulated clients, or None.
        place: position of the client in the stack.
    """

    features: FloatArray
    labels: npt.NDArray[np.int64] | None = None
    cache: dict[object, object] = field(default_factory=dict, repr=False)
    errors: list[BaseException] = field(default_factory=list, repr=False)
    stack: Stack | None = field(default=None, repr=False)
    place: int = 0
    memory: dict[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        features = frozen_array(self.features) if self.stack is None else self.features
        if features.ndim != 2 or features.shape[1] == 0:
            raise DataError(f"a client's data needs rows and columns, got shape {features.shape}.")
        object.__setattr__(self, "features", features)
        # Extremes are kept, for ranges; they are NaN or infinite where a value is.
        if self.n_rows and not np.isfinite(self.extremes).all():
            raise DataError("a client's data holds NaN or infinity; drop or impute these rows.")
        if self.labels is not None and np.shape(self.labels) != (features.shape[0],):
            raise DataError(f"{np.shape(self.labels)} labels do not fit {features.shape[0]} rows.")

    @property
    def extremes(self) -> FloatArray:
        """Smallest and largest value of each feature, float64 of shape (2, n_features), if there are rows."""
        key = ("extremes",)
        if key not in self.cache:
            self.cache[key] = np.stack([self.features.min(axis=0), self.features.max(axis=0)])
        kept: FloatArray = self.cache[key]  # type: ignore[assignment]
        return kept

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.features.shape[1])

    def inside(self, domain: Domain) -> ClientData:
        """Return the data with each row outside the domain moved to its nearest point, independently.

        The result for a row depends on no other row: a bound on one record's contribution to a total assumes
        that the contributions of all other records stay the same.
        """
        # Clipping may return 0.0 or -0.0 depending on a value's position; adding 0.0 makes both 0.0.
        moved = domain.clip(self.features) + 0.0
        same = np.array_equal(moved.view(np.int64), self.features.view(np.int64))
        return self if same else ClientData(moved, self.labels, memory=self.memory)

    def within(self, ranges: Ranges) -> tuple[ClientData, int]:
        """Return the data with its rows clipped to `ranges`, and the number of rows that clipping moved."""
        low, high = self.extremes if self.n_rows else (ranges.low, ranges.high)
        if (low >= ranges.low).all() and (high <= ranges.high).all():
            return self, 0
        key = ("within", ranges.low.tobytes(), ranges.high.tobytes())
        if key not in self.cache:
            stack = None if self.stack is None else self.stack.within(ranges)
            clipped = ranges.clip(self.features) if stack is None else stack.part(self.place)
            moved = int(np.count_nonzero((clipped != self.features).any(axis=1)))
            own = {"stack": stack, "place": self.place, "memory": self.memory}
            self.cache[key] = (ClientData(clipped, self.labels, **own), moved)  # type: ignore[arg-type]
        kept: tuple[ClientData, int] = self.cache[key]  # type: ignore[assignment]
        return kept


Option = int | float | str | bool | None


class QuestionMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question on the wire: its registered name, its arrays and its options."""

    name: str
    arrays: dict[str, Array]
    options: dict[str, Option]


class Part:
    """A public component of questions: a frozen dataclass of arrays and scalars."""

    @property
    def declaration(self) -> Declaration | None:
        """What the part declares to a client's policy; None declares nothing."""
        return None


_REGISTRY: dict[str, type[Question | Part]] = {}
BOUNDED_FORMS: dict[type[Question], Callable[..., Question]] = {}
"""Class of a question -> class of its bounded form (`privfed.privacy.bounds.bounded_form_of`)."""
_DECODER = msgspec.msgpack.Decoder(QuestionMessage)
Registered = TypeVar("Registered", bound="type[Question | Part]")


RANGES = "Ranges"
"""What ranges are called on the wire."""


def wire_name(kind: type[Question | Part]) -> str:
    """Return what a class is called in messages, policies and ledgers: the name that it declares, or its own.

    A class that is renamed declares its former name, `wire_name: ClassVar[str] = "Former"`, so that what was
    recorded is still read. A subclass does not inherit it, for it may ask something else.
    """
    declared = vars(kind).get("wire_name", kind.__name__)
    return str(declared)


def register(kind: Registered) -> Registered:
    """Register a question or part under its wire name, so that it can be decoded (a class decorator).

    The same definition may be run again, as in a notebook.

    Raises:
        ArgumentError: another class has the name, or the class was defined with other code before.
    """
    name = wire_name(kind)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Question(ABC):
    """A question that every client of a cohort is asked.

    Subclasses are frozen dataclasses whose fields are float64 arrays, scalars, `Ranges`, parts or one
    other question.

    Args:
        ranges: ranges of the data; the client clips its rows to them before it answers.
    """

    additive_over: ClassVar[AdditiveOver]
    alternative: ClassVar[str] = 'Use DPKMeans, one local step (local_iter=1), or unit="client".'
    """What to ask under differential privacy instead, where there is no bounded form."""
    remembers: ClassVar[Remembered[Any] | None] = None
    """What it has a client remember until its fit ends; None for nothing. No answer may rely on more."""
    ranges: Ranges

    @property
    def declaration(self) -> Declaration | None:
        """What the question declares to a client's policy; None declares nothing.

        User-defined questions should have one: clients with a `min_count` or `count_multiple` refuse
        questions without.
        """
        return None

    def bounded(self, reach: float | None = None) -> Question:
        """Return the same question with a proven bound on one record's contribution (sensitivity).

        Args:
            reach: radius of a ball around the midpoint of the ranges that contains all rows; None where rows
                are only known to lie in the ranges.

        Raises:
            PrivacyError: there is none; the message names the alternative.
        """
        # A subclass may ask something else, so that it does not inherit the bounded form.
        form = BOUNDED_FORMS.get(type(self))
        if form is None:
            raise PrivacyError(
                f"{type(self).__name__} has no proven bound for one record: a client's answer to it may "
                f"depend on each of its rows as a whole. {self.alternative}"
            )
        bounded: Question = form(**held(self), reach=reach)
        return bounded

    @property
    def client_limits(self) -> Mapping[str, float] | None:
        """L2 limit of each entry for an answer that describes a client as a whole; None where rows add up."""
        return None

    @property
    @abstractmethod
    def spec(self) -> StatisticsSpec:
        """Layout and per-entry ranges of one client's answer."""

    @abstractmethod
    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass, each exactly as if it were asked alone."""

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> Sequence[Statistics]:
        """Answer for several clients of at least `min_count` rows each, without showing smaller groups.

        Declared counts, and the sums over the same rows, are coarsened here. A question whose statistics
        come from a client's own clusters overrides this, and leaves out small clusters before.

        Raises:
            PolicyError: the question declares nothing.
        """
        declared = self.declaration
        if declared is None:
            raise PolicyError("policy:undeclared")
        answers = self.answer_all(clients, generators)
        return [coarseness.of(answer, declared.row_counts, self.spec) for answer in answers]

    def answer(self, data: ClientData, generator: np.random.Generator) -> Statistics:
        """Answer for one client."""
        return self.answer_all([data], [generator])[0]

    def to_bytes(self) -> bytes:
        """Return the canonical encoding, which is sent and which masks are bound to."""
        arrays: dict[str, Array] = {}
        options: dict[str, Option] = {}
        _write(self, "", arrays, options)
        return encode(QuestionMessage(wire_name(type(self)), arrays, options))


def _write(value: Any, prefix: str, arrays: dict[str, Array], options: dict[str, Option]) -> None:
    """Write the fields of a dataclass; those of a nested value get its name as a prefix."""
    for field_name, one in held(value).items():
        name = prefix + field_name
        if isinstance(one, np.ndarray):
            arrays[name] = Array.of(one)
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
    for one in held(question).values():
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


def _fits(value: object, hint: Any) -> bool:
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    allowed = {get_origin(kind) or kind for kind in kinds}
    if isinstance(value, Part | Question):
        return any(isinstance(value, kind) for kind in allowed)
    return type(value) in allowed or (float in allowed and type(value) is int)


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
        if not _fits(value, hint):
            raise TypeError(name)
        built[one.name] = value
    return kind(**built)


def _rebuild(message: QuestionMessage) -> Question:
    values: dict[str, object] = {name: array.to_numpy() for name, array in message.arrays.items()}
    values.update(message.options)
    question = _read(kind_named(message.name), "", values)
    if values or not isinstance(question, Question):
        raise TypeError("not a question, or fields that it does not have")
    return question


@lru_cache(maxsize=16)
def question_from_bytes(data: bytes) -> Question:
    """Return the question that `data` encodes.

    Raises:
        MessageError: not a well-formed question, or one that this party does not know.
    """
    try:
        question = _rebuild(_DECODER.decode(data))
    except (msgspec.MsgspecError, ArgumentError, KeyError, TypeError, ValueError):
        raise MessageError("not a well-formed question", sender="the coordinator", stage="question") from None
    if question.to_bytes() != data:
        raise MessageError(
            "question is not in its canonical encoding", sender="the coordinator", stage="question"
        )
    return question
