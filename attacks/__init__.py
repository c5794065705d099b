"""Attacks: what a party can learn from what it saw, measured on the run's own transcript.

A passive attack is run on a view, `attack.run(transcript.view("server"), prior, rng)`; an active one on
an oracle, `attack.run(oracle, prior, rng)`. `evaluate(result, truth)` compares the claims with the truth.
"""

from privfed.attacks.audits import audit
from privfed.attacks.differencing import Differencing
from privfed.attacks.disaggregation import Disaggregation
from privfed.attacks.fuzzy_inversion import FuzzyInversion
from privfed.attacks.hidden_counts import EqualWeightCounts
from privfed.attacks.holders import ClusterHolders
from privfed.attacks.interface import ActiveAttack, Attack, PassiveAttack, Prior
from privfed.attacks.linkage import Linkage
from privfed.attacks.membership import Membership
from privfed.attacks.noisy_differencing import NoisyDifferencing
from privfed.attacks.oracle import Oracle
from privfed.attacks.probing import Probing
from privfed.attacks.report import Report
from privfed.attacks.results import Counts, Particles, Points, Result, Truth, evaluate
from privfed.attacks.tomography import Tomography

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
