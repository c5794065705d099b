"""The registry of attacks."""

from __future__ import annotations

from privfed.attacks.base.interface import Attack
from privfed.core.registry import Registry

ATTACKS: Registry[type[Attack]] = Registry(
    "attack",
    "privfed.attacks",
    {
        "ClusterMembership": "privfed.attacks.cohorts.cluster_membership:ClusterMembership",
        "Differencing": "privfed.attacks.reconstruction.differencing:Differencing",
        "Disaggregation": "privfed.attacks.cohorts.disaggregation:Disaggregation",
        "EqualWeightCounts": "privfed.attacks.reconstruction.hidden_counts:EqualWeightCounts",
        "FuzzyInversion": "privfed.attacks.inversion.fuzzy_inversion:FuzzyInversion",
        "Linkage": "privfed.attacks.cohorts.linkage:Linkage",
        "Membership": "privfed.attacks.membership.membership:Membership",
        "NoisyDifferencing": "privfed.attacks.posterior.noisy_differencing:NoisyDifferencing",
        "Probing": "privfed.attacks.probing.probing:Probing",
        "Tomography": "privfed.attacks.reconstruction.tomography:Tomography",
    },
)
"""Attacks by name. Packages add theirs by entry points of `privfed.attacks`."""
