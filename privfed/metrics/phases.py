"""What metrics ask, so that an agreement can name the metrics that may follow a fit, or one alone.

A metric takes its options from the agreement: another power, fuzzifier or number of labels is another
question. After a fit it asks about as many centers as the fit has clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import BOUNDED_FORMS, Question
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import Ball
from privfed.core.values.guarantee import Unit
from privfed.errors import ArgumentError
from privfed.questions.bounded.whole_clients import AsOneRecord
from privfed.questions.client_sizes import ClientSizes
from privfed.questions.cluster_spread import ClusterDistances, ClusterScatter, ClusterSilhouettes
from privfed.questions.contingency import Contingency
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.inertia import Inertia
from privfed.questions.ranges import range_phases

QUESTIONS: Mapping[str, type[Question]] = {
    "accuracy": Contingency,
    "adjusted_rand_index": Contingency,
    "calinski_harabasz": ClusterScatter,
    "completeness": Contingency,
    "davies_bouldin": ClusterDistances,
    "fuzzy_davies_bouldin": FuzzySpread,
    "homogeneity": Contingency,
    "inertia": Inertia,
    "mean_distance": ClusterDistances,
    "score": Inertia,
    "simplified_silhouette": ClusterSilhouettes,
    "v_measure": Contingency,
}
"""Metric -> class of its question. "silhouette" is computed by one party, and asks nothing."""

TWICE = ("simplified_silhouette",)
"""Metrics that ask again without centers that have no rows, where there is no noise."""


@dataclass(frozen=True, kw_only=True)
class AskedMetric:
    """One metric of an agreement.

    Args:
        name: of the metric.
        n_clusters: number of centers.
        options: of its question, such as `power`, `m`, `q` or `n_labels`.
        alone: whether it is asked without a fit before it, so that the ranges are found first.

    Raises:
        ArgumentError: no metric of this name asks clients.
    """

    name: str
    n_clusters: int
    options: Mapping[str, object] = field(default_factory=dict)
    alone: bool = False

    def __post_init__(self) -> None:
        if self.name not in QUESTIONS:
            raise ArgumentError(f"no metric {self.name!r} asks clients; known: {sorted(QUESTIONS)}.")

    def phases(self, setting: Setting) -> Phases:
        """Return what the metric asks."""
        terms = setting.privacy
        if terms is not None:
            form = self._bounded(setting)
            if terms.unit == Unit.RECORD:
                return (Phase(form),)
            shares = Form(AsOneRecord, inner=form, rows=Within(1.0, 2.0**40))
            return (Phase(Form(ClientSizes)), Phase(shares))
        before = range_phases(setting) if self.alone else ()
        asked: Phases = (Phase(self._form(setting, self.n_clusters)),)
        if self.name in TWICE:
            asked = (*asked, Phase(self._form(setting, (2, self.n_clusters)), 0))
        return (*before, *asked)

    def _form(self, setting: Setting, n_centers: int | tuple[int, int]) -> Form:
        return Form(QUESTIONS[self.name], centers=Shape(n_centers, setting.n_features), **self.options)

    def _bounded(self, setting: Setting) -> Form:
        kind = cast(type[Question], BOUNDED_FORMS[QUESTIONS[self.name]])
        reach = setting.domain.radius if isinstance(setting.domain, Ball) else None
        centers = Shape(self.n_clusters, setting.n_features)
        return Form(kind, centers=centers, reach=reach, **self.options)
