"""Evidence in a view about the target's rows, from sums with Gaussian noise of known size.

Each entry of a noised sum is a sum over rows plus noise with a public standard deviation. Divided by it, what
was seen is y = sum of f(x) over the rows x + N(0, 1). For a question about cells, f(x) is zero outside the
cell of x. In that cell it is 1 / s_count, and the offset of x, clipped as the question says, divided by
s_sum. The sum of distances adds |offset| / s_distance.

The attacker's prior of a row: a mixture of Gaussians that share one covariance.

With one covariance all components have the same principal axes. Along these, the distribution of a row, given
its component and the sums that it is part of, is a product of one-dimensional Gaussians.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.cells import answers_of
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import OffsetSums

BoolArray = npt.NDArray[np.bool_]
_TINY = float(np.finfo(np.float64).tiny)


class Traces(NamedTuple):
    """Holds what rows add to all releases, in units of the noise; leading axes are those of the rows.

    Attributes:
        cells: index of the row's cell in the table of all cells, (..., n_releases).
        blocks: what the row adds in that cell, count first, (..., n_releases, 1 + n_features).
        lengths: what it adds to each release's sum of distances, (..., n_releases).
        origins: point that its offset is taken from, (..., n_releases, n_features).
        shrink: factor by which its offset was clipped, (..., n_releases).
    """

    cells: IntArray
    blocks: FloatArray
    lengths: FloatArray
    origins: FloatArray
    shrink: FloatArray

    def at(self, index: Any) -> Traces:
        """Return the traces of some rows, indexed along the leading axes."""
        return Traces(
            self.cells[index],
            self.blocks[index],
            self.lengths[index],
            self.origins[index],
            self.shrink[index],
        )


class Release(NamedTuple):
    """Holds one noised sum in cells.

    Attributes:
        question: what was asked.
        statistics: what was seen.
        noise: standard deviation of each entry's noise, by its name.
    """

    question: OffsetSums
    statistics: Statistics
    noise: dict[str, float]

    def weight(self, name: str) -> float:
        """Return one over the standard deviation of an entry's noise; 0 if it was not asked for."""
        return 1.0 / self.noise[name] if name in self.noise else 0.0

    def block(self) -> FloatArray:
        """Return counts and sums in units of their noise, (n_cells, 1 + n_features); 0 if not asked for."""
        found = np.zeros((self.question.n_cells, 1 + self.question.ranges.n_features))
        if "count" in self.noise:
            found[:, 0] = self.statistics["count"] * self.weight("count")
        if "sum" in self.noise:
            found[:, 1:] = self.statistics["sum"] * self.weight("sum")
        return found

    def length(self) -> float:
        """Return the sum of distances in units of its noise; 0 if it was not asked for."""
        return (
            float(self.statistics["distance"][0]) * self.weight("distance")
            if "distance" in self.noise
            else 0.0
        )

    def costs(self) -> tuple[float, float, float]:
        """Return squared shifts in units of the noise: a row added, replaced in its cell, or in another."""
        bounds = self.question.bounds
        each = [(bounds[name], (bounds[name].l2 / std) ** 2) for name, std in self.noise.items()]
        return (
            sum(cost for _, cost in each),
            sum(cost * bound.stay for bound, cost in each),
            sum(cost * bound.move for bound, cost in each),
        )


@dataclass(frozen=True, eq=False)
class NoisyEvidence:
    """Holds all noised sums about the target, in units of their noise.

    Args:
        releases: what was asked and seen, at least one.
        ranges: the narrowest ranges that the questions name.
        weights: one over the standard deviations of counts, sums and distances, (n_releases, 3).
        blocks: counts and sums of all cells of all releases, float64 of shape (n_cells, 1 + n_features).
        lengths: the sums of distances, (n_releases,).
    """

    releases: tuple[Release, ...]
    ranges: Ranges
    weights: FloatArray
    blocks: FloatArray
    lengths: FloatArray

    @classmethod
    def of(cls, releases: Sequence[Release]) -> NoisyEvidence:
        """Convert releases to units of their noise."""
        ranges = [one.question.ranges for one in releases]
        return cls(
            tuple(releases),
            min(ranges, key=lambda one: float(one.width.sum())),
            np.array([[one.weight(name) for name in ("count", "sum", "distance")] for one in releases]),
            np.concatenate([one.block() for one in releases]),
            np.array([one.length() for one in releases]),
        )

    @property
    def n_values(self) -> int:
        """Number of values that were seen."""
        return sum(one.statistics[name].size for one in self.releases for name in one.noise)

    @property
    def mu(self) -> float:
        """Largest shift by one row, in units of the noise: the mu of Gaussian differential privacy.

        The row may be added or replaced; the smaller of the two shifts counts.
        """
        added, turned, moved = np.array([one.costs() for one in self.releases]).T
        return float(np.sqrt(min(added.sum(), np.maximum(turned, moved).sum())))

    def count(self) -> tuple[float, float]:
        """Return the estimated number of rows and its standard error, which is infinite without a count."""
        told = [
            (float(one.statistics["count"].sum()), one.noise["count"] ** 2 * one.question.n_cells)
            for one in self.releases
            if "count" in one.noise
        ]
        if not told:
            return 0.0, float("inf")
        totals, variances = np.array(told).T
        precision = (1.0 / variances).sum()
        return float((totals / variances).sum() / precision), float(precision**-0.5)

    def traces(self, points: FloatArray) -> Traces:
        """Return the traces that rows at these points would leave.

        Args:
            points: float64 of shape (..., n_features), within the ranges.
        """
        shape, d = points.shape[:-1], points.shape[-1]
        flat, n_releases = points.reshape(-1, d), len(self.releases)
        cells = np.empty((len(flat), n_releases), dtype=np.intp)
        blocks, origins = np.empty((len(flat), n_releases, 1 + d)), np.empty((len(flat), n_releases, d))
        first, radius = 0, np.array([one.question.radius for one in self.releases])
        for t, one in enumerate(self.releases):
            place, offsets = one.question.place(flat)
            cells[:, t], blocks[:, t, 1:], origins[:, t] = first + place, offsets, flat - offsets
            first += one.question.n_cells
        lengths = np.sqrt(np.einsum("ntd,ntd->nt", blocks[..., 1:], blocks[..., 1:]))
        short = np.minimum(lengths, radius)
        shrink = np.where(lengths > radius, radius / np.maximum(lengths, _TINY), 1.0)
        blocks[..., 1:] *= (self.weights[:, 1] * shrink)[..., None]
        blocks[..., 0] = self.weights[:, 0]
        return Traces(
            cells.reshape(*shape, n_releases),
            blocks.reshape(*shape, n_releases, 1 + d),
            (short * self.weights[:, 2]).reshape(*shape, n_releases),
            origins.reshape(*shape, n_releases, d),
            shrink.reshape(*shape, n_releases),
        )


