"""A digest of known answers: whether two machines compute the seeding of replicas to the same bits.

Where clients run the algorithm themselves, one last bit of a seeding can part their runs (k-means++ picks
another point). The code is made so that no thread, processor or library changes its bits; this digest is what
shows it, compared before the first sum. What only moves last bits (powers, roots) is not in it: replicas
compare arrays within 1e-9 of their ranges.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from privfed.numerics.weighted_kmeans import seeds, weighted_kmeans

_SEED = 20_251_122


@cache
def known_answers() -> str:
    """Return the digest of what this machine computes from fixed draws, 64 hexadecimal digits."""
    rng, found = np.random.default_rng(_SEED), hashlib.sha256()
    found.update(rng.integers(2**31, size=64).astype("<i8").tobytes())
    found.update(rng.random(64).astype("<f8").tobytes())
    for n_points, n_features in ((90, 2), (60, 17)):
        # Cells' means are quotients of integers; so are these points, with close ones among them.
        points = rng.integers(-999, 999, (n_points, n_features)) / rng.integers(1, 99, (n_points, 1))
        weights = rng.integers(1, 99, n_points).astype(np.float64)
        own = np.random.default_rng(int(rng.integers(2**31)))
        drawn = seeds(points, weights, 7, own, n_sets=3)
        clustered = weighted_kmeans(points, weights, 7, own, n_init=5)
        for array in (drawn, clustered.centers, np.array(clustered.inertia)):
            found.update(array.astype("<f8").tobytes())
        found.update(clustered.labels.astype("<i8").tobytes())
    return found.hexdigest()
