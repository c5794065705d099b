"""From whom a claim protects, in words, and which lemmas of `docs/privacy/lemmas.md` it rests on."""

from __future__ import annotations

from privfed.core.agreed.configuration import Configuration, PrivacyTerms
from privfed.core.roles.secure_sum import declared
from privfed.core.values.guarantee import Mechanism, Noise, Unit

SEEDED = "none: a seeded run, whose noise can be computed again"
"""What holds against anybody where noise repeats."""

PAGE = "docs/privacy/lemmas.md"


def against_whom(
    terms: PrivacyTerms, configuration: Configuration, one_key: bool, by_author: bool
) -> dict[str, str]:
    """Return adversary -> the guarantee against it.

    Args:
        terms: the agreed guarantee.
        configuration: what the parties agreed on.
        one_key: whether one client's key opens every upload.
        by_author: whether the secure sum is not privfed's own.
    """
    claim = f"({terms.epsilon:g}, {terms.delta:g})"
    c, local = configuration.terms.colluders, terms.noise == Noise.LOCAL or configuration.noising == 1
    colluding = f"{claim} with at most {c} of the clients" if c else "none claimed"
    reads = "; it reads every noised total" if configuration.terms.verified else ""
    against = {
        "readers of the model": claim,
        "a client": (claim if local or c else "none claimed: it knows its own share of the noise") + reads,
        "the server": claim,
        "the server with clients": f"{claim} each client alone" if local else colluding,
    }
    if terms.noise == Noise.SERVER:
        against |= {
            "readers of the model": f"{claim} if the server adds the noise honestly",
            "a client": f"{claim} if the server adds the noise honestly",
            "the server": "ciphertext only: none once it learns a total or the model",
            "the server with clients": "none: it knows the noise, and they know the totals",
        }
    elif one_key and not local:
        against["the server with clients"] = "none: one client's key opens every upload"
    if by_author and not local:
        # Whoever sees a client's own answer sees its share of the noise alone.
        against |= {party: declared(against[party]) for party in against if party != "readers of the model"}
    return dict.fromkeys(against, SEEDED) if terms.seeded else against


def lemmas_of(terms: PrivacyTerms) -> tuple[str, ...]:
    """Return the names of the lemmas that a claim on agreed terms rests on, in the order of the page."""
    if terms.steps is not None:
        return ("steps", "noninterference")
    return (
        *(("curve", "integers") if terms.mechanism == Mechanism.GAUSSIAN else ("skellam",)),
        "filter",
        *(("shares",) if terms.noise == Noise.DISTRIBUTED else ()),
        *(("server",) if terms.noise == Noise.SERVER else ()),
        "sampler",
        "rows" if terms.unit.of_rows else "clients",
        *(("users",) if terms.unit == Unit.USER else ()),
        "neighbours",
        "noninterference",
    )
