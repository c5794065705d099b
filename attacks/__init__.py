"""Attacks: what a party can learn from what it saw, measured on the run's own transcript.

A passive attack is run on a view, `attack.run(transcript.view("server"), prior, rng)`; an active one on
an oracle, `attack.run(oracle, prior, rng)`. `evaluate(result, truth)` compares the claims with the truth.
"""

from privfed.attacks.audits import audit
from privfed.attacks.base.interface import ActiveAttack, Attack, PassiveAttack, Prior
from privfed.attacks.base.oracle import Oracle
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import Counts, Particles, Points, Result, Truth, evaluate
from privfed.attacks.cohorts.cluster_membership import ClusterHolders
from privfed.attacks.cohorts.disaggregation import Disaggregation
from privfed.attacks.cohorts.linkage import Linkage
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
    "ClusterHolders",
    "Counts",
    "Differencing",
    "Disaggregation",
    "EqualWeightCounts",
    "FuzzyInversion",
    "Linkage",
    "Membership",
    "NoisyDifferencing",
    "Oracle",
    "Particles",
    "PassiveAttack",
    "Points",
    "Prior",
    "Probing",
    "Report",
    "Result",
    "Tomography",
    "Truth",
    "audit",
    "evaluate",
]
