"""Defences in a client's policy: which questions it answers, how often, and how coarsely.

Each counters an attack (probing with chosen centroids, differencing over many rounds, clusters of single
rows), but none is a guarantee: docs/threat-model.md says what remains of each attack. Only differential
privacy bounds what totals reveal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import msgspec
import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Part, Question, parts_of
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.roles.engine import Answerer, StateStore
from privfed.core.stored.codec import Codec
from privfed.core.stored.messages import Array
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError, PolicyError
from privfed.numerics.distances import squared_differences

ON_A_LINE = 1e-6
"""Largest distance from a line at which a center counts as on it, relative to the domain's diameter."""

OUTSIDE = 0.5
"""How far momentum may carry an honest centroid beyond the domain, relative to its width."""

JUMP = 0.25
"""Least movement of a centroid that counts as a jump, relative to the domain's diameter."""


def looks_chosen(centers: FloatArray, domain: Ranges) -> bool:
    """Say whether centroids look chosen by an attacker rather than computed from data.

    A probing server cuts the domain into slabs by pairs of centroids along a line, and puts the other
    centroids far away. So centroids look chosen if one lies beyond the domain by more than half its width,
    or if, with two or more features, at least four of them and at least half lie on one line. Data that
    itself lies on a line (only one feature varies) gives such centroids too; do not use the guard for it.
    The running time is quadratic in n_clusters.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        domain: the declared domain; a question's own ranges come from the server and are not trusted.
    """
    beyond = OUTSIDE * domain.width
    if (centers < domain.low - beyond).any() or (centers > domain.high + beyond).any():
        return True
    if len(centers) < 4 or centers.shape[1] < 2:
        return False
    near = ON_A_LINE * float(np.linalg.norm(domain.width))
    return max(_on_a_line(centers, start, near) for start in centers) >= max(4, len(centers) / 2)


