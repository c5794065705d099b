"""One system of equations in an unknown multiset of units, and what it says of each candidate.

Every sum over rows says b = sum of phi(x) over the rows x that took part, plus noise of known variance. With
z the share of each listed candidate, A what each adds, and u the rows that are on no list,

    b = A z + sum of phi over u + noise.

The unlisted rows are as many as the totals' count leaves, and of the same population. Their sum has the mean
and the covariance of what candidates and public rows add, and some variance besides, which these few rows
cannot show. With independent z of variance p (1 - p) the posterior is Gaussian, and solved exactly for all
candidates and all sums together. Where the list holds all members it is least squares on exact equations. Of
one row alone it is the whitened matched filter. Under differential privacy the noise's variance is added.

Limits of 0 and 1 on each share were tried, by projected gradients: they changed no area by more than .01.

Sources: Homer et al. 2008 and Sankararaman et al. 2009 (the test of one row); Golub and Van Loan, Matrix
Computations, 6.1 (generalised least squares).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.sparse import csr_array, hstack, vstack

from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.equations import Equations, equations_of
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.questions.lloyd import LloydSums

_UNSEEN = 0.3
"""Variance of unlisted rows that reference rows do not show, as a share of each value's variance."""
_ERROR = 1e-3
"""Standard deviation of an exact equation's error, as a share of that of what one unit adds."""
_FLAT = 1e-7
"""Least share of the largest standard deviation; values that vary less show only rounding."""
MOST_UNITS = 8_000
"""Most units that are solved for together; time grows with their third power, memory with the square."""


class Posterior(NamedTuple):
    """Holds what a system says of each unit.

    Attributes:
        ratio: log-likelihood ratio of "took part" against "did not", float64 of shape (n_units,).
        mean: posterior mean of the unit's share, (n_units,).
        mu: distance between the distributions of the estimated share with and without the unit, in
            standard deviations, (n_units,).
        evidence: logarithm of the totals' density under these assumptions.
    """

    ratio: FloatArray
    mean: FloatArray
    mu: FloatArray
    evidence: float


