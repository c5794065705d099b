"""Rows from the gradient of a network's first layer, where that is linear and its units are rectified (ReLU).

A unit's gradient is the sum of the rows that it is active on, each times a factor, and its bias' gradient is
the sum of the factors (Geiping et al. 2020, arXiv 2003.14053, proposition 3.1). The quotient is a row where a
unit is active on one row of a client alone. Quotients of other units are of several rows with factors of
their own, so that only rows come twice. What follows behind the first layer need not be known.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from privfed.core.values.domain import FloatArray, Ranges

TOLERANCE = 0.01
"""Claims are right within so many standard deviations of the rows."""

SMALL = 0.01
"""Biases' gradients below this share of the largest are left out: rounding would show in quotients."""

NEIGHBOURS = 8
"""Quotients that each is compared with at most, itself among them."""


def first_layer(values: FloatArray, n_features: int, n_classes: int, units: int) -> FloatArray | None:
    """Return the first layer's part of parameters, float64 of shape (n_features + 1, units), the biases last.

    Args:
        values: all parameters: first the weights, of shape (units, n_features), and then the biases.
        n_features: columns of a row.
        n_classes: outputs of the network.
        units: of the first layer; 0 for what follows from one hidden layer, None where nothing does.
    """
    found, left = (units, 0) if units else divmod(len(values) - n_classes, n_features + 1 + n_classes)
    if left or not 1 <= found * (n_features + 1) <= len(values):
        return None
    weights, biases = np.split(values[: found * (n_features + 1)], [found * n_features])
    return np.vstack([weights.reshape(found, n_features).T, biases])


def near_of(rows: FloatArray) -> float:
    """Return how near claims must be to rows like these."""
    return TOLERANCE * max(float(rows.std(axis=0).mean()), 1e-9)


def repeated_rows(
    models: FloatArray,
    gradients: FloatArray,
    ranges: Ranges,
    rate: float,
    error: float,
) -> FloatArray | None:
    """Return rows that quotients of several units agree on, float64 of shape (n, n_features); None without.

    Args:
        models: first layers of one or more rounds, float64 of shape (n_rounds, n_features + 1, n_units).
        gradients: of the same shape.
        ranges: of the columns; rows lie within.
        rate: that gradients were multiplied with.
        error: largest error of each number of a gradient, from the grid of a sum.
    """
    # A module of single precision begins with such numbers.
    single = np.array_equal(models[0], models[0].astype(np.float32))
    rounding = max(error, (2.0**-25 if single else 2.0**-52) * float(np.abs(models).max()) / rate)
    models, gradients = np.concatenate(models, axis=1), np.concatenate(gradients, axis=1)
    biases = np.abs(gradients[-1])
    large = np.flatnonzero(biases > SMALL * biases.max())
    if len(large) < 2:
        return None
    quotients = (gradients[:-1, large] / gradients[-1, large]).T
    # How far rounding moves a quotient.
    longest = np.sqrt(len(gradients)) * (1.0 + float(np.abs([ranges.low, ranges.high]).max()))
    moved = rounding * longest / biases[large]
    apart, others = cKDTree(quotients).query(
        quotients, min(NEIGHBOURS, len(large)), distance_upper_bound=2.0 * moved.max()
    )
    one, place = np.nonzero(np.isfinite(apart))
    near, other = apart[one, place], others[one, place]
    same = near < moved[one] + moved[other]
    table = coo_array((np.ones(same.sum()), (one[same], other[same])), shape=(len(large), len(large)))
    group = connected_components(table, directed=False)[1]
    off, found = (np.abs(gradients) <= rounding).all(axis=0), np.empty((0, len(gradients)))
    told = list[float]()
    sizes = np.bincount(group)
    for number in np.argsort(-sizes, kind="stable")[: int((sizes > 1).sum())]:
        own = np.flatnonzero(group == number)
        best = own[moved[own].argmin()]
        row, slack = np.append(quotients[best], 1.0), 10.0 * moved[best]
        # Its units are active on it, and units without a gradient are active on no row.
        scores = row @ models
        fits = (scores[large[own]] > -slack).all() and (scores[off] < slack).all()
        within = (row[:-1] >= ranges.low - slack).all() and (row[:-1] <= ranges.high + slack).all()
        # Units that are active on the same two rows of one class come near each other, between these.
        left = row - np.linalg.lstsq(found.T, row, rcond=None)[0] @ found
        if fits and within and np.linalg.norm(left) > 0.02 * np.linalg.norm(row):
            found = np.vstack([found, row])
            told.append(moved[best])
    if not told:
        return None
    kept = found[np.array(told) <= near_of(found[:, :-1]) * np.sqrt(len(gradients))]
    return kept[:, :-1] if len(kept) else None
