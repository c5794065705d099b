"""What metrics ask, so that an agreement can name the metrics that may follow a fit, or one alone.

A metric is agreed on by the question that it asks and its options: another power, fuzzifier or number of
labels is another metric. After a fit it asks about as many centers as the fit has clusters, at most once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import BOUNDED_FORMS, Question, kind_named, wire_name
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import Ball
from privfed.core.values.guarantee import Unit
from privfed.errors import ArgumentError
from privfed.questions.bounded.whole_clients import AsOneRecord
from privfed.questions.client_sizes import ClientSizes
from privfed.questions.cluster_spread import ClusterSilhouettes
from privfed.questions.ranges import range_phases

TWICE = (wire_name(ClusterSilhouettes),)
"""Questions that are asked again without centers that have no rows, where there is no noise."""


@dataclass(frozen=True, kw_only=True)
class AskedMetric:
    """One metric of an agreement.

    Args:
        name: of its question, on the wire.
        n_clusters: number of centers; None where it asks about none.
        options: of its question, such as `power`, `m`, `q` or `n_labels`; those left out have their defaults.
        first: whether it is asked without a fit before it, so that the ranges are found first.

    Raises:
        ArgumentError: no question of this name is known here, or it is no question.
    """

    name: str
    n_clusters: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    first: bool = False

    def __post_init__(self) -> None:
        try:
            known = issubclass(kind_named(self.name), Question)
        except KeyError:
            known = False
        if not known:
            raise ArgumentError(f"no question is called {self.name!r} here, so that no metric asks it.")

    @classmethod
    def of(cls, kind: type[Question], n_clusters: int | None = None, **options: object) -> AskedMetric:
        """Return the metric that asks questions of a class."""
        return cls(name=wire_name(kind), n_clusters=n_clusters, options=options)

    def after_a_fit(self) -> AskedMetric:
        """Return it as it follows a fit, which has found the ranges."""
        return replace(self, first=False)

    def alone(self) -> AskedMetric:
        """Return it as it is asked alone, so that ranges are found first."""
        return replace(self, first=True)

    @property
    def kind(self) -> type[Question]:
        """Class of its question."""
        return cast(type[Question], kind_named(self.name))

    def phases(self, setting: Setting) -> Phases:
        """Return what the metric asks."""
        terms = setting.privacy
        if terms is not None:
            return self._noised(setting, terms.unit)
        before = range_phases(setting) if self.first else ()
        asked: Phases = (Phase(self._form(setting, self.n_clusters)),)
        if self.name in TWICE:
            asked = (*asked, Phase(self._form(setting, (2, self.n_clusters or 2)), 0))
        return (*before, *asked)

    def _form(self, setting: Setting, n_centers: int | tuple[int, int] | None) -> Form:
        centers = {} if n_centers is None else {"centers": Shape(n_centers, setting.n_features)}
        return Form(self.kind, **centers, **self.options)

    def _noised(self, setting: Setting, unit: Unit) -> Phases:
        if self.kind not in BOUNDED_FORMS:
            return (Phase(self._form(setting, self.n_clusters)),)
        form = self._bounded(setting)
        if unit == Unit.RECORD:
            return (Phase(form),)
        shares = Form(AsOneRecord, inner=form, rows=Within(1.0, 2.0**40))
        return (Phase(Form(ClientSizes)), Phase(shares))

    def _bounded(self, setting: Setting) -> Form:
        kind = cast(type[Question], BOUNDED_FORMS[self.kind])
        reach = setting.domain.radius if isinstance(setting.domain, Ball) else None
        centers = {} if self.n_clusters is None else {"centers": Shape(self.n_clusters, setting.n_features)}
        return Form(kind, reach=reach, **centers, **self.options)
