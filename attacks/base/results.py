"""The claims of attacks, and their scoring against the truth.

The truth enters only here, in `evaluate`; nothing in a report flows back into an attack.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.reading import Coverage
from privfed.attacks.base.report import (
    LINEAR,
    Cells,
    IntArray,
    Report,
    Status,
    linear_bound,
    matched_rmse,
    matches,
    nearest_rows,
    projected,
    risk,
    singled_out,
    spread,
    wasserstein,
)
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import cell_sums

_MEASURED = 20
"""Most values of a column that may be a category or an answer on a scale, and cannot move by a little."""
NEAR = 0.05
"""A claim is near a row if it lies within this many standard deviations in every feature."""


@dataclass(frozen=True)
class Truth:
    """Holds the truth, for scoring only.

    Args:
        clients: rows of every client, by position, float64 of shape (n_i, n_features).
        colluding: positions of the attacker's own clients, whose rows are no gain.
        tolerance: a claim is exact if each feature is within this share of the pooled standard deviation.
        members: for membership, whether each candidate took part, bool of shape (n_candidates,).
    """

    clients: Sequence[FloatArray]
    colluding: tuple[int, ...] = ()
    tolerance: float = 1e-6
    members: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.clients, str) or not isinstance(self.clients, Sequence):
            raise ArgumentError(
                f"the truth is a list with the rows of each client, got {type(self.clients).__name__}."
            )

    def rows(self, client: int | None) -> tuple[FloatArray, IntArray]:
        """Return the rows of one client, or of all that do not collude, and each row's client."""
        check_whole("client", client, 0, len(self.clients) - 1, or_none=True)
        wanted = [i for i in range(len(self.clients)) if i not in self.colluding]
        chosen = wanted if client is None else [client]
        owners = np.repeat(chosen, [len(self.clients[i]) for i in chosen])
        return np.concatenate([np.asarray(self.clients[i], dtype=np.float64) for i in chosen]), owners


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """Holds what an attack claims.

    Args:
        attack: name of the attack's class.
        queries: questions asked by an active attack, sums used by a passive one.
        seconds: run time; set by `run`.
        coverage: which of the sums that the view showed were read; set by `run` of a passive attack.
    """

    attack: str
    queries: int = 0
    seconds: float = math.nan
    coverage: Coverage = field(default=Coverage(), repr=False)

    @abstractmethod
    def score(self, truth: Truth) -> Report:
        """Compare the claims with the truth."""


@dataclass(frozen=True, kw_only=True)
class NotRun(Result):
    """Stands for claims if an attack had nothing to work on.

    Args:
        why: the reason, in words.
    """

    why: str

    def score(self, truth: Truth) -> Report:
        """Return a report without a headline figure, as nothing was measured."""
        return Report(attack=self.attack, goal=Status.NOT_APPLICABLE, recovered=math.nan, why=self.why)


def evaluate(result: Result, truth: Truth) -> Report:
    """Compare what an attack claims with the truth.

    Args:
        result: what `run` returned.
        truth: the clients' rows.

    Returns:
        The report.

    Raises:
        ArgumentError: the truth lacks what this kind of result is scored on, or one is of another type.
    """
    for name, value, kind in (("result", result, Result), ("truth", truth, Truth)):
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} must be of type {kind.__name__}, got {name}={value!r}.")
    return replace(result.score(truth), coverage=result.coverage)


