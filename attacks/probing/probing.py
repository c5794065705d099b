"""Recovers clients' rows one by one, as a server that chooses the centroids it asks about.

With counts and sums, each slab of several rows is cut at its own mean, which always separates them; with k
centroids a question cuts k/2 slabs, until each row is alone in its slab. With counts only, borders close in
on each row by bisection, along every axis and along directions that show which coordinates belong together.
Under differential privacy the same cuts are made on noised answers, for as long as the clients' budgets last.
docs/attacks/probing.md has equations and figures.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privfed.algorithms.wf_kmeans import WeightedKMeans
from privfed.attacks.base.interface import ActiveAttack
from privfed.attacks.base.oracle import Oracle
from privfed.attacks.base.preparation import Prior
from privfed.attacks.base.results import NotRun, Points
from privfed.attacks.probing.probed_sums import CLOSEST, CumulativeProfile, ProbedSums, Slabs, joined, pairs
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError, PolicyError, PrivacyError, ProtocolError

PATIENCE = 8
"""Number of consecutive questions that separate no rows after which the attack gives up."""

MIX = 0.6180339887498949
"""Factor of the other axis in the directions that show which coordinates belong together."""

APART = 1e-3
"""Smallest distance between borders in one bisecting question, relative to the width (float64 rounding)."""

REFUSED = (PolicyError, PrivacyError, ProtocolError)
"""Errors that end the questions; the attack then uses what it has learned."""


class Probing(ActiveAttack[Points]):
    """Separates the rows of one client, or of all behind a secure sum, with chosen centroids.

    Args:
        n_clusters: number of centroids in a question.
        client: position of the target; None attacks all clients together.
        inconsistent: ask the target the question and all others a decoy that puts their rows in one
            cluster. Against a secure sum, the total then shows the target's answer.
        counts_only: read counts only, as if sums or centroids were hidden.
        precision: for `counts_only`, width of the last slabs, relative to the ranges.
    """

    name: ClassVar[str] = "probing"
    paper: ClassVar[str] = "own; inconsistent questions after Pasquini et al., arXiv:2111.07380"
    adversary: ClassVar[str] = "active server, with one broadcast or with inconsistent broadcasts"
    view: ClassVar[str] = "answers to its own questions: a client's, or totals"
    prior: ClassVar[str] = "none; ranges where clients insist on declared ones"
    defence: ClassVar[str] = (
        "differential privacy; groups of rows, whose means it finds instead; masks bound to the question "
        "stop inconsistent broadcasts only"
    )

    def __init__(
        self,
        n_clusters: int = 10,
        client: int | None = None,
        *,
        inconsistent: bool = False,
        counts_only: bool = False,
        precision: float = 1e-6,
    ) -> None:
        check_whole("n_clusters", n_clusters, 2)
        if inconsistent and client is None:
            raise ArgumentError("inconsistent questions need a target: pass client=, its position.")
        self.n_clusters, self.client, self.inconsistent = n_clusters, client, inconsistent
        self.counts_only, self.precision = counts_only, precision

    def program(self, budget: int) -> WeightedKMeans:
        """Return Lloyd steps about as many centroids; a program says nothing of where these lie."""
        words: dict[str, Any] = {"init": "random", "max_iter": budget, "tol": 0.0}
        return WeightedKMeans(n_clusters=self.n_clusters, local_iter=1, **words)

    def _attack(self, oracle: Oracle, prior: Prior, rng: np.random.Generator) -> Points | NotRun:
        points = np.empty((0, oracle.n_features))
        try:
            asks = (self.n_clusters, self.client, self.inconsistent)
            probe = _Probe(self, ProbedSums(oracle, prior, *asks))
            points = probe.by_counts() if self.counts_only else probe.by_sums(rng)
        except REFUSED as error:
            # If nothing was asked, clients or their protocol refused before anything could be learned.
            if not oracle.asked:
                return NotRun(attack=self.name, why=str(error).removesuffix("."))
        return Points(
            attack=self.name,
            queries=oracle.asked,
            points=points,
            client=self.client,
            without_access=prior.guesses(max(len(points), 1), rng),
        )


class _Probe:
    """Runs the attack once, from the number and sum of the target's rows that `answer` has found."""

    def __init__(self, attack: Probing, answer: ProbedSums) -> None:
        self._attack, self._answer = attack, answer
        self._most = (attack.n_clusters + 1) // 2
        self._center = answer.center

    def _profile(self, direction: FloatArray, n_columns: int) -> CumulativeProfile:
        reach = float(np.abs(direction) @ self._answer.ranges.width) / 2
        n_rows, total = self._answer.n_rows, self._answer.sum
        return CumulativeProfile(-reach, reach, n_rows, (total - n_rows * self._center)[:n_columns])

    def _learn(
        self, profile: CumulativeProfile, direction: FloatArray, targets: FloatArray, n_columns: int
    ) -> None:
        places = pairs(targets, profile.width, self._attack.n_clusters)
        n_places = len(places)
        # Spare centroids are put so far away that no row is nearest to them; of equal ones any might be.
        spare = np.full(self._attack.n_clusters - n_places, places[-1] + 4 * profile.width)
        along = np.concatenate([places, spare])
        counts, sums = self._answer(self._center + along[:, None] * direction)
        counts, sums = counts[:n_places], sums[:n_places]
        profile.learn(places, counts, (sums - counts[:, None] * self._center)[:, :n_columns])

    def by_sums(self, rng: np.random.Generator) -> FloatArray:
        """Cut slabs of several rows at their means until each row is alone in its slab."""
        direction = rng.standard_normal(len(self._center))
        direction /= np.linalg.norm(direction)
        profile = self._profile(direction, len(direction))
        n_held = idle = 0
        while idle < PATIENCE:
            targets = chosen_means(profile, direction, self._most, rng)
            if not targets.size:
                break
            try:
                self._learn(profile, direction, targets, len(direction))
            except REFUSED:
                break
            held = int((profile.slabs().counts > 0).sum())
            idle = 0 if held > n_held else idle + 1
            n_held = held
        slabs = profile.slabs()
        single = (slabs.counts == 1) | _together(slabs, direction, profile.width)
        repeats = slabs.counts[single].astype(np.intp)
        points: FloatArray = np.repeat(
            self._center + slabs.sums[single] / np.maximum(repeats, 1)[:, None], repeats, axis=0
        )
        return self._answer.ranges.clip(points) if self._answer.noised else points

    def by_counts(self) -> FloatArray:
        """Locate each row by bisection along every axis, and along axis 0 plus `MIX` times each other one."""
        d = len(self._center)
        axes = [self._bisected(np.eye(d)[j]) for j in range(d)]
        mixed = [self._bisected(np.eye(d)[0] + MIX * np.eye(d)[j]) for j in range(1, d)]
        if any(values is None for values in (*axes, *mixed)):
            return np.empty((0, d))
        found = [values for values in axes if values is not None]
        mixtures = [values for values in mixed if values is not None]
        if len({len(values) for values in (*found, *mixtures)}) > 1:
            # Under noise the directions may show different numbers of rows, which cannot be joined.
            return np.empty((0, d))
        widths = self._attack.precision * float(self._answer.ranges.width.max()) * (1 + MIX) * 2
        return self._center + joined(found, mixtures, MIX, widths)

    def _bisected(self, direction: FloatArray) -> FloatArray | None:
        """Return each row's product with a direction, (n_rows,), ascending; None if the budget ran out."""
        length = float(np.linalg.norm(direction))
        direction = direction / length
        profile = self._profile(direction, 0)
        width = self._attack.precision * profile.width
        while (targets := wide_middles(profile, self._most, width)).size:
            try:
                self._learn(profile, direction, targets, 0)
            except REFUSED:
                return None
        slabs = profile.slabs()
        held = slabs.counts > 0
        middles = length * (slabs.borders[:-1] + slabs.borders[1:]) / 2
        return np.repeat(middles[held], slabs.counts[held].astype(np.intp))


