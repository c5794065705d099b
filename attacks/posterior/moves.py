"""Moves of rows in chains, each of which leaves the posterior invariant.

"Anywhere": a slot's content is chosen by likelihood among its present content and draws from the prior
(iterated sampling importance resampling, Andrieu, Lee and Vihola 2018, section 3). "Nearby": a row is drawn
from its Gaussian posterior in the cells where it lies. "Apart": two rows take opposite steps, drawn in the
same way, as the sum of rows in a cell is often known much better than each row. The last two need a
Metropolis-Hastings step, because cell borders and clipping make the true posterior non-Gaussian.
"""

from __future__ import annotations

import numpy as np

from privfed.attacks.base.measures import IntArray
from privfed.attacks.posterior.chains import Chains
from privfed.attacks.posterior.evidence import BoolArray, Traces
from privfed.core.values.domain import FloatArray

_POOL, _DRAWS = 2000, 16
"""Number of draws from the prior that all moves of a run choose from, and how many each move looks at."""

Pair = tuple[FloatArray, FloatArray]


class Moves:
    """Moves the rows of chains.

    Args:
        chains: the chains.
    """

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._pool = chains.prior.draw(_POOL, chains.evidence.ranges, chains.rng)
        self._pooled = chains.evidence.traces(self._pool)

    def sweep(self) -> None:
        """Move every slot of every chain."""
        chains = self._chains
        for slot in chains.rng.permutation(chains.n_slots):
            chains.take_out(slot)
            self._anywhere(slot)
            self._nearby(slot)
            if chains.n_slots > 1:
                # A random other slot in each chain.
                step = 1 + chains.rng.integers(chains.n_slots - 1, size=len(chains.each))
                other = (slot + step) % chains.n_slots
                chains.take_out(other)
                self._apart(slot, other)
                chains.put_back(other)
            chains.put_back(slot)

    def _anywhere(self, slot: int) -> None:
        chains, rng = self._chains, self._chains.rng
        drawn = rng.integers(len(self._pool), size=(len(chains.each), _DRAWS))
        filled = rng.random(drawn.shape) < chains.share
        pooled = self._pooled
        of = chains.of.at((chains.each, slot))
        offered = chains.gain(pooled.cells[drawn], pooled.blocks[drawn], pooled.lengths[drawn])
        own = chains.gain(of.cells, of.blocks, of.lengths)
        gains = np.column_stack([np.where(filled, offered, 0.0), np.where(chains.held[:, slot], own, 0.0)])
        chosen = np.argmax(gains + rng.gumbel(size=gains.shape), axis=1)
        new, place = chosen < _DRAWS, np.minimum(chosen, _DRAWS - 1)
        pick = drawn[chains.each, place]
        chains.held[new, slot] = filled[chains.each, place][new]
        chains.set(slot, new, self._pool[pick], pooled.at(pick))

    def _nearby(self, slot: int) -> None:
        chains, prior = self._chains, self._chains.prior
        old, of = chains.rows[:, slot], chains.of.at((chains.each, slot))
        component = prior.components(old, chains.rng)
        there = self._posterior(of, component)
        new, inside = self._drawn(there)
        to = chains.evidence.traces(new)
        ratio = chains.gain(to.cells, to.blocks, to.lengths) - chains.gain(of.cells, of.blocks, of.lengths)
        ratio += prior.log_density(new, component) - prior.log_density(old, component)
        ratio += _log_normal(old @ prior.axes, self._posterior(to, component))
        ratio -= _log_normal(new @ prior.axes, there)
        # Only held rows move: the content of an empty slot has no likelihood and is drawn when it is filled.
        taken = inside & chains.held[:, slot] & (np.log(chains.rng.random(len(ratio))) < ratio)
        chains.set(slot, taken, new, to)

    def _drawn(self, there: Pair) -> tuple[FloatArray, BoolArray]:
        """Draw rows by means and deviations along the axes; return them clipped, and which lay in range."""
        ranges = self._chains.evidence.ranges
        steps = self._chains.rng.standard_normal(there[0].shape)
        rows = (there[0] + there[1] * steps) @ self._chains.prior.axes.T
        return ranges.clip(rows), np.asarray(((rows >= ranges.low) & (rows <= ranges.high)).all(axis=1))

    def _pull(self, of: Traces, towards: FloatArray, which: BoolArray | bool = True) -> Pair:
        """Return the precision of each row from its cells' sums, and precision times offset of the mean.

        Args:
            of: traces of one row for each chain; the rows are taken out.
            towards: point from which the mean is measured, (n_chains, n_features).
            which: cells that count, (n_chains, n_releases).
        """
        chains = self._chains
        scale = chains.evidence.weights[:, 1]
        # The sum shows only the direction of a clipped offset; its length is taken from the present row.
        slopes = chains.power * np.square(scale * of.shrink) * which
        wanted = of.origins - towards[:, None]
        wanted += chains.left(of.cells)[..., 1:] / (np.where(scale > 0.0, scale, 1.0) * of.shrink)[..., None]
        pull = np.einsum("ct,ctd->cd", slopes, wanted) @ chains.prior.axes
        return slopes.sum(axis=1)[:, None], pull

    def _posterior(self, of: Traces, component: IntArray) -> Pair:
        """Return means and deviations, along the axes, of rows in their cells, given all other rows."""
        prior = self._chains.prior
        precision, pull = self._pull(of, np.zeros((len(component), len(prior.variances))))
        precision = precision + 1.0 / prior.variances
        return (prior.means[component] / prior.variances + pull) / precision, precision**-0.5

    def _apart(self, one: int, two: IntArray) -> None:
        chains, prior, each = self._chains, self._chains.prior, self._chains.each
        old = chains.rows[:, one], chains.rows[each, two]
        of = chains.of.at((each, one)), chains.of.at((each, two))
        component = prior.components(old[0], chains.rng), prior.components(old[1], chains.rng)
        there = self._step(old, of, component)
        step = there[0] + there[1] * chains.rng.standard_normal(there[0].shape)
        new = np.stack([old[0] + step @ prior.axes.T, old[1] - step @ prior.axes.T])
        kept = chains.evidence.ranges.clip(new)
        inside = (new == kept).all(axis=(0, 2)) & chains.held[:, one] & chains.held[each, two]
        both = chains.evidence.traces(kept)
        to = both.at(0), both.at(1)
        ratio = self._pair_gain(*to) - self._pair_gain(*of)
        for a, b, own in zip(old, kept, component, strict=True):
            ratio += prior.log_density(b, own) - prior.log_density(a, own)
        back = self._step((kept[0], kept[1]), to, component)
        ratio += _log_normal(-step, back) - _log_normal(step, there)
        taken = inside & (np.log(chains.rng.random(len(ratio))) < ratio)
        chains.set(one, taken, kept[0], to[0])
        chains.set(two, taken, kept[1], to[1])

    def _pair_gain(self, a: Traces, b: Traces) -> FloatArray:
        """Return the joint gain of two rows; in a cell that both are in, only their sum counts."""
        chains = self._chains
        common = np.einsum("ct,ctd,ctd->c", a.cells == b.cells, a.blocks, b.blocks)
        common += np.einsum("ct,ct->c", a.lengths, b.lengths)
        alone = [chains.gain(of.cells, of.blocks, of.lengths) for of in (a, b)]
        return np.asarray(alone[0] + alone[1] - chains.power * common)

    def _step(self, rows: Pair, of: tuple[Traces, Traces], component: tuple[IntArray, IntArray]) -> Pair:
        """Return means and deviations, along the axes, of the first row's step; the second's is opposite."""
        prior = self._chains.prior
        differ = of[0].cells != of[1].cells
        precision = np.full(rows[0].shape, 2.0) / prior.variances
        total = np.zeros_like(precision)
        for row, one, own, sign in zip(rows, of, component, (1.0, -1.0), strict=True):
            sharp, pull = self._pull(one, row, differ)
            precision += sharp
            total += sign * (pull + (prior.means[own] - row @ prior.axes) / prior.variances)
        return total / precision, precision**-0.5


def _log_normal(values: FloatArray, there: Pair) -> FloatArray:
    """Return log-densities of Gaussians of given means and deviations, up to a constant, (n,)."""
    return np.asarray((-0.5 * np.square((values - there[0]) / there[1]) - np.log(there[1])).sum(axis=1))
