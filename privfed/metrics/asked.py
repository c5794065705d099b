"""What metrics ask, so that an agreement can name the metrics that may follow a fit, or one alone.

A metric is agreed on by the question that it asks and its options: another power, fuzzifier or number of
labels is another metric. After a fit it asks about the centers that the fit has found, at most once; alone,
about centers that are agreed on with it. Clients that run the program themselves run it, too.

Under differential privacy a question is asked in its bounded form, for the whole budget.
`privfed.questions.bounded.bounded_metrics` has the bounded forms and their bounds. At unit "client" questions
have the form of `privfed.questions.bounded.client_shares`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import BOUNDED_FORMS, Question, kind_named, unbounded, wire_name
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import LARGEST, Ball, Domain, FloatArray, Ranges, frozen_array
from privfed.core.values.guarantee import Unit
from privfed.core.values.numbers import check_number
from privfed.core.values.origin import origin_of, radius_of, released, scaled_of
from privfed.errors import ArgumentError
from privfed.privacy.bounds import RecordBounded
from privfed.questions.bounded.client_shares import SIZES_SHARE, AsOneRecord
from privfed.questions.client_sizes import ClientSizes, typical_size
from privfed.questions.cluster_spread import (
    ClusterDistances,
    ClusterProfiles,
    ClusterScatter,
    ClusterSilhouettes,
)
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Inertia
from privfed.questions.ranges import MOST_ROWS, locate, range_phases

CLIPPED = (Inertia, ClusterDistances, ClusterProfiles, ClusterScatter, FuzzySpread)
"""Questions whose bound is a distance: of clipped rows it is less. Others ask of rows as they are."""

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
        centers: about which it asks, (n_clusters, n_features); None for those of the fit before it.
        radius: length to which, under differential privacy, each row's offset from its nearest center is
            clipped; None for rows as they are.

    Raises:
        ArgumentError: no question of this name is known here, it is no question, or the radius is not
            above 0.
    """

    name: str
    n_clusters: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    first: bool = False
    centers: FloatArray | None = field(default=None, compare=False)
    radius: float | None = None

    def __post_init__(self) -> None:
        check_number("radius", self.radius, f"(0, {LARGEST}]", or_none=True)
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

    @classmethod
    def about(cls, kind: type[Question], centers: FloatArray, **options: object) -> AskedMetric:
        """Return the metric that asks questions of a class about centers, of rows clipped at their radius."""
        # What is no table is refused by the question itself.
        return cls(
            name=wire_name(kind),
            n_clusters=len(centers) if centers.ndim == 2 else None,
            options=options,
            centers=released(frozen_array(centers), origin_of(centers), scaled=scaled_of(centers)),
            radius=radius_of(centers),
        )

    def alone(self) -> AskedMetric:
        """Return it as it is asked alone, so that ranges are found first."""
        return replace(self, first=True)

    @property
    def kind(self) -> type[Question]:
        """Class of its question."""
        return cast(type[Question], kind_named(self.name))

    def check_private(self, domain: Domain) -> None:
        """Check that its question has a bound, and its options and centers theirs, before a budget pays.

        Args:
            domain: of the rows.

        Raises:
            PrivacyError: the question has none, neither for a record nor for a client.
            ArgumentError: an option, or the centers, are out of their bounds.
        """
        kind = self.kind
        own = kind.bounded is not Question.bounded or kind.client_limits is not Question.client_limits
        if not own and kind not in BOUNDED_FORMS:
            raise unbounded(kind)
        if (kind in BOUNDED_FORMS or issubclass(kind, RecordBounded)) and self.centers is not None:
            low, high = domain.bounds(self.centers.shape[-1] if self.centers.ndim else 1)
            ranges = Ranges(low, high, domain.most_rows or MOST_ROWS)
            fields: dict[str, Any] = {**self.options, "ranges": ranges, "centers": self.centers}
            self.kind(**fields).bounded(_radius(domain), **self.limits)

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

    def run(
        self,
        setting: Setting,
        ranges: Ranges | None = None,
        centers: FloatArray | None = None,
        *,
        purpose: str = "index",
        divisors: tuple[str, ...] = (),
    ) -> Conversation[Statistics]:
        """Ask it, and return the total: the same for whoever asks and for clients that follow.

        Args:
            setting: what is agreed.
            ranges: those that the fit before it has found; None to find them first.
            centers: those that it has found, where the metric has none of its own.
            purpose: what the total is for.
            divisors: entries that the metric divides by (`asked`).

        Raises:
            PrivacyError: the question has no bound for the unit, or the budget is spent.
        """
        if ranges is None and setting.privacy is not None and setting.domain is not None:
            low, high = setting.domain.bounds(setting.n_features)
            ranges = Ranges(low, high, setting.domain.most_rows or MOST_ROWS)
        if ranges is None:
            ranges = (yield from locate(setting, upcoming=(0,))).ranges
        about = self.centers if self.centers is not None or self.n_clusters is None else centers
        fields: dict[str, Any] = {**self.options, "ranges": ranges}
        if about is not None:
            fields["centers"] = about
        total = yield from asked(setting, self.kind(**fields), purpose, divisors, self.limits)
        if about is None or self.name not in TWICE or setting.privacy is not None:
            return total
        # Under differential privacy there is no budget for a second sum, so that centers without rows still
        # count as second nearest ones.
        kept = np.flatnonzero(np.rint(total["count"]) > 0)
        if 2 <= len(kept) < len(about):
            fields["centers"] = frozen_array(about[kept])
            total = yield from asked(setting, self.kind(**fields), purpose, divisors)
        return total

    @property
    def limits(self) -> dict[str, float]:
        """What its bounded form has besides, where that depends on the radius."""
        return {"radius": self.radius} if self.radius is not None and self.kind in CLIPPED else {}

    def _form(self, setting: Setting, n_centers: int | tuple[int, int] | None) -> Form:
        return Form(self.kind, **self._centers(setting, n_centers), **self.options)

    def _centers(self, setting: Setting, n_centers: int | tuple[int, int] | None) -> dict[str, object]:
        """Return the rule for centers: those agreed, or so many; no rule where it asks about none."""
        if self.centers is not None and n_centers == self.n_clusters:
            return {"centers": self.centers}
        return {} if n_centers is None else {"centers": Shape(n_centers, setting.n_features)}

    def _noised(self, setting: Setting, unit: Unit) -> Phases:
        if self.kind in BOUNDED_FORMS:
            form = Form(
                cast(type[Question], BOUNDED_FORMS[self.kind]),
                reach=_radius(setting.domain),
                **self.limits,
                **self._centers(setting, self.n_clusters),
                **self.options,
            )
        else:
            form = self._form(setting, self.n_clusters)
        if unit.of_rows or not issubclass(form.kind, RecordBounded):
            return (Phase(form),)
        return (Phase(Form(ClientSizes)), Phase(Form(AsOneRecord, inner=form, rows=Within(1.0, 2.0**40))))


