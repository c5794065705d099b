"""A question whose answers contain the client's share of the noise.

The client draws its share from its operating system's generator when it answers, and nobody else knows it.
The share is discrete Gaussian or Skellam on the integer grid of the answer. So what leaves the client is
already noised, whatever secure sum it enters. Answers are exact only where the server adds noise to a sum
that it cannot read (`privfed.privacy.pricing`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import ERRORS, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.computed import Computed
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism
from privfed.core.values.numbers import check_bound
from privfed.errors import ArgumentError
from privfed.privacy.bounds import RecordBounded, shortened, step_of
from privfed.privacy.contributions import beyond, most_squared
from privfed.privacy.rejection import Integers, RandomBits
from privfed.privacy.sampler import (
    MOST_SIGMA,
    SMALLEST_SIGMA,
    SecureBits,
    discrete_gaussian,
    noise_source,
)
from privfed.privacy.skellam import LEAST_VARIANCE, MOST_VARIANCE, skellam

TAIL = 40.0
"""Standard deviations by which ranges are widened for noise; a draw beyond has probability < e^-790."""

MOST_STEPS = 2.0**52
"""Largest answer, in steps, for which float64 represents it and the sums of records in it exactly."""


def drawn_sigmas(mechanism: Mechanism) -> tuple[float, float]:
    """Return the least and the largest standard deviation that a mechanism's sampler draws, in steps."""
    if mechanism == Mechanism.SKELLAM:
        return LEAST_VARIANCE**0.5, MOST_VARIANCE**0.5
    return SMALLEST_SIGMA, MOST_SIGMA


