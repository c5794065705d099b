"""Converts the privacy and the claim of a fitted model to plain values for `save`, and back for `load`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from privfed.core.stored.formats import Format
from privfed.core.values.domain import Ball, Box, Domain
from privfed.privacy.claim import PrivacySpent
from privfed.privacy.privacy import Privacy

FORMAT = 2
"""Format of saved models. Format 1 had neither the claim nor the `privacy` of a model."""

MODELS = Format(name="model.npz", version=FORMAT, again="fit and save again")

_WORDS = ("epsilon", "delta", "unit", "neighbours", "noise", "mechanism", "spare", "noise_seed")
_DOMAINS: dict[str, type[Box] | type[Ball]] = {"box": Box, "ball": Ball}


def privacy_to_dict(privacy: Privacy | None) -> dict[str, Any] | None:
    """Encode a model's `privacy` with its domain for JSON; None without it."""
    if privacy is None:
        return None
    return {**{word: getattr(privacy, word) for word in _WORDS}, "domain": _domain_to_dict(privacy.domain)}


def privacy_from_dict(plain: Mapping[str, Any] | None) -> Privacy | None:
    """Decode what `privacy_to_dict` encoded."""
    if plain is None:
        return None
    with warnings.catch_warnings():
        # A loose guarantee gave a warning when it was declared; reading it again needs none.
        warnings.simplefilter("ignore", UserWarning)
        return Privacy(**{**{word: plain[word] for word in _WORDS}, "domain": _domain_from(plain["domain"])})


def _domain_to_dict(domain: Domain) -> dict[str, Any]:
    if isinstance(domain, Box):
        bounds = {"low": np.asarray(domain.low).tolist(), "high": np.asarray(domain.high).tolist()}
        return {"kind": "box", **bounds, "max_rows": domain.max_rows}
    center = np.asarray(domain.center).tolist()
    return {"kind": "ball", "radius": float(domain.radius), "center": center, "max_rows": domain.max_rows}


def _domain_from(plain: Mapping[str, Any]) -> Domain:
    words = {name: value for name, value in plain.items() if name != "kind"}
    return _DOMAINS[plain["kind"]](**words)


def claim_to_dict(claim: PrivacySpent | None) -> dict[str, Any] | None:
    """Encode a claim for JSON; None without one."""
    return None if claim is None else claim.to_dict()


def claim_from(facts: Mapping[str, Any], path: object) -> PrivacySpent | None:
    """Return the claim of a saved model.

    A file of format 1 contains no claim; if the model may have had one, a warning says so. A model with an
    inertia had none, as no inertia is released under differential privacy.

    Raises:
        RunFolderError: the file has the format of a newer privfed.
        msgspec.ValidationError: the claim is damaged.
    """
    known = MODELS.check(facts.get("format", 1), path)
    if known == 1 and facts["inertia"] is None:
        warnings.warn(
            f"{path} has format 1, of an older privfed, which kept no claim of differential privacy: "
            "privacy_claim_ is None, whatever was claimed. Fit and save again to have it in the file.",
            stacklevel=4,
        )
    plain = facts.get("privacy_claim")
    return None if plain is None else PrivacySpent.from_dict(plain)
