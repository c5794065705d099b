"""A summary of all rows: how many there are, each feature's mean, variance and range, and histograms.

Without privacy two or three sums find ranges and moments (`privfed.questions.moments`); with it, several
noised ones (`privfed.algorithms.private.moments`). Histograms are one sum more, at unit "client" two. Under
differential privacy they have half of the budget, the same share for each feature.

Reveals to whoever opens the totals: what the moments' sums show, and how many rows of all clients lie in
each bin; under differential privacy both with noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.clients import MOST_ROWS
from privfed.algorithms.private.moments import PrivateMoments
from privfed.core.asking.phases import Form, Phase, Phases
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.guarantee import Unit
from privfed.questions.bounded.whole_clients import AsOneRecord
from privfed.questions.client_sizes import SIZE_SHARE, ClientSizes, typical_size
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.moments import FeatureMoments, Moments

HISTOGRAM_SHARE = 0.5
"""Share of the budget for the histograms."""


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """Histograms of the features.

    Args:
        edges: of each feature's bins, float64 of shape (n_features, n_edges).
        counts: rows below the edges, in each bin and above, float64 of shape (n_features, n_edges + 1).
        noise_std: standard deviation of the noise in a count, in rows; 0 without differential privacy.
    """

    edges: FloatArray
    counts: FloatArray
    noise_std: float


@dataclass(frozen=True, eq=False)
class FeatureSummary:
    """The algorithm that summarizes all rows.

    Args:
        n_bins: bins of equal width of each feature's histogram; 0 for none, or with `edges`.
        edges: of the bins, float64 of shape (n_features, n_edges), or None.
    """

    fixed: ClassVar[bool] = False

    n_bins: int = 0
    edges: FloatArray | None = None

    @property
    def counts(self) -> bool:
        """Whether histograms are asked for."""
        return self.n_bins > 0 or self.edges is not None

    @property
    def max_sums(self) -> int:
        """Those of the moments, and two for histograms."""
        return PrivateMoments().max_sums + 2

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the moments, then histograms."""
        if setting.privacy is None:
            moments = FeatureMoments().phases(setting)
        else:
            moments = PrivateMoments().phases(setting)
        if not self.counts:
            return moments
        form = Form(FeatureHistograms, n_bins=self.n_bins, edges=self.edges)
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            return (*moments, Phase(form))
        shares = Form(AsOneRecord, inner=form, rows=MOST_ROWS)
        return (*moments, Phase(Form(ClientSizes)), Phase(shares))

    def run(self, setting: Setting) -> Conversation[tuple[Moments, Histograms | None]]:
        """Find the moments, then the histograms."""
        if setting.privacy is None:
            moments = yield from FeatureMoments().run(setting)
        else:
            share = 1.0 - HISTOGRAM_SHARE if self.counts else 1.0
            moments = yield from _for_a_share(PrivateMoments().run(setting), share)
        histograms = (yield from self._histograms(setting, moments.ranges)) if self.counts else None
        return moments, histograms

    def _histograms(self, setting: Setting, ranges: Ranges) -> Conversation[Histograms]:
        question = FeatureHistograms(ranges=ranges, n_bins=self.n_bins, edges=self.edges)
        ask, size = Ask(question, purpose="histogram"), 1.0
        if setting.privacy is not None:
            share = HISTOGRAM_SHARE * (1.0 - 1e-9)
            if setting.privacy.unit == Unit.CLIENT:
                share -= SIZE_SHARE
                size = yield from typical_size(ranges, SIZE_SHARE)
                shares = AsOneRecord(ranges=ranges, inner=question, rows=size)
                ask = replace(ask, question=shares, limits=shares.limits)
            ask = replace(ask, weights=dict.fromkeys(question.names, share / len(question.names)))
        total = yield ask
        # Noise may make a count negative.
        counts = np.stack([np.maximum(total.statistics[name], 0.0) for name in question.names])
        noise = size * max((total.noise_std or {"": 0.0}).values())
        return Histograms(question.all_edges, size * counts, noise)


def _for_a_share(conversation: Conversation[Moments], share: float) -> Conversation[Moments]:
    """Run a conversation whose weights refer to a share of the budget."""
    ask = next(conversation)
    while True:
        weights = {name: weight * share for name, weight in (ask.weights or {}).items()}
        total = yield replace(ask, weights=weights)
        try:
            ask = conversation.send(total)
        except StopIteration as finished:
            moments: Moments = finished.value
            return moments
