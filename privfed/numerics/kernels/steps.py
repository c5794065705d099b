"""Steps of k-means over stacked clients: counts and sums of the rows nearest to each center.

The one door to both kernels. The laws of their results stand in `privfed.numerics.kernels.interpreted`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privfed.core.asking.stack import Stack, Stacked
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels import interpreted
from privfed.numerics.kernels.choice import CHOICE, Choice, Compiled

GROUP_BYTES = 1 << 22
"""Rows of several clients that are processed together: few enough to stay in a core's cache over steps."""

_ALLOWED = 1 << 26
"""Bytes of bounds that are kept in any case; above, as many as half of the rows."""


class Memory:
    """What the compiled kernel keeps of some clients between two calls. No result depends on it.

    A row takes 12 bytes, a client about as much as two sets of centers. Attributes are the arguments of
    `privfed.numerics.kernels.compiled.step`, in its order.
    """

    def __init__(self, n_rows: int, n_clients: int, k: int, d: int) -> None:
        self.labels = np.empty(n_rows, dtype=np.int32)
        self.gaps, self.lowers = np.empty(n_rows, dtype=np.float32), np.empty(n_rows, dtype=np.float32)
        self.before = np.empty((n_clients, k, d))
        self.drift, self.far = np.empty((n_clients, k)), np.empty((n_clients, k))
        self.known = np.zeros(n_clients, dtype=np.bool_)
        self.origins, self.reaches = np.empty((n_clients, d)), np.empty(n_clients)
        self.counts, self.sums = np.empty((n_clients, k)), np.empty((n_clients, k, d))

    @staticmethod
    def size(n_rows: int, n_clients: int, k: int, d: int) -> int:
        """Return the bytes that a memory takes."""
        return 12 * n_rows + 8 * n_clients * (2 * k * d + 3 * k + d + 2)

    @classmethod
    def of(cls, stack: Stack, number: int, k: int) -> Memory | None:
        """Return a stack's memory of the number-th of several steps with k centers, unless it is too large.

        One of another number of centers is replaced.
        """
        n_rows, d = stack.rows.shape
        size, key = cls.size(n_rows, stack.n_clients, k, d), ("bounds", number)
        if size * (number + 1) > max(_ALLOWED, stack.rows.nbytes // 2):
            return None
        kept = stack.cache.get(key)
        if not isinstance(kept, Memory) or kept.counts.shape[1] != k:
            stack.cache[key] = kept = cls(n_rows, stack.n_clients, k, d)
        return kept


def step(
    held: Stacked, centers: FloatArray, *, number: int = 0, choice: Choice = CHOICE
) -> tuple[FloatArray, FloatArray]:
    """Return counts, (n_clients, k), and sums, (n_clients, k, d), of each client's rows by nearest center.

    Args:
        held: the clients.
        centers: of each client, float64 of shape (n_clients, k, d); or (1, k, d), the same for all.
        number: which of several steps in a row this is; bounds are kept for each.
        choice: which kernel does the work.
    """
    k, d = centers.shape[1:]
    starts, stops = held.starts, held.stops
    n_rows = int((stops - starts).sum())
    compiled = choice.compiled(n_rows, k, d)
    if compiled is None:
        return _interpreted(held, centers)
    memory, slots = Memory.of(held.stack, number, k), held.places
    rows = held.stack.rows
    if memory is None:
        # Without bounds: the labels of these rows only, from the first of them on.
        low, slots = int(starts.min()), np.arange(len(starts))
        rows, starts, stops = rows[low : int(stops.max())], starts - low, stops - low
        memory = Memory(len(rows), len(starts), k, d)
    _call(compiled, memory, rows, starts, stops, slots, centers)
    return memory.counts[slots], memory.sums[slots]


def _interpreted(held: Stacked, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what `step` returns, group by group, so that no copy of all rows is made."""
    done, first = [], 0
    for part in groups(held):
        own = slice(first, first := first + len(part.places))
        done.append(interpreted.step(part.parts, centers if len(centers) == 1 else centers[own]))
    if len(done) == 1:
        return done[0]
    return np.concatenate([counts for counts, _ in done]), np.concatenate([sums for _, sums in done])


def _call(
    compiled: Compiled,
    memory: Memory,
    rows: FloatArray,
    starts: np.ndarray,
    stops: np.ndarray,
    slots: np.ndarray,
    centers: FloatArray,
) -> None:
    compiled(
        rows,
        starts,
        stops,
        slots,
        np.ascontiguousarray(centers),
        memory.labels,
        memory.gaps,
        memory.lowers,
        memory.before,
        memory.drift,
        memory.far,
        memory.known,
        memory.origins,
        memory.reaches,
        memory.counts,
        memory.sums,
    )


def groups(held: Stacked) -> Iterator[Stacked]:
    """Yield consecutive groups of clients whose rows stay in a core's cache, or single larger clients."""
    sizes = (held.stops - held.starts) * held.stack.rows.shape[1] * 8
    first, size = 0, 0
    for i, own in enumerate(sizes.tolist()):
        if size and size + own > GROUP_BYTES:
            yield held.only(slice(first, i))
            first, size = i, 0
        size += own
    yield held.only(slice(first, len(sizes)))


class Assigner:
    """Assigns the same rows to centers that move; bounds on distances are kept in between.

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        choice: which kernel does the work.
    """

    def __init__(self, rows: FloatArray, choice: Choice = CHOICE) -> None:
        self._rows, self._choice = np.ascontiguousarray(rows, dtype=np.float64), choice
        self._memory: Memory | None = None

    def labels(self, centers: FloatArray) -> interpreted.IntArray:
        """Return the index of each row's nearest center (the first of equals), intp of shape (n_rows,).

        Args:
            centers: float64 of shape (n_centers, n_features), as many as before.
        """
        compiled = self._choice.compiled(len(self._rows), *centers.shape) if len(self._rows) else None
        if compiled is None:
            return interpreted.nearest(self._rows, centers)
        self._memory = memory = self._memory or Memory(len(self._rows), 1, *centers.shape)
        ends, slots = np.array([0, len(self._rows)]), np.zeros(1, dtype=np.int64)
        _call(compiled, memory, self._rows, ends[:1], ends[1:], slots, np.asarray(centers)[None])
        return memory.labels.astype(np.intp)


def assign(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> interpreted.IntArray:
    """Return the index of each row's nearest center (the first of equals), intp of shape (n_rows,).

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
        choice: which kernel does the work.
    """
    return Assigner(rows, choice).labels(np.asarray(centers, dtype=np.float64))
