"""How a client finds its cluster: after a new clustering, and where it has none.

A new cluster is learnt from landmarks, so that nobody has to know whose update is whose. After clients were
clustered by sketches of their updates, the server names some of these sketches and the cluster of each. A
client compares its own update with them and takes the cluster of the nearest. With the exemplars of affinity
propagation as landmarks that is the cluster that the server gave it; with all sketches of the round as
landmarks a client finds its own.

Reveals to every client of the next question: the landmarks, each a sketch of the update of one client, not
whose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.question import ClientData, Part, register
from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.distances import METRICS, Others, distances_to
from privfed.deep.clustering.sketch import SKETCHED, sketched
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
        models: of the clusters before, that updates started from, float64 of shape (n_before, n_parameters).
        landmarks: sketches of updates, float64 of shape (n_landmarks, size).
        origins: cluster before of each landmark, whole numbers, float64 of shape (n_landmarks,).
        labels: new cluster of each landmark, likewise.
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
            ("origins", self.origins, len(self.models)),
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
        """A projection of all models, where there are landmarks."""
        size = self.models.shape[1] * (self.landmarks.shape[1] if len(self.landmarks) else 0)
        return Effort(numbers=min(size, SKETCHED), work=size * (2 + len(self.models)))

    def apply(self, memory: Memory) -> None:
        """Have a client take its new cluster.

        One that did not train in the round keeps nothing: where its clustering is gone, it joins anew.
        """
        known = len(self.labels) and memory.structure == self.before and memory.round == self.round
        if not known or memory.update is None or memory.start is None:
            return
        shown = memory.update if memory.shown is None else memory.shown
        update, start = self._sketches(memory, shown, memory.start)
        end = start + update
        found = self._landmarks.distances(end, end - start, self.metric)
        memory.label, memory.structure = int(self.labels[int(found.argmin())]), self.before + 1
        memory.labels[self.round] = memory.label

    def _sketches(
        self, memory: Memory, update: FloatArray, start: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the sketches of a client's update, and of the model it started from."""
        size = self.landmarks.shape[1]
        if size >= len(start):
            return update, start
        own = memory.sketch
        if own is None or own[:2] != (size, self.seed):
            own = (size, self.seed, sketched(update[None], size, self.seed)[0])
        among = np.flatnonzero((self.models == start).all(axis=1))
        known = self._sketched_models[among[0]] if among.size else sketched(start[None], size, self.seed)[0]
        return own[2], known

    @cached_property
    def _sketched_models(self) -> FloatArray:
        """The sketches of the models, which take long: made once for all simulated clients."""
        return sketched(self.models, self.landmarks.shape[1], self.seed)

    @cached_property
    def _landmarks(self) -> Others:
        """What the landmarks stand for."""
        origins = self._sketched_models[self.origins.astype(np.intp)]
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
