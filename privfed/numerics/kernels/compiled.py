"""The kernel compiled by numba: float32 scores with exact repair, and bounds that are kept between calls.

It is imported where work is large (`privfed.numerics.kernels.dispatch`), as compiling takes seconds once a
machine, loading half a second a process. Results are those of `.interpreted`, bit for bit. "Exact" distances
are those that `.interpreted` defines: sequential float64 sums of squared differences.

How a row is decided, in this order:

- Bounds (Hamerly, Making k-means even faster, SDM 2010). A bound is the gap between the distances to a row's
  own and to any other center, when the row was last decided, less what the centers have moved since.
- The same with the distance to its own center computed anew.
- Scores |c|^2 - 2xc in float32, relative to the centers' mean. They decide where the two least differ by more
  than twice the error bound of a score and of an exact distance's own rounding together.
- Else exact distances, among the centers whose scores are that close. Bounds and scores may be added in any
  order, also by a BLAS: they only decide how a row is decided.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

_UNIT = 2.0**-53
_SINGLE = 2.0**-24
_UP, _DOWN = 1.0 + 2.0**-40, 1.0 - 2.0**-22
"""Factors that outweigh the rounding of a bound in float64, and of one that is kept in float32."""

_LEAST, _MOST = 1e-140, 1e100
"""Centers that lie closer together, or further apart, are compared by exact distances: elsewhere neither the
squares of scores nor exact squares under- or overflow."""
_NEAREST, _FURTHEST = 1e-30, 1e37
"""Bounds outside are not kept: as float32 they would overflow, or lose digits."""
_WORN = 2.0**16
"""Bounds begin anew once centers have moved so many times as far as anything lies apart. They would say
little, and what is added to a path might be lost."""
_BLOCK_ROWS = 256

_MOST_FEATURES = 1 << 20
"""Most columns for which a score's error is within its bound: 2 (d + 3) u / (1 - d u) < 2.2 (d + 4) u."""

_FARTHEST = 1e36
"""Scaled squared length above which float32 might overflow: such rows are decided by exact distances."""

_any_order = {"fastmath": {"reassoc", "contract", "nsz", "nnan"}, "cache": True}


@njit(fastmath={"reassoc", "contract", "nsz"}, cache=True)
def _apart(rows, r, centers, j):
    """Return the distance of row r to center j, within (d + 4) units of rounding."""
    total = 0.0
    for t in range(rows.shape[1]):
        difference = rows[r, t] - centers[j, t]
        total += difference * difference
    return np.sqrt(total)


@njit(cache=True)
def _exact(rows, r, centers, j):
    """Return the exact squared distance of row r: differences, added one after the other."""
    total = 0.0
    for t in range(centers.shape[1]):
        difference = rows[r, t] - centers[j, t]
        total += difference * difference
    return total


@njit(fastmath={"reassoc", "contract", "nsz"}, cache=True)
def _shift(rows, pending, n_pending, origin, scale, out, squares):
    """Write rows relative to the origin, scaled, as float32; and their squared lengths."""
    for i in range(n_pending):
        r, total = pending[i], 0.0
        for t in range(rows.shape[1]):
            offset = (rows[r, t] - origin[t]) * scale
            out[i, t] = offset
            total += offset * offset
        squares[i] = total


@njit(cache=True)
def _kept(bound):
    """Return a bound as float32 may keep it: rounded down, or one that decides nothing."""
    return bound * _DOWN if _NEAREST < bound < _FURTHEST else -1.0


@njit(cache=True)
def _moved(own, before, drift, far, moves):
    """Add the centers' movements to the bounds' paths; say whether any center moved."""
    k, d = own.shape
    any_moved, most, second, which = False, 0.0, 0.0, -1
    for j in range(k):
        moves[j], same = 0.0, True
        for t in range(d):
            same = same and own[j, t] == before[j, t]
        if same:
            continue
        any_moved, moves[j] = True, _apart(own, j, before, j) * (_UP + d * _UNIT)
        if moves[j] > most:
            most, second, which = moves[j], most, j
        elif moves[j] > second:
            second = moves[j]
        for t in range(d):
            before[j, t] = own[j, t]
    for j in range(k):
        # The others may each have moved by the largest movement among them.
        others = second if j == which else most
        far[j] = (far[j] + others) * _UP
        drift[j] = (drift[j] + others + moves[j]) * _UP
    return any_moved


@njit(cache=True)
def _decide_exactly(rows, pending, n_pending, own, best, first, second):
    """Decide rows by exact distances alone; return distances to the nearest and the second, (n_pending,)."""
    for i in range(n_pending):
        least, next_least, label = np.inf, np.inf, 0
        for j in range(len(own)):
            distance = _exact(rows, pending[i], own, j)
            if distance < least:
                least, next_least, label = distance, least, j
            elif distance < next_least:
                next_least = distance
        best[i], first[i], second[i] = label, np.sqrt(least) * _UP, np.sqrt(next_least) / _UP


