"""Which cluster a client takes that has none: the nearest, that of a tree of splits, or the lowest loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.distances import distances_to
from privfed.deep.training.local import Training


def nearest(models: FloatArray, metric: str, update: Callable[[FloatArray], FloatArray]) -> int:
    """Return the cluster that a newcomer takes: the nearest to its update (equation 6 of DCFL).

    Args:
        models: of the clusters, float64 of shape (n_clusters, n_parameters).
        metric: how the update is compared, one of `METRICS`.
        update: trains a model of shape (n_parameters,), and returns how far it moves.
    """
    average = np.asarray(models.mean(axis=0))  # W_G, section II-B of DCFL.
    starts = np.broadcast_to(average, models.shape)
    return int(distances_to(starts, models, average, average + update(average), metric).argmin())


def descended(
    history: Sequence[FloatArray], parents: Sequence[int], update: Callable[[FloatArray], FloatArray]
) -> int:
    """Return the cluster that a newcomer takes by CFL's parameter tree (Sattler et al. 2021, section III-E).

    At each split, from the first cluster on, it trains the model that was split. It follows the half to whose
    mean update of that round its own is nearer, by the cosine. The paper compares it with the most similar
    member's update, which is not kept.

    Args:
        history: models at the start and after each round, float64 of shape (n_clusters, n_parameters) each.
        parents: cluster that each one was split from; -1 for the first.
        update: trains a model of shape (n_parameters,), and returns how far it moves.
    """
    found = 0
    for before, after in pairwise(history):
        halves = [found, *(new for new in range(len(before), len(after)) if parents[new] == found)]
        if len(halves) > 1:
            start = before[found]
            starts, ends = np.broadcast_to(start, after[halves].shape), after[halves]
            near = distances_to(starts, ends, start, start + update(start), "cosine")
            found = halves[int(near.argmin())]
    return found


def cheapest(training: Training, models: FloatArray, client: ClientData) -> int:
    """Return the model of the lowest mean loss on a client's rows (IFCA); 0 for a client without rows."""
    trainer = training.trainer(client.n_features)
    features, labels = training.rows_of(client)
    if not len(features):
        return 0
    losses = [float(trainer.losses(model, features, labels).mean()) for model in models]
    return int(np.nan_to_num(losses, nan=np.inf).argmin())
