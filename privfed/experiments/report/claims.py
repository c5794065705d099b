"""The privacy claims of a study's fits, stated for single fits; no claim covers the study's measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.experiments.study.cells import Setup
from privfed.privacy.claim import PrivacySpent

SCORED = "All measures are scored on the clients' rows: no claim of differential privacy covers them."
_UNKNOWN = "not stored: an older privfed ran these cells"


def claim_of(setup: Setup, values: Mapping[str, Any]) -> PrivacySpent | None:
    """Return the claim of a stored fit; for cells of an older privfed, what their parameters say of it."""
    if values.get("claim") is not None:
        return PrivacySpent.from_dict(values["claim"])
    words = setup.privacy
    if words is None:
        return None
    return PrivacySpent(
        epsilon=words.epsilon,
        delta=words.delta,
        unit=words.unit,
        neighbours=words.neighbours,
        noise=words.noise,
        mechanism=words.mechanism,
        rehearsal=words.rehearsal,
        composed=_UNKNOWN,
        against=dict(values.get("against") or {"anybody": _UNKNOWN}),
        payments=(),
    )
