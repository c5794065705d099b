"""Gaussian mixtures under differential privacy: expectation maximisation by noised, clipped sums.

The start is that of `PrivateKMeans`: scale and coreset. In each round every row is seen from each component,
in units of its covariances C = L L^T: z_k = L^-1 (x - mean_k), clipped to the length `reach`. Clients answer

    weight_k = sum r_k,  sum_k = sum r_k z_k,  product_k = sum r_k z_k z_k^T (off its diagonal times sqrt 2)

so that noise is in units of each component's own shape, however long or flat it is. Clipping takes a known
part of a Gaussian's second moment, which is given back: the rounds end in an estimate of scatter that rows
far away move little (Maronna 1976). Means and covariances take the share of a step that noise leaves, the
gain of a Kalman filter, as in `.noised_rounds`. There are 3 to 12 rounds, fewer where noise is high. Park,
Foulds, Chaudhuri and Welling (DP-EM, AISTATS 2017) noise the same sums, of rows in one ball.

Privacy (docs/privacy/lemmas.md, "Responsibilities"). The r_k of a record are not negative and sum to 1, so
that weights change by at most 1, sums by at most `reach` and products by at most `reach`^2, each in L2 norm.
Let t be the scalar product of two records' responsibilities. Replacing one by the other changes weights by at
most 2 - 2 t, sums by reach^2 (2 + 2 t) and products by reach^4 (2 + 2 t), squared: as records in cells do.

Reveals to whoever opens the totals, with noise: these sums in each round, and what the start shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import sqrt
from typing import ClassVar

import numpy as np
from scipy.stats import chi, chi2

from privfed.algorithms.mixtures import AtComponents, declared
from privfed.algorithms.private.kmeans import PrivateKMeans, Start
from privfed.algorithms.private.noised_rounds import round_phase
from privfed.algorithms.private.scale import Frame, Scale, near
from privfed.algorithms.rounds import ClusteringOutcome, State
from privfed.core.asking.phases import Form, Phase, Phases
from privfed.core.asking.question import register
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation, Setting, changed
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_bound
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.bounds import (
    HAIR,
    Bound,
    RecordBounded,
    bounded_spec,
    check_sizes,
    counted,
    in_cells,
    step_of,
    truncated,
)
from privfed.privacy.contributions import Contribution
from privfed.questions.bounded.bounded_sums import RelativeSums

REACH = 1.5
"""Squared length to which offsets are clipped, in units of its mean in a Gaussian: the number of columns."""

START = 0.4
"""Share of the budget for the start, which is a fit of private k-means."""

SHARES = {"weight": 0.1, "sum": 0.25, "product": 0.65}
"""Parts of a round's budget."""

LEAST_ROUNDS, MOST_ROUNDS, SURE = 3, 12, 0.45
"""Rounds; and the noise in a covariance of a component of mean size, in units of its variances, up to which a
round is worthwhile."""

SPREAD = {"count": 0.04, "sum": 0.01, "distance": 0.04}
"""Shares, in units of the start's, of the sum that says how large and how wide components begin."""

NARROWED = 0.3
"""A round makes no component's variance in any direction less than this part of what it was."""


