"""Noise that the server adds, once, to a sum that it cannot read: what it must know for that, and its draws.

The server adds noise to ciphertexts or masked words. Since it knows the noise, it must learn nothing else
that depends on a total: neither the number of sums, nor the length of messages, nor how much noise a sum
needs. All this is fixed before the first sum, in the configuration that the parties sign (`scheduled`), and
coordinator and clients check each question against it (`agreed_on`).

Reveals: nothing that was not agreed on before. It protects from readers of the model, and from clients if the
server adds its noise honestly, but never from the server once that learns a total or the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.configuration import AddedNoise, Configuration
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.roles.conversation import Algorithm, Setting, Total
from privfed.core.values.domain import Domain, FloatArray
from privfed.errors import PrivacyError
from privfed.privacy.noised import TAIL, Noised
from privfed.privacy.pricing import noised
from privfed.privacy.sampler import RandomBits, RehearsalBits, SecureBits, discrete_gaussian

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
    conversation = algorithm.run(setting)
    try:
        ask = next(conversation)
        while True:
            question = noised(ask.question, ask.weights or {}, ask.limits, configuration, share)
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

        Claimed noise comes from the operating system's generator, a rehearsal's from the agreed seed.

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
        added, source = terms.schedule[index], self._bits(index) if terms.rehearsal else SecureBits()
        sigma, reach = np.repeat(added.sigma, added.sizes), reach_of(added)
        return Drawn(added.spec, reach, np.clip(discrete_gaussian(sigma, sigma.shape, source), -reach, reach))

    def _bits(self, index: int) -> RandomBits:
        key = hashlib.sha256(f"privfed server generator|{self._configuration.seed}|{index}".encode()).digest()
        return RehearsalBits(np.random.default_rng(np.frombuffer(key, dtype=np.uint32)))