@dataclass(frozen=True, kw_only=True)
class Points(Result):
    """Holds claimed rows.

    Args:
        points: the claimed rows, float64 of shape (n_claims, n_features).
        client: position of the client whose rows are claimed; None if they may be any client's.
        owners: the client of each claim, shape (n_claims,); None if the attack cannot tell.
        confidence: confidence in each claim, in [0, 1], shape (n_claims,); None if all count alike.
        evidence: the partitions whose counts and sums were seen, for the bound; empty without one.
        without_access: rows guessed from the prior alone, as many as the target may have.
        others: says of which rows others give all that was shown, bool of shape (n_rows,), given the truth;
            None leaves it to linear algebra.
    """

    points: FloatArray
    client: int | None = None
    owners: IntArray | None = None
    confidence: FloatArray | None = None
    evidence: Sequence[Cells] = field(default=(), repr=False)
    without_access: FloatArray | None = field(default=None, repr=False)
    others: Callable[[Truth], npt.NDArray[np.bool_]] | None = field(default=None, repr=False)

    def score(self, truth: Truth) -> Report:
        """Match claims to rows one to one, within the tolerance and within `NEAR`.

        Raises:
            ArgumentError: the truth has other columns than the claims.
        """
        rows, owners = truth.rows(self.client)
        if len(self.points) and self.points.shape[1] != rows.shape[1]:
            raise ArgumentError(
                f"the claims have {self.points.shape[1]} columns, the truth has {rows.shape[1]}; pass "
                "the rows as they were fitted, with the same columns and scaling."
            )
        unit = spread(rows)
        exact = self._matched(rows, owners, truth.tolerance * unit)
        near = self._matched(rows, owners, max(NEAR, truth.tolerance) * unit)
        guessed = math.nan
        if self.without_access is not None:
            hits = matches(self.without_access[: len(rows)], rows, truth.tolerance * unit) >= 0
            guessed = float(hits.sum()) / len(rows)
        guesses = np.empty((0, rows.shape[1])) if self.without_access is None else self.without_access
        alone, control = (singled_out(one, rows, NEAR * unit) for one in (self.points, guesses))
        apart, before = (nearest_rows(one, rows) / unit for one in (self.points, guesses))
        scene = projected(rows, self.points) if len(self.points) else projected(rows)
        bound = linear_bound(self.evidence, rows) if self.evidence else math.nan
        # Of a row that linear algebra leaves open, others of its cells give way: all totals stay.
        witness = 1.0 - bound if all(len(np.unique(column)) > _MEASURED for column in rows.T) else math.nan
        witness = witness if self.others is None else float(self.others(truth).mean())
        return Report(
            attack=self.attack,
            goal="rows",
            recovered=exact / len(rows),
            precision=exact / len(self.points) if len(self.points) else math.nan,
            claims=len(self.points),
            linked=self.client is not None or self.owners is not None,
            baseline=guessed,
            bound=bound,
            bound_of=LINEAR,
            given="no list of rows",
            witness=witness,
            queries=self.queries,
            seconds=self.seconds,
            details={
                "rows": float(len(rows)),
                "recovered within .05 sd": near / len(rows),
                "precision within .05 sd": near / len(self.points) if len(self.points) else math.nan,
                "matched rmse / sd": matched_rmse(self.points, rows) / unit,
                "matched rmse / sd, no access": matched_rmse(self.without_access, rows) / unit
                if self.without_access is not None
                else math.nan,
                "nearest row / sd, median": float(np.median(apart)) if apart.size else math.nan,
                "nearest row / sd, median, no access": float(np.median(before)) if before.size else math.nan,
                **risk("singling-out risk", alone, control),
            },
            scenes=dict(zip(("rows", "claims"), scene, strict=False)),
        )

    def _matched(self, rows: FloatArray, owners: IntArray, tolerance: float) -> int:
        if self.owners is None:
            return int((matches(self.points, rows, tolerance) >= 0).sum())
        each = [
            matches(self.points[self.owners == i], rows[owners == i], tolerance) for i in np.unique(owners)
        ]
        return int(sum((one >= 0).sum() for one in each))


