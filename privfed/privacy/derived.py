"""One claim in several forms: over scaled rows, or as each client's own, as an estimator needs it.

A claim may also have two parts: of a run that looks at the rows first, and of the fit. They compose to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from privfed.core.values.guarantee import Mechanism
from privfed.errors import PrivacyError
from privfed.privacy.accounting import budget_of
from privfed.privacy.claim import Privacy
from privfed.privacy.filters import largest_epsilon

SECOND_SEED = 1 << 20
"""Added to the seed of a claim's noise for the first of two runs."""

_ORIGINS: WeakKeyDictionary[Privacy, Privacy] = WeakKeyDictionary()
"""Claims in another form -> the claims that users passed."""


def derived(privacy: Privacy, **changed: Any) -> Privacy:
    """Return a claim in another form. Whoever uses it uses the one that was passed: a second use warns.

    Args:
        privacy: the claim.
        **changed: fields of `Privacy` that differ.
    """
    found = replace(privacy, **changed)
    _ORIGINS[found] = origin_of(privacy)
    return found


def origin_of(privacy: Privacy) -> Privacy:
    """Return the claim that was passed, of which another one is a form; else the claim itself."""
    return _ORIGINS.get(privacy, privacy)


def parts(privacy: Privacy, share: float) -> tuple[Privacy, Privacy]:
    """Return the claims of two runs that compose to a claim: of a share of its budget, and of the rest.

    A seeded claim gets another seed for the first, so that no noise comes twice.

    Raises:
        PrivacyError: the share is too small for any epsilon.
    """
    mechanism, delta = Mechanism(privacy.mechanism), privacy.delta
    whole = budget_of(mechanism, privacy.epsilon, delta)
    epsilons = [largest_epsilon(mechanism, one * whole, delta) for one in (share, 1.0 - share)]
    if min(epsilons) <= 0.0:
        raise PrivacyError(
            f"epsilon={privacy.epsilon:g} is too small to pay for two runs; leave scale out.",
            parameters=["epsilon"],
        )
    paid = (None, None) if privacy.paid_by is None else privacy.paid_by.parts(share)
    seed = privacy.noise_seed
    first = derived(
        privacy,
        epsilon=epsilons[0],
        noise_seed=None if seed is None else seed + SECOND_SEED,
        paid_by=paid[0],
    )
    return first, replace(privacy, epsilon=epsilons[1], paid_by=paid[1])
