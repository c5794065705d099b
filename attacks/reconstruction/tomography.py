"""Estimates a client's distribution from counts alone: how many of its rows lie in each round's cells.

Voronoi tomography: particles drawn from the public distribution are re-weighted until each cell has the
client's share of weight (iterative proportional fitting of the mean over rounds; equation in
docs/attacks/tomography.md). Sums of rows and the client's centroids are not used.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior, without_colluders
from privfed.attacks.base.reading import Reads
from privfed.attacks.base.report import IntArray
from privfed.attacks.base.results import Particles
from privfed.attacks.evidence.cells import Observation, evidence_of, read_in_cells
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError


class Tomography(PassiveAttack[Particles]):
    """Fits weighted particles to the counts of one client, or of totals.

    Args:
        client: position of the client whose answers are read; None reads totals.
        n_particles: number of particles drawn from the prior.
        n_iter: most re-weighting steps.
    """

    name: ClassVar[str] = "tomography"
    paper: ClassVar[str] = "own; expectation-maximisation of emission tomography, Shepp and Vardi 1982"
    adversary: ClassVar[str] = "passive server, or one that sends centroids of its choice"
    view: ClassVar[str] = "counts of each round: a client's own, or totals"
    prior: ClassVar[str] = "a public sample of the kind of data, or its box"
    defence: ClassVar[str] = "secure sums (only all clients' distribution is left); differential privacy"
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(self, client: int | None = None, *, n_particles: int = 4000, n_iter: int = 200) -> None:
        check_whole("n_particles", n_particles, 1)
        check_whole("n_iter", n_iter, 1)
        self.client, self.n_particles, self.n_iter = client, n_particles, n_iter

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Counts in cells."""
        whose = "all clients together" if self.client is None else f"client {self.client} alone"
        return read_in_cells(self.client, f"counts in cells, of {whose}")

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Particles:
        particles = prior.guesses(self.n_particles, rng)
        if particles is None:
            raise ArgumentError(
                "tomography starts from public knowledge: pass rows, Prior(sample=...), or their ranges, "
                "Prior(low=..., high=...)."
            )
        if prior.colluders:
            view = without_colluders(view, prior.colluders)
        observations = evidence_of(view, self.client).observations
        return Particles(
            attack=self.name,
            queries=len(observations),
            particles=particles,
            weights=fitted_weights(particles, observations, self.n_iter),
            client=self.client,
            without_access=particles,
        )


def fitted_weights(particles: FloatArray, observations: tuple[Observation, ...], n_iter: int) -> FloatArray:
    """Return weights under which each cell has the same share of the particles as of the rows.

    Each step multiplies a particle's weight by the mean, over the sums, of (rows' share / particles' share)
    in its cell, which never lowers the likelihood of the counts.

    Args:
        particles: float64 of shape (n_particles, n_features).
        observations: counts in cells.
        n_iter: most steps.

    Returns:
        float64 of shape (n_particles,), with sum 1.
    """
    weights = np.full(len(particles), 1.0 / len(particles))
    usable = [one for one in observations if np.maximum(one.counts, 0.0).sum() > 0]
    if not usable:
        return weights
    # Noise can make counts negative; these are read as zero.
    shares = [np.maximum(one.counts, 0.0) / np.maximum(one.counts, 0.0).sum() for one in usable]
    first = np.concatenate([[0], np.cumsum([len(share) for share in shares])])
    cells: IntArray = np.stack([one.cells.place(particles) for one in usable]) + first[:-1, None]
    wanted = np.concatenate(shares)
    for _ in range(n_iter):
        held = np.bincount(cells.ravel(), np.tile(weights, len(usable)), minlength=first[-1])
        ratio = np.divide(wanted, held, out=np.zeros_like(wanted), where=held > 0)
        factor = ratio[cells].mean(axis=0)
        weights = weights * factor
        weights /= weights.sum()
        if np.abs(factor[weights > 0] - 1.0).max() < 1e-6:
            break
    return weights
