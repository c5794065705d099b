"""Noise that the server adds, once, to a sum that it cannot read: what it must know for that, and its draws.

The server adds noise to ciphertexts or masked words. It knows the noise, so that it must learn nothing that
follows from a total: not how many sums a run has, not how long its messages are, and not how much noise a sum
needs. All this is fixed before the first sum, in the configuration that the parties sign (`scheduled`), and
everyone holds the questions to it (`agreed_on`).

Reveals: nothing that was not agreed on before. Protects from readers of the model, and from clients if the
server adds its noise honestly; never from the server, should it learn a total or the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from privfed.core.configuration import AddedNoise, Configuration
from privfed.core.conversation import Algorithm, Setting, Total
from privfed.core.domain import Domain, FloatArray
from privfed.core.statistics import StatisticsSpec
from privfed.errors import PrivacyError
from privfed.privacy.noised import TAIL, Noised
from privfed.privacy.pricing import noised
from privfed.privacy.sampler import RandomBits, RehearsalBits, SecureBits, discrete_gaussian

FIXED_ONLY = (
    'noise="server" is for runs whose sums are all fixed before: the server knows its noise, and their '
    "number, lengths and noise would tell it of totals. Use DWFKMeans(local_iter=1, tol=0, max_iter=T), "
    'FederatedMiniBatchKMeans or FederatedFuzzyCMeans likewise, or noise="distributed".'
)
"""Why other runs are refused, and what to use in their place."""

_FARTHEST = 400


@lru_cache(maxsize=16)
def added_noise(question: Noised) -> AddedNoise:
    """Return what the server must know to noise the sum of a question's answers.

    Grids of sums are powers of two that follow from ranges, so that they need not be told the size of a step.

    Raises:
        PrivacyError: the values of an entry have different ranges, or a step is so small or large that
            grids would treat it otherwise.
    """
    entries, steps = question.spec.entries, question.steps
    ends = [[np.unique(getattr(entry, end)) for entry in entries] for end in ("low", "high")]
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
    """Say whether sum `index` may ask a question: the server noises it just so, or has no part in it."""
    terms = configuration.privacy
    if terms is None or not configuration.noised_by_server:
        return True
    return index < len(terms.schedule) and terms.schedule[index] == added_noise(question)


def scheduled(
    configuration: Configuration, algorithm: Algorithm[Any] | None, domain: Domain, spare: float
) -> Configuration:
    """Return the configuration with the noise of each sum of a run, found by a run whose totals are zeros.

    Args:
        configuration: claims privacy by noise of the server.
        algorithm: what will run; None where nobody knows what will be asked.
        domain: the declared domain.
        spare: share of the budget that is kept for sums that have to be asked again.

    Raises:
        PrivacyError: what the algorithm asks may depend on totals.
    """
    if algorithm is None or not getattr(algorithm, "fixed", False):
        raise PrivacyError(FIXED_ONLY)
    terms = configuration.privacy
    setting = Setting(configuration.clients, configuration.n_features, domain, privacy=terms)
    everyone, schedule = tuple(range(len(configuration.clients))), list[AddedNoise]()
    conversation = algorithm.run(setting)
    try:
        ask = next(conversation)
        while True:
            question = noised(ask.question, ask.weights or {}, ask.limits, configuration, 1.0 - spare)
            schedule.append(added_noise(question))
            zeros = question.spec.unflatten(np.zeros(question.spec.size))
            ask = conversation.send(Total(zeros, everyone, noise_std=question.noise_std(1)))
    except StopIteration:
        fixed = msgspec.structs.replace(terms, schedule=tuple(schedule))  # type: ignore[type-var]
        return msgspec.structs.replace(configuration, privacy=fixed)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The noise of one sum, in steps.

    Args:
        spec: layout and ranges of the clients' answers.
        reach: how far the noise goes at most, float64 of shape (spec.size,).
        values: the noise, integers, float64 of shape (spec.size,).
    """

    spec: StatisticsSpec
    reach: FloatArray
    values: FloatArray = field(repr=False)


def reach_of(added: AddedNoise) -> FloatArray:
    """Return how far each value's noise goes at most, in steps: more has a probability below e^-790."""
    return np.ceil(TAIL * np.repeat(added.sigma, added.sizes))


class ServerNoise:
    """The server's noise of one fit; each sum gets it once.

    Args:
        configuration: with the schedule.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._drawn: set[int] = set()

    def draw(self, index: int) -> Drawn:
        """Return the noise of sum `index`.

        Claimed noise comes from the operating system's generator, a rehearsal's from the agreed seed.

        Raises:
            PrivacyError: the sum is not scheduled, or has had its noise.
        """
        terms = self._configuration.privacy
        if terms is None or index >= len(terms.schedule) or index in self._drawn:
            raise PrivacyError(
                f"sum {index} was not agreed on, or has had its noise: two draws for one sum would tell of "
                "it. Begin a new fit."
            )
        self._drawn.add(index)
        added, source = terms.schedule[index], self._bits(index) if terms.rehearsal else SecureBits()
        sigma, reach = np.repeat(added.sigma, added.sizes), reach_of(added)
        return Drawn(added.spec, reach, np.clip(discrete_gaussian(sigma, sigma.shape, source), -reach, reach))

    def _bits(self, index: int) -> RandomBits:
        key = hashlib.sha256(f"privfed server generator|{self._configuration.seed}|{index}".encode()).digest()
        return RehearsalBits(np.random.default_rng(np.frombuffer(key, dtype=np.uint32)))
