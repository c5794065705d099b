"""The cost of a noised question, as a share of the budget; and the server's noise, which is agreed on before.

Coordinator and clients compute a cost alike. The accounting treats every release as Gaussian
(docs/privacy/accounting.md): with L2 sensitivity D and noise of standard deviation s, both in steps, it costs
D^2 / (s^2 - 9) of the budget mu^2. Costs add up, also where questions depend on earlier totals. Skellam noise
has the same price, but a smaller budget. Only noise that is guaranteed to be in the total counts: the shares
of `Configuration.noising` honest clients, or one draw of the server.

The server adds noise, once a sum, to ciphertexts or masked words that it cannot read. Since it knows the
noise, it must learn nothing else that depends on a total: neither the number of sums, nor the length of
messages, nor how much noise a sum needs. All this is fixed before the first sum, in the configuration that
the parties sign (`scheduled`). Coordinator and clients check each question against it (`agreed_on`).

Reveals: nothing that was not agreed on before. The server's noise protects from readers of the model, and
from clients if the server adds it honestly. It never protects from the server once that learns a total or the
model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from privfed.core.agreed.configuration import AddedNoise, Configuration, PrivacyTerms
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.roles.conversation import Algorithm, Ask, Setting, Total, driven
from privfed.core.values.domain import Domain, FloatArray
from privfed.core.values.guarantee import Mechanism, Noise, Unit
from privfed.errors import PrivacyError
from privfed.privacy.accounting import (
    LEAST_SIGMA,
    budget_of,
    discrete_gaussian_cost,
    discrete_gaussian_sigma,
)
from privfed.privacy.bounds import Bound, RecordBounded, of_a_client
from privfed.privacy.noised import TAIL, Noised
from privfed.privacy.rejection import RandomBits
from privfed.privacy.sampler import SecureBits, SeededBits, discrete_gaussian
from privfed.privacy.skellam import LEAST_VARIANCE

LEAST_SHARES = {Mechanism.GAUSSIAN: LEAST_SIGMA, Mechanism.SKELLAM: LEAST_VARIANCE**0.5}
"""Mechanism -> least standard deviation of one draw, in steps."""

SLACK = 1e-9
"""By how much the float64 sum of a budget's shares may exceed 1, for rounding."""

ENCODING_SHARE = 0.01
"""Share of the budget that is reserved for floating-point errors of encryption (docs/protocols/ckks.md)."""


def agreed_budget(
    mechanism: Mechanism, noise: Noise, epsilon: float, delta: float, rows_apart: int = 1
) -> float:
    """Return the largest budget that parties may agree on for a claim.

    It is smaller than `budget_of`, since the claim must hold although ledgers tolerate an excess of `SLACK`,
    and although encryption changes sums with the server's noise a little.

    Args:
        mechanism: see `budget_of`.
        noise: who adds the noise, as in `PrivacyTerms`.
        epsilon: of the claim, positive.
        delta: of the claim, in [1e-300, 1).
        rows_apart: in how many rows neighbours differ at unit "user" (`PrivacyTerms.rows_apart`). So many
            rows move a total that often as far as one, so that noise for one costs the square of it.
    """
    encoding = ENCODING_SHARE if noise == Noise.SERVER else 0.0
    return budget_of(mechanism, epsilon, delta) * (1.0 - SLACK) * (1.0 - encoding) / rows_apart**2


def bounds_of(question: Question, limits: Mapping[str, float] | None, unit: Unit) -> dict[str, Bound]:
    """Return entry -> bound on the contribution of one protected unit (a record or a client).

    Raises:
        PrivacyError: there is no proven bound.
    """
    names = [entry.name for entry in question.spec.entries]
    if unit == Unit.CLIENT:
        if limits is None or set(limits) != set(names):
            raise PrivacyError(
                f'at unit "client" {type(question).__name__} needs an L2 limit for each of '
                f"{', '.join(names)}."
            )
        return {entry.name: of_a_client(entry, limits[entry.name]) for entry in question.spec.entries}
    if not isinstance(question, RecordBounded):
        raise PrivacyError(
            f"{type(question).__name__} has no proven bound for one record; its bounded form is "
            f"{type(question.bounded()).__name__}."
        )
    return {name: question.bounds[name] for name in names}


def _worst(costs: FloatArray, bounds: list[Bound], terms: PrivacyTerms) -> float:
    """Return the largest cost over all neighbours, given each entry's cost for one added record."""
    if terms.added:
        return float(costs.sum())
    stay, move = [bound.stay for bound in bounds], [bound.move for bound in bounds]
    return float(max((costs * stay).sum(), (costs * move).sum()))