def _of_the_start(ask: Ask) -> Ask:
    """Return a question of the start, at its share of the budget."""
    return replace(ask, weights={name: START * one for name, one in (ask.weights or {}).items()})


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureMoments(RecordBounded, AtComponents):
    """Ask for the sums of a round, row by row clipped (module docstring).

    Statistics, of n columns: `weight` (k,); `sum` (k, n); `product`: (k, n) diag, of squares alone;
    (k, n (n + 1) / 2) full, in the order of `numpy.triu_indices`; (1, n (n + 1) / 2) tied.

    Args:
        reach: length to which offsets are clipped, in units of a component's spread.
    """

    row_counts: ClassVar[tuple[str, ...]] = ("weight",)
    reach: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes("centers", self.centers)
        check_sizes("ranges", self.ranges.low, self.ranges.high)
        for power in (1, 2):
            check_bound("reach", self.reach**power)

    @property
    def bounds(self) -> dict[str, Bound]:
        """The bounds of a record in cells (module docstring)."""
        return {"weight": counted(), "sum": in_cells(self.reach), "product": in_cells(self.reach**2)}

    @property
    def pairs(self) -> tuple[IntArray, ...]:
        """Positions of the columns of each product."""
        n = self.covariances.shape[-1]
        return np.diag_indices(n) if self.covariance_type == "diag" else np.triu_indices(n)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Entries of at most the rows of a client times the bound of one row."""
        k, pairs = len(self.centers), len(self.pairs[0])
        shapes = {"weight": (k,), "sum": self.centers.shape, "product": (k, pairs)}
        if self.covariance_type == "tied":
            shapes["product"] = (1, pairs)
        limits = {name: bound.l2 for name, bound in self.bounds.items()}
        return bounded_spec(limits, shapes, self.ranges.rows, signed=("sum", "product"))

    @property
    def values_of_a_row(self) -> int:
        """A row adds to every component."""
        return 3 * len(self.centers) * (self.ranges.n_features + len(self.pairs[0]))

    def contributions(self, rows: FloatArray, labels: IntArray) -> dict[str, Contribution]:
        """Return each row's responsibilities, and its offsets and their products weighted by these.

        All is added column by column, so that no row shows in another's last digits.
        """
        away = rows[:, None] - self.centers
        if self.covariance_type == "diag":
            z = away * self.roots
        else:
            z = reduce(np.add, (away[:, :, j, None] * self.roots[:, j] for j in range(away.shape[2])))
        squares = reduce(np.add, np.moveaxis(np.square(z), 2, 0))
        joint = self.heights - 0.5 * squares
        shares = np.exp(joint - joint.max(axis=1, keepdims=True))
        shares /= reduce(np.add, shares.T)[:, None]
        shares = truncated(HAIR * shares, step_of(1.0))
        z *= (HAIR * np.minimum(1.0, self.reach / np.maximum(np.sqrt(squares), self.reach)))[:, :, None]
        i, j = self.pairs
        products = shares[:, :, None] * z[:, :, i] * (z[:, :, j] * np.where(i == j, 1.0, sqrt(2.0)))
        if self.covariance_type == "tied":
            products = reduce(np.add, np.moveaxis(products, 1, 0))
        return {
            "weight": Contribution(shares),
            "sum": Contribution((shares[:, :, None] * z).reshape(len(rows), -1)),
            "product": Contribution(products.reshape(len(rows), -1)),
        }


@dataclass(frozen=True, kw_only=True)
class PrivateMixture(PrivateKMeans):
    """Expectation maximisation under noise, from the start of private k-means (module docstring).

    Args:
        covariance_type: "full", "tied" or "diag".
        reg_covar: what is added to each variance, in units of the column's variance over all rows.
    """

    covariance_type: str = "full"
    reg_covar: float = 1e-6
    max_iter: int = MOST_ROUNDS

    @property
    def max_sums(self) -> int:
        """Most sums: those before the rounds, and these."""
        return super().max_sums + MOST_ROUNDS

    def _round_phase(self, frame: Frame) -> Phase:
        return round_phase(frame, (self.n_clusters, 2 * self.n_clusters), self.max_iter + 1)

    def _refined_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        d = frame.ranges.n_features
        rounds = Form(
            MixtureMoments,
            **declared(self.covariance_type, self.n_clusters, d, None),
            covariance_type=self.covariance_type,
            units=np.zeros(d),
            reach=near(sqrt(REACH * d)),
        )
        return (*super()._refined_phases(frame, rng), Phase(rounds, 1, MOST_ROUNDS))

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Do all with `START` of each share, of which the mixture's rounds take the more."""
        return (yield from changed(super().run(setting), _of_the_start))

    def refined(self, start: Start, centers: FloatArray) -> Conversation[ClusteringOutcome]:
        """Do Lloyd rounds from given centers, and rounds of the mixture with the rest of the budget."""
        before = yield from super().refined(start, centers)
        centers = before.history[-1]["centers"]
        scale, k, d = start.scale, len(centers), centers.shape[1]
        left, reach = (1.0 - START) / START - sum(SPREAD.values()), sqrt(REACH * d)
        noise = reach**2 * scale.noise(left * SHARES["product"], 0.0) / sqrt(d) * k / scale.n_rows
        rounds = min(int(np.clip((SURE / noise) ** 2, LEAST_ROUNDS, MOST_ROUNDS)), self.max_iter)
        weights = {name: part * left / rounds for name, part in SHARES.items()}
        found, history, doubt = (yield from self._begun(scale, centers)), list[State](), np.ones((2, k))
        for _ in range(rounds):
            history.append(found)
            question = MixtureMoments(
                ranges=scale.frame.ranges,
                weights=found["weights"],
                centers=found["centers"],
                covariances=found["covariances"],
                covariance_type=self.covariance_type,
                units=np.zeros(d),
                reach=reach,
            )
            total = yield Ask(question, purpose="round", weights=weights)
            found, doubt = self._moved(question, total.statistics, dict(total.noise_std or {}), doubt)
        return ClusteringOutcome((*history, found), None, round(scale.n_rows), None, float("nan"))

    def _begun(self, scale: Scale, centers: FloatArray) -> Conversation[State]:
        """Ask for sizes and mean distance; return round components that are as far, all of one spread."""
        question = RelativeSums(ranges=scale.frame.ranges, centers=centers, radius=scale.radius)
        total = yield Ask(question, purpose="spread", weights=SPREAD)
        sizes = np.maximum(total.statistics["count"], 2.0 * dict(total.noise_std or {})["count"])
        d, away = centers.shape[1], float(total.statistics["distance"][0]) / scale.n_rows
        spread = max(away, scale.radius / 20.0) / float(chi.mean(d))
        return self._state(sizes, centers, np.tile(spread**2 * np.eye(d), (len(centers), 1, 1)))

    def _state(self, weights: FloatArray, centers: FloatArray, matrices: FloatArray) -> State:
        matrices = 0.5 * (matrices + matrices.swapaxes(1, 2))
        kept = {"full": matrices, "tied": matrices[0], "diag": np.diagonal(matrices, axis1=1, axis2=2)}
        return State(
            weights=weights / weights.sum(),
            centers=centers,
            covariances=kept[self.covariance_type],
            bound=[np.finfo(np.float64).min],
        )

    def _moved(
        self, question: MixtureMoments, total: State, noise: dict[str, float], doubt: FloatArray
    ) -> tuple[State, FloatArray]:
        """Return the components after a round, and the variances of errors in means and covariances."""
        d, k, kind = question.centers.shape[1], len(question.centers), self.covariance_type
        held = np.maximum(total["weight"], 2.0 * noise["weight"])
        each = np.full(k, held.sum()) if kind == "tied" else held
        lost = chi2.cdf(question.reach**2, d + 2) + question.reach**2 / d * chi2.sf(question.reach**2, d)
        step, (i, j), product = total["sum"] / held[:, None], question.pairs, np.zeros((k, d, d))
        values = total["product"] * np.where(i == j, 1.0, sqrt(0.5)) / each[:, None]
        product[:, i, j] = product[:, j, i] = values
        shift = step[:, :, None] * step[:, None]
        if kind == "tied":
            shift = np.average(shift, axis=0, weights=held)
        # How far second moments around the mean are from those of the component as it was, which are 1.
        away = (product - shift) / lost - np.eye(d)
        if kind == "diag":
            away *= np.eye(d)
        errors = np.square(np.stack([noise["sum"] / held, noise["product"] / each / lost]))
        part = (d + 1.0) / (2.0 * d) if kind != "diag" else 1.0 / d
        found = np.stack([np.square(step).mean(axis=1), np.square(away).mean(axis=(1, 2)) / part])
        known = doubt + np.maximum(found - errors - doubt, 0.0)
        gain = known / (known + errors)
        values, vectors = np.linalg.eigh(np.eye(d) + gain[1][:, None, None] * away)
        spread = (vectors * np.maximum(values, NARROWED)[:, None]) @ vectors.swapaxes(1, 2)
        lower = np.linalg.cholesky(question.matrices)
        moved = gain[0][:, None] * np.einsum("kij,kj->ki", lower, step) / sqrt(lost)
        centers = question.ranges.clip(question.centers + moved)
        weights = np.maximum(total["weight"], noise["weight"])
        matrices = lower @ spread @ lower.swapaxes(1, 2)
        between = np.square(centers - np.average(centers, axis=0, weights=weights))
        wide = np.average(np.diagonal(matrices, axis1=1, axis2=2) + between, axis=0, weights=weights)
        return self._state(weights, centers, matrices + np.diag(self.reg_covar * wide)), gain * errors
