"""Federated Gaussian mixtures: expectation maximisation by sums, with categories in the same model.

Dempster, Laird and Rubin 1977; McLachlan and Peel, Finite Mixture Models, 2000. In each round clients compute
the responsibilities r_k(x) of every component for each of their rows, and answer with sums over their rows:

    weight_k = sum r_k,   sum_k = sum r_k (x - o),   product_k = sum r_k (x - o)(x - o)^T,   sum log p(x)

around the mixture's mean o. New weights, means and covariances follow from the totals, as they do from all
rows in one place. To each variance `reg_covar` times the column's variance over all rows is added, so that
no component collapses onto a row (scikit-learn adds `reg_covar` in the columns' units).

Columns that are 1 where a row has a category (`nominal`) follow categorical distributions within each
component (latent classes; Lazarsfeld and Henry 1968), independently of the other columns. The mean of such a
column is the share of its category.

Reveals to whoever opens the totals: in each round, for every component the sum of the responsibilities, of
the rows and of their squares (with full covariances of all products of two columns), each weighted by the
responsibilities, and the log-likelihood of all rows. Before the first round: sizes, sums and sums of squares
of the rows nearest to each starting center. Besides, the start's totals (`privfed.algorithms.starts`), the
range sum's (`privfed.questions.ranges`), and each restart's log-likelihood. A component can hold a single
row, whose values are then its means. Totals of repeated rounds can isolate single rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log, pi
from typing import Any, ClassVar

import numpy as np

from privfed.algorithms.rounds import ClusteringOutcome, Moved, RoundsAlgorithm, State, ending
from privfed.algorithms.starts import MOST_START_SUMS
from privfed.core.asking.declaration import Effort
from privfed.core.asking.phases import Form, Kept, Phase, Phases, Shape
from privfed.core.asking.question import register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.roles.conversation import SCORE, Ask, Conversation, Setting
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.core.values.numbers import check_word
from privfed.errors import ArgumentError
from privfed.questions.cluster_spread import ClusterProfiles, moments_of
from privfed.questions.lloyd import RESOLUTION, ROUNDING, TINY, AtCenters
from privfed.questions.ranges import Located

COVARIANCES = ("full", "tied", "diag")
"""Types of covariances, as scikit-learn names them."""

LEAST_WEIGHT = 2.0**-20
"""A component of less total responsibility stays as it was: its sums have lost their digits."""

LEAST_SHARE = 1e-6
"""Least share of a category in a component that a row's likelihood is computed with."""

BLOCK = 2048
"""Rows whose responsibilities are in memory at a time."""


@dataclass(frozen=True, slots=True, init=False)
class Positive(Shape):
    """Numbers above 0."""

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare shape and signs."""
        return (
            Shape.read(self, value, kept) if isinstance(value, np.ndarray) and (value > 0.0).all() else None
        )


@dataclass(frozen=True, slots=True, init=False)
class Definite(Shape):
    """Symmetric positive definite matrices along the last two axes."""

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare shape, symmetry and pivots."""
        if Shape.read(self, value, kept) is None or not isinstance(value, np.ndarray):
            return None
        try:
            np.linalg.cholesky(value)
        except np.linalg.LinAlgError:
            return None
        return kept if np.array_equal(value, value.swapaxes(-1, -2)) else None


def declared(kind: str, n_clusters: int, n_features: int, units: FloatArray | None) -> dict[str, Shape]:
    """Return what components of a mixture are, by the names of their arrays.

    Raises:
        ArgumentError: the type of covariances is unknown.
    """
    check_word("covariance_type", kind, COVARIANCES)
    k, n = n_clusters, n_features if units is None else int((units == 0.0).sum())
    covariances = {"full": Definite(k, n, n), "tied": Definite(n, n), "diag": Positive(k, n)}[kind]
    return {"weights": Positive(k), "centers": Shape(k, n_features), "covariances": covariances}


