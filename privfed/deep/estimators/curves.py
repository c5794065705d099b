"""Accuracy of each client's own model over the rounds, on images that it was not trained on.

Scoring only: it reads what clients in this process know of their clusters, and nothing of it flows back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.deep.data.images import Images
from privfed.deep.data.scenario import Scenario
from privfed.deep.estimators.base import FederatedModel


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Accuracies of a run.

    Args:
        accuracy: of each client after each round, float64 of shape (rounds, n_clients); NaN where it was
            away.
    """

    accuracy: FloatArray

    @property
    def final(self) -> tuple[float, float]:
        """Mean and standard deviation over the clients after the last round (table I, "Final")."""
        last = self.accuracy[-1]
        return float(np.nanmean(last)), float(np.nanstd(last))

    @property
    def average(self) -> tuple[float, float]:
        """The same of each round, averaged over the rounds (table I, "Average")."""
        means, spreads = np.nanmean(self.accuracy, axis=1), np.nanstd(self.accuracy, axis=1)
        return float(means.mean()), float(spreads.mean())


def curves(model: FederatedModel, scenario: Scenario, tests: list[Images]) -> Curves:
    """Return how well each client's model does on its test images, turned as in each round."""
    accuracy = np.full((scenario.rounds, scenario.n_clients), np.nan)
    turned: dict[tuple[int, float], FloatArray] = {}
    for t, labels in enumerate(model.labels_history_):
        for client in np.flatnonzero(labels >= 0).tolist():
            angle = scenario.angle(client, t + 1)
            if (client, angle) not in turned:
                turned[client, angle] = tests[client].turned(angle)
            found = model.classify(model.history_[t + 1][labels[client]], turned[client, angle])
            accuracy[t, client] = (found == tests[client].labels).mean()
    return Curves(accuracy)
