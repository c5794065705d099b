"""Sets of rows that could be behind noised sums: chains of a Markov process, and what they leave unexplained.

A chain holds slots, each a row or empty. With r what its rows leave of the sums, in units of the noise, the
log-likelihood of the chain is -|r|^2 / 2; a row at x that is added gains f(x)' r - |f(x)|^2 / 2, the matched
filter. The likelihood is raised to a power that grows from next to nothing to 1; chains that then explain
too little give way to copies of others of their family (annealed importance sampling with resampling, Del
Moral, Doucet and Jasra 2006). Families stay apart: that they agree is evidence.
"""

from __future__ import annotations

import numpy as np

from privfed.attacks.base.measures import IntArray
from privfed.attacks.posterior.evidence import BoolArray, NoisyEvidence, Traces
from privfed.attacks.posterior.prior import RowPrior
from privfed.core.domain import FloatArray

Slots = int | IntArray
"""One slot, the same in all chains, or one of each chain, (n_chains,)."""


class Chains:
    """Chains of sets of rows, all moved at once.

    Args:
        evidence: what was seen.
        prior: of a row.
        n_slots: most rows.
        share: prior chance that a slot holds a row.
        shape: families, and chains in each.
        rng: of all draws.

    Attributes:
        rows: float64 of shape (n_chains, n_slots, n_features).
        held: whether a slot holds a row, bool of shape (n_chains, n_slots).
        of: the rows' traces.
        power: of the likelihood, in [0, 1].
        each: numbers of the chains, (n_chains,).
    """

    def __init__(
        self,
        evidence: NoisyEvidence,
        prior: RowPrior,
        n_slots: int,
        share: float,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> None:
        self.evidence, self.prior, self.share, self.rng, self.power = evidence, prior, share, rng, 0.0
        self._shape, n_chains = shape, shape[0] * shape[1]
        self.each = np.arange(n_chains)
        rows = prior.draw(n_chains * n_slots, evidence.ranges, rng)
        self.rows = rows.reshape(n_chains, n_slots, -1)
        self.held = rng.random((n_chains, n_slots)) < share
        self.of = evidence.traces(self.rows)
        self._blocks = np.repeat(evidence.blocks[None], n_chains, axis=0)
        self._lengths = np.repeat(evidence.lengths[None], n_chains, axis=0)
        for slot in range(n_slots):
            self.put_back(slot)

    @property
    def n_slots(self) -> int:
        """Most rows of a chain."""
        return int(self.held.shape[1])

    def take_out(self, slots: Slots) -> None:
        """Take a slot's rows out of what explains the sums: its moves are weighed on the rest."""
        self._add(slots, 1.0)

    def put_back(self, slots: Slots) -> None:
        """Let a slot's rows explain the sums again."""
        self._add(slots, -1.0)

    def _add(self, slots: Slots, sign: float) -> None:
        of, signs = self.of.at((self.each, slots)), sign * self.held[self.each, slots]
        self._blocks[self.each[:, None], of.cells] += signs[:, None, None] * of.blocks
        self._lengths += signs[:, None] * of.lengths

    def left(self, cells: IntArray) -> FloatArray:
        """Return what is unexplained in cells, (n_chains, ..., 1 + n_features) for (n_chains, ...)."""
        return self._blocks[self.each.reshape((-1,) + (1,) * (cells.ndim - 1)), cells]

    def gain(self, cells: IntArray, blocks: FloatArray, lengths: FloatArray) -> FloatArray:
        """Return what rows would add to the tempered log-likelihood; parts of `Traces`, chains first."""
        found = np.einsum("...td,...td->...", blocks, self.left(cells) - 0.5 * blocks)
        left = self._lengths.reshape(self._lengths.shape[:1] + (1,) * (cells.ndim - 2) + (-1,))
        found += np.einsum("...t,...t->...", lengths, left - 0.5 * lengths)
        return np.asarray(self.power * found)

    def set(self, slots: Slots, chosen: BoolArray, rows: FloatArray, of: Traces) -> None:
        """Replace the rows of the chosen chains; their slots are out.

        Args:
            slots: which.
            chosen: chains, (n_chains,).
            rows: new rows of all chains, (n_chains, n_features).
            of: their traces.
        """
        chains = np.flatnonzero(chosen)
        place = slots[chains] if isinstance(slots, np.ndarray) else slots
        self.rows[chains, place] = rows[chains]
        for kept, new in zip(self.of, of, strict=True):
            kept[chains, place] = new[chains]

    def misfit(self) -> FloatArray:
        """Return the mean square of what each chain leaves, (n_chains,): about 1 where it explains all."""
        return self._squares() / self.evidence.n_values

    def _squares(self) -> FloatArray:
        return np.asarray(np.square(self._blocks).sum(axis=(1, 2)) + np.square(self._lengths).sum(axis=1))

    def raise_to(self, power: float) -> None:
        """Raise the power, and draw each family anew by its chains' weights where these became uneven."""
        logs = (-0.5 * (power - self.power) * self._squares()).reshape(self._shape)
        self.power = power
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        families, size = self._shape
        places = (self.rng.random((families, 1)) + np.arange(size)) / size
        drawn = (np.cumsum(weights, axis=1)[:, None] < places[:, :, None]).sum(axis=2).clip(0, size - 1)
        uneven = np.square(weights).sum(axis=1, keepdims=True) * size > 2.0
        kept = (np.where(uneven, drawn, np.arange(size)) + size * np.arange(families)[:, None]).ravel()
        self.rows, self.held, self.of = self.rows[kept], self.held[kept], self.of.at(kept)
        self._blocks, self._lengths = self._blocks[kept], self._lengths[kept]
