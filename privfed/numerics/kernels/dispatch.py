"""Calls of the kernel: labels, distances and sums of k-means, by whichever of two kernels does the work.

The compiled kernel works once there is enough work for it, else the interpreted one, which is NumPy. Both
give the same bits: `privfed.numerics.kernels.interpreted` defines exact labels, distances and sums. So it
makes no difference to any result which one works, and a row's label and distances depend on no other row.

numba keeps machine code in files that are pickles inside: whoever can write to them runs code as whoever
reads them. It keeps them beside the module, in the folder of Python's own `.pyc` files, whose readers already
trust whoever can write there. Where that cannot be written to, it keeps them in the user's cache folder, or
the one that the user names. Of these, only one is read that nobody but the user and the system's
administrator can write to.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from privfed.core.asking.data import Stack, Stacked
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import consecutive
from privfed.numerics.kernels import interpreted
from privfed.numerics.kernels.interpreted import IntArray, Nearest, TwoNearest

_LOG = logging.getLogger("privfed")

BUDGET = 0.3
"""Seconds that a process may spend in the interpreted kernel, as estimated, before the other is loaded."""

_A_STEP, _A_DISTANCE = 1e-4, 4e-9
"""Estimated seconds of an interpreted step, and of each of its distances: as measured with 2 columns."""

GROUP_BYTES = 1 << 22
"""Rows of several clients that are processed together: few enough to stay in a core's cache over steps."""

_ALLOWED = 1 << 26
"""Bytes of bounds that are kept in any case; above, as many as half of the rows."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled kernel.

    Args:
        step: `privfed.numerics.kernels.compiled.step`.
        distances: of `privfed.numerics.kernels.compiled_distances`, as all below.
        two_nearest: the two least squared distances of each row.
        joined: distances after a candidate has joined the centers.
        weighted_sums: sums of weights, and of rows with weights.
    """

    step: Callable[..., None]
    distances: Callable[..., None]
    two_nearest: Callable[..., None]
    joined: Callable[..., None]
    weighted_sums: Callable[..., None]


class Choice:
    """Counts the interpreted work of a process, and loads the compiled kernel when that pays.

    Loading takes a second, and once on a machine, or after an update, ten: numba compiles, and keeps the
    machine code beside the module or in the user's cache folder.

    Args:
        budget: seconds of interpreted work before the compiled kernel is loaded.
    """

    def __init__(self, budget: float = BUDGET) -> None:
        self._left, self._loaded = budget, False
        self._compiled: Compiled | None = None

    def compiled(self, n_rows: int, n_centers: int, n_features: int) -> Compiled | None:
        """Return the compiled kernel for some more work, or None while the interpreted one is to do it."""
        if self._loaded:
            return self._compiled
        self._left -= _A_STEP + _A_DISTANCE * n_rows * n_centers * (1.0 + n_features / 32.0)
        if self._left < 0.0:
            self._loaded, self._compiled = True, load()
        return self._compiled

    def settled(self, n_rows: int, n_centers: int, n_features: int) -> Choice:
        """Return a choice that stays as it is now, for the many calls of some work; it is counted once."""
        found = Choice()
        found._loaded, found._compiled = True, self.compiled(n_rows, n_centers, n_features)
        return found


def load() -> Compiled | None:
    """Return the compiled kernel, or None.

    None where numba is not installed, or does not know this Python, or would read its machine code from where
    others can write.
    """
    if not machine_code_allowed():
        return None
    try:
        from privfed.numerics.kernels import compiled, compiled_distances
    except (ImportError, SystemError, AttributeError, RuntimeError):
        # numba does not know this Python or NumPy, or finds no folder to keep machine code in.
        return None
    pools = ThreadpoolController().select(user_api="blas").lib_controllers

    def on_one_thread(*arguments: Any) -> None:
        # Its matrix products are small: more threads would mostly wait for each other.
        several = [(pool, threads) for pool in pools if (threads := pool.get_num_threads() or 1) > 1]
        for pool, _ in several:
            pool.set_num_threads(1)
        try:
            compiled.step(*arguments)
        finally:
            for pool, threads in several:
                pool.set_num_threads(threads)

    others = compiled_distances
    return Compiled(on_one_thread, others.distances, others.two_nearest, others.joined, others.weighted_sums)


