"""R-DPCFL: clusters from the first round's updates and then from clients' choices (baseline under DP-SGD).

Malekmohammadi, Taik, Farnadi: Differentially Private Clustered Federated Learning, TMLR 2025, openreview
JSsko0a4yr. In the first round all clients train one model, by batches of all their rows, whose noise is least
against what they learn. Their updates are clustered by a mixture of Gaussians
(`privfed.deep.algorithms.gaussians`). The more these overlap, the shorter they are followed: in the rounds up
to (1 - overlap) T / 2 each client draws its cluster by its chances. In the next rounds, a tenth of all, each
chooses the model that gets most of its rows right, under noise; afterwards it keeps its cluster.

Read from the paper's abstract and the authors' public code; where these are silent, or we differ:

- A cluster's first model is the mean of what all clients trained to in the first round, weighted by their
  chances in it (the code takes one client's model for all clusters).
- Principal components are those of the updates as they are; the code scales each parameter to find them, and
  then applies them to updates that are not scaled.
- A choice is by counts of right rows with Gaussian noise, which composes with the steps of DP-SGD; theirs by
  accuracies with Gumbel noise, scaled by a client's number of rows, which would have to be public.
- A client that was not in the first round draws with equal chances until it chooses. One that comes after the
  choices joins the nearest cluster, as in DCFL.

Reveals to whoever opens the totals: in the first round every client's update, over slots not whose; then the
sum of updates in each cluster and how many clients they are of. To clients: the models, and the mixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Form, Phases, Shape
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.deep.algorithms.gaussians import MOST_CLUSTERS, fitted_mixture, overlap, shares
from privfed.deep.algorithms.phases import RoundForms
from privfed.deep.algorithms.plan import ModelsOutcome, Plan, Regrouped
from privfed.deep.algorithms.regrouped import contributions
from privfed.deep.training.mixed import PLANE, MixedUpdates, Mixture
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import SketchedUpdates
from privfed.errors import DataError
from privfed.questions.gathered import Slots

METRIC = "complete"
"""How one that comes late is compared with clusters."""


@dataclass(frozen=True, kw_only=True)
class MixtureLearning:
    """Rounds of training in clusters that the first round's updates and clients' choices make.

    Args:
        plan: words of the run.
        n_clusters: number of models; None for the number whose Gaussians are farthest apart.
        choosing_rounds: rounds in which clients choose.
        slotted: whether the first round's updates come in slots, so that nobody knows whose they are.
    """

    fixed: ClassVar[bool] = False

    plan: Plan
    n_clusters: int | None
    choosing_rounds: int
    slotted: bool

    @property
    def max_sums(self) -> int:
        """Most sums: the range, and one a round."""
        return 1 + self.plan.rounds

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return self.plan.size(setting, self.n_clusters or 1)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges where none are declared, updates, then averages."""
        forms = RoundForms(self.plan, setting)
        size = self.plan.trainer(setting.n_features).n_parameters
        slots = len(setting.clients) * self.slotted
        first = forms.first_updates(METRIC, size, self.plan.seed % 2**32, slots)
        count = (1, MOST_CLUSTERS) if self.n_clusters is None else self.n_clusters
        mixture = Form(
            Mixture,
            axes=Shape(PLANE, size),
            low=Shape(PLANE),
            width=Shape(PLANE),
            means=Shape(count, PLANE),
            variances=Shape(count),
        )
        later = (forms.mixed(t, METRIC, Shape(count, size), mixture) for t in range(2, self.plan.rounds + 1))
        return (*forms.found, first, *later)

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        ranges = yield from self.plan.ranges(setting)
        start = self.plan.starts(setting.n_features, 1)
        updates = yield from self._first(setting, ranges, start)
        mixture = fitted_mixture(updates, self.n_clusters, self.plan.seed)
        models = frozen_array(start + shares(mixture, updates))
        drawn = int((1.0 - overlap(mixture.means, mixture.variances)) * self.plan.rounds / 2.0)
        history, decided = [start, models], [Regrouped(1, len(models), np.nan, True)]
        for number, choice in self._rounds(drawn):
            question = self._question(ranges, models, number, choice, mixture)
            total = yield Ask(question, self.plan.label(number), (self.plan.label(number + 1),))
            models = frozen_array(question.averaged(total.statistics, models))
            history.append(models)
            decided.append(Regrouped(number, len(models), np.nan, choice != "kept"))
        return ModelsOutcome(models, tuple(history), tuple(decided), structure=1)

    def _rounds(self, drawn: int) -> Iterator[tuple[int, str]]:
        """Yield the rounds after the first, and how clients find their cluster in each."""
        for number in range(2, self.plan.rounds + 1):
            chosen = number <= drawn + self.choosing_rounds
            yield number, "drawn" if number <= drawn else "most-right" if chosen else "kept"

    def _first(self, setting: Setting, ranges: Ranges, start: FloatArray) -> Conversation[FloatArray]:
        """Ask for the first round's updates, float64 of shape (n, n_parameters)."""
        question = SketchedUpdates(
            ranges=ranges,
            training=self.plan.training(1),
            models=start,
            structure=0,
            choice="kept",
            metric=METRIC,
            numbered=True,
            before=Regrouping.none(),
            size=start.shape[1],
            seed=self.plan.seed % 2**32,
        )
        slots = Slots(ranges=ranges, inner=question, slots=len(setting.clients)) if self.slotted else None
        asked = question if slots is None else slots
        total = yield Ask(asked, self.plan.label(1), (self.plan.label(2),), "sketches")
        updates = [one["sketch"] for one in contributions(slots, total, False)]
        least = max(3, self.n_clusters or 0)
        if len(updates) < least:
            raise DataError(
                f"{len(updates)} clients in the first round are too few for clusters: at least {least}."
            )
        return np.stack(updates)

    def _question(
        self, ranges: Ranges, models: FloatArray, number: int, choice: str, mixture: Mixture
    ) -> MixedUpdates:
        none = Regrouping.none()
        return MixedUpdates(
            ranges=ranges,
            training=self.plan.training(number),
            models=models,
            structure=1,
            choice=choice,
            metric=METRIC,
            numbered=True,
            before=none,
            after=none,
            mixture=mixture,
        )
