"""The report of an attack: one headline figure, what it is compared with, a table and a picture.

Measures of how close claims are to rows: one-to-one matches, RMSE, Wasserstein distance.

A bound on what counts and sums over public cells determine, for known assignments of rows to cells.

The linear bound (after the assignment-aware attack of TAR, arXiv:2511.07073): with assignments known,
everything that was seen of the rows X is W X, where W has one row of 0 and 1 for each cell of each sum.
Row i of X follows by linear algebra if and only if e_i lies in the row space of W. An attacker does not
know the assignments, but it may know something else about the rows, which this bound does not cover: if
features are 0 or 1, a cell whose sum equals its count shows all of its rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from privfed.attacks.base.reading import Coverage, in_words
from privfed.core.values.domain import FloatArray
from privfed.core.values.shown import as_table


class Status(StrEnum):
    """Says how an attack ended. None of them says that a view is safe.

    "not certain": a witness was shown, other rows that give every total that the view shows, for each target.
    "may be determined": the attack read all that was shown, found nothing, and has no witness.
    "not read": it found nothing, and left something unread.
    """

    NOT_APPLICABLE = "not applicable"
    NOT_READ = "not read"
    NOT_CERTAIN = "not certain"
    OPEN = "may be determined"
    FOUND = "found"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Reports how successful an attack was. Fractions lie in [0, 1]; NaN if a figure has no meaning.

    Args:
        attack: name of the attack.
        goal: what `recovered` is a fraction of, in words.
        recovered: the headline figure; NaN if the attack was not run.
        why: why the attack was not run; empty if it was.
        chance: margin by which chance alone lifts the headline above the baseline in one case of twenty.
        precision: fraction of claims that are right.
        claims: number of claims.
        linked: whether claims name the client that they are about; then a claim that matches another
            client's row is wrong.
        baseline: the headline of the same attacker without access to the run; NaN without a prior.
        bound: the largest headline that the reasoning in `bound_of` could reach on the same view; NaN
            without one.
        bound_of: the reasoning that `bound` limits, in words. Other reasoning may exceed it.
        given: what the attacker was given beside the view, in words; empty where that is the prior alone.
        witness: share of the targets for which other rows are shown that give every total; NaN if unknown.
        statuses: status of each target by itself, where it has one: found if something is claimed of it.
        queries: questions asked by an active attack, sums seen by a passive one.
        seconds: run time of the attack.
        coverage: which of the sums that the view showed were read.
        details: further figures by name.
        scenes: arrays to draw, by name: "rows" and "claims" (n, 2), or curves (n, 2).
    """

    attack: str
    goal: str
    recovered: float
    why: str = ""
    chance: float = 0.0
    precision: float = math.nan
    claims: int = 0
    linked: bool = False
    baseline: float = math.nan
    bound: float = math.nan
    bound_of: str = ""
    given: str = ""
    witness: float = math.nan
    statuses: Sequence[Status] = field(default=(), repr=False)
    queries: int = 0
    seconds: float = math.nan
    coverage: Coverage = field(default=Coverage(), repr=False)
    details: Mapping[str, float] = field(default_factory=dict)
    scenes: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    @property
    def advantage(self) -> float:
        """What was found beyond baseline and chance, as a share of what the baseline leaves to find.

        (recovered - chance - baseline) / (1 - baseline), at least 0: 0 for an attack that does no better
        than without access, 1 for one that finds everything. NaN if the attack was not run.
        """
        if math.isnan(self.recovered):
            return math.nan
        baseline = 0.0 if math.isnan(self.baseline) else self.baseline
        gained = self.recovered - self.chance - baseline
        return 0.0 if baseline >= 1.0 else max(0.0, gained) / (1.0 - baseline)

    @property
    def status(self) -> Status:
        """Whether the attack was run, found more than without access, and else what its failure says."""
        if self.why:
            return Status.NOT_APPLICABLE
        if self.advantage > 0.0:
            return Status.FOUND
        if self.coverage.unread:
            return Status.NOT_READ
        return Status.NOT_CERTAIN if self.witness == 1.0 else Status.OPEN

    def to_dict(self) -> dict[str, Any]:
        """Return all but the scenes as plain values for JSON, with None for NaN and infinity."""
        names = ("attack", "goal", "status", "why", "recovered", "precision", "claims", "linked", "baseline")
        flat = {
            name: _plain(getattr(self, name))
            for name in (*names, "advantage", "bound", "witness", "queries", "seconds")
        }
        texts = {
            "bound_of": self.bound_of if math.isfinite(self.bound) else None,
            "given": self.given or None,
            # `recovered` above `bound` is no error: the attack used more.
            "remark": f"the attack used more than {self.bound_of}"
            if self.recovered - self.chance > self.bound + 1e-9
            else None,
        }
        details = {name: _plain(value) for name, value in self.details.items()}
        details |= {f"targets, {one}": n for one, n in Counter(map(str, self.statuses)).items()}
        return {**flat, **texts, **self.coverage.to_dict(), "details": details}

    def _figures(self) -> list[tuple[str, str]]:
        """Return what the report says, by name."""
        plain = self.to_dict()
        details, left = plain.pop("details"), in_words(plain.pop("not_read"))
        read = [("read", in_words(plain["read"])), ("not read", left)]
        return [
            (name, _shown(value))
            for name, value in chain(plain.items(), read, details.items())
            if not isinstance(value, list) and value not in (None, "")
        ]

    _repr_html_ = as_table(lambda self: [("figure", "value"), *self._figures()])

    def __str__(self) -> str:
        """Return the report as a table of two columns."""
        shown = self._figures()
        width = max(len(name) for name, _ in shown)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)

    def picture(self, path: str | Path) -> None:
        """Draw the headline beside baseline and bound, and the scenes, into a PNG, PDF or SVG file.

        The scenes may contain rows, so only its owner may read the file.
        """
        # Imported here, as matplotlib takes long to load.
        from privfed.attacks.base.displays import ReportDisplay, RocDisplay, SceneDisplay
        from privfed.plot import figure_of, save

        scene = [(RocDisplay if "ROC" in self.scenes else SceneDisplay)(self)] if self.scenes else []
        title = f"{self.attack}: {self.why or self.goal}"
        save(figure_of(ReportDisplay(self), *scene, title=title), path)