def _on_a_line(centers: FloatArray, start: FloatArray, near: float) -> int:
    """Return the most centers on a line through `start`, if more than a fifth of the others are on the line.

    Relative to `start`, the centers on one line have the same direction up to sign, and so project to the
    same absolute value on any axis. Sorted by these values they are consecutive. If they are more than a
    fifth of all, one of them has the rank of a quintile, so that only four lines have to be tried.
    """
    offsets = centers - start
    lengths = np.linalg.norm(offsets, axis=1)
    apart = np.flatnonzero(lengths > near)
    if not apart.size:
        return 0
    units = offsets[apart] / lengths[apart, None]
    # The axis is arbitrary, so that different directions project to different values.
    heights = np.abs(units @ np.cos(1.0 + np.arange(centers.shape[1])))
    quintiles = [i * len(apart) // 5 for i in range(1, 5)]
    tried = units[np.argpartition(heights, quintiles)[quintiles]]
    along = offsets @ tried.T
    off = np.sqrt(np.maximum(lengths[:, None] ** 2 - along**2, 0.0))
    return int((off <= near).sum(axis=0).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseQuestion(Question):
    """Wraps a question on a client, so that answers show no small group of the client's rows.

    It is never sent. Clients with fewer rows than `min_count` answer zeros, as if they held none.

    Args:
        inner: the question that was asked.
        coarseness: how coarsely the client answers.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    inner: Question
    coarseness: Coarseness

    @property
    def declaration(self) -> Declaration | None:
        """The declaration of `inner`."""
        return self.inner.declaration

    @property
    def spec(self) -> StatisticsSpec:
        """The specification of `inner`."""
        return self.inner.spec

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        large = [i for i, client in enumerate(clients) if client.n_rows >= self.coarseness.min_count]
        shown = [self.spec.unflatten(np.zeros(self.spec.size)) for _ in clients]
        if large:
            rows, draws = [clients[i] for i in large], [generators[i] for i in large]
            answers = self.inner.answer_coarsely(rows, draws, self.coarseness)
            for i, answer in zip(large, answers, strict=True):
                # Rounded counts may exceed the ranges; clipping these is not counted as clipping rows.
                shown[i] = self.spec.unflatten(self.spec.clip(self.spec.flatten(answer))[0])
        return shown


@lru_cache(maxsize=16)
def _coarse(question: Question, coarseness: Coarseness) -> CoarseQuestion:
    # The same object for all clients of a process, so that they are answered for in one pass.
    return CoarseQuestion(ranges=question.ranges, inner=question, coarseness=coarseness)


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """A client's memory of the centers and cells that it was asked about.

    Args:
        jumps: number of jumps of centers and changes of cells so far.
        last: centers of the last question that had any.
        cells: encoding of the last question that counted rows in cells.
    """

    jumps: int = 0
    last: tuple[FloatArray, ...] = ()
    cells: bytes | None = None

    def to(self, centers: tuple[FloatArray, ...], cells: bytes | None, far: float) -> Moves:
        """Return the memory after one more question.

        Args:
            centers: the question's centers.
            cells: the question's encoding if it counts rows in cells, else None.
            far: movements above this distance are jumps.
        """
        moved = bool(self.last) and any(_moved(self.last, i, one) > far for i, one in enumerate(centers))
        changed = None not in (self.cells, cells) and self.cells != cells
        return Moves(self.jumps + moved + changed, centers or self.last, cells or self.cells)


class _StoredMoves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a guard remembers, as it is stored."""

    answered: int
    jumps: int
    last: tuple[Array, ...]
    cells: bytes | None


_CODEC: Codec[_StoredMoves] = Codec(_StoredMoves, "memory of a client's guard", 1)


class MovesCodec:
    """How (questions answered, `Moves`) are stored on the client's own disk."""

    def to_bytes(self, value: tuple[int, Moves]) -> bytes:
        """Return what a guard remembers as bytes."""
        answered, moves = value
        last = tuple(Array.of(one) for one in moves.last)
        return _CODEC.to_bytes(_StoredMoves(answered, moves.jumps, last, moves.cells))

    def from_bytes(self, data: bytes) -> tuple[int, Moves]:
        """Return what `to_bytes` wrote; raises as `Codec.from_bytes`."""
        stored = _CODEC.from_bytes(data)
        last = tuple(one.to_numpy() for one in stored.last)
        return stored.answered, Moves(stored.jumps, last, stored.cells)


MOVES = MovesCodec()


def _moved(last: Sequence[FloatArray], place: int, centers: FloatArray) -> float:
    """Return the largest movement of a center, from its last position or from the nearest last center."""
    if place < len(last) and last[place].shape == centers.shape:
        return float(np.linalg.norm(centers - last[place], axis=1).max())
    # With another number of centers, movements are measured from the nearest last center.
    return float(np.sqrt(squared_differences(centers, np.concatenate(last)).min(axis=1).max()))


class GuardedAnswerer:
    """A client's answerer that enforces its policy. Refusals depend on questions, never on data.

    Args:
        answerer: answers questions on the client's data.
        policy: the client's policy.
        store: keeps the number of answered questions and jumps, and the last centroids and cells.
        configuration: what the client agreed to.

    Raises:
        ArgumentError: the policy checks positions of centroids, but no domain is declared.
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
                "probing_guard and max_jumps compare centroids with a declared domain, but none is declared: "
                "pass domain=Box(low, high), or ClientPolicy(domain=...)."
            )
        self._noised = configuration is not None and configuration.privacy is not None

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer within the policy.

        Raises:
            PolicyError: the policy refuses; the text is the code of the refusal.
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
        # Changes of cells do not count under differential privacy, where noised counts are paid for.
        cells = None if self._noised or not _counts_in_cells(question) else question.to_bytes()
        moves = moves.to(centers, cells, JUMP * float(np.linalg.norm(domain.width)))
        if self._policy.max_jumps is not None and moves.jumps > self._policy.max_jumps:
            raise PolicyError("policy:max_jumps")
        return moves

    def _box(self, n_features: int) -> Ranges:
        """Return the box of the client's own domain if it declares one, else of the agreed domain."""
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
        # The number of rows outside the ranges is a count of rows too.
        return statistics, int(coarseness.kept(np.array([float(clipped)]))[0])


def _counts_in_cells(question: Question) -> bool:
    """Say whether a question counts rows in cells, rather than the clients' local centers."""
    parts = list(parts_of(question))
    in_cells = any(part.declaration is not None and part.declaration.n_cells > 0 for part in parts)
    return in_cells and not any(isinstance(part, Part) for part in parts)
