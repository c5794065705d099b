"""Markov chains over sets of rows that could be behind noised sums, and the residuals that they leave.

A chain has slots, each of which holds a row or is empty. Let r be the residual of the sums that its rows do
not explain, in units of the noise. The log-likelihood of the chain is -|r|^2 / 2; adding a row at x changes
it by f(x)' r - |f(x)|^2 / 2 (a matched filter). The likelihood is raised to a power that grows from almost
zero to 1; on the way, chains that explain too little are replaced by copies of others of their family
(annealed importance sampling with resampling, Del Moral, Doucet and Jasra 2006). Families never mix, so
their agreement is evidence.

Moves of rows in chains, each of which leaves the posterior invariant.

"Anywhere": a slot's content is chosen by likelihood among its present content and draws from the prior
(iterated sampling importance resampling, Andrieu, Lee and Vihola 2018, section 3). "Nearby": a row is drawn
from its Gaussian posterior in the cells where it lies. "Apart": two rows take opposite steps, drawn in the
same way, as the sum of rows in a cell is often known much better than each row. The last two need a
Metropolis-Hastings step, because cell borders and clipping make the true posterior non-Gaussian.

A bound, under Gaussian differential privacy, on any attack that lists claimed rows.

Let x be one of the target's rows, drawn from a prior; the attacker may know all other rows. An attack makes
at most m claims. If x is not in the data (or replaced by another row), the claims do not depend on x, so
one of them is within the tolerance of x with probability at most

    kappa = the largest prior probability that m balls of that radius can cover.

As the run is mu-GDP, an event of probability kappa without x has at most probability Phi(Phi^-1(kappa) + mu)
with it (Dong, Roth and Su 2022). This is concave in kappa, so by Jensen's inequality it can be averaged over
x: the same bound holds for the expected share of rows that are claimed. For one claim it is the bound on
reconstruction robustness of Balle, Cherubin and Hayes 2022 (arXiv:2201.04845), definition 2, for a Gaussian
trade-off curve.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import norm

from privfed.attacks.base.report import IntArray
from privfed.attacks.posterior.evidence import BoolArray, NoisyEvidence, RowPrior, Traces
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


_MOST = 2000


def coverage(sample: FloatArray, n_claims: int, radius: float) -> float:
    """Bound the share of a sample that `n_claims` balls of the maximum norm can cover, in (0, 1].

    Among the rows that a ball covers, take the lowest in the first feature. All others lie at most two radii
    above it in that feature, and within two radii on either side in the others. So a box around that row
    covers the ball's rows. Boxes are chosen greedily; any n boxes cover at most as many rows as the greedy
    ones so far plus the n largest further gains (Nemhauser, Wolsey and Fisher 1978).

    Args:
        sample: rows of the prior, float64 of shape (n, n_features); thinned to at most 2,000.
        n_claims: number of balls.
        radius: radius of the balls.
    """
    rows = sample[:: max(1, -(-len(sample) // _MOST))]
    if not n_claims:
        return 1.0 / len(rows)
    covers = np.zeros((len(rows), len(rows)), dtype=np.bool_)
    for i, near in enumerate(cKDTree(rows).query_ball_point(rows, 2.0 * radius, p=np.inf)):
        covers[i, near] = rows[near, 0] >= rows[i, 0]
    gains, covered, best = covers.sum(axis=1), np.zeros(len(rows), dtype=np.bool_), len(rows)
    for _ in range(n_claims):
        best = min(best, int(covered.sum() + np.sort(gains)[-n_claims:].sum()))
        new = covers[np.argmax(gains)] & ~covered
        if not new.any():
            break
        covered |= new
        gains = gains - covers[:, new].sum(axis=1)
    return min(best, len(rows)) / len(rows)


def reconstruction_bound(kappa: float, mu: float) -> float:
    """Return the largest expected share of rows that an attack can claim: Phi(Phi^-1(kappa) + mu)."""
    return float(norm.cdf(norm.ppf(kappa) + mu))
