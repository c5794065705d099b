"""Which lemmas a claim rests on, by the names of their sections in `docs/privacy/lemmas.md`."""

from __future__ import annotations

from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.values.guarantee import Mechanism, Noise, Unit

PAGE = "docs/privacy/lemmas.md"


def lemmas_of(terms: PrivacyTerms) -> tuple[str, ...]:
    """Return the names of the lemmas that a claim on agreed terms rests on, in the order of the page."""
    if terms.steps is not None:
        return ("steps", "noninterference")
    gaussian = terms.mechanism == Mechanism.GAUSSIAN
    return (
        *(("curve", "integers") if gaussian else ("skellam",)),
        "filter",
        *(("shares",) if terms.noise == Noise.DISTRIBUTED else ()),
        *(("server",) if terms.noise == Noise.SERVER else ()),
        "sampler",
        "rows" if terms.unit.of_rows else "clients",
        *(("users",) if terms.unit == Unit.USER else ()),
        "neighbours",
        "noninterference",
    )
