"""Attacks: measure what a party can learn from its view of a run, taken from the run's own transcript.

A passive attack runs on a view, `attack.run(transcript.view("server"), prior, rng)`; an active one on
an oracle, `attack.run(oracle, prior, rng)`. `pooled(views)` joins the views of several runs, and `joined`
has what two of them show of the rows that joined between them.
`evaluate(result, truth)` compares the claims with the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.attacks.attributes.attribute_inference import AttributeInference
    from privfed.attacks.audits import audit
    from privfed.attacks.base.interface import ActiveAttack, Attack, PassiveAttack
    from privfed.attacks.base.oracle import Oracle
    from privfed.attacks.base.preparation import Prior
    from privfed.attacks.base.reading import Reads, Shows
    from privfed.attacks.base.report import Report, Status
    from privfed.attacks.base.results import Counts, NotRun, Particles, Points, Result, Truth, evaluate
    from privfed.attacks.cohorts.disaggregation import Disaggregation
    from privfed.attacks.cohorts.linkage import Linkage
    from privfed.attacks.enumeration.enumerated_domain import EnumeratedDomain
    from privfed.attacks.evidence.files import view_from_file, view_to_file
    from privfed.attacks.evidence.known import without_known
    from privfed.attacks.evidence.mapped import LinearMap
    from privfed.attacks.evidence.pooling import joined, pooled, view_from_rounds
    from privfed.attacks.inversion.fuzzy_inversion import FuzzyInversion
    from privfed.attacks.membership.membership import Membership
    from privfed.attacks.posterior.noisy_differencing import NoisyDifferencing
    from privfed.attacks.probing.probing import Probing
    from privfed.attacks.reconstruction.differencing import Differencing
    from privfed.attacks.reconstruction.hidden_counts import EqualWeightCounts
    from privfed.attacks.reconstruction.tomography import Tomography

__all__ = [
    "ActiveAttack",
    "Attack",
    "AttributeInference",
    "Counts",
    "Differencing",
    "Disaggregation",
    "EnumeratedDomain",
    "EqualWeightCounts",
    "FuzzyInversion",
    "LinearMap",
    "Linkage",
    "Membership",
    "NoisyDifferencing",
    "NotRun",
    "Oracle",
    "Particles",
    "PassiveAttack",
    "Points",
    "Prior",
    "Probing",
    "Reads",
    "Report",
    "Result",
    "Shows",
    "Status",
    "Tomography",
    "Truth",
    "audit",
    "evaluate",
    "joined",
    "pooled",
    "view_from_file",
    "view_from_rounds",
    "view_to_file",
    "without_known",
]

__getattr__ = lazily(
    __name__,
    {
        "ActiveAttack": "privfed.attacks.base.interface",
        "Attack": "privfed.attacks.base.interface",
        "AttributeInference": "privfed.attacks.attributes.attribute_inference",
        "Counts": "privfed.attacks.base.results",
        "Differencing": "privfed.attacks.reconstruction.differencing",
        "Disaggregation": "privfed.attacks.cohorts.disaggregation",
        "EnumeratedDomain": "privfed.attacks.enumeration.enumerated_domain",
        "EqualWeightCounts": "privfed.attacks.reconstruction.hidden_counts",
        "FuzzyInversion": "privfed.attacks.inversion.fuzzy_inversion",
        "LinearMap": "privfed.attacks.evidence.mapped",
        "Linkage": "privfed.attacks.cohorts.linkage",
        "Membership": "privfed.attacks.membership.membership",
        "NoisyDifferencing": "privfed.attacks.posterior.noisy_differencing",
        "NotRun": "privfed.attacks.base.results",
        "Oracle": "privfed.attacks.base.oracle",
        "Particles": "privfed.attacks.base.results",
        "PassiveAttack": "privfed.attacks.base.interface",
        "Points": "privfed.attacks.base.results",
        "Prior": "privfed.attacks.base.preparation",
        "Probing": "privfed.attacks.probing.probing",
        "Reads": "privfed.attacks.base.reading",
        "Report": "privfed.attacks.base.report",
        "Result": "privfed.attacks.base.results",
        "Shows": "privfed.attacks.base.reading",
        "Status": "privfed.attacks.base.report",
        "Tomography": "privfed.attacks.reconstruction.tomography",
        "Truth": "privfed.attacks.base.results",
        "audit": "privfed.attacks.audits",
        "evaluate": "privfed.attacks.base.results",
        "joined": "privfed.attacks.evidence.pooling",
        "pooled": "privfed.attacks.evidence.pooling",
        "view_from_file": "privfed.attacks.evidence.files",
        "view_from_rounds": "privfed.attacks.evidence.pooling",
        "view_to_file": "privfed.attacks.evidence.files",
        "without_known": "privfed.attacks.evidence.known",
    },
)