@dataclass(frozen=True, eq=False)
class System:
    """Holds the sums of a view as equations in the shares of units.

    Args:
        left: what each unit adds to each value, sparse, (n_values, n_units).
        right: the totals, float64 of shape (n_values,).
        noise: variance of the noise in each, (n_values,).
        taken: share of the clients that were in each, (n_values,).
        units: how many units took part; NaN if the totals do not show it.
        n_sums: how many sums these are.
    """

    left: csr_array = field(repr=False)
    right: FloatArray
    noise: FloatArray
    taken: FloatArray
    units: float
    n_sums: int

    @classmethod
    def of(
        cls, view: View, units: Sequence[ClientData], *, by_row: bool = True, client: int | None = None
    ) -> Self | None:
        """Read all totals of a view that add up over units; the final centers where it shows no total.

        Args:
            view: what a party saw.
            units: rows, each as the data of one client, or clients.
            by_row: whether they are rows.
            client: position of a client whose own answers are read in place of totals.

        Returns:
            The system; None if the view shows neither.
        """
        parts, asked = list[tuple[FloatArray, FloatArray, FloatArray, tuple[int, ...], float]](), set[bytes]()
        for one in equations_of(view, by_row=by_row):
            wanted = (shown for shown in one.shown if (shown.clients[0] if shown.own else None) == client)
            total = next(wanted, None)
            # Without noise, the same question to the same clients has the same answer and adds nothing.
            key = one.question.to_bytes() + repr(total and total.clients).encode()
            if total is None or (one.exact and key in asked):
                continue
            asked.add(key)
            added = one.of_units(units)
            n = _count(one, total.values, added) if by_row else float(len(total.clients))
            parts.append((added, total.values, total.noise, total.clients, n))
        if not parts and client is None and "centers" in view.result:
            # Offsets of a cluster's rows from its final center add up to zero.
            rows, centers = np.concatenate([unit.features for unit in units]), view.result["centers"]
            ranges = Ranges(rows.min(axis=0), rows.max(axis=0), len(rows))
            cells = Equations(0, LloydSums(ranges=ranges, centers=centers), ("count", "sum"), ())
            of = cells.parts(cells.of_units(units))
            added = (of["sum"] - of["count"][:, :, None] * centers).reshape(len(units), -1)
            nothing = np.zeros(added.shape[1])
            parts.append((added, nothing, nothing, (0,), math.nan))
        if not parts:
            return None
        tables, right, noise, clients, counts = zip(*parts, strict=True)
        taken = np.array([len(one) for one in clients]) / len(set[int]().union(*clients))
        known = [n / part for n, part in zip(counts, taken, strict=True) if math.isfinite(n)]
        return cls(
            vstack([csr_array(one.T) for one in tables], format="csr"),
            np.concatenate(right),
            np.concatenate(noise),
            np.repeat(taken, [len(one) for one in right]),
            float(max(1.0, np.rint(np.median(known)))) if known else math.nan,
            len(parts),
        )

    def without(self, known: IntArray) -> Self:
        """Return the system of the others, where some units are known to have taken part."""
        left = self.taken * np.asarray(self.left[:, known].sum(axis=1)).ravel()
        return replace(self, right=self.right - left, units=float(np.maximum(1.0, self.units - len(known))))

    def whole(self) -> tuple[FloatArray, FloatArray]:
        """Return A and b of A m = b without repeated equations; what are sums of whole numbers is whole."""
        left = self.left.toarray()
        # What such sums lack is rounding in a masked sum.
        right = np.where((left == np.rint(left)).all(axis=1), np.rint(self.right), self.right)
        _, kept = np.unique(
            np.round(left @ np.sin(np.arange(1.0, left.shape[1] + 1.0)), 9), return_index=True
        )
        kept = np.sort(kept[left[kept].any(axis=1)])
        return left[kept], right[kept]

    def posterior(self, listed: IntArray, share: float, units: float, first: int) -> Posterior:
        """Return what all totals together say of each listed unit.

        Args:
            listed: places of the candidates, (n_listed,).
            share: share of those that took part which are among them, in [0, 1].
            units: how many took part.
            first: from this place on, units are of the same population and took no part.
        """
        n, unlisted = len(listed), (1.0 - share) * units
        like = self.left[:, np.append(listed, np.arange(first, self.left.shape[1]))]
        mean = np.asarray(like.mean(axis=1)).ravel()
        square = np.asarray(like.multiply(like).mean(axis=1)).ravel()
        scale = np.sqrt(np.maximum(square - mean**2, 0.0))
        varies = scale > _FLAT * max(1.0, float(scale.max(initial=0.0)))
        scale, taken = scale[varies], self.taken[varies]
        # Reference units stand for unlisted ones, each for as many; their own mean is uncertain, too.
        each = unlisted / like.shape[1]
        beside = each * (1.0 + each)
        unknown = (like if unlisted else like[:, :n])[np.flatnonzero(varies)]
        of_list = (np.arange(unknown.shape[1]) < n) * 1.0
        likely = min(max(share * units / max(n, 1), 0.01), 0.99)
        prior, variance = likely * of_list + each, likely * (1.0 - likely) * of_list + beside
        error = self.noise[varies] / scale**2 + _ERROR**2 + beside * like.shape[1] * _UNSEEN
        error += taken * (1.0 - taken) * units * square[varies] / scale**2
        unknown = unknown.multiply((taken / scale / np.sqrt(error))[:, None]).tocsr()
        left = self.right[varies] / scale / np.sqrt(error) - unknown @ prior
        found, variances, evidence = _solved(unknown, left, variance)
        evidence -= float(np.log(error).sum()) / 2
        found, variances, variance = found[:n], variances[:n], variance[:n]
        # What the totals say of a unit beside its prior: its share as they show it, and with which variance.
        told = np.maximum(1.0 / np.maximum(variances, 1e-300) - 1.0 / variance, 1e-12)
        error = 1.0 / told + beside
        shown = likely + found / np.maximum(variances, 1e-300) / told
        return Posterior((shown - 0.5) / error, prior[:n] + found, 1.0 / np.sqrt(error), evidence)


