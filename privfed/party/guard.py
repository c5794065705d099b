"""Defences of one client, as policy: what it answers to, how often, and how coarsely.

Each answers an attack, none is a guarantee (docs/threat-model.md says what is left of the attack):
probing with chosen centroids, differencing over many rounds, singletons. Only differential privacy
bounds what totals tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from privfed.core.coarseness import Coarseness
from privfed.core.declaration import Declaration
from privfed.core.domain import FloatArray, Ranges
from privfed.core.engine import Answerer, StateStore
from privfed.core.policy import ClientPolicy
from privfed.core.question import AdditiveOver, ClientData, Question, parts_of
from privfed.core.statistics import Statistics, StatisticsSpec
from privfed.errors import PolicyError

ON_A_LINE = 1e-6
"""Distance from a line, relative to the diameter of the ranges, up to which a center is on it."""

OUTSIDE = 0.5
"""How far momentum may carry an honest centroid beyond the ranges, relative to their width."""

JUMP = 0.25
"""Movement of a centroid, relative to the diameter of the ranges, that is a jump."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseQuestion(Question):
    """A question as a client with a policy hears it: it shows no small group of the client's rows.

    It never travels. Clients of fewer rows than `min_count` answer zeros, as if they held none.

    Args:
        inner: what was asked.
        coarseness: the client's.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    inner: Question
    coarseness: Coarseness

    @property
    def declaration(self) -> Declaration | None:
        """That of the question."""
        return self.inner.declaration

    @property
    def spec(self) -> StatisticsSpec:
        """That of the question."""
        return self.inner.spec

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        large = [i for i, client in enumerate(clients) if client.n_rows >= self.coarseness.min_count]
        told = [self.spec.unflatten(np.zeros(self.spec.size)) for _ in clients]
        if large:
            rows, draws = [clients[i] for i in large], [generators[i] for i in large]
            answers = self.inner.answer_coarsely(rows, draws, self.coarseness)
            for i, answer in zip(large, answers, strict=True):
                # What rounding up carries beyond the ranges is no row outside: it is not counted as one.
                told[i] = self.spec.unflatten(self.spec.clip(self.spec.flatten(answer))[0])
        return told


@lru_cache(maxsize=16)
def _coarse(question: Question, coarseness: Coarseness) -> CoarseQuestion:
    # One value for all clients of a process, so that they are answered for in one pass.
    return CoarseQuestion(ranges=question.ranges, inner=question, coarseness=coarseness)


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
        if self._policy.coarseness is not None and any(part.declaration is None for part in parts):
            raise PolicyError("policy:undeclared")
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
        return self._answered(question, index)

    def _answered(self, question: Question, index: int) -> tuple[Statistics, int]:
        coarseness = self._policy.coarseness
        if coarseness is None:
            return self._answerer(question, index)
        statistics, clipped = self._answerer(_coarse(question, coarseness), index)
        # Rows outside the ranges are a group of rows too.
        return statistics, int(coarseness.kept(np.array([float(clipped)]))[0])


def _jumped(last: Sequence[FloatArray], centers: Sequence[FloatArray], ranges: Ranges) -> bool:
    far = JUMP * float(np.linalg.norm(ranges.width))
    alike = [(a, b) for a, b in zip(last, centers, strict=False) if a.shape == b.shape]
    return any(bool(np.linalg.norm(b - a, axis=1).max() > far) for a, b in alike)
