"""How a client finds its cluster: after a new clustering, and where it has none.

A new cluster is learnt from landmarks, so that nobody has to know whose update is whose. Where the
server was sent whole updates without noise, landmarks are tags: a few numbers of each, among which a client
finds its own. Elsewhere the server names some of these sketches and the cluster of each, and a client
takes the cluster of the nearest. With the exemplars of affinity propagation that is the one that the server
gave it.

Reveals to every client of the next question: the landmarks, each a tag or a sketch of the update of one
client, not whose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.question import ClientData, Part, register
from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.distances import METRICS, Others, distances_to
from privfed.deep.clustering.sketch import SKETCHED, sketched, tags
from privfed.deep.training.local import Training
from privfed.deep.training.memory import Memory
from privfed.errors import ArgumentError


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Regrouping(Part):
    """The step from one clustering to the next; without landmarks none, as by default.

    Args:
        before: number of the clustering that clients leave.
        n_clusters: clusters afterwards; 0 for no step.
        round: in which their updates were compared.
        models: sketches of those that updates started from, float64 of shape (n_before, size); without any
            landmarks are tags.
        landmarks: tags or sketches of updates, float64 of shape (n_landmarks, size).
        origins: cluster before of each landmark, whole numbers, float64 of shape (n_landmarks,).
        labels: new cluster of each landmark, likewise.
        n_parameters: of a model.
        seed: of the projection, public.
        metric: how updates are compared.
    """

    before: int = -1
    n_clusters: int = 0
    round: int = 0
    models: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    landmarks: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    origins: FloatArray = field(default_factory=lambda: np.zeros(0))
    labels: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_parameters: int = 0
    seed: int = 0
    metric: str = "complete"

    def __post_init__(self) -> None:
        n = len(self.landmarks)
        if self.metric not in METRICS:
            raise ArgumentError(
                f"metric must be one of {METRICS}, got metric={self.metric!r}.", parameters=["metric"]
            )
        if self.landmarks.ndim != 2 or self.models.ndim != 2 or not 0 <= self.seed < 2**32:
            raise ArgumentError("landmarks and models must be tables, and the seed lie in [0, 2**32).")
        if self.origins.shape != (n,) or self.labels.shape != (n,):
            raise ArgumentError(f"{n} landmarks need an origin and a label each.")
        for name, values, most in (
            ("origins", self.origins, len(self.models) or math.inf),
            ("labels", self.labels, self.n_clusters),
        ):
            if not ((values == np.floor(values)) & (values >= 0) & (values < most)).all():
                raise ArgumentError(f"{name} of landmarks must be whole numbers in [0, {most}).")
        if not (np.isfinite(self.landmarks).all() and np.isfinite(self.models).all()):
            raise ArgumentError("landmarks and models must be finite.")

    @property
    def declaration(self) -> Declaration:
        """No centers of rows: models and updates."""
        return Declaration()

    def effort(self, n_features: int) -> Effort:
        """A projection of an update, where there are landmarks."""
        size = self.n_parameters * (self.landmarks.shape[1] if len(self.landmarks) else 0)
        return Effort(numbers=min(size, SKETCHED), work=2 * size)

    def apply(self, memory: Memory) -> None:
        """Have a client take its new cluster.

        One that did not train in the round keeps nothing: where its clustering is gone, it joins anew.
        """
        known = len(self.labels) and memory.structure == self.before and memory.round == self.round
        if not known or memory.update is None or len(memory.update) != self.n_parameters:
            return
        shown = memory.update if memory.shown is None else memory.shown
        if not len(self.models):
            apart = np.linalg.norm(self.landmarks - tags(shown[None], self.seed), axis=1)
            found = np.where(self.origins == memory.origin, apart, np.inf)
        else:
            own, size = memory.sketch, self.landmarks.shape[1]
            sent = own[2] if own is not None and own[:2] == (size, self.seed) else None
            start = self.models[min(memory.origin, len(self.models) - 1)]
            end = start + (sketched(shown[None], size, self.seed)[0] if sent is None else sent)
            found = self._landmarks.distances(end, end - start, self.metric)
        memory.label, memory.structure = int(self.labels[int(found.argmin())]), self.before + 1
        memory.labels[self.round] = memory.label

    @cached_property
    def _landmarks(self) -> Others:
        """What the landmarks stand for."""
        origins = self.models[self.origins.astype(np.intp)]
        return Others.of(origins, origins + self.landmarks)


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