def projected(*tables: FloatArray) -> list[FloatArray]:
    """Project tables onto the first table's two principal directions, for drawing; (n, 2) each."""
    origin = tables[0].mean(axis=0)
    if tables[0].shape[1] == 1:
        return [np.column_stack([one, np.zeros(len(one))]) for one in tables]
    directions = np.linalg.svd(tables[0] - origin, full_matrices=False)[2][:2]
    if len(directions) < 2:
        directions = np.eye(tables[0].shape[1])[:2]
    return [(one - origin) @ directions.T for one in tables]


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


IntArray = npt.NDArray[np.intp]

MOST_TRANSPORTED = 1000
"""Approximate most atoms on each side of a transport problem; larger sets are subsampled."""


def spread(rows: FloatArray) -> float:
    """Return the root mean square of the features' standard deviations; 1 if all rows are equal."""
    return float(np.sqrt(rows.var(axis=0).mean())) or 1.0


def matches(claims: FloatArray, rows: FloatArray, tolerance: float) -> IntArray:
    """Match as many claims as possible to rows, one to one.

    Args:
        claims: float64 of shape (n_claims, n_features).
        rows: float64 of shape (n_rows, n_features).
        tolerance: largest difference in any feature.

    Returns:
        Index of each claim's row, or -1, int64 of shape (n_claims,).
    """
    if not len(claims) or not len(rows):
        return np.full(len(claims), -1)
    near = cKDTree(rows).query_ball_point(claims, tolerance, p=np.inf)
    lengths = [len(one) for one in near]
    found = np.fromiter(chain.from_iterable(near), dtype=np.intp)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    graph = csr_array((np.ones(len(found)), found, ends), shape=(len(claims), len(rows)))
    return np.asarray(maximum_bipartite_matching(graph, perm_type="column"), dtype=np.intp)


def matched_rmse(claims: FloatArray, rows: FloatArray) -> float:
    """Return the root mean square distance of claims to rows, matched one to one at the least cost."""
    if not len(claims) or not len(rows):
        return float("nan")
    squared = cdist(claims, rows, "sqeuclidean")
    return float(np.sqrt(squared[linear_sum_assignment(squared)].mean()))


def nearest_rows(claims: FloatArray, rows: FloatArray) -> FloatArray:
    """Return how far the nearest row is from each claim, in the feature where they differ most."""
    return np.asarray(cKDTree(rows).query(claims, p=np.inf)[0])


def singled_out(claims: FloatArray, rows: FloatArray, within: float) -> npt.NDArray[np.bool_]:
    """Say of each claim whether exactly one row is like it, within a distance in every feature."""
    return np.asarray(cKDTree(rows).query_ball_point(claims, within, p=np.inf, return_length=True) == 1)


