"""Scores, validity indices and agreement with labels, as functions of client data and centers."""

import privfed.questions.bounded.bounded_metrics  # noqa: F401 - declares the questions' bounded forms
from privfed.metrics.functions import (
    accuracy,
    adjusted_rand_index,
    calinski_harabasz,
    completeness,
    davies_bouldin,
    fuzzy_davies_bouldin,
    homogeneity,
    inertia,
    labels_agreement,
    mean_distance,
    score,
    simplified_silhouette,
    v_measure,
)
from privfed.metrics.gap import knowledge_gap
from privfed.metrics.intervals import Estimate, with_interval, with_intervals
from privfed.metrics.profiles import Profiles, clients_per_cluster, profiles
from privfed.metrics.stable import stability

__all__ = [
    "Estimate",
    "Profiles",
    "accuracy",
    "adjusted_rand_index",
    "calinski_harabasz",
    "clients_per_cluster",
    "completeness",
    "davies_bouldin",
    "fuzzy_davies_bouldin",
    "homogeneity",
    "inertia",
    "knowledge_gap",
    "labels_agreement",
    "mean_distance",
    "profiles",
    "score",
    "simplified_silhouette",
    "stability",
    "v_measure",
    "with_interval",
    "with_intervals",
]