@njit(cache=True)
def _prepared(own, origin, single, double):
    """Write the centers relative to their mean, scaled, as (d, k) float32, with their squared lengths.

    Returns:
        The scale, the largest length, and whether scores can be had: of centers too far apart, or too close,
        they would overflow or underflow.
    """
    k, d = own.shape
    largest, longest = 0.0, 0.0
    for t in range(d):
        total = 0.0
        for j in range(k):
            total += own[j, t] / k
        origin[t] = total
        for j in range(k):
            largest = max(largest, abs(own[j, t] - total))
    if not _LEAST < largest < _MOST or d > _MOST_FEATURES:
        return 1.0, 0.0, False
    # A power of two: scaling is exact.
    scale = 2.0 ** -np.ceil(np.log2(largest))
    for j in range(k):
        square = 0.0
        for t in range(d):
            offset = (own[j, t] - origin[t]) * scale
            single[t, j] = offset
            square += offset * offset
        double[j] = square
        longest = max(longest, square)
    return scale, np.sqrt(longest), True


@njit(cache=True)
def _least_two(squares, products, n_pending, scores, least, second, best):
    """Make products scores, (k, n_pending); find each row's smallest, its first center, and the next."""
    for i in range(n_pending):
        least[i], second[i], best[i] = np.inf, np.inf, 0
    for j in range(len(squares)):
        square = squares[j]
        for i in range(n_pending):
            scores[j, i] = products[i, j]
        # Without branches, so that many rows are compared at once.
        for i in range(n_pending):
            score, low = square - np.float32(2.0) * scores[j, i], least[i]
            scores[j, i] = score
            higher = score if score > low else low
            second[i] = higher if higher < second[i] else second[i]
            best[i] = j if score < low else best[i]
            least[i] = score if score < low else low


@njit(**_any_order)
def _measured(lengths, longest, scale, d, n_pending, least, next_least, margins, first, second):
    """Turn scores into distances with their error bounds, and into the margin within which scores tie."""
    for i in range(n_pending):
        length = np.sqrt(lengths[i])
        reach = length + longest
        error = 2.2 * (d + 4) * _SINGLE * length * longest + 4.4 * _SINGLE * longest * longest
        error += 4.0 * (d + 8) * _UNIT * reach * reach + d * 2.0**-120
        margins[i] = 2.0 * error
        first[i] = np.sqrt(max(0.0, lengths[i] + least[i] + error)) / scale * _UP
        second[i] = np.sqrt(max(0.0, lengths[i] + next_least[i] - error)) / scale / _UP


@njit(cache=True)
def _decide(rows, pending, n_pending, own, scale, longest, work, best, first, second):
    """Decide rows by scores, and exactly where these are too close; distances as `_decide_exactly`."""
    origin, short, squares, block, products, scores, least, next_least, lengths, margins = work
    _shift(rows, pending, n_pending, origin, scale, block, lengths)
    for i in range(n_pending):
        if not lengths[i] < _FARTHEST:
            lengths[i] = _FARTHEST
            for t in range(len(origin)):
                block[i, t] = 0.0
    np.dot(block[:n_pending], short, products[:n_pending])
    _least_two(squares, products, n_pending, scores, least, next_least, best)
    _measured(lengths, longest, scale, len(origin), n_pending, least, next_least, margins, first, second)
    for i in range(n_pending):
        far = lengths[i] == _FARTHEST
        if next_least[i] - least[i] > margins[i] and not far:
            continue
        label, smallest = -1, np.inf
        for j in range(len(own)):
            if far or scores[j, i] - least[i] <= margins[i]:
                distance = _exact(rows, pending[i], own, j)
                if label < 0 or distance < smallest:
                    label, smallest = j, distance
        best[i] = label
        if far:
            first[i], second[i] = np.inf, 0.0


@njit(cache=True)
def _add(rows, start, stop, labels, changed, sums):
    """Sum the rows of the changed centers anew, one after the other, from zero."""
    for j in range(len(changed)):
        if changed[j]:
            for t in range(rows.shape[1]):
                sums[j, t] = 0.0
    for r in range(start, stop):
        j = labels[r]
        if changed[j]:
            for t in range(rows.shape[1]):
                sums[j, t] += rows[r, t]


@njit(cache=True)
def _renew(start, stop, gaps, lowers, drift, far):
    """Forget a client's bounds, and the paths that they are relative to."""
    drift[:], far[:] = 0.0, 0.0
    for r in range(start, stop):
        gaps[r], lowers[r] = -1.0, -1.0


@njit(cache=True)
def _begin(s, own, origin, start, stop, state):
    """Set the state of a client that was not asked before."""
    labels, before, drift, far, known, origins, reaches, counts, sums = state
    known[s], reaches[s] = True, 0.0
    for j in range(len(own)):
        drift[s, j], far[s, j], counts[s, j] = 0.0, 0.0, 0.0
        for t in range(len(origin)):
            before[s, j, t], sums[s, j, t] = own[j, t], 0.0
    for t in range(len(origin)):
        origins[s, t] = origin[t]
    for r in range(start, stop):
        labels[r] = -1


