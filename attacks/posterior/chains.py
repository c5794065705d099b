"""Markov chains over sets of rows that could be behind noised sums, and the residuals that they leave.

A chain has slots, each of which holds a row or is empty. Let r be the residual of the sums that its rows do
not explain, in units of the noise. The log-likelihood of the chain is -|r|^2 / 2; adding a row at x changes
it by f(x)' r - |f(x)|^2 / 2 (a matched filter). The likelihood is raised to a power that grows from almost
zero to 1; on the way, chains that explain too little are replaced by copies of others of their family
(annealed importance sampling with resampling, Del Moral, Doucet and Jasra 2006). Families never mix, so
their agreement is evidence.
"""

from __future__ import annotations

import numpy as np

from privfed.attacks.base.measures import IntArray
from privfed.attacks.posterior.evidence import BoolArray, NoisyEvidence, Traces
from privfed.attacks.posterior.prior import RowPrior
from privfed.core.values.domain import FloatArray

Slots = int | IntArray
"""A slot for all chains, or one slot for each chain, (n_chains,)."""


class Chains:
    """Holds chains of sets of rows, which are all moved at once.

    Args:
        evidence: what was seen.
        prior: prior distribution of a row.
        n_slots: most rows of a chain.
        share: prior probability that a slot holds a row.
        shape: number of families, and of chains in each.
        rng: generator of all draws.

    Attributes:
        rows: float64 of shape (n_chains, n_slots, n_features).
        held: whether a slot holds a row, bool of shape (n_chains, n_slots).
        of: the traces of the rows in the sums.
        power: power of the likelihood, in [0, 1].
        each: indices of the chains, (n_chains,).
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
        """Add a slot's rows back to the residual, so that its moves are judged on what the others leave."""
        self._add(slots, 1.0)

    def put_back(self, slots: Slots) -> None:
        """Subtract a slot's rows from the residual again."""
        self._add(slots, -1.0)

    def _add(self, slots: Slots, sign: float) -> None:
        of, signs = self.of.at((self.each, slots)), sign * self.held[self.each, slots]
        self._blocks[self.each[:, None], of.cells] += signs[:, None, None] * of.blocks
        self._lengths += signs[:, None] * of.lengths

    def left(self, cells: IntArray) -> FloatArray:
        """Return the residual in cells, (n_chains, ..., 1 + n_features) for cells of (n_chains, ...)."""
        return self._blocks[self.each.reshape((-1,) + (1,) * (cells.ndim - 1)), cells]

    def gain(self, cells: IntArray, blocks: FloatArray, lengths: FloatArray) -> FloatArray:
        """Return how much rows would add to the tempered log-likelihood.

        Args:
            cells: as in `Traces`, with chains as the first axis; so are the others.
            blocks: what the rows add in these cells.
            lengths: what the rows add to the sums of distances.
        """
        found = np.einsum("...td,...td->...", blocks, self.left(cells) - 0.5 * blocks)
        left = self._lengths.reshape(self._lengths.shape[:1] + (1,) * (cells.ndim - 2) + (-1,))
        found += np.einsum("...t,...t->...", lengths, left - 0.5 * lengths)
        return np.asarray(self.power * found)

    def set(self, slots: Slots, chosen: BoolArray, rows: FloatArray, of: Traces) -> None:
        """Replace rows in the chosen chains, while their slots are taken out.

        Args:
            slots: the slots.
            chosen: whether a chain's row is replaced, bool of shape (n_chains,).
            rows: new rows of all chains, (n_chains, n_features).
            of: traces of the new rows.
        """
        chains = np.flatnonzero(chosen)
        place = slots[chains] if isinstance(slots, np.ndarray) else slots
        self.rows[chains, place] = rows[chains]
        for kept, new in zip(self.of, of, strict=True):
            kept[chains, place] = new[chains]

    def misfit(self) -> FloatArray:
        """Return the mean squared residual of each chain, (n_chains,); about 1 if it explains the sums."""
        return self._squares() / self.evidence.n_values

    def _squares(self) -> FloatArray:
        return np.asarray(np.square(self._blocks).sum(axis=(1, 2)) + np.square(self._lengths).sum(axis=1))

    def raise_to(self, power: float) -> None:
        """Raise the power, and resample each family whose chains' weights became uneven."""
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
