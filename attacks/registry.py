"""The registry of attacks."""

from __future__ import annotations

from privfed.attacks.base.interface import Attack
from privfed.core.names import Registry
from privfed.errors import ArgumentError

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

_DECLARED = ("name", "paper", "adversary", "view", "algorithms", "prior", "defence")


def attack_class(name: str) -> type[Attack]:
    """Return the attack with a name, or "module:Class" for a user's own; only for names that a person typed.

    Raises:
        ArgumentError: there is no such attack, or its class lacks a declaration that every attack needs.
    """
    kind: object = ATTACKS.resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, Attack)):
        raise ArgumentError(f"attack must be a class of attacks, such as differencing; got {name!r}.")
    missing = undeclared(kind)
    if missing:
        raise ArgumentError(f"the attack {name!r} must declare {', '.join(missing)} on its class.")
    return kind


def undeclared(kind: type[Attack]) -> list[str]:
    """Return the names of the declarations that an attack's class lacks."""
    known = {word for base in kind.__mro__ for word in vars(base)}
    return [word for word in _DECLARED if word not in known]
