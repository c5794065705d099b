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
from privfed.core.configuration import Configuration
from privfed.core.declaration import Declaration
from privfed.core.domain import FloatArray, Ranges
from privfed.core.engine import Answerer, StateStore
from privfed.core.policy import ClientPolicy
from privfed.core.question import AdditiveOver, ClientData, Part, Question, parts_of
from privfed.core.statistics import Statistics, StatisticsSpec
from privfed.errors import ArgumentError, PolicyError
from privfed.numerics.distances import squared_differences

ON_A_LINE = 1e-6
"""Distance from a line, relative to the diameter of the domain, up to which a center is on it."""

OUTSIDE = 0.5
"""How far momentum may carry an honest centroid beyond the domain, relative to its width."""

JUMP = 0.25
"""Movement of a centroid, relative to the diameter of the domain, that is a jump."""


def looks_chosen(centers: FloatArray, domain: Ranges) -> bool:
    """Say whether centroids are such as an attacker chooses and data do not give.

    A probing server cuts the domain into slabs by pairs of centroids along a line and parks the rest
    far away. So: any centroid beyond the domain by more than half its width, or four and at least
    half of them on one line, in two or more features. Rows that themselves lie on a line (one feature
    that varies) are refused too: leave the guard off there. The work grows with n_clusters squared.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        domain: as it was declared; what the question says of its ranges is the server's word.
    """
    beyond = OUTSIDE * domain.width
    if (centers < domain.low - beyond).any() or (centers > domain.high + beyond).any():
        return True
    if len(centers) < 4 or centers.shape[1] < 2:
        return False
    near = ON_A_LINE * float(np.linalg.norm(domain.width))
    return max(_on_a_line(centers, start, near) for start in centers) >= max(4, len(centers) / 2)


def _on_a_line(centers: FloatArray, start: FloatArray, near: float) -> int:
    """Count the centers on a line through one of them, if more than a fifth of the others lie on it.

    Seen from there these all lie in one direction or the opposite one, and so at one height along any axis.
    Sorted by height they are next to each other, and one of them has a quintile's rank: four lines have to be
    tried.
    """
    offsets = centers - start
    lengths = np.linalg.norm(offsets, axis=1)
    apart = np.flatnonzero(lengths > near)
    if not apart.size:
        return 0
    units = offsets[apart] / lengths[apart, None]
    # Along an axis that no data are aligned with, other directions have other heights.
    heights = np.abs(units @ np.cos(1.0 + np.arange(centers.shape[1])))
    quintiles = [i * len(apart) // 5 for i in range(1, 5)]
    tried = units[np.argpartition(heights, quintiles)[quintiles]]
    along = offsets @ tried.T
    off = np.sqrt(np.maximum(lengths[:, None] ** 2 - along**2, 0.0))
    return int((off <= near).sum(axis=0).max())


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


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What a client remembers of the centers that it was asked about.

    Args:
        jumps: how often they moved far.
        last: of the last question that had any.
        cells: encoding of the last question that counted rows in cells.
    """

    jumps: int = 0
    last: tuple[FloatArray, ...] = ()
    cells: bytes | None = None

    def to(self, centers: tuple[FloatArray, ...], cells: bytes | None, far: float) -> Moves:
        """Return what is remembered after one more question.

        Args:
            centers: that it names.
            cells: its encoding, where it counts rows in cells.
            far: how far centers move in a jump.
        """
        moved = bool(self.last) and any(_moved(self.last, i, one) > far for i, one in enumerate(centers))
        changed = None not in (self.cells, cells) and self.cells != cells
        return Moves(self.jumps + moved + changed, centers or self.last, cells or self.cells)


def _moved(last: Sequence[FloatArray], place: int, centers: FloatArray) -> float:
    """Return how far the center that moved most is from where it was, or from the nearest of the last."""
    if place < len(last) and last[place].shape == centers.shape:
        return float(np.linalg.norm(centers - last[place], axis=1).max())
    # Another number of centers must not hide that they are elsewhere.
    return float(np.sqrt(squared_differences(centers, np.concatenate(last)).min(axis=1).max()))


class GuardedAnswerer:
    """A client's answerer behind its policy. Refusals depend on what was asked, never on data.

    Args:
        answerer: answers questions on the client's data.
        policy: the client's.
        store: keeps how many questions were answered, how often the centroids jumped, and the last ones.
        configuration: what the client agreed to.

    Raises:
        ArgumentError: centroids are to be measured, and no domain is declared to measure them against.
    """

    def __init__(
        self,
        answerer: Answerer,
        policy: ClientPolicy,
        store: StateStore,
        configuration: Configuration | None = None,
    ) -> None:
        self._answerer, self._policy, self._store = answerer, policy, store
        self._agreed = None if configuration is None else configuration.box
        if policy.measures and policy.domain is None and self._agreed is None:
            raise ArgumentError(
                "probing_guard and max_jumps measure centroids against a declared domain, and none is: pass "
                "domain=Box(low, high), or ClientPolicy(domain=...)."
            )
        self._noised = configuration is not None and configuration.privacy is not None

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer within the policy.

        Raises:
            PolicyError: the policy refuses; its text is the code of the refusal.
        """
        parts = [part.declaration for part in parts_of(question)]
        declared = [one for one in parts if one is not None]
        if len(declared) < len(parts) and (self._policy.coarsens or self._policy.measures):
            raise PolicyError("policy:undeclared")
        with self._store.transaction() as transaction:
            answered, moves = transaction.load() or (0, Moves())
            if self._policy.max_answers is not None and answered >= self._policy.max_answers:
                raise PolicyError("policy:max_answers")
            if self._policy.measures:
                moves = self._measured(question, declared, moves)
            transaction.save((answered + 1, moves))
        return self._answered(question, index)

    def _measured(self, question: Question, declared: Sequence[Declaration], moves: Moves) -> Moves:
        domain = self._box(question.ranges.n_features)
        centers = tuple(center for one in declared for center in one.centers)
        if self._policy.probing_guard and any(looks_chosen(one, domain) for one in centers):
            raise PolicyError("policy:probing")
        # Noised counts are paid for, whatever their cells.
        cells = None if self._noised or not _counts_in_cells(question) else question.to_bytes()
        moves = moves.to(centers, cells, JUMP * float(np.linalg.norm(domain.width)))
        if self._policy.max_jumps is not None and moves.jumps > self._policy.max_jumps:
            raise PolicyError("policy:max_jumps")
        return moves

    def _box(self, n_features: int) -> Ranges:
        """Return the box of the declared domain: the client's own first, else what was agreed on."""
        if self._policy.domain is not None:
            low, high = self._policy.domain.bounds(n_features)
            return Ranges(low, high, 1)
        if self._agreed is None or self._agreed.n_features != n_features:
            raise PolicyError("policy:domain")
        return self._agreed

    def _answered(self, question: Question, index: int) -> tuple[Statistics, int]:
        coarseness = self._policy.coarseness
        if coarseness is None:
            return self._answerer(question, index)
        statistics, clipped = self._answerer(_coarse(question, coarseness), index)
        # Rows outside the ranges are a group of rows too.
        return statistics, int(coarseness.kept(np.array([float(clipped)]))[0])


def _counts_in_cells(question: Question) -> bool:
    """Say whether a question counts rows in cells, rather than local centers that clients made of them."""
    parts = list(parts_of(question))
    in_cells = any(part.declaration is not None and part.declaration.n_cells > 0 for part in parts)
    return in_cells and not any(isinstance(part, Part) for part in parts)
