"""The rounds of R-DPCFL after the first: clients draw, choose or keep a cluster, and updates are averaged.

Malekmohammadi, Taik, Farnadi: Differentially Private Clustered Federated Learning, TMLR 2025. After the first
round the server describes clusters of updates by a mixture of Gaussians in the plane of their two principal
components. It describes them to all clients alike, and each client computes its own chances from the update
that it sent in the first round; so nobody has to know whose update is whose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import ClientData, Part, register
from privfed.core.values.domain import FloatArray
from privfed.deep.training.choosing import noised_choice
from privfed.deep.training.memory import Memory
from privfed.deep.training.rounds import AveragedUpdates
from privfed.errors import ArgumentError
from privfed.privacy.sampler import noise_source

PLANE = 2
"""Principal components that updates are compared in."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture(Part):
    """Round Gaussians of equal weights in a plane of updates.

    Args:
        axes: of the plane, float64 of shape (2, n_parameters).
        low: least coordinate of the first round's updates on each axis, float64 of shape (2,).
        width: the greatest less the least, positive, float64 of shape (2,).
        means: of the Gaussians in coordinates from 0 to 1, float64 of shape (n_clusters, 2).
        variances: of each coordinate, positive, float64 of shape (n_clusters,).
    """

    axes: FloatArray
    low: FloatArray
    width: FloatArray
    means: FloatArray
    variances: FloatArray

    def __post_init__(self) -> None:
        n = len(self.means)
        shapes = (
            self.axes.shape[:1],
            self.low.shape,
            self.width.shape,
            self.means.shape,
            self.variances.shape,
        )
        if self.axes.ndim != 2 or not n or shapes != ((PLANE,), (PLANE,), (PLANE,), (n, PLANE), (n,)):
            raise ArgumentError(f"a mixture's arrays do not fit together: {shapes}.")
        held = (self.axes, self.low, self.width, self.means, self.variances)
        if not all(np.isfinite(one).all() for one in held):
            raise ArgumentError("a mixture must be finite.")
        if not ((self.width > 0.0).all() and (self.variances > 0.0).all()):
            raise ArgumentError("widths and variances of a mixture must be positive.")

    @property
    def declaration(self) -> Declaration:
        """No centers of rows: of updates."""
        return Declaration()

    def chances(self, updates: FloatArray) -> FloatArray:
        """Return the chance of each cluster, float64 of shape (n, n_clusters).

        Args:
            updates: of the first round, float64 of shape (n, n_parameters).
        """
        points = (updates @ self.axes.T - self.low) / self.width
        apart = ((points[:, None, :] - self.means[None]) ** 2).sum(axis=2)
        logs = -0.5 * apart / self.variances - np.log(self.variances)
        logs -= logs.max(axis=1, keepdims=True)
        found: FloatArray = np.exp(logs)
        return np.asarray(found / found.sum(axis=1, keepdims=True))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MixedUpdates(AveragedUpdates):
    """Ask for the sums of updates in each cluster, where clients draw or choose their cluster.

    `choice` is "drawn": by its chances in the mixture, or with equal ones where it sent no update in the
    first round; "most-right": the model that gets most of its rows right (`privfed.deep.training.choosing`);
    or "kept": that of the round before.

    Args:
        mixture: of the first round's updates.
    """

    choices: ClassVar[tuple[str, ...]] = ("drawn", "most-right", "kept")
    mixture: Mixture

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.mixture.means) != len(self.models) or self.mixture.axes.shape[1] != self.models.shape[1]:
            raise ArgumentError(
                f"a mixture of {len(self.mixture.means)} clusters does not fit {len(self.models)} models."
            )
        if self.training.private and self.choice == "most-right" and not self.training.choice_noise:
            raise ArgumentError(
                "under DP-SGD a choice by rows needs choice_noise.", parameters=["choice_noise"]
            )

    def _own(self, client: ClientData, memory: Memory, generator: np.random.Generator) -> int:
        """Return a client's cluster in this round."""
        if len(self.models) == 1:
            return 0
        if self.choice == "drawn":
            return self._drawn(memory, generator)
        if self.choice == "most-right":
            return self._most_right(client, generator)
        return super()._own(client, memory, generator)

    def _drawn(self, memory: Memory, generator: np.random.Generator) -> int:
        chances = np.full(len(self.models), 1.0 / len(self.models))
        if memory.first is not None:
            chances = self.mixture.chances(memory.first[None])[0]
        found = int(np.searchsorted(np.cumsum(chances), generator.random(), side="right"))
        return min(found, len(self.models) - 1)

    def _most_right(self, client: ClientData, generator: np.random.Generator) -> int:
        training = self.training
        trainer = training.trainer(client.n_features)
        features, labels = training.rows_of(client)
        if training.private:
            bits = noise_source(generator)
            return noised_choice(trainer, self.models, features, labels, training.choice_noise, bits)
        right = [int((trainer.predict(one, features) == labels).sum()) for one in self.models]
        return int(np.argmax(right)) if len(features) else 0
