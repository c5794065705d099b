"""One claim in several forms: over scaled rows, or as each client's own, as an estimator needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from privfed.privacy.claim import Privacy

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
