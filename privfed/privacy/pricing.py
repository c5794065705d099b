"""What a noised question costs, as a share of the budget; computed alike by coordinator and clients.

Every release is Gaussian for the accounting (docs/privacy/accounting.md): with sensitivity D and noise of
standard deviation s, both in steps, it costs D^2 / (s^2 - 9) of the budget mu^2, and costs add up, also
where a question was chosen by earlier totals. Skellam noise costs no more, of a smaller budget. Noise
counts only as far as it is sure to be there: the shares of `Configuration.noising` honest clients, or one
draw of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from privfed.core.configuration import Configuration, PrivacyTerms
from privfed.core.domain import FloatArray
from privfed.core.question import Question
from privfed.errors import PrivacyError
from privfed.privacy.accounting import LEAST_SIGMA, discrete_gaussian_cost, discrete_gaussian_sigma, gdp_mu
from privfed.privacy.bounds import Bound, RecordBounded, of_a_client
from privfed.privacy.noised import Noised
from privfed.privacy.renyi import skellam_budget
from privfed.privacy.skellam import LEAST_VARIANCE

LEAST_SHARES = {"gaussian": LEAST_SIGMA, "skellam": LEAST_VARIANCE**0.5}
"""Mechanism -> least standard deviation of one draw, in steps."""

SLACK = 1e-9
"""Shares of a budget are float64: what they sum to may exceed 1 by rounding."""

ENCODING_SHARE = 0.01
"""Share of the budget for what floats lose in encrypting exact answers (docs/protocols/ckks.md)."""


def budget_of(mechanism: str, epsilon: float, delta: float) -> float:
    """Return what all releases may cost together, rounded down.

    Args:
        mechanism: "gaussian", by the exact curve, or "skellam", by Renyi differential privacy.
        epsilon: of the claim, positive.
        delta: of the claim, in [1e-300, 1).
    """
    return skellam_budget(epsilon, delta) if mechanism == "skellam" else gdp_mu(epsilon, delta) ** 2


def agreed_budget(mechanism: str, noise: str, epsilon: float, delta: float) -> float:
    """Return the largest budget that parties may agree on for a claim.

    Ledgers allow `SLACK` too much, and sums with the server's noise lose a little in encryption: together
    with these the claim must still hold.

    Args:
        mechanism: see `budget_of`.
        noise: who adds it.
        epsilon: of the claim, positive.
        delta: of the claim, in [1e-300, 1).
    """
    encoding = ENCODING_SHARE if noise == "server" else 0.0
    return budget_of(mechanism, epsilon, delta) * (1.0 - SLACK) * (1.0 - encoding)


def bounds_of(question: Question, limits: Mapping[str, float] | None, unit: str) -> dict[str, Bound]:
    """Return the bound of one protected unit for each entry.

    Raises:
        PrivacyError: there is no proven one.
    """
    names = [entry.name for entry in question.spec.entries]
    if unit == "client":
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
    """Return what a neighbour can cost, given each entry's cost for one added record."""
    if terms.neighbours == "add-remove":
        return float(costs.sum())
    stay, move = ([getattr(bound, way) for bound in bounds] for way in ("stay", "move"))
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
        question: what is asked.
        weights: entry -> share of the budget, positive. An entry that no neighbour moves (the number of
            records, where one is replaced) costs nothing, whatever its weight, and has the least noise.
        limits: at unit "client", entry -> L2 limit of a client's array.
        configuration: with the privacy that is claimed.
        share: share of the budget that weights are shares of.

    Raises:
        PrivacyError: no proven bound, a weight is missing or not positive, or the noise is so small that the
            claim would not hold on the grid.
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
        sigma=np.ones(len(bounds)),
        limits=np.array([bound.l2 for bound in listed] if terms.unit == "client" else []),
        rehearsal=terms.rehearsal,
        by_server=configuration.noised_by_server,
        mechanism=terms.mechanism,
    )
    reach = np.array([bound.l2 for bound in listed]) / draft.steps
    together = discrete_gaussian_sigma(reach, np.where(free, np.inf, costs))
    least = LEAST_SHARES[terms.mechanism]
    sigma = np.where(free, least, together / np.sqrt(configuration.noising))
    if sigma.min() < least:
        narrower = "" if terms.mechanism == "gaussian" else ', or use mechanism="gaussian"'
        raise PrivacyError(
            f"one draw of the noise has a standard deviation of {sigma.min():.3g} steps, it needs "
            f"{least:.0f} for the claim to hold on the grid; claim a smaller epsilon{narrower}."
        )
    return replace(draft, sigma=sigma)


def cost(question: Noised, configuration: Configuration) -> float:
    """Return the share of the budget that a noised question costs, above 1 where it is too dear.

    Raises:
        PrivacyError: it has no proven bound, or its shares are narrower than the mechanism needs.
    """
    terms = _terms(configuration)
    names = [entry.name for entry in question.inner.spec.entries]
    limits = dict(zip(names, question.limits.tolist(), strict=True)) if question.limits.size else None
    meant = (limits is None, question.rehearsal, question.by_server, question.mechanism)
    if meant != (terms.unit == "record", terms.rehearsal, configuration.noised_by_server, terms.mechanism):
        raise PrivacyError("the question's noise is not for what the configuration protects.")
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
