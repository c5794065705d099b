"""The registry of attacks: names and places, so that a command lists them without importing any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import Registry

if TYPE_CHECKING:
    from privfed.attacks.base.interface import Attack

_OWN = {
    "attribute-inference": "privfed.attacks.attributes.attribute_inference:AttributeInference",
    "class-counts": "privfed.deep.attacks.counts:ClassCounts",
    "differencing": "privfed.attacks.reconstruction.differencing:Differencing",
    "disaggregation": "privfed.attacks.cohorts.disaggregation:Disaggregation",
    "enumerated-domain": "privfed.attacks.enumeration.enumerated_domain:EnumeratedDomain",
    "equal-weight-counts": "privfed.attacks.reconstruction.hidden_counts:EqualWeightCounts",
    "fuzzy-inversion": "privfed.attacks.inversion.fuzzy_inversion:FuzzyInversion",
    "gradient-inversion": "privfed.deep.attacks.inversion:GradientInversion",
    "linkage": "privfed.attacks.cohorts.linkage:Linkage",
    "membership": "privfed.attacks.membership.membership:Membership",
    "model-membership": "privfed.deep.attacks.membership:ModelMembership",
    "noisy-differencing": "privfed.attacks.posterior.noisy_differencing:NoisyDifferencing",
    "probing": "privfed.attacks.probing.probing:Probing",
    "sketch-linkage": "privfed.deep.attacks.linkage:SketchLinkage",
    "tomography": "privfed.attacks.reconstruction.tomography:Tomography",
}
ATTACKS: Registry[type[Attack]] = Registry(
    "attack",
    "privfed.attacks",
    _OWN,
    also={place.partition(":")[2]: name for name, place in _OWN.items()},
)
"""Attacks by name, ours by class name too. Packages add theirs by entry points of `privfed.attacks`."""

ACTIVE = frozenset({"probing"})
"""Our own attacks that ask questions of their own, and so work on no recorded run."""
