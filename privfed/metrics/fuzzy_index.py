"""The fuzzy Davies-Bouldin index as a function of client data and centers, asked in one sum.

`privfed.questions.fuzzy_spread` has sources, formulas and what the question reveals.
"""

from __future__ import annotations

from typing import Any

from privfed.core.values.domain import frozen_array
from privfed.core.values.numbers import as_number, as_numbers
from privfed.errors import ArgumentError
from privfed.metrics.asking import asked
from privfed.metrics.functions import federation_with_ranges
from privfed.metrics.phases import AskedMetric
from privfed.privacy.privacy import Privacy
from privfed.questions.fuzzy_spread import FuzzySpread, index_from


def fuzzy_davies_bouldin(
    clients: Any,
    centers: Any,
    m: float = 2.0,
    p: float = 2,
    q: float = 1,
    *,
    privacy: Privacy | None = None,
    **options: Any,
) -> float:
    """Return the federated fuzzy Davies-Bouldin index, which is small for compact clusters far apart.

    It equals the index of the pooled rows. The number of clusters is often chosen as that of least index.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        m: fuzzifier, in (1, 100].
        p: order of the Minkowski distance between centers, at least 1 (eq. 11).
        q: power of the distances of rows to centers, in [1, 64] (eq. 12).
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.

    Raises:
        ArgumentError: there are fewer than two centers, or a parameter is out of its bounds.
    """
    centers = frozen_array(as_numbers("centers", centers))
    if centers.ndim != 2 or len(centers) < 2:
        raise ArgumentError(f"the index compares clusters: it needs at least 2 centers, got {centers.shape}.")
    m, p, q = as_number("m", m), as_number("p", p), as_number("q", q)
    if not p >= 1.0:
        raise ArgumentError(f"p must be at least 1, got p={p}; the paper takes p=2.")
    metric = AskedMetric.of(FuzzySpread, len(centers), m=m, q=q)
    federation, ranges = federation_with_ranges(clients, None, privacy, options, metric)
    question = FuzzySpread(ranges=ranges, centers=centers, m=m, q=q)
    return index_from(asked(federation, question), centers, p, q)
