"""Probing under differential privacy: noised answers, until the clients' own ledgers refuse."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from privfed import Box, DPKMeans, Privacy
from privfed.attacks import Oracle, Prior, Probing, Report, Truth, evaluate
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import PrivacyError
from privfed.federation.opening import open_over
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.lloyd import LloydSums
from tests.attacks.figures import mixture
from tests.raised import refused_with
from tests.undeclared import ANYTHING

SQUARE = Ranges(np.full(2, -12.0), np.full(2, 12.0), 1 << 10)
STEP = RelativeSums(ranges=SQUARE, centers=np.array([[-5.0, 0.0], [5.0, 0.0]]), radius=17.0)
PRIOR = Prior(low=SQUARE.low, high=SQUARE.high)
WEAK = pytest.mark.filterwarnings("ignore:epsilon=.* promises very little")


def privacy(epsilon: float, unit: str = "record") -> Privacy:
    return Privacy(
        epsilon=epsilon,
        delta=1e-5,
        unit=unit,  # type: ignore[arg-type]
        domain=Box(-12, 12, max_rows=1 << 10),
        neighbours="add-remove",
        noise_seed=3,
    )


def probed(
    clients: list[FloatArray], attack: Probing, claimed: Privacy, protocol: str = "plain", budget: int = 20
) -> tuple[Report, float]:
    """Return the report, and the median distance of a claim to the row that is nearest to it."""
    oracle = Oracle(open_over(clients, protocol=protocol, privacy=claimed, policy=ANYTHING), budget)
    found = attack.run(oracle, PRIOR, np.random.default_rng(0))
    rows = np.concatenate(clients) if attack.client is None else clients[attack.client]
    distance = np.median(cKDTree(rows).query(found.points)[0]) if len(found.points) else np.nan
    return evaluate(found, Truth(clients)), float(distance)


def test_each_question_costs_its_share_and_clients_refuse_when_all_is_spent() -> None:
    federation = open_over(
        mixture(0, 40, 2, clients=2)[0], protocol="plain", privacy=privacy(1.0), policy=ANYTHING
    )
    first = Oracle(federation, 3)
    for _ in range(3):
        seen = first.ask(STEP)
        assert isinstance(seen.question, Noised)
        assert not np.array_equal(np.rint(seen.answers[0]["count"]), seen.answers[0]["count"])
    with refused_with("policy:budget"):
        Oracle(federation, 3).ask(STEP)


def test_after_a_fit_the_clients_budgets_are_spent() -> None:
    clients = mixture(0, 40, 2, clients=2)[0]
    model = DPKMeans(3, protocol="plain", privacy=privacy(1.0), policy=ANYTHING).fit(clients)
    paid = list(model.federation_.ledger.payments)
    oracle = Oracle(model.federation_, 20)
    with refused_with("program"):
        oracle.ask(STEP)
    assert model.federation_.ledger.payments == paid


def test_a_question_without_a_bound_is_not_asked() -> None:
    federation = open_over(
        mixture(0, 40, 2, clients=2)[0], protocol="plain", privacy=privacy(1.0), policy=ANYTHING
    )
    bare = LloydSums(ranges=SQUARE, centers=STEP.centers)
    with pytest.raises(PrivacyError, match="no proven bound"):
        Oracle(federation, 3).ask(bare)


@pytest.mark.parametrize(
    ("protocol", "unit"),
    [
        ("plain", "record"),
        *(
            pytest.param(protocol, unit, marks=pytest.mark.slow)
            for protocol, unit in [("plain", "client"), ("masked", "record"), ("masked", "client")]
        ),
    ],
)
def test_at_epsilon_one_claims_are_no_nearer_to_rows_than_guesses(protocol: str, unit: str) -> None:
    right, near, guessed = 0.0, [np.inf], []
    for seed in range(3):
        clients = mixture(seed, 60, 2, clients=3)[0]
        attack = Probing(10, client=0 if protocol == "plain" else None)
        report, distance = probed(clients, attack, privacy(1.0, unit), protocol)
        right += report.recovered * report.details["rows"]
        near.append(distance)
        guesses = PRIOR.guesses(200, np.random.default_rng(seed))
        rows = clients[0] if protocol == "plain" else np.concatenate(clients)
        guessed.append(np.median(cKDTree(rows).query(guesses)[0]))
    assert right == 0
    assert np.nanmin(near) > 0.5 * min(guessed)


@WEAK
def test_the_weaker_the_noise_the_nearer_the_claims() -> None:
    clients = mixture(0, 60, 2, clients=2)[0]
    found = [probed(clients, Probing(10, client=0), privacy(epsilon)) for epsilon in (1e3, 1e5, 1e7)]
    distances = [distance for _, distance in found]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.1
    # What is exact without noise is next to exact with next to none.
    assert found[-1][0].details["precision within .05 sd"] > 0.8


@WEAK
def test_one_client_told_another_question_is_told_a_noised_one() -> None:
    clients = mixture(0, 30, 2, clients=3)[0]
    attack = Probing(8, client=1, inconsistent=True)
    assert probed(clients, attack, privacy(1e9), budget=30)[0].details["recovered within .05 sd"] > 0.8
    assert probed(clients, attack, privacy(1e9), "masked", budget=30)[0].claims == 0


@pytest.mark.slow
def test_counts_alone_are_not_joined_under_noise() -> None:
    clients = mixture(0, 30, 2, clients=2)[0]
    report, _ = probed(clients, Probing(8, client=0, counts_only=True), privacy(10.0), budget=300)
    assert report.claims == 0
    assert report.queries > 100
