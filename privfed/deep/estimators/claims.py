"""What a run by DP-SGD claims, in the words of every other claim."""

from __future__ import annotations

from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.deep.algorithms.plan import Plan
from privfed.deep.training.accounting import epsilon_of
from privfed.privacy.claim import PrivacySpent
from privfed.privacy.ledger import Payment
from privfed.privacy.privacy import Privacy

COMPOSED = (
    "privacy-loss distribution of Poisson-sampled Gaussian steps over all planned rounds, discretisation and "
    "rounding charged; assumes that a row's gradient in float64 hardly changes with its batch"
)


def dp_sgd_claim(privacy: Privacy, plan: Plan) -> PrivacySpent:
    """Return the claim of a run in which each client trains by DP-SGD.

    Clients hold different records, so that each one's claim is the claim for all. It holds for clients that
    train in each round; what a client did not train it did not spend.
    """
    holds = f"({privacy.epsilon:g}, {privacy.delta:g}) each client alone"
    if privacy.noise_seed is not None:
        holds = "none: a rehearsal, whose noise can be computed again"
    parties = ("readers of the model", "a client", "the server", "the server with clients")
    return PrivacySpent(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
        noise=Noise.LOCAL,
        mechanism=Mechanism.GAUSSIAN,
        rehearsal=privacy.noise_seed is not None,
        composed=COMPOSED,
        against=dict.fromkeys(parties, holds),
        payments=_payments(privacy, plan),
    )


def _payments(privacy: Privacy, plan: Plan) -> tuple[Payment, ...]:
    """Return one line for all rounds: epsilons of rounds do not add up, and none is paid by itself."""
    steps = plan.training(1).steps * plan.rounds
    spent = epsilon_of(plan.noise_multiplier, plan.sample_rate, steps, privacy.delta)
    sigma = {"gradient": plan.noise_multiplier * plan.max_grad_norm}
    return (Payment(f"{plan.rounds} rounds", "DP-SGD", spent / privacy.epsilon, sigma),)