_table = types.Array(types.float64, 2, "C", readonly=True)
_cube = types.Array(types.float64, 3, "C", readonly=True)
_places = types.Array(types.int64, 1, "C", readonly=True)
_list, _lists, _sets = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]
_state = (types.int32[::1], types.float32[::1], types.float32[::1], _sets, _lists, _lists)
_state += (types.boolean[::1], _lists, _list, _lists, _sets)


@njit(types.void(_table, _places, _places, _places, _cube, *_state), cache=True, nogil=True)
def step(
    rows,
    starts,
    stops,
    slots,
    centers,
    labels,
    gaps,
    lowers,
    before,
    drift,
    far,
    known,
    origins,
    reaches,
    counts,
    sums,
):
    """Assign the rows of some clients to their nearest centers, and sum the rows of each center.

    All but the first five are the state (`privfed.numerics.kernels.dispatch.Memory`), which is updated.

    Args:
        rows: of all clients, (n_rows, d).
        starts: first row of each client that is asked.
        stops: the row after its last.
        slots: its position in the state.
        centers: its centers, (n_asked, k, d), or (1, k, d) for the same centers everywhere.
        labels: of the rows, (n_rows,).
        gaps: distance to the second center less that to the own, plus the own center's drift then.
        lowers: distance to the second center, plus `far` of the own center then.
        before: the centers of the last call, by client.
        drift: how much a gap may have shrunk since a client's first call, by its own center.
        far: how far any other center has moved since, in the same way.
        known: whether the client was asked before.
        origins: mean of the client's first centers.
        reaches: largest distance of its rows from there.
        counts: of each center's rows.
        sums: of each center's rows.
    """
    k, d = centers.shape[1], centers.shape[2]
    size = _BLOCK_ROWS if d < 256 else _BLOCK_ROWS // 2
    origin, short, squares = np.empty(d), np.empty((d, k), dtype=np.float32), np.empty(k, dtype=np.float32)
    work = (
        *(origin, short, squares),
        np.zeros((size, d), dtype=np.float32),
        np.empty((size, k), dtype=np.float32),
        np.empty((k, size), dtype=np.float32),
        np.empty(size, dtype=np.float32),
        np.empty(size, dtype=np.float32),
        np.empty(size),
        np.empty(size),
    )
    state = (labels, before, drift, far, known, origins, reaches, counts, sums)
    pending, best = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int32)
    first, second, moves = np.empty(size), np.empty(size), np.empty(k)
    changed = np.empty(k, dtype=np.bool_)
    for i in range(len(starts)):
        s, own = slots[i], centers[i % len(centers)]
        again = known[s]
        if again and not _moved(own, before[s], drift[s], far[s], moves):
            continue
        scale, longest, safe = _prepared(own, origin, short, squares)
        if not again:
            _begin(s, own, origin, starts[i], stops[i], state)
        farthest = 0.0
        for j in range(k):
            changed[j] = False
            farthest = max(farthest, _apart(own, j, origins, s))
        slack = 16.0 * (d + 8) * _UNIT * (reaches[s] + farthest)
        trusted = _NEAREST < reaches[s] + farthest < _FURTHEST
        if trusted and again and not np.all(drift[s] <= _WORN * (reaches[s] + farthest)):
            trusted = False
            _renew(starts[i], stops[i], gaps, lowers, drift[s], far[s])
        n_pending = 0
        for r in range(starts[i], stops[i] + 1):
            if r < stops[i]:
                label = labels[r]
                if again and trusted:
                    if gaps[r] > drift[s, label] + slack:
                        continue
                    lower = lowers[r] - far[s, label]
                    if lower > slack:
                        gap = lower - _apart(rows, r, own, label) * _UP
                        if gap > slack:
                            gaps[r] = _kept(gap + drift[s, label])
                            continue
                pending[n_pending] = r
                n_pending += 1
            if n_pending < size and (r < stops[i] or not n_pending):
                continue
            if safe:
                _decide(rows, pending, n_pending, own, scale, longest, work, best, first, second)
            else:
                _decide_exactly(rows, pending, n_pending, own, best, first, second)
            for p in range(n_pending):
                q, new = pending[p], best[p]
                old = labels[q]
                if old != new:
                    if old >= 0:
                        counts[s, old] -= 1.0
                        changed[old] = True
                    counts[s, new] += 1.0
                    changed[new] = True
                    labels[q] = new
                gap = second[p] - first[p]
                gaps[q] = _kept(gap + drift[s, new]) if gap > 0.0 else -1.0
                lowers[q] = _kept(second[p] + far[s, new])
                if not again:
                    # The first time all rows come by in their order, and are added while they are at hand.
                    reaches[s] = max(reaches[s], first[p] + farthest)
                    for t in range(d):
                        sums[s, new, t] += rows[q, t]
            n_pending = 0
        if again:
            _add(rows, starts[i], stops[i], labels, changed, sums[s])