@dataclass(frozen=True, kw_only=True, eq=False)
class AtComponents(AtCenters):
    """Questions about the components of a mixture, which are functions of rows.

    Args:
        centers: means, (k, n_features); of a category its share times its unit.
        weights: share of each component, float64 of shape (k,).
        covariances: of the n columns that are no categories: (k, n, n) full, (n, n) tied, (k, n) diag.
        covariance_type: "full", "tied" or "diag".
        units: for each column, 0, or for a category the value of rows that have it; (n_features,).
    """

    weights: FloatArray
    covariances: FloatArray
    covariance_type: str
    units: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        d = self.ranges.n_features
        if self.units.shape != (d,) or not (np.isfinite(self.units).all() and (self.units >= 0.0).all()):
            raise ArgumentError(f"units need {d} finite numbers of at least 0.")
        for name, rule in declared(self.covariance_type, len(self.centers), d, self.units).items():
            if rule.read(getattr(self, name), {}) is None:
                raise ArgumentError(f"{name} of a mixture are not {rule}, positive and finite.")

    def effort(self, n_features: int) -> Effort:
        """Each row meets each component's covariances, which are inverted once."""
        each, held = len(self.centers) * n_features**2, BLOCK * (n_features + len(self.centers))
        return Effort(row_work=2 * each, work=each * n_features, numbers=each + held)

    @cached_property
    def numbers(self) -> Any:
        """Which columns are no categories: an index of columns."""
        return np.flatnonzero(self.units == 0.0) if self.units.any() else slice(None)

    @cached_property
    def origin(self) -> FloatArray:
        """The mixture's mean, (n_features,), around which no digits cancel; every machine finds the same."""
        return np.asarray((self.weights[:, None] * self.centers).sum(axis=0) / self.weights.sum())

    @cached_property
    def matrices(self) -> FloatArray:
        """The covariances of each component, (k, n, n)."""
        found, n = self.covariances, self.covariances.shape[-1]
        found = found[:, :, None] * np.eye(n) if self.covariance_type == "diag" else found
        return np.broadcast_to(found, (len(self.weights), n, n))

    @cached_property
    def roots(self) -> FloatArray:
        """Roots of the precisions R R^T: (k, n) diag, else (k, n, n)."""
        if self.covariance_type == "diag":
            return np.asarray(1.0 / np.sqrt(self.covariances))
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.matrices)).swapaxes(-1, -2))

    @cached_property
    def heights(self) -> FloatArray:
        """Logarithm of each component's weight times its largest density, (k,)."""
        each = self.roots if self.covariance_type == "diag" else np.diagonal(self.roots, axis1=1, axis2=2)
        gauss = 0.5 * self.covariances.shape[-1] * log(2.0 * pi)
        return np.asarray(np.log(self.weights) + np.log(each).sum(axis=1) - gauss)

    @cached_property
    def shares(self) -> FloatArray:
        """Logarithm of each category's share, over its unit: (k, n_categories)."""
        own = self.units > 0.0
        return np.asarray(
            np.log(np.clip(self.centers[:, own] / self.units[own], LEAST_SHARE, 1.0)) / self.units[own]
        )

    def joint(self, offsets: FloatArray) -> FloatArray:
        """Return log(weight * density) of each component, given rows minus `origin`; (n_rows, k)."""
        x, means = offsets[:, self.numbers], (self.centers - self.origin)[:, self.numbers]
        if self.covariance_type == "diag":
            precise = np.square(self.roots)
            found = np.square(x) @ (-0.5 * precise).T
            found += x @ (means * precise).T
            found += self.heights - 0.5 * (np.square(means) * precise).sum(axis=1)
        else:
            found = np.empty((len(x), len(means)))
            for k, root in enumerate(self.roots):
                away = (x - means[k]) @ root
                found[:, k] = self.heights[k] - 0.5 * np.einsum("ij,ij->i", away, away)
        if self.shares.size:
            own = self.units > 0.0
            found += (offsets[:, own] + self.origin[own]) @ self.shares.T
        return found

    def expected(self, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return responsibilities, (n_rows, k), and the log-likelihood of each row, (n_rows,)."""
        joint = self.joint(offsets)
        top = joint.max(axis=1, keepdims=True)
        joint -= top
        np.exp(joint, out=joint)
        whole = joint.sum(axis=1, keepdims=True)
        joint /= whole
        return joint, (top + np.log(whole))[:, 0]

    def expected_of(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `expected` of rows, in blocks."""
        parts = [self.expected(rows[at : at + BLOCK] - self.origin) for at in range(0, len(rows), BLOCK)]
        found, likely = zip(*parts, strict=True)
        return np.concatenate(found), np.concatenate(likely)

    def likelihood(self) -> Entry:
        """Return the entry for the log-likelihood of a client's rows, each inside the ranges."""
        ends = self.ranges.low, self.ranges.high
        far = np.maximum(*(np.abs(end - self.centers) for end in ends))[:, self.numbers]
        flat = self.covariance_type == "diag"
        away = far * self.roots if flat else (far[:, None] @ np.abs(self.roots))[:, 0]
        categories = np.stack([end[self.units > 0.0] for end in ends])[:, None] * self.shares
        lowest = self.heights - 0.5 * np.square(away).sum(axis=1) + categories.min(axis=0).sum(axis=1)
        highest = self.heights + categories.max(axis=0).sum(axis=1)
        low, high = float(lowest.max()), float(highest.max()) + log(len(self.centers))
        rows, step = self.ranges.rows * ROUNDING, max((high - low) * 2.0**-44, TINY)
        return Entry("likelihood", (1,), rows * (min(low, 0.0) - 1.0), rows * (max(high, 0.0) + 1.0), step)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureSums(AtComponents):
    """Ask for the sums of a round of expectation maximisation.

    Statistics, with n columns that are no categories: `weight` (k,), the sums of responsibilities; `sum`
    (k, n_features), those of rows minus the mixture's mean, weighted by responsibilities; `product`, those of
    the products of each two columns of these: (k, n) diag, of squares alone; (k, n (n + 1) / 2) full, in the
    order of `numpy.triu_indices`; (1, n (n + 1) / 2) tied, for all components together; `likelihood` (1,).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("weight",)  # A row's responsibilities add up to 1.

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges, and no more than once over all components."""
        k, n, rows = len(self.centers), self.covariances.shape[-1], self.ranges.rows * ROUNDING
        low = np.minimum(self.ranges.low - self.origin, 0.0)
        high = np.maximum(self.ranges.high - self.origin, 0.0)
        far = np.maximum(np.maximum(-low, high), TINY**0.4)
        i, j = np.diag_indices(n) if self.covariance_type == "diag" else np.triu_indices(n)
        with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
            most = far[self.numbers][i] * far[self.numbers][j]
        shape = (1 if self.covariance_type == "tied" else k, len(i))
        return StatisticsSpec(
            Entry("weight", (k,), 0.0, rows, RESOLUTION),
            Entry(
                "sum",
                self.centers.shape,
                rows * low,
                rows * high,
                far * 2.0**-44,
                Within("weight", low, high),
            ),
            Entry("product", shape, np.where(i == j, 0.0, -rows * most), rows * most, most * 2.0**-50),
            self.likelihood(),
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        upper = np.triu_indices(self.covariances.shape[-1])
        weight, total, product, likely = (np.zeros(one.shape) for one in self.spec.entries)
        for at in range(0, len(rows), BLOCK):
            offsets = rows[at : at + BLOCK] - self.origin
            shares, likelihoods = self.expected(offsets)
            weight += shares.sum(axis=0)
            total += shares.T @ offsets
            likely += likelihoods.sum()
            x = offsets[:, self.numbers]
            if self.covariance_type == "diag":
                product += shares.T @ np.square(x)
            elif self.covariance_type == "tied":
                product += (x.T @ x)[upper]
            else:
                for k, share in enumerate(shares.T):
                    product[k] += ((share[:, None] * x).T @ x)[upper]
        return Statistics(weight=weight, sum=total, product=product, likelihood=likely)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureLikelihood(AtComponents):
    """Ask for the log-likelihood of all rows. Statistics: `likelihood` (1,), `rows` (1,)."""

    row_counts: ClassVar[tuple[str, ...]] = ("rows",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client."""
        return StatisticsSpec(self.likelihood(), Entry("rows", (1,), 0.0, self.ranges.rows, RESOLUTION))

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        return Statistics(
            likelihood=[self.expected_of(rows)[1].sum()] if len(rows) else [0.0], rows=[len(rows)]
        )


@dataclass(frozen=True, kw_only=True)
class GaussianMixture(RoundsAlgorithm):
    """Expectation maximisation for a mixture.

    Its state has the arrays of `AtComponents`, and `bound` (1,): the mean log-likelihood of a row before the
    last round, which no client is sent. The start's is as low as a number can be.

    Args:
        covariance_type: "full", "tied" or "diag".
        reg_covar: what is added to each variance, in units of the column's variance over all rows.
        units: 0 for each column, or for a category the value of rows that have it; None without categories.
        tol: a run stops once a round changes `bound` by less.
    """

    covariance_type: str = "full"
    reg_covar: float = 1e-6
    units: FloatArray | None = None
    tol: float | None = 1e-3
    plateau: int | None = None
    max_iter: int = 100

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, and for each restart start, first moments, rounds and likelihood."""
        return 2 + self.n_init * (MOST_START_SUMS + self.max_iter + 2)

    def _fixed(self, n_features: int) -> dict[str, Any]:
        """Return what all questions about components have in common."""
        units = np.zeros(n_features) if self.units is None else self.units
        return {"covariance_type": self.covariance_type, "units": frozen_array(units)}

    def state(self, n_features: int) -> Mapping[str, Shape]:
        """Return the arrays of `AtComponents`, and the bound."""
        return {
            **declared(self.covariance_type, self.n_clusters, n_features, self.units),
            "bound": Shape(1),
        }

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the first moments, then the rounds."""
        first = Form(ClusterProfiles, centers=Shape(self.n_clusters, setting.n_features))
        return (Phase(first), Phase(self._form(MixtureSums, setting), 1, self.max_iter))

    def score_phases(self, setting: Setting) -> Phases:
        """Return the question for the log-likelihood."""
        return (Phase(self._form(MixtureLikelihood, setting)),)

    def _form(self, kind: type[AtComponents], setting: Setting) -> Form:
        rules: dict[str, Any] = {**self.state(setting.n_features), **self._fixed(setting.n_features)}
        return Form(kind, **{name: rule for name, rule in rules.items() if name != "bound"})

    def ask(self, ranges: Ranges, bound: Any = None, **state: Any) -> MixtureSums:
        """Return the question of a round."""
        return MixtureSums(ranges=ranges, **state, **self._fixed(ranges.n_features))

    def begin(self, located: Located, centers: FloatArray) -> Conversation[Moved]:
        """Return the mixture of the rows nearest to each starting center; shares begin as of one row more."""
        total = (
            yield Ask(ClusterProfiles(ranges=located.ranges, centers=centers), purpose="start")
        ).statistics
        means, variances, mean, whole = moments_of(total, centers)
        count, numbers = total["count"][:, None], self._fixed(len(mean))["units"] == 0.0
        n, spread = np.maximum(count, 1.0), _above(whole, mean)
        each = np.where(count > 0.5, variances, spread)
        if self.covariance_type == "tied":
            each = (n * each).sum(axis=0) / n.sum()
        each = (each + self.reg_covar * spread)[..., numbers]
        return {
            "weights": n[:, 0] / n.sum(),
            "centers": np.where(numbers, means, (count * means + mean) / (count + 1.0)),
            "covariances": each
            if self.covariance_type == "diag"
            else each[..., None] * np.eye(numbers.sum()),
            "bound": np.array([np.finfo(np.float64).min]),
        }

    def move(self, question: MixtureSums, total: Statistics) -> Moved:
        """Return the components that the totals of a round say; one without weight stays as it was."""
        numbers, origin, size = question.numbers, question.origin, question.covariances.shape[-1]
        count = total["weight"]
        rows, held = max(float(count.sum()), LEAST_WEIGHT), count > LEAST_WEIGHT
        n = np.where(held, count, 1.0)
        shift, product = total["sum"] / n[:, None], total["product"]
        x, squares = shift[:, numbers], product
        if self.covariance_type != "diag":
            upper, product = np.triu_indices(size), np.zeros((len(product), size, size))
            product[:, upper[0], upper[1]] = product[:, upper[1], upper[0]] = total["product"]
            squares = np.diagonal(product, axis1=1, axis2=2)
        middle = total["sum"][:, numbers].sum(axis=0) / rows
        spread = _above(squares.sum(axis=0) / rows - np.square(middle), (origin[numbers] + middle))
        floor = self.reg_covar * spread
        if self.covariance_type == "tied":
            found = _definite((product[0] - (count[:, None] * x).T @ x) / rows, floor)
        elif self.covariance_type == "full":
            found = _definite(product / n[:, None, None] - x[:, :, None] * x[:, None], floor)
            found = np.where(held[:, None, None], found, question.covariances)
        else:
            found = np.maximum(product / n[:, None] - np.square(x), 0.0) + floor
            found = np.where(held[:, None], found, question.covariances)
        weights = np.maximum(count, np.finfo(np.float64).eps * rows)
        return {
            "weights": weights / weights.sum(),
            "centers": np.where(held[:, None], origin + shift, question.centers),
            "covariances": found,
            "bound": total["likelihood"] / rows,
        }

    def movement(self, after: State, before: State) -> float:
        """Return by how much a round changed the bound."""
        return abs(float(after["bound"][0]) - float(before["bound"][0]))

    def scored(
        self, located: Located, history: tuple[State, ...], stopped: str
    ) -> Conversation[ClusteringOutcome]:
        """Ask for the log-likelihood; the score is minus that of a row."""
        question = MixtureLikelihood(**asdict(self.ask(located.ranges, **history[-1])))
        total = (yield Ask(question, purpose=SCORE)).statistics
        rows = round(float(total["rows"][0]))
        score = -float(total["likelihood"][0]) / max(rows, 1)
        return ClusteringOutcome(history, None, rows, ending(stopped, self.tol), score, stopped)


def _above(variances: FloatArray, means: FloatArray) -> FloatArray:
    """Return variances of columns, 1 where no more than rounding is left of one."""
    return np.where(variances > np.square(2.0**-42 * means), variances, 1.0)


def _definite(covariances: FloatArray, floor: FloatArray) -> FloatArray:
    """Return symmetric matrices, with a floor added to their variances, as the grid of a sum left them.

    What it left negative beyond half of the floor is 0.
    """
    unit = np.sqrt(floor)[:, None] * np.sqrt(floor)
    values, vectors = np.linalg.eigh(0.5 * (covariances + covariances.swapaxes(-1, -2)) / unit)
    if values.min(initial=0.0) < -0.5:
        covariances = (vectors * np.maximum(values, 0.0)[..., None, :]) @ vectors.swapaxes(-1, -2) * unit
    return np.asarray(0.5 * (covariances + covariances.swapaxes(-1, -2)) + np.diag(floor))
