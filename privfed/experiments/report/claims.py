"""The privacy claims of a study's fits, stated for single fits; no claim covers the study's measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.experiments.study.cells import Setup
from privfed.privacy.claim import PrivacySpent

SCORED = "All measures are scored on the clients' rows: no claim of differential privacy covers them."
_UNKNOWN = "not stored: an older privfed ran these cells"


def lines_of(claims: Mapping[str, PrivacySpent]) -> list[str]:
    """Return what claims say, line by line: what some share stands once; what all share, at the end."""
    all_facts = {name: claim.facts() for name, claim in claims.items()}
    said = [set(facts.items()) for facts in all_facts.values()]
    common = set.intersection(*said) if len(said) > 1 else set()
    alike: dict[str, list[str]] = {}
    for name, facts in all_facts.items():
        own = "; ".join(f"{what}: {fact}" for what, fact in facts.items() if (what, fact) not in common)
        alike.setdefault(own, []).append(name)
    lines = [f"{' / '.join(names)}: {own}." for own, names in alike.items() if own]
    if common:
        first = next(iter(all_facts.values()))
        shared = "; ".join(f"{what}: {fact}" for what, fact in first.items() if (what, fact) in common)
        lines.append(f"All {len(all_facts)} of these: {shared}.")
    return lines


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