def risk(name: str, found: npt.NDArray[np.bool_], control: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return how much oftener an attack succeeds than its control, with an interval at level .95.

    Source: Giomi et al. 2023 (PoPETs; the package anonymeter), equations 1 to 4: Wilson's rates a and c of
    attack and control, risk (a - c) / (1 - c), in [0, 1], and the error that follows from both.

    Args:
        name: of the risk.
        found: whether each attack succeeded, shape (n_attacks,).
        control: the same, of what took no part or of guesses without access, shape (n_controls,).
    """
    names = (name, f"{name}, low", f"{name}, high")
    if not found.size or not control.size:
        return dict.fromkeys(names, math.nan)
    (attack, off), (base, apart) = map(_rate, (found, control))
    value, error = (
        (attack - base) / (1 - base),
        math.hypot(off, apart * (1 - attack) / (1 - base)) / (1 - base),
    )
    return {one: min(max(value + by, 0.0), 1.0) for one, by in zip(names, (0.0, -error, error), strict=True)}


def _rate(successes: npt.NDArray[np.bool_], z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's rate and its error."""
    n, hits = successes.size, float(successes.sum())
    return (hits + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)


def wasserstein(atoms: FloatArray, weights: FloatArray, rows: FloatArray, rng: np.random.Generator) -> float:
    """Return the Wasserstein-1 distance of weighted atoms to rows of equal weight.

    Atoms are resampled systematically by their weights, to a whole multiple of the number of rows; the
    distance of the resampled atoms to the rows is then an exact assignment problem.

    Args:
        atoms: float64 of shape (n_atoms, n_features).
        weights: not negative, with a positive sum, shape (n_atoms,).
        rows: float64 of shape (n_rows, n_features).
        rng: places the first draw, and subsamples rows if there are more than `MOST_TRANSPORTED`.
    """
    if len(rows) > MOST_TRANSPORTED:
        rows = rows[rng.permutation(len(rows))[:MOST_TRANSPORTED]]
    copies = max(1, MOST_TRANSPORTED // len(rows))
    n = copies * len(rows)
    places = (rng.random() + np.arange(n)) / n * weights.sum()
    drawn = np.minimum(np.searchsorted(np.cumsum(weights), places), len(atoms) - 1)
    cost = np.repeat(cdist(atoms[drawn], rows), copies, axis=1)
    return float(cost[linear_sum_assignment(cost)].mean())


LINEAR = "what linear equations alone determine: counts and sums, if the cell of every row were known"
"""The reasoning that `linear_bound` bounds, in words for a report."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Describes a public partition of space, as one sum used it.

    Args:
        place: gives the cell of each row, (n, n_features) -> (n,).
        shown: whether the statistics of a cell were seen, bool of shape (n_cells,).
        centers: the centroids that define it, float64 of shape (n_cells, n_features); None for other
            partitions.
    """

    place: Callable[[FloatArray], IntArray]
    shown: npt.NDArray[np.bool_]
    centers: FloatArray | None = None

    @classmethod
    def around(cls, centers: FloatArray, shown: npt.NDArray[np.bool_] | None = None) -> Cells:
        """Return the cells of rows nearest to each center."""
        seen = np.ones(len(centers), dtype=np.bool_) if shown is None else shown
        # As in `assign`, distances are taken from an origin between the centers to avoid cancellation.
        origin = centers.mean(axis=0)
        short = centers - origin
        squares, doubled = np.einsum("kd,kd->k", short, short) + 2.0 * (short @ origin), 2.0 * short.T
        return cls(lambda rows: np.argmin(squares - rows @ doubled, axis=1), seen, centers)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.shown)


def linear_bound(evidence: Sequence[Cells], rows: FloatArray) -> float:
    """Return the fraction of rows that linear algebra determines from counts and sums, assignments known.

    Args:
        evidence: the partitions whose counts and sums were seen.
        rows: the true rows, float64 of shape (n_rows, n_features).
    """
    labels = np.stack([np.where(one.shown[own], own, -1) for one in evidence for own in [one.place(rows)]])
    paths, owner, sizes = np.unique(labels, axis=1, return_inverse=True, return_counts=True)
    gram = np.zeros((paths.shape[1], paths.shape[1]))
    for one in paths:
        # Adds up W'W without building W: entry (i, j) counts the shown cells that rows i and j share.
        gram += (one[:, None] == one[None]) & (one >= 0)
    values, vectors = np.linalg.eigh(gram)
    kept = vectors[:, values > values.max() * 1e-10]
    determined = (np.einsum("ij,ij->i", kept, kept) > 1.0 - 1e-6) & (sizes == 1)
    return float(determined[owner.ravel()].mean())