class _Rewound(Computed[np.random.Generator]):
    """Clients' generators that can be reset to their state before they were first used."""

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators, self._before = generators, dict[int, Mapping[str, Any]]()

    def __len__(self) -> int:
        return len(self._generators)

    def item(self, place: int) -> np.random.Generator:
        """Return the generator of one client."""
        generator = self._generators[place]
        if place not in self._before:
            self._before[place] = generator.bit_generator.state
        return generator

    def rewind(self) -> None:
        """Reset all generators."""
        for place, state in self._before.items():
            self._generators[place].bit_generator.state = state


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Noised(Question):
    """Asks another question, and has each client add its share of the noise to its answer.

    Statistics: those of `inner`, as multiples of each entry's step. A client's answer is clipped to the
    ranges of `inner` (which never increases the distance of two answers) and, at unit "client", each entry
    to its limit in L2 norm; clipped values are not counted. A client without rows answers zeros plus its
    noise, whatever `inner` is, so that its answer does not show that it has none.

    Args:
        inner: the question without noise.
        sigma: sigma of one client's share for each entry of the specification, in steps and within
            `drawn_sigmas`, float64 of shape (n_entries,).
        limits: at unit "client", L2 limit of each entry, in [2^-450, 2^450], float64 of shape (n_entries,);
            at unit "record" of shape (0,).
        by_server: clients answer without noise; the server adds one draw of `sigma` to their sum.
        mechanism: distribution of the noise.
    """

    inner: Question
    sigma: FloatArray
    limits: FloatArray
    by_server: bool = False
    mechanism: Mechanism = Mechanism.GAUSSIAN

    def __post_init__(self) -> None:
        n_entries = len(self.inner.spec.entries)
        if isinstance(self.inner, Noised) or self.sigma.shape != (n_entries,):
            raise ArgumentError(f"noise needs one sigma for each of {n_entries} entries of a plain question.")
        if self.limits.shape not in ((0,), (n_entries,)):
            raise ArgumentError(f"limits must be one for each of {n_entries} entries, or none.")
        self._check_bounds()
        Mechanism.read("mechanism", self.mechanism)
        least, most = drawn_sigmas(self.mechanism)
        if not ((self.sigma >= least) & (self.sigma <= most)).all():
            raise ArgumentError(
                f"each sigma must lie in [{least:g}, {most:g}] steps to be drawn, got {self.sigma}."
            )
        ranges = (self.ranges.low, self.ranges.high, np.array([self.ranges.rows]))
        own = (self.inner.ranges.low, self.inner.ranges.high, np.array([self.inner.ranges.rows]))
        if not all(np.array_equal(a, b) for a, b in zip(ranges, own, strict=True)):
            raise ArgumentError("a noised question must have the ranges of its inner question.")
        if (self._far > MOST_STEPS).any():
            raise ArgumentError(
                f"answers of up to {self._far.max():.3g} steps are more than 2^52; declare a smaller "
                "max_rows, or spend more of the budget on this question.",
                parameters=["max_rows"],
            )

    def _check_bounds(self) -> None:
        """Check that float64 can compare lengths with the bounds of one record or one client."""
        for limit in self.limits.tolist():
            check_bound("each limit", limit)
        if self.limits.size and not ((self.inner.spec.low <= 0.0) & (self.inner.spec.high >= 0.0)).all():
            # Answers are clipped to their ranges after their length: ranges without zero could lengthen them.
            raise ArgumentError('with limits (unit "client"), a question\'s ranges must contain zero.')
        if isinstance(self.inner, RecordBounded):
            for name, bound in self.inner.bounds.items():
                check_bound(f"the bound of {name}", bound.l2)

    @property
    def declaration(self) -> Declaration | None:
        """An empty declaration, since noised values count nothing; None where `inner` declares nothing."""
        return self.inner.declaration and Declaration()

    @cached_property
    def steps(self) -> FloatArray:
        """Quantisation step of each entry, a power of two, float64 of shape (n_entries,)."""
        if self.limits.size:
            return np.array([step_of(float(limit)) for limit in self.limits])
        steps = [np.unique(entry.resolution) for entry in self.inner.spec.entries]
        if any(len(step) != 1 or np.frexp(step[0])[0] != 0.5 for step in steps):
            raise ArgumentError("a question that is noised needs one power-of-two step an entry.")
        return np.concatenate(steps)

    def _per_value(self, per_entry: FloatArray) -> FloatArray:
        return np.repeat(per_entry, [prod(entry.shape) for entry in self.inner.spec.entries])

    @cached_property
    def _flat_steps(self) -> FloatArray:
        return self._per_value(self.steps)

    @cached_property
    def shares(self) -> FloatArray:
        """Sigma of each value's noise in one client's answer, in steps, float64 of shape (spec.size,)."""
        return np.zeros(self.inner.spec.size) if self.by_server else self._per_value(self.sigma)

    @cached_property
    def noise_reach(self) -> FloatArray:
        """Largest change of each value of a total by the server's noise, float64 of shape (spec.size,)."""
        far = np.ceil(TAIL * self._per_value(self.sigma)) * self._flat_steps
        return far if self.by_server else np.zeros_like(far)

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest answer before noise, in steps."""
        spec = self.inner.spec
        low, high = spec.low, spec.high
        if self.limits.size:
            limits = self._per_value(self.limits)
            low, high = np.maximum(low, -limits), np.minimum(high, limits)
        return np.ceil(low / self._flat_steps), np.floor(high / self._flat_steps)

    @cached_property
    def _far(self) -> FloatArray:
        low, high = self._ends
        return np.maximum(np.abs(low), np.abs(high)) + TAIL * self._per_value(self.sigma)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The entries of `inner` on their grid, with ranges widened by the noise of an answer."""
        low, high = self._ends
        tail = np.ceil(TAIL * self.shares)
        lows = self.inner.spec.unflatten((low - tail) * self._flat_steps)
        highs = self.inner.spec.unflatten((high + tail) * self._flat_steps)
        return StatisticsSpec(
            *(
                Entry(entry.name, entry.shape, lows[entry.name], highs[entry.name], step)
                for entry, step in zip(self.inner.spec.entries, self.steps, strict=True)
            )
        )

    def noise_std(self, contributors: int) -> Mapping[str, float]:
        """Return entry -> standard deviation of the noise in a sum of that many answers."""
        stds = self.sigma * self.steps * np.sqrt(1 if self.by_server else contributors)
        return {entry.name: float(std) for entry, std in zip(self.inner.spec.entries, stds, strict=True)}

    @property
    def asks_all_clients(self) -> bool:
        """Without rows, too, a client answers noise."""
        return True

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass, each with its own noise unless the server adds it.

        Every client answers, even where the inner question fails for its rows (`_exact`).
        """
        exact = self._exact(clients, generators)
        if not self.by_server:
            exact = exact + self._noise(len(exact), generators)
        return [self.inner.spec.unflatten(vector) for vector in exact * self._flat_steps]

    def _exact(self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]) -> FloatArray:
        """Return the answers before noise, in steps, float64 of shape (n_clients, spec.size).

        A client whose answer fails answers zeros and logs the error locally: an error, a refusal or a
        warning would depend on its rows. At unit "client", zeros are within the limits like any other
        answer. At unit "record", zeros in the place of all rows may exceed the bound of one, so that only the
        rows for which a question fails add zero.
        """
        kept = _Rewound(generators)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return self._in_steps(clients, kept)
            except KeyboardInterrupt:
                raise
            except ERRORS:
                # Clients are asked again one by one, so that an error changes only that client's answer.
                kept.rewind()
                return np.concatenate([self._alone(*pair) for pair in zip(clients, kept, strict=True)])

    def _alone(self, client: ClientData, generator: np.random.Generator) -> FloatArray:
        try:
            return self._in_steps([client], [generator])
        except KeyboardInterrupt:
            raise
        except ERRORS as error:
            if isinstance(self.inner, RecordBounded) and not self.limits.size:
                return np.clip(self._without_failing(self.inner, client, generator, error), *self._ends)
            client.errors.append(error)
            return np.clip(np.zeros((1, self.inner.spec.size)), *self._ends)

    def _without_failing(
        self, inner: RecordBounded, client: ClientData, generator: np.random.Generator, error: BaseException
    ) -> FloatArray:
        """Return the sum of the answers of two halves of a client's rows, which adds up as rows do.

        A single row for which the question fails adds what every row adds (`Bound.fixed`), and else zero.
        """
        n, half = client.n_rows, client.n_rows // 2
        if n == 1:
            # The log has the first, since a question may fail for all rows.
            client.errors.extend([] if client.errors else [error])
            added = [(inner.bounds[entry.name], prod(entry.shape)) for entry in inner.spec.entries]
            fixed = np.concatenate([np.full(size, bound.l2 * bound.fixed) for bound, size in added])
            return np.asarray(fixed[None] / self._flat_steps)
        labels = client.labels
        parts = [
            replace(
                client,
                features=client.features[own],
                labels=None if labels is None else labels[own],
                cache={},
                stack=None,
            )
            for own in (slice(half), slice(half, n))
        ]
        return np.asarray(sum(self._alone(part, generator) for part in parts))

    def _in_steps(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> FloatArray:
        flat, everyone = np.zeros((len(clients), self.inner.spec.size)), clients
        full = [i for i, client in enumerate(clients) if client.n_rows]
        if len(full) < len(clients):
            # Clients without rows keep their zeros: means and nearest rows are undefined for them.
            clients, generators = [clients[i] for i in full], [generators[i] for i in full]
        answers = self.inner.answer_all(clients, generators) if full else ()
        for i, answer in zip(full, answers, strict=True):
            flat[i] = self.inner.spec.flatten(answer)
        # The secure sum would refuse NaN, and such a refusal would depend on the rows.
        flat = np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)
        exact = self._limited(flat, everyone) if self.limits.size else np.rint(flat / self._flat_steps)
        return np.clip(exact, *self._ends)

    def _limited(self, flat: FloatArray, clients: Sequence[ClientData]) -> FloatArray:
        """Return each entry clipped to its L2 limit and truncated toward zero, in steps.

        Each client is checked against its limits in whole steps, as `privfed.privacy.contributions` checks
        rows.
        """
        parts = np.split(
            flat, np.cumsum([prod(entry.shape) for entry in self.inner.spec.entries])[:-1], axis=1
        )
        within, limited = np.ones(len(flat), dtype=bool), []
        for part, limit, step in zip(parts, self.limits.tolist(), self.steps.tolist(), strict=True):
            limited.append(np.trunc(shortened(part, limit) / step))
            within &= np.square(limited[-1]).sum(axis=1) <= most_squared(limit, step)
        for i in np.flatnonzero(~within).tolist():
            clients[i].errors.append(beyond(self.inner, 1))
        return np.where(within[:, None], np.concatenate(limited, axis=1), 0.0)

    def draw(self, sigma: FloatArray, size: tuple[int, ...], source: RandomBits) -> Integers:
        """Draw noise of the question's mechanism, in steps, int64 of shape `size`.

        Args:
            sigma: sigma of each value, in steps; broadcasts to `size`.
            size: shape of the result.
            source: where the bits come from.
        """
        if self.mechanism == Mechanism.SKELLAM:
            return skellam(np.square(sigma), size, source)
        return discrete_gaussian(sigma, size, source)

    def _noise(self, n: int, generators: Sequence[np.random.Generator]) -> FloatArray:
        sigma = self._per_value(self.sigma)
        first = noise_source(generators[0]) if n else SecureBits()
        if isinstance(first, SecureBits):
            # One draw for all of them is many times faster.
            return self.draw(sigma, (n, len(sigma)), first).astype(np.float64)
        rows = [self.draw(sigma, (len(sigma),), noise_source(generators[i])) for i in range(n)]
        return np.stack(rows).astype(np.float64)