def _together(slabs: Slabs, direction: FloatArray, width: float) -> npt.NDArray[np.bool_]:
    """Say which slabs hold rows that no border can separate, as their mean lies on one of their borders."""
    means = slabs.sums @ direction / np.maximum(slabs.counts, 1)
    near = np.minimum(np.abs(means - slabs.borders[:-1]), np.abs(means - slabs.borders[1:]))
    return np.asarray((slabs.counts >= 2) & (near < CLOSEST * width))


def chosen_means(
    profile: CumulativeProfile, direction: FloatArray, most: int, rng: np.random.Generator
) -> FloatArray:
    """Return where slabs are cut next, ascending: at their means, and at further places while these are few.

    Args:
        profile: what is known; its sums have all features.
        direction: direction of the profile, (n_features,).
        most: most places.
        rng: draws which slabs come first.
    """
    slabs = profile.slabs()
    full = np.flatnonzero((slabs.counts >= 2) & ~_together(slabs, direction, profile.width))
    means = slabs.sums[full] @ direction / slabs.counts[full]
    below, above = slabs.borders[full], slabs.borders[full + 1]
    # A mean lies outside its slab only because of noise.
    means = np.where((means > below) & (means < above), means, (below + above) / 2)
    # The fullest slabs come first; while there are few, points halfway from mean to border are added.
    order = np.argsort(-slabs.counts[full], kind="stable")
    halves = np.column_stack([means + below, means + above])[order] / 2
    return np.unique(np.concatenate([means[order], halves.ravel()])[:most])


def wide_middles(profile: CumulativeProfile, most: int, width: float) -> FloatArray:
    """Return the middles of the widest slabs that hold rows, ascending and far enough apart to resolve."""
    slabs = profile.slabs()
    widths = np.diff(slabs.borders)
    wide = np.flatnonzero((slabs.counts > 0) & (widths > width))
    kept: list[float] = []
    for slab in wide[np.argsort(-widths[wide], kind="stable")]:
        middle = float(slabs.borders[slab] + slabs.borders[slab + 1]) / 2
        if len(kept) < most and all(abs(middle - one) > APART * profile.width for one in kept):
            kept.append(middle)
    return np.sort(kept)