def noised(
    question: Question,
    weights: Mapping[str, float],
    limits: Mapping[str, float] | None,
    configuration: Configuration,
    share: float = 1.0,
) -> Noised:
    """Return a question with the noise that its weights pay for.

    Args:
        question: the question without noise.
        weights: entry -> share of the budget, positive. An entry that is equal for all neighbours (the
            number of records, where one is replaced) costs nothing, whatever its weight, and gets the least
            noise.
        limits: at unit "client", entry -> L2 limit of a client's array.
        configuration: states the guarantee.
        share: part of the budget to which the weights refer, in (0, 1].

    Raises:
        PrivacyError: there is no proven bound, a weight is missing or not positive, or the noise is too small
            for the claim to hold on the grid.
    """
    terms = _terms(configuration)
    bounds = bounds_of(question, limits, terms.unit)
    if set(weights) != set(bounds) or not all(0 < weight <= 1 for weight in weights.values()):
        raise PrivacyError(
            f"{type(question).__name__} needs a weight in (0, 1] for each of {', '.join(bounds)}; "
            f"got {weights}."
        )
    listed = list(bounds.values())
    free = np.array([_worst(np.ones(1), [bound], terms) == 0.0 for bound in listed])
    costs = np.where(free, 0.0, [weights[name] for name in bounds]) * terms.budget * share
    costs *= costs.sum() / max(_worst(costs, listed, terms), np.finfo(float).tiny)
    draft = Noised(
        ranges=question.ranges,
        inner=question,
        sigma=np.full(len(bounds), LEAST_SHARES[terms.mechanism]),
        limits=np.array([bound.l2 for bound in listed] if terms.unit == Unit.CLIENT else []),
        by_server=configuration.noised_by_server,
        mechanism=terms.mechanism,
    )
    reach = np.array([bound.l2 for bound in listed]) / draft.steps
    together = discrete_gaussian_sigma(reach, np.where(free, np.inf, costs))
    least = LEAST_SHARES[terms.mechanism]
    sigma = np.where(free, least, together / np.sqrt(configuration.noising))
    if sigma.min() < least:
        narrower = "" if terms.mechanism == Mechanism.GAUSSIAN else ', or use mechanism="gaussian"'
        raise PrivacyError(
            f"one draw of the noise has a standard deviation of {sigma.min():.3g} steps, it needs "
            f"{least:.0f} for the claim to hold on the grid; claim a smaller epsilon{narrower}."
        )
    return replace(draft, sigma=sigma)


_COSTS: WeakKeyDictionary[Noised, tuple[Configuration, float]] = WeakKeyDictionary()
"""Question -> the configuration with which it was priced last, and its cost: simulated clients share both."""


def cost(question: Noised, configuration: Configuration) -> float:
    """Return the share of the budget that a noised question costs; above 1 if the budget does not suffice.

    Raises:
        PrivacyError: it has no proven bound, its noise is of another kind than was agreed on, or its sigma is
            smaller than the mechanism needs.
    """
    known = _COSTS.get(question)
    if known is None or known[0] is not configuration:
        known = configuration, _cost(question, configuration)
        _COSTS[question] = known
    return known[1]


def _cost(question: Noised, configuration: Configuration) -> float:
    terms = _terms(configuration)
    names = [entry.name for entry in question.inner.spec.entries]
    limits = dict(zip(names, question.limits.tolist(), strict=True)) if question.limits.size else None
    meant = (limits is None, question.by_server, question.mechanism)
    if meant != (terms.unit.of_rows, configuration.noised_by_server, terms.mechanism):
        raise PrivacyError(
            "the question's noise is for another unit, or of another kind, than the configuration states."
        )
    bounds = list(bounds_of(question.inner, limits, terms.unit).values())
    least = LEAST_SHARES[terms.mechanism]
    if (question.sigma < least).any():
        raise PrivacyError(f"a share of the noise is below {least:.0f} steps.")
    reach = np.array([bound.l2 for bound in bounds]) / question.steps
    costs = discrete_gaussian_cost(reach, np.sqrt(configuration.noising) * question.sigma)
    return _worst(costs, bounds, terms) / terms.budget


def _terms(configuration: Configuration) -> PrivacyTerms:
    if configuration.privacy is None:
        raise PrivacyError("the configuration claims no differential privacy.")
    return configuration.privacy


FIXED_ONLY = (
    'noise="server" is for runs whose sums are all fixed before: the server knows its noise, and the sums\' '
    "number, lengths and noise would reveal totals to it. Use DWFKMeans(local_iter=1, tol=0, max_iter=T), "
    'FederatedMiniBatchKMeans or FederatedFuzzyCMeans likewise, or noise="distributed".'
)
"""Text of the error for other runs: why they are refused, and what to use instead."""

_FARTHEST = 400


