"""Defences of one client, as policy: what it answers to, how often, and how coarsely.

Each answers an attack, none is a guarantee (docs/threat-model.md says what is left of the attack):
probing with chosen centroids, differencing over many rounds, singletons. Only differential privacy
bounds what totals tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.core.configuration import ClientPolicy
from privfed.core.domain import FloatArray, Ranges
from privfed.core.engine import Answerer, StateStore
from privfed.core.question import Part, Question, parts_of
from privfed.core.statistics import Statistics
from privfed.errors import PolicyError

ON_A_LINE = 1e-6
"""Distance from a line, relative to the diameter of the ranges, up to which a center is on it."""

OUTSIDE = 0.5
"""How far momentum may carry an honest centroid beyond the ranges, relative to their width."""

JUMP = 0.25
"""Movement of a centroid, relative to the diameter of the ranges, that is a jump."""

_COUNTS = ("count", "weight")


def looks_chosen(centers: FloatArray, ranges: Ranges) -> bool:
    """Say whether centroids are such as an attacker chooses and data do not give.

    A probing server cuts the domain into slabs by pairs of centroids along a line and parks the rest
    far away. So: any centroid beyond the ranges by more than half their width, or four and at least
    half of them on one line, in two or more features. Rows that themselves lie on a line (one feature
    that varies) are refused too: leave the guard off there.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        ranges: of the data.
    """
    beyond = OUTSIDE * ranges.width
    if (centers < ranges.low - beyond).any() or (centers > ranges.high + beyond).any():
        return True
    if len(centers) < 4 or centers.shape[1] < 2:
        return False
    near = ON_A_LINE * float(np.linalg.norm(ranges.width))
    most = 0
    for start in centers:
        offsets = centers - start
        lengths = np.linalg.norm(offsets, axis=1)
        apart = offsets[lengths > near] / lengths[lengths > near, None]
        # Distance of each center from the line through `start` in each direction to another.
        along = offsets @ apart.T
        off = np.sqrt(np.maximum(lengths[:, None] ** 2 - along**2, 0.0))
        most = max(most, int((off <= near).sum(axis=0).max(initial=0)))
    return most >= max(4, len(centers) / 2)


def coarsened(statistics: Statistics, min_count: int, multiple: int) -> Statistics:
    """Return statistics with small counts left out, and counts rounded to multiples.

    Where there is a count for each cluster (in each slot, where there are slots), a cluster of fewer than
    `min_count` rows becomes zero in every entry, and a rounded count scales the cluster's sums with it, so
    that means stay.

    Args:
        statistics: of one client.
        min_count: fewest rows of a cluster that are answered.
        multiple: counts are rounded to the nearest multiple of it.
    """
    name = next((one for one in _COUNTS if one in statistics), None)
    if name is None or (min_count <= 1 and multiple <= 1):
        return statistics
    counts = statistics[name]
    kept = np.where(counts >= min_count, np.rint(counts / multiple) * multiple, 0.0)
    factor = np.divide(kept, counts, out=np.zeros_like(counts), where=counts > 0)
    return Statistics(
        **{
            one: array * factor.reshape(*counts.shape, *[1] * (array.ndim - counts.ndim))
            if array.shape[: counts.ndim] == counts.shape
            else array
            for one, array in statistics.items()
        }
    )


class GuardedAnswerer:
    """A client's answerer behind its policy. Refusals depend on what was asked, never on data.

    Args:
        answerer: answers questions on the client's data.
        policy: the client's.
        store: keeps how many questions were answered, how often the centroids jumped, and the last ones.
    """

    def __init__(self, answerer: Answerer, policy: ClientPolicy, store: StateStore) -> None:
        self._answerer, self._policy, self._store = answerer, policy, store

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer within the policy.

        Raises:
            PolicyError: the policy refuses; its text is the code of the refusal.
        """
        parts = list(parts_of(question))
        held = [getattr(part, "centers", None) for part in parts]
        centers = [one for one in held if isinstance(one, np.ndarray)]
        with self._store.transaction() as transaction:
            answered, jumps, last = transaction.load() or (0, 0, ())
            if self._policy.max_answers is not None and answered >= self._policy.max_answers:
                raise PolicyError("policy:max_answers")
            if centers:
                if self._policy.probing_guard and any(looks_chosen(one, question.ranges) for one in centers):
                    raise PolicyError("policy:probing")
                jumps += _jumped(last, centers, question.ranges)
                if self._policy.max_jumps is not None and jumps > self._policy.max_jumps:
                    raise PolicyError("policy:max_jumps")
                last = centers
            transaction.save((answered + 1, jumps, last))
        statistics, clipped = self._answerer(question, index)
        if not any(_counts_rows(part) for part in parts):
            return statistics, clipped
        return coarsened(statistics, self._policy.min_count, self._policy.count_multiple), clipped


def _counts_rows(question: Question | Part) -> bool:
    """Say whether a question asks how a client's rows fall into clusters: no start, no equal weights."""
    if not isinstance(question, Question) or hasattr(question, "points"):
        return False
    centers = isinstance(getattr(question, "centers", None), np.ndarray)
    return centers and getattr(question, "weights", "dynamic") == "dynamic"


def _jumped(last: Sequence[FloatArray], centers: Sequence[FloatArray], ranges: Ranges) -> bool:
    far = JUMP * float(np.linalg.norm(ranges.width))
    alike = [(a, b) for a, b in zip(last, centers, strict=False) if a.shape == b.shape]
    return any(bool(np.linalg.norm(b - a, axis=1).max() > far) for a, b in alike)
