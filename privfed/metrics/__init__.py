"""Questions behind scores and indices, agreement with labels, and the functions that ask them."""

from privfed.metrics.functions import (
    accuracy,
    adjusted_rand_index,
    completeness,
    homogeneity,
    inertia,
    labels_agreement,
    score,
    v_measure,
)

__all__ = [
    "accuracy",
    "adjusted_rand_index",
    "completeness",
    "homogeneity",
    "inertia",
    "labels_agreement",
    "score",
    "v_measure",
]