def machine_code_allowed() -> bool:
    """Say whether numba is installed, and keeps machine code where nobody else can write."""
    try:
        return find_spec("numba") is not None and may_be_read(cache_folder())
    except (ImportError, SystemError, AttributeError, RuntimeError):
        # numba does not know this Python or NumPy, or finds no folder to keep machine code in.
        return False


def cache_folder() -> Path:
    """Return where numba keeps the machine code of the modules in this one's folder."""
    from numba import njit

    return Path(njit(cache=True)(cache_folder).stats.cache_path or "")


def may_be_read(folder: Path) -> bool:
    """Say whether machine code may be read from a folder; log why not."""
    if folder == Path(__file__).parent / "__pycache__" or only_ours(folder):
        return True
    _LOG.warning(
        "others may write to %s, or to a folder above it, where numba would read machine code from: it is "
        "not used, which makes large fits slower. Close that folder (chmod 700), or set NUMBA_CACHE_DIR to "
        "one of your own.",
        folder,
    )
    return False


def only_ours(folder: Path) -> bool:
    """Say whether only this user and root can change what a folder holds, by its owners and modes."""
    if os.name != "posix":
        return True
    folder, closed = folder.resolve(), False
    for place in (*reversed(folder.parents), folder):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()):
            return False
        # Below a folder that nobody else may enter, modes do not matter.
        closed = closed or not found.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder, such as /tmp, others cannot replace what is ours.
        if shared and not closed and (place == folder or not found.st_mode & stat.S_ISVTX):
            return False
    return True


CHOICE = Choice()
"""The choice of this process."""


class Memory:
    """What the compiled kernel keeps of some clients between two calls. No result depends on it.

    A row takes 12 bytes, a client about as much as two sets of centers. Attributes are the last arguments of
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
    clients: Stacked, centers: FloatArray, *, number: int = 0, choice: Choice = CHOICE
) -> tuple[FloatArray, FloatArray]:
    """Return counts, (n_clients, k), and sums, (n_clients, k, d), of each client's rows by nearest center.

    Args:
        clients: the clients.
        centers: of each client, float64 of shape (n_clients, k, d); or (1, k, d), the same for all.
        number: which of several steps in a row this is; bounds are kept for each.
        choice: which kernel does the work.
    """
    k, d = centers.shape[1:]
    starts, stops = clients.starts, clients.stops
    compiled = choice.compiled(int((stops - starts).sum()), k, d)
    if compiled is None:
        return _in_groups(clients, centers)
    memory, slots = Memory.of(clients.stack, number, k), clients.places
    rows = clients.stack.rows
    if memory is None:
        # Without bounds: the labels of these rows only, from the first of them on.
        low, slots = int(starts.min()), np.arange(len(starts))
        rows, starts, stops = rows[low : int(stops.max())], starts - low, stops - low
        memory = Memory(len(rows), len(starts), k, d)
    compiled.step(rows, starts, stops, slots, np.ascontiguousarray(centers), *vars(memory).values())
    return memory.counts[slots], memory.sums[slots]


def _in_groups(clients: Stacked, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what `step` returns, group by group, so that no copy of all rows is made."""
    done, first = [], 0
    for part in groups(clients):
        own = slice(first, first := first + len(part.places))
        done.append(interpreted.step(part.parts, centers if len(centers) == 1 else centers[own]))
    if len(done) == 1:
        return done[0]
    return np.concatenate([counts for counts, _ in done]), np.concatenate([sums for _, sums in done])


def groups(clients: Stacked) -> Iterator[Stacked]:
    """Return consecutive groups of clients whose rows stay in a core's cache, or single larger clients."""
    sizes = (clients.stops - clients.starts) * clients.stack.rows.shape[1] * 8
    return map(clients.only, consecutive(sizes.tolist(), GROUP_BYTES))