def choices(system: System, weight: FloatArray) -> FloatArray:
    """Return the posterior weight of each alternative of units that took part.

    Args:
        system: whose first units are the alternatives, those of one unit after the other; the rest are of the
            same population and took no part.
        weight: prior weight of each alternative, float64 of shape (n_units, n_alternatives), rows of sum 1.

    Returns:
        As `weight`; not clipped to [0, 1].
    """
    n_units, n = weight.shape
    whole = system.taken == 1.0
    own, like = system.left[whole][:, : weight.size], system.left[whole][:, weight.size :]
    each = max(0.0, system.units - n_units) / like.shape[1]
    beside, middle = each * (1.0 + each), np.asarray(like.mean(axis=1)).ravel()
    roots, of = np.sqrt(weight), np.repeat(np.arange(n_units), n)
    means = own @ csr_array((weight.ravel(), (np.arange(weight.size), of)))
    # Which alternative a unit is has the covariance of one draw of them: diag(w) - w w'.
    spread = own.multiply(roots.ravel()).tocsr() - means[:, of].multiply(roots.ravel()).tocsr()
    scale = np.asarray(like.multiply(like).mean(axis=1)).ravel() - middle**2
    # Between two alternatives lies the true one.
    steps = own[:, 1:] - own[:, :-1]
    between = np.asarray(steps.multiply(steps)[:, of[1:] == of[:-1]].sum(axis=1)).ravel() / (12.0 * n)
    error = np.sqrt(
        system.noise[whole] + (_ERROR**2 + beside * like.shape[1] * _UNSEEN) * scale + between + 1e-12
    )
    left = (
        system.right[whole]
        - np.asarray(means.sum(axis=1)).ravel()
        - each * np.asarray(like.sum(axis=1)).ravel()
    )
    table = hstack([spread, like * (each * (1.0 + each)) ** 0.5]).multiply(1.0 / error[:, None]).tocsr()
    told = _solved(table, left / error, np.ones(table.shape[1]))[0][: weight.size].reshape(weight.shape)
    return np.asarray(weight + roots * (told - roots * (roots * told).sum(axis=1, keepdims=True)))


def _solved(left: csr_array, right: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return mean and variances of Gaussian x, given right = left x + noise of variance 1; and the density.

    Args:
        left: float64 of shape (n_values, n_unknown).
        right: (n_values,).
        variance: of each x before, with mean 0, (n_unknown,).
    """
    n_values, n_unknown = left.shape
    weighted = left.multiply(np.sqrt(variance)).tocsr()
    if n_values < n_unknown:
        root = cholesky(_gram(weighted.T.tocsr()), lower=True, overwrite_a=True, check_finite=False)
        half = solve_triangular(root, weighted.toarray(), lower=True, check_finite=False)
        told = solve_triangular(root, right, lower=True, check_finite=False)
        found, variances, length = told @ half, 1.0 - np.square(half).sum(axis=0), float(told @ told)
    else:
        root = cholesky(_gram(weighted), lower=True, overwrite_a=True, check_finite=False)
        told = solve_triangular(root, weighted.T @ right, lower=True, check_finite=False)
        found = solve_triangular(root, told, lower=True, trans=1, check_finite=False)
        length = float(right @ right - told @ told)
        inverse, _ = dpotri(root, lower=1)
        variances = np.diag(inverse)
    evidence = -length / 2 - float(np.log(np.diag(root)).sum())
    return np.sqrt(variance) * found, variance * variances, evidence


def _gram(left: csr_array) -> FloatArray:
    """Return left' left + 1, made in blocks, as products of sparse tables are dense."""
    across = left.T.tocsr()
    gram = np.empty((left.shape[1], left.shape[1]), order="F")
    for first in range(0, len(gram), 512):
        gram[:, first : first + 512] = (across @ left[:, first : first + 512]).toarray()
    gram[np.diag_indices(len(gram))] += 1.0
    return gram


def _count(one: Equations, total: FloatArray, units: FloatArray) -> float:
    """Return how many units a total is over, from an array whose entries add up to one for every unit.

    Counts over all cells do, a count of rows does, and so do memberships. NaN if there is none: a combination
    of values that is one for the known units alone would say nothing of the others.
    """
    totals = one.parts(total)
    for name, values in one.parts(units).items():
        if np.allclose(values.reshape(len(units), -1).sum(axis=1), 1.0, rtol=0.0, atol=1e-6):
            return float(max(1.0, np.rint(totals[name].sum())))
    return math.nan