def asked(
    setting: Setting,
    question: Question,
    purpose: str = "index",
    divisors: tuple[str, ...] = (),
    limits_of: Mapping[str, float] | None = None,
) -> Conversation[Statistics]:
    """Ask a metric's question and return its total.

    Under differential privacy negative values of statistics that cannot be negative are taken as zero. So is
    a divisor of the metric, where it is below two standard deviations of its noise.

    Args:
        setting: what is agreed.
        question: the metric's.
        purpose: what the total is for.
        divisors: entries that the metric divides others by, such as the counts of clusters.
        limits_of: what the bounded form of the question has besides, such as a radius.

    Raises:
        PrivacyError: the question has no bound for the unit, or the budget is spent.
    """
    terms = setting.privacy
    if terms is None:
        return (yield Ask(question, purpose=purpose)).statistics
    limits, size, share = question.client_limits, 1.0, 1.0 - 1e-9
    if limits is None or terms.unit.of_rows:
        question = bounded = question.bounded(_radius(setting.domain), **(limits_of or {}))
        if terms.unit == Unit.CLIENT and isinstance(bounded, RecordBounded):
            share -= SIZES_SHARE
            size = yield from typical_size(question.ranges, SIZES_SHARE)
            question = AsOneRecord(ranges=question.ranges, inner=bounded, rows=size)
            limits = question.limits
    # The entries share the budget but for those that do not differ between neighbours, which are free.
    bounds = question.bounds.values() if isinstance(question, RecordBounded) and not terms.added else ()
    free, names = sum(not (one.stay or one.move) for one in bounds), _names(question)
    weights = dict.fromkeys(names, share / (len(names) - free))
    total = yield Ask(question, purpose=purpose, weights=weights, limits=limits)
    noise, found = total.noise_std or {}, dict(total.statistics)
    signed = {entry.name for entry in question.spec.entries if np.min(np.asarray(entry.low)) < 0.0}
    for name in set(weights) - signed:
        found[name] = np.where(
            found[name] >= (2.0 * noise[name] if name in divisors else 0.0), np.maximum(found[name], 0.0), 0.0
        )
    return Statistics(**{name: size * found[name] for name in weights})


def _radius(domain: Domain | None) -> float | None:
    return domain.radius if isinstance(domain, Ball) else None


def _names(question: Question) -> list[str]:
    return [entry.name for entry in question.spec.entries]