class Assigner:
    """Assigns the same rows to centers that move; bounds on distances are kept in between.

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        choice: which kernel does the work.
    """

    def __init__(self, rows: FloatArray, choice: Choice = CHOICE) -> None:
        self._rows, self._choice = np.ascontiguousarray(rows, dtype=np.float64), choice
        self._memory: Memory | None = None

    def labels(self, centers: FloatArray) -> IntArray:
        """Return the index of each row's nearest center (the first of equals), intp of shape (n_rows,).

        Args:
            centers: float64 of shape (n_centers, n_features), as many as before.
        """
        compiled = self._choice.compiled(len(self._rows), *centers.shape) if len(self._rows) else None
        if compiled is None:
            return interpreted.nearest(self._rows, centers)
        self._memory = memory = self._memory or Memory(len(self._rows), 1, *centers.shape)
        ends, slots = np.array([0, len(self._rows)]), np.zeros(1, dtype=np.int64)
        compiled.step(
            self._rows, ends[:1], ends[1:], slots, np.ascontiguousarray(centers)[None], *vars(memory).values()
        )
        return memory.labels.astype(np.intp)


def assign(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> IntArray:
    """Return the index of each row's nearest center (the first of equals), intp of shape (n_rows,).

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
        choice: which kernel does the work.
    """
    return Assigner(rows, choice).labels(np.asarray(centers, dtype=np.float64))


def distances(points: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> FloatArray:
    """Return the squared distances, float64 of shape (n_centers, n_points); exactly 0 on a center.

    Args:
        points: float64 of shape (n_points, n_features).
        centers: float64 of shape (n_centers, n_features).
        choice: which kernel does the work.
    """
    compiled = choice.compiled(len(points), *centers.shape)
    if compiled is None:
        return interpreted.distances(points, centers)
    found = np.empty((len(centers), len(points)))
    compiled.distances(_table(points), _table(centers), found)
    return found


def _table(values: FloatArray) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def nearest(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> Nearest:
    """Return each row's nearest center, and the squared distance to it.

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
        choice: which kernel does the work.
    """
    if choice.compiled(len(rows), *centers.shape) is not None:
        return Nearest(*two_nearest(rows, centers, choice=choice)[:2])
    labels = interpreted.nearest(rows, centers)
    return Nearest(labels, interpreted.own_squares(rows, centers[labels]))


def two_nearest(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> TwoNearest:
    """Return each row's nearest center, and the squared distances to it and to the next. As `nearest`."""
    compiled = choice.compiled(len(rows), *centers.shape)
    if compiled is None:
        return interpreted.two_nearest(rows, centers)
    found = TwoNearest(np.empty(len(rows), dtype=np.int64), np.empty(len(rows)), np.empty(len(rows)))
    compiled.two_nearest(_table(rows), _table(centers), *found)
    return found


def joined(
    points: FloatArray,
    weights: FloatArray,
    candidates: FloatArray,
    closest: FloatArray,
    *,
    choice: Choice = CHOICE,
) -> tuple[FloatArray, FloatArray]:
    """Return how far points would be from the nearest center of a set that a candidate had joined.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,).
        candidates: float64 of shape (n_sets, n_candidates, n_features).
        closest: squared distances to the nearest center of each set as it is, float64 of shape (n_sets,
            n_points); infinite in an empty set.
        choice: which kernel does the work.

    Returns:
        Squared distances, (n_sets, n_candidates, n_points), and their weighted sums, (n_sets, n_candidates).
    """
    shape = candidates.shape
    compiled = choice.compiled(len(points), shape[0] * shape[1], shape[2])
    if compiled is None:
        found = interpreted.distances(points, candidates.reshape(-1, shape[2])).reshape(
            *shape[:2], len(points)
        )
        np.minimum(found, closest[:, None], out=found)
        return found, interpreted.weighed(found, weights)
    found, totals = np.empty((*shape[:2], len(points))), np.empty(shape[:2])
    compiled.joined(_table(points), weights, np.ascontiguousarray(candidates), closest, found, totals)
    return found, totals


def weighted_sums(
    weights: FloatArray, rows: FloatArray, *, choice: Choice = CHOICE
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of each center's weights, (n_centers,), and of the rows with them, (..., n_features).

    Args:
        weights: float64 of shape (n_centers, n_rows).
        rows: float64 of shape (n_rows, n_features).
        choice: which kernel does the work.
    """
    compiled = choice.compiled(len(rows), len(weights), rows.shape[1])
    if compiled is None:
        return interpreted.weighted_sums(weights, rows)
    totals, sums = np.empty(len(weights)), np.empty((len(weights), rows.shape[1]))
    compiled.weighted_sums(weights, _table(rows), totals, sums)
    return totals, sums