def is_of_offsets(question: Question) -> bool:
    """Say whether a question, taken without its noise, is one that this attack reads."""
    return isinstance(question, OffsetSums)


def noisy_evidence_of(view: View, client: int | None) -> NoisyEvidence | None:
    """Collect the noised sums in cells about one client, or about all of the cohort.

    Fuzzy rounds, questions about whole clients, and indices are left out.

    Args:
        view: what the party saw, without its colluders' answers.
        client: position of the target; None reads totals.

    Returns:
        The evidence; None if no noised sum in cells was seen.
    """
    releases = [
        Release(
            one.question.inner, statistics, dict(one.question.noise_std(_noise_shares(view, one, client)))
        )
        for one, statistics in answers_of(view, client)
        if isinstance(one.question, Noised) and isinstance(one.question.inner, OffsetSums)
    ]
    return NoisyEvidence.of(releases) if releases else None


def _noise_shares(view: View, one: SumView, client: int | None) -> int:
    """Return how many clients' shares of the noise are in an answer or a total."""
    if client is not None:
        return 1
    left = len(one.contributors or one.cohort)
    # A colluder's share of the noise stays in a total, but if answers are seen it left with its answer.
    return left if one.answers else left + len(view.colluding)


_COMPONENTS = (1, 2, 4, 8, 16)
_ROWS_A_COMPONENT = 10
_LEAST = 1e-3
"""Least variance along an axis, relative to the mean variance of a feature."""


@dataclass(frozen=True, eq=False)
class RowPrior:
    """Holds a mixture of Gaussians with one covariance.

    Args:
        shares: weights of the components, (n_components,).
        means: means along the axes, float64 of shape (n_components, n_features).
        axes: principal axes, one in each column, (n_features, n_features).
        variances: variances along the axes, (n_features,).
    """

    shares: FloatArray
    means: FloatArray
    axes: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, sample: FloatArray | None, ranges: Ranges, rng: np.random.Generator) -> RowPrior:
        """Fit the prior to a public sample, with the number of components of best BIC; else to the ranges."""
        if sample is None or len(sample) < 2:
            middle, width = (ranges.low + ranges.high) / 2.0, np.maximum(ranges.width, 1e-9)
            return cls(np.ones(1), middle[None], np.eye(ranges.n_features), width**2 / 12.0)
        rows, seed = ranges.clip(sample), int(rng.integers(2**31))
        least = max(_LEAST * float(rows.var(axis=0).mean()), 1e-12)
        with warnings.catch_warnings():
            # A sample with few distinct rows converges to fewer components, and BIC then prefers fewer.
            warnings.simplefilter("ignore", ConvergenceWarning)
            models = [
                GaussianMixture(k, covariance_type="tied", reg_covar=least, random_state=seed).fit(rows)
                for k in _COMPONENTS
                if k <= max(1, len(rows) // _ROWS_A_COMPONENT)
            ]
        best = min(models, key=lambda model: float(model.bic(rows)))
        variances, axes = np.linalg.eigh(best.covariances_)
        return cls(best.weights_, best.means_ @ axes, axes, variances)

    def draw(self, n: int, ranges: Ranges, rng: np.random.Generator) -> FloatArray:
        """Draw rows, clipped to the ranges as clients clip theirs, float64 of shape (n, n_features)."""
        component = rng.choice(len(self.shares), n, p=self.shares)
        steps = rng.standard_normal((n, len(self.variances))) * np.sqrt(self.variances)
        return ranges.clip((self.means[component] + steps) @ self.axes.T)

    def components(self, rows: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw a component for each row from its posterior, (n,)."""
        logs = np.stack(
            [self.log_density(rows, np.full(len(rows), j)) for j in range(len(self.shares))], axis=1
        )
        logs += np.log(np.maximum(self.shares, 1e-300))
        return np.asarray(np.argmax(logs + rng.gumbel(size=logs.shape), axis=1), dtype=np.intp)

    def log_density(self, rows: FloatArray, component: IntArray) -> FloatArray:
        """Return the log-density of rows given their components, up to a constant, (n,)."""
        offsets = rows @ self.axes - self.means[component]
        return np.asarray(-0.5 * (np.square(offsets) / self.variances).sum(axis=1))