@lru_cache(maxsize=16)
def added_noise(question: Noised) -> AddedNoise:
    """Return what the server must know to add noise to the sum of a question's answers, in steps.

    The size of a step is not part of it: the grid of a sum is scaled by powers of two that follow from the
    ranges, so that ranges in steps give the same grid.

    Raises:
        PrivacyError: the values of an entry have different ranges, or a step is so small or so large that
            the grid in steps would be another one.
    """
    entries, steps = question.spec.entries, question.steps
    ends = (
        [np.unique(entry.low) for entry in entries],
        [np.unique(entry.high) for entry in entries],
    )
    if any(len(values) != 1 for of_end in ends for values in of_end):
        raise PrivacyError("the server can only noise sums of entries whose values all have the same range.")
    if not ((steps > 2.0**-_FARTHEST) & (steps < 2.0**_FARTHEST)).all():
        raise PrivacyError(
            f"the server can only noise sums whose steps are within 2^-{_FARTHEST} and its inverse."
        )
    low, high = (tuple((np.concatenate(of_end) / steps).tolist()) for of_end in ends)
    sizes = tuple(int(np.prod(entry.shape)) for entry in entries)
    return AddedNoise(sizes=sizes, sigma=tuple(question.sigma.tolist()), low=low, high=high)


def agreed_on(question: Noised, configuration: Configuration, index: int) -> bool:
    """Say whether sum `index` may ask a question: it has the scheduled noise, or clients add the noise."""
    terms = configuration.privacy
    if terms is None or not configuration.noised_by_server:
        return True
    return index < len(terms.schedule) and terms.schedule[index] == added_noise(question)


def scheduled(
    configuration: Configuration, algorithm: Algorithm[Any] | None, domain: Domain
) -> Configuration:
    """Return the configuration with the noise of each sum, found by running the algorithm on zero totals.

    Args:
        configuration: claims privacy by noise of the server.
        algorithm: the algorithm that will run; None where it is not known what will be asked.
        domain: the declared domain.

    Raises:
        PrivacyError: the algorithm's questions may depend on totals.
    """
    if algorithm is None or not algorithm.fixed:
        raise PrivacyError(FIXED_ONLY)
    terms = configuration.privacy
    share = 1.0 if terms is None else 1.0 - terms.spare
    setting = Setting(configuration.clients, configuration.n_features, domain, privacy=terms)
    everyone, schedule = tuple(range(len(configuration.clients))), list[AddedNoise]()

    def answer(ask: Ask) -> Total:
        question = noised(ask.question, ask.weights or {}, ask.limits, configuration, share)
        schedule.append(added_noise(question))
        return Total(
            question.spec.unflatten(np.zeros(question.spec.size)), everyone, noise_std=question.noise_std(1)
        )

    driven(algorithm.run(setting), answer)
    fixed = msgspec.structs.replace(terms, schedule=tuple(schedule))  # type: ignore[type-var]
    return msgspec.structs.replace(configuration, privacy=fixed)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The noise of one sum, in steps.

    Args:
        spec: layout and ranges of the clients' answers.
        reach: largest magnitude of each value's noise, float64 of shape (spec.size,).
        values: the noise, whole numbers, float64 of shape (spec.size,).
    """

    spec: StatisticsSpec
    reach: FloatArray
    values: FloatArray = field(repr=False)


def reach_of(added: AddedNoise) -> FloatArray:
    """Return the magnitude, in steps, to which each value's noise is clipped; P(more) is below e^-790."""
    return np.ceil(TAIL * np.repeat(added.sigma, added.sizes))


class ServerNoise:
    """Draws the server's noise of one fit, once for each sum.

    Args:
        configuration: has the schedule of the noise.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._drawn: set[int] = set()

    def draw(self, index: int) -> Drawn:
        """Return the noise of sum `index`.

        Claimed noise comes from the operating system's generator, a seeded run's from the agreed seed.

        Raises:
            PrivacyError: the sum is not scheduled, or has had its noise.
        """
        terms = self._configuration.privacy
        if terms is None or index >= len(terms.schedule) or index in self._drawn:
            raise PrivacyError(
                f"sum {index} was not agreed on, or has had its noise: two draws for one sum would reveal "
                "more of it. Begin a new fit."
            )
        self._drawn.add(index)
        added, source = terms.schedule[index], self._bits(index) if terms.seeded else SecureBits()
        sigma, reach = np.repeat(added.sigma, added.sizes), reach_of(added)
        return Drawn(added.spec, reach, np.clip(discrete_gaussian(sigma, sigma.shape, source), -reach, reach))

    def _bits(self, index: int) -> RandomBits:
        key = hashlib.sha256(f"privfed server generator|{self._configuration.seed}|{index}".encode()).digest()
        return SeededBits(np.random.default_rng(np.frombuffer(key, dtype=np.uint32)))