@dataclass(frozen=True, kw_only=True)
class Particles(Result):
    """Holds a claimed distribution of rows, as weighted particles.

    Args:
        particles: float64 of shape (n_particles, n_features).
        weights: not negative, shape (n_particles,).
        client: position of the client whose rows it describes; None for all clients' together.
        without_access: rows of the distribution assumed without access, (n, n_features), equal weights.
    """

    particles: FloatArray
    weights: FloatArray
    client: int | None = None
    without_access: FloatArray = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare the claim's Wasserstein-1 distance to the rows with the distance without access."""
        rows, _ = truth.rows(self.client)
        rng = np.random.default_rng(0)
        reached = wasserstein(self.particles, self.weights, rows, rng)
        before = wasserstein(self.without_access, np.ones(len(self.without_access)), rows, rng)
        scene = projected(rows, self.particles[self.weights > self.weights.max() * 1e-3])
        return Report(
            attack=self.attack,
            goal="1 - W1 / W1 without access",
            recovered=1.0 - reached / before,
            linked=self.client is not None,
            baseline=0.0,
            queries=self.queries,
            seconds=self.seconds,
            details={"W1": reached, "W1 without access": before, "W1 ratio": reached / before},
            scenes=dict(zip(("rows", "claims"), scene, strict=True)),
        )


@dataclass(frozen=True, kw_only=True)
class Counts(Result):
    """Holds claimed statistics of clients in public cells: one table row for each (client, partition).

    Args:
        counts: claimed counts, float64 of shape (n_rows, n_cells), NaN where nothing is claimed.
        cells: the partition of each table row.
        clients: the client of each table row.
        sums: claimed sums, (n_rows, n_cells, n_features); None if only counts are claimed.
        without_access: counts guessed without the attack, of the shape of `counts`; None without one.
        sums_without_access: sums guessed without the attack, of the shape of `sums`; None without one.
        bound: fraction of the counts that the reasoning in `bound_of` could know; NaN if unknown.
        bound_of: the reasoning that `bound` limits, in words.
    """

    counts: FloatArray
    cells: Sequence[Cells]
    clients: Sequence[int]
    sums: FloatArray | None = None
    without_access: FloatArray | None = None
    sums_without_access: FloatArray | None = None
    bound: float = math.nan
    bound_of: str = ""

    def score(self, truth: Truth) -> Report:
        """Report the fraction of counts that are exactly right, and the relative error of the whole table."""
        pairs = [
            cell_sums(rows, cells.place(rows), cells.n_cells)
            for client, cells in zip(self.clients, self.cells, strict=True)
            for rows in [truth.rows(client)[0]]
        ]
        counts, sums = np.stack([one for one, _ in pairs]), np.stack([one for _, one in pairs])
        claimed = np.isfinite(self.counts)
        right = claimed & (np.rint(np.where(claimed, self.counts, -1.0)) == counts)
        guessed = math.nan
        if self.without_access is not None:
            guessed = float((np.rint(self.without_access) == counts).mean())
        details = {
            "relative error": _relative_error(self.counts, self.sums, counts, sums),
            "relative error, no access": _relative_error(
                self.without_access, self.sums_without_access, counts, sums
            ),
            "rows with all counts right": float(right.all(axis=1).mean()),
            "holds rows, told right": float(((self.counts > 0.5) == (counts > 0))[claimed].mean())
            if claimed.any()
            else math.nan,
            "holds rows, the commoner answer": max(float((counts > 0).mean()), float((counts == 0).mean())),
        }
        return Report(
            attack=self.attack,
            goal="counts",
            recovered=float(right.mean()),
            precision=float(right.sum() / claimed.sum()) if claimed.any() else math.nan,
            claims=int(claimed.sum()),
            linked=True,
            baseline=guessed,
            bound=self.bound,
            bound_of=self.bound_of,
            queries=self.queries,
            seconds=self.seconds,
            details=details,
        )


def _relative_error(
    counts: FloatArray | None, sums: FloatArray | None, true_counts: FloatArray, true_sums: FloatArray
) -> float:
    """Return |claimed - true| / |true| (Frobenius) over counts and claimed sums; NaN without claims."""
    if counts is None or not np.isfinite(counts).all():
        return math.nan
    claimed, true = [counts.ravel()], [true_counts.ravel()]
    if sums is not None:
        claimed, true = [*claimed, sums.ravel()], [*true, true_sums.ravel()]
    difference = np.concatenate(claimed) - np.concatenate(true)
    return float(np.linalg.norm(difference) / np.linalg.norm(np.concatenate(true)))
