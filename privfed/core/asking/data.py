"""One client's rows, as questions read them; those of several simulated clients, in one table.

A question answers for all clients of a table in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from privfed.core.asking.declaration import Declaration
from privfed.core.values.domain import Domain, FloatArray, Ranges, frozen, frozen_array
from privfed.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """One client's rows, and their labels where it has them.

    Args:
        features: float64 of shape (n_rows, n_features), finite; perhaps no rows.
        labels: int64 codes of shape (n_rows,), or None. A row whose code is no class of what is asked counts
            in nothing that asks for labels.
        classes: how many classes the labels tell apart, as the rows' owner says; None for any number.
        times: whether the last two columns may be used as times of rows: the owner says so.
        cache: what questions would compute again (local centroids, clipped rows); it never leaves the client.
        memory: what questions have the client remember until its fit ends (`Question.remembers`), by name.
        errors: errors in whose place zeros were answered (`Noised`), for the client's own log.
        stack: the table in which the rows lie with those of other simulated clients, or None.
        place: position of the client in the stack.
        grouped: whether the rows are means of groups. A client without a group answers zeros to everything.
        users: whose each row is, one id a row, until rows of users are chosen (`privfed.party.answerer`);
            None without ids.
    """

    features: FloatArray
    labels: npt.NDArray[np.int64] | None = None
    cache: dict[object, object] = field(default_factory=dict, repr=False)
    errors: list[BaseException] = field(default_factory=list, repr=False)
    stack: Stack | None = field(default=None, repr=False)
    place: int = 0
    memory: dict[str, object] = field(default_factory=dict, repr=False)
    grouped: bool = False
    classes: int | None = None
    times: bool = False
    users: Sequence[str] | None = field(default=None, repr=False)

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
        return np.asarray(self.cache[key])

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
        return (
            self
            if np.array_equal(moved.view(np.int64), self.features.view(np.int64))
            else self._moved(moved, None)
        )

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
            self.cache[key] = (self._moved(clipped, stack), moved)
        return cast(tuple[ClientData, int], self.cache[key])

    def anew(self) -> ClientData:
        """Return the same client at the beginning of a fit: it remembers nothing of another one."""
        return replace(self, memory={})

    def emptied(self) -> ClientData:
        """Return the same client, with what it remembers, but without rows."""
        labels = None if self.labels is None else self.labels[:0]
        nothing = np.empty((0, self.n_features))
        return replace(self, features=nothing, labels=labels, cache={}, errors=[], stack=None, users=None)

    def only(self, kept: npt.NDArray[np.bool_]) -> ClientData:
        """Return the same client with some of its rows, without ids and with nothing kept of the others."""
        labels = None if self.labels is None else self.labels[kept]
        rows = self.features[kept]
        return replace(
            self, features=rows, labels=labels, cache={}, errors=[], stack=None, place=0, users=None
        )

    def unusable(self, declared: Iterable[Declaration | None]) -> str | None:
        """Return the code of a refusal to be used as questions ask, or None. It depends on no row.

        Args:
            declared: by questions and their parts.
        """
        for one in filter(None, declared):
            if one.classes and (self.labels is None or self.classes not in (None, one.classes)):
                return "agreement:labels"
            if one.times and not self.times:
                return "agreement:times"
            if one.singly and self.grouped:
                return "agreement:groups"
        return None

    def _moved(self, features: FloatArray, stack: Stack | None) -> ClientData:
        """Return the same client with its rows elsewhere; nothing is kept of where they were."""
        return replace(self, features=features, cache={}, errors=[], stack=stack)


def in_one_stack(clients: Sequence[ClientData]) -> tuple[ClientData, ...]:
    """Return the data of several simulated clients with their rows in one table."""
    if not clients or stacked_already(clients):
        return tuple(clients)
    stack = Stack.of([one.features for one in clients])
    return tuple(replace(one, features=stack.part(i), stack=stack, place=i) for i, one in enumerate(clients))


def stacked_already(clients: Sequence[ClientData]) -> bool:
    """Say whether the rows of several clients lie in one table."""
    stack = clients[0].stack
    return stack is not None and all(one.stack is stack for one in clients)


def all_within(clients: Sequence[ClientData], ranges: Ranges) -> tuple[Sequence[ClientData], list[int]]:
    """Return `ClientData.within` for several clients: their data, and how many rows were clipped."""
    stack = clients[0].stack if clients else None
    if stack is not None and stacked_already(clients) and stack.inside(ranges):
        return clients, [0] * len(clients)
    within = [own.within(ranges) for own in clients]
    return [data for data, _ in within], [moved for _, moved in within]


def stacked(clients: Sequence[ClientData]) -> Stacked:
    """Return the rows of several clients in one table: the one in which they lie, or a new one."""
    stack = clients[0].stack
    if stack is not None and stacked_already(clients):
        return Stacked(stack, np.array([one.place for one in clients], dtype=np.int64))
    if len(clients) == 1:
        # A client alone keeps its stack, and the bounds in it, with its data.
        kept = clients[0].cache.setdefault("stack", Stack.of([clients[0].features]))
        return Stacked(kept, np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]
    return Stacked.of([one.features for one in clients])


Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Rows of several clients, one client after the other, and what is kept of them between sums.

    Args:
        rows: float64 of shape (n_rows, n_features), read-only.
        firsts: first row of each client, then the number of rows, int64 of shape (n_clients + 1,).
        cache: what questions keep between sums, such as bounds on distances. It never leaves this process,
            and may be dropped at any time: no answer depends on it.
    """

    rows: FloatArray
    firsts: Places
    cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, clients: Sequence[FloatArray]) -> Stack:
        """Return the rows of some clients, each float64 of shape (n_i, n_features), as a stack."""
        firsts = np.cumsum([0, *map(len, clients)], dtype=np.int64)
        if len(clients) == 1:
            return cls(frozen_array(clients[0]), firsts)
        # In C order, whatever order the clients' own tables have: the compiled kernel reads it so.
        return cls(
            frozen(np.concatenate(clients, out=np.empty((int(firsts[-1]), clients[0].shape[1])))), firsts
        )

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.firsts) - 1

    def part(self, place: int) -> FloatArray:
        """Return the rows of one client, a view of shape (n_i, n_features)."""
        return self.rows[self.firsts[place] : self.firsts[place + 1]]

    def inside(self, ranges: Ranges) -> bool:
        """Say whether all rows lie in `ranges`."""
        key = ("extremes",)
        if key not in self.cache:
            # Found once: rows stay as they are.
            self.cache[key] = self.rows.min(axis=0, initial=np.inf), self.rows.max(axis=0, initial=-np.inf)
        kept: tuple[FloatArray, FloatArray] = self.cache[key]  # type: ignore[assignment]
        low, high = kept
        return bool((low >= ranges.low).all() and (high <= ranges.high).all())

    def within(self, ranges: Ranges) -> Stack:
        """Return the stack with all rows clipped to `ranges`; it is kept, for all clients."""
        key = ("within", ranges.low.tobytes(), ranges.high.tobytes())
        if key not in self.cache:
            self.cache[key] = Stack(frozen(ranges.clip(self.rows)), self.firsts)
        return cast(Stack, self.cache[key])


class Stacked(NamedTuple):
    """Some of the clients of a stack, in the order in which they answer.

    Attributes:
        stack: the rows.
        places: positions of the clients in the stack, int64 of shape (n,).
    """

    stack: Stack
    places: Places

    @classmethod
    def of(cls, clients: Sequence[FloatArray]) -> Stacked:
        """Return a stack of some clients' rows, all of them."""
        return cls(Stack.of(clients), np.arange(len(clients), dtype=np.int64))

    @property
    def starts(self) -> Places:
        """First row of each client."""
        return self.stack.firsts[:-1][self.places]

    @property
    def stops(self) -> Places:
        """The row after each client's last."""
        return self.stack.firsts[1:][self.places]

    @property
    def parts(self) -> list[FloatArray]:
        """Each client's rows."""
        return [self.stack.part(place) for place in self.places.tolist()]

    def only(self, kept: Places | npt.NDArray[np.bool_] | slice) -> Stacked:
        """Return some of the clients."""
        return Stacked(self.stack, self.places[kept])
