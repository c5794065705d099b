"""Ledgers: what is paid, when, and by whom; and the noise that a weight buys."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import Admitting, Exchange
from privfed.core.values.domain import Box, Ranges
from privfed.errors import BudgetError, PolicyError, PrivacyError
from privfed.party.state import MemoryStore
from privfed.privacy.claim import Privacy
from privfed.privacy.ledger import BudgetLedger, ClientBudget, unopened
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import LEAST_SIGMA, cost, noised
from privfed.questions.bounded.bounded_sums import RelativeSums, SizeSums
from privfed.questions.lloyd import LloydSums
from tests.raised import forbidden_by
from tests.some import some

RANGES = Ranges([-1.0, -1.0], [1.0, 1.0], 100)
LLOYD = RelativeSums(ranges=RANGES, centers=np.array([[0.0, 0.0], [0.5, 0.5]]), radius=0.7)
SIZE = SizeSums(ranges=RANGES, center=np.zeros(2), radius=1.0)
SPLIT = {"count": 0.1, "sum": 0.2, "distance": 0.05}


def agreed(honest: int = 4, **words: Any) -> Configuration:
    known: dict[str, Any] = {"delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    privacy = Privacy(epsilon=1.0, domain=Box(-1, 1), **(known | words))
    names = tuple(str(i) for i in range(6))
    return Configuration(
        protocol="masked",
        algorithm="test",
        clients=names,
        n_features=2,
        terms=Terms(honest=honest),
        privacy=privacy.terms(),
    )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("honest", [1, 4, 1000])
def test_a_question_costs_its_weights_whoever_computes_it(neighbours: str, honest: int) -> None:
    configuration = agreed(honest, neighbours=neighbours)
    question = noised(LLOYD, SPLIT, None, configuration)
    assert cost(question, configuration) == pytest.approx(0.35, rel=1e-9)
    assert cost(question, configuration) <= 0.35


def test_shares_of_the_honest_clients_add_up_to_the_claim() -> None:
    alone = noised(LLOYD, SPLIT, None, agreed(1)).noise_std(1)
    together = noised(LLOYD, SPLIT, None, agreed(4)).noise_std(4)
    for name in SPLIT:
        assert together[name] == pytest.approx(alone[name], rel=1e-6)
    # Noise of more clients than are counted on is more than the claim needs.
    assert noised(LLOYD, SPLIT, None, agreed(4)).noise_std(6)["sum"] == pytest.approx(
        alone["sum"] * np.sqrt(1.5), rel=1e-6
    )


def test_noise_is_the_bound_over_the_root_of_its_price() -> None:
    configuration = agreed(1)
    assert configuration.privacy is not None
    stds = noised(LLOYD, SPLIT, None, configuration).noise_std(1)
    mu = np.sqrt(configuration.privacy.budget)
    assert stds["count"] == pytest.approx(1.0 / np.sqrt(0.1) / mu, rel=1e-6)
    assert stds["sum"] == pytest.approx(0.7 / np.sqrt(0.2) / mu, rel=1e-6)


def test_the_number_of_rows_costs_nothing_where_one_is_replaced() -> None:
    configuration = agreed(1, neighbours="replace-one")
    question = noised(SIZE, {"count": 0.5, "distance": 0.1}, None, configuration)
    assert question.sigma[0] == LEAST_SIGMA and question.noise_std(1)["count"] < 1e-4
    assert cost(question, configuration) == pytest.approx(0.1, rel=1e-9)


def test_replacing_a_record_costs_more_than_adding_one() -> None:
    once = noised(LLOYD, SPLIT, None, agreed(1)).noise_std(1)
    twice = noised(LLOYD, SPLIT, None, agreed(1, neighbours="replace-one")).noise_std(1)
    # (4 s + 0 c + e, 2 s + 2 c + e) with s, c, e the prices of sums, counts and distances.
    worst = max(4 * 0.2 + 0.05, 2 * 0.2 + 2 * 0.1 + 0.05)
    for name in some(SPLIT):
        assert twice[name] / once[name] == pytest.approx(np.sqrt(worst / 0.35), rel=1e-6)


def test_a_ledger_refuses_what_is_not_paid_for_and_keeps_its_lines() -> None:
    ledger = BudgetLedger(agreed())
    for _ in range(2):
        asked = ledger.price(Ask(LLOYD, purpose="round", weights=SPLIT))
        assert isinstance(asked.question, Noised)
    with pytest.raises(BudgetError, match=r"costs 0\.35 .* 0\.3 is left"):
        ledger.price(Ask(LLOYD, purpose="round", weights=SPLIT))
    assert [payment.question for payment in ledger.payments] == ["RelativeSums"] * 2
    assert ledger.spent == pytest.approx(0.7)
    for part, paid in some([(0.3001, False), (0.3, True), (1e-4, False)]):
        ask = Ask(LLOYD, purpose="round", weights={name: one / 0.35 * part for name, one in SPLIT.items()})
        with nullcontext() if paid else pytest.raises(BudgetError):
            ledger.price(ask)
    assert ledger.spent == pytest.approx(1.0, abs=1e-9)


def test_lost_questions_are_paid_and_a_spare_share_pays_for_them() -> None:
    whole = noised(LLOYD, {"count": 0.2, "sum": 0.6, "distance": 0.2}, None, agreed(), 0.5)
    ledger = BudgetLedger(agreed(spare=0.5), unopened=[whole])
    assert ledger.spent == pytest.approx(0.5)
    ledger.price(Ask(LLOYD, weights={"count": 0.2, "sum": 0.6, "distance": 0.2}))
    assert ledger.spent == pytest.approx(1.0)


def test_every_attempt_at_a_sum_is_paid_as_its_clients_pay_it() -> None:
    configuration = agreed(spare=0.5)
    ledger = BudgetLedger(configuration)
    question = ledger.price(Ask(LLOYD, weights=SPLIT)).question
    assert isinstance(question, Noised)
    statistics = Statistics(**{name: np.zeros(1) for name in SPLIT})
    ledger.opened(question, Total(statistics, (0, 1, 2, 3), attempts=3))
    assert ledger.spent == pytest.approx(3 * cost(question, configuration))
    assert [payment.purpose for payment in ledger.payments] == ["round", "repeat", "repeat"]
    # A run that goes on has paid for them, too.
    again = BudgetLedger(configuration)
    again.replayed(question, "round", Total(statistics, (0, 1, 2, 3), attempts=3))
    assert again.payments == ledger.payments


@pytest.mark.parametrize("stage", ["collect", "answering"])
def test_a_question_of_an_interrupted_run_is_paid_as_often_as_it_was_sent(stage: str) -> None:
    """Whatever the stage is called in which the clients of a secure sum answer."""
    question = noised(LLOYD, SPLIT, None, agreed())
    other = noised(SIZE, {"count": 0.1, "distance": 0.1}, None, agreed())
    transcript = Transcript()
    transcript.begin(agreed(), "server", "sums", (stage,))
    for index, asked, collected, opened in (
        (0, other, 1, True),
        (1, question, 0, False),
        (1, question, 2, False),
        (1, question, 3, True),
        (2, other, 1, False),
    ):
        transcript.asked(index, Ask(asked), (0, 1, 2, 3))
        for number in range(collected):
            transcript.exchanged(index, Exchange("prepare", number, {0: b"?"}), [])
            transcript.exchanged(index, Exchange(stage, number, {0: b"?"}), [])
        if opened:
            transcript.summed(index, Total(Statistics(count=[0.0]), (0,), attempts=collected))
    assert [one.to_bytes() for one in unopened(transcript)] == [
        one.to_bytes() for one in (question, question, question, other)
    ]


@pytest.mark.parametrize(
    ("question", "weights", "message"),
    [
        pytest.param(LLOYD, None, "no share of the privacy budget", id="no-weights"),
        pytest.param(LLOYD, {"count": 0.1}, "needs a weight", id="missing"),
        pytest.param(LLOYD, SPLIT | {"sum": 0.0}, "needs a weight", id="nothing"),
        pytest.param(
            LloydSums(ranges=RANGES, centers=np.zeros((1, 2))),
            {"count": 0.1, "sum": 0.1},
            "no proven bound.*local_iter=1",
            id="no-bound",
        ),
    ],
)
def test_a_question_without_price_or_bound_is_not_asked(
    question: Question, weights: dict[str, float] | None, message: str
) -> None:
    ledger = BudgetLedger(agreed())
    with pytest.raises(PrivacyError, match=message):
        ledger.price(Ask(question, weights=weights))
    assert ledger.spent == 0.0


def test_a_total_carries_the_noise_of_all_who_contributed() -> None:
    ledger = BudgetLedger(agreed())
    question = ledger.price(Ask(SIZE, weights={"count": 0.1, "distance": 0.1})).question
    assert isinstance(question, Noised)
    total = Total(Statistics(count=[1.0], distance=[1.0]), (0, 1, 2, 4, 5))
    assert ledger.opened(question, total).noise_std == question.noise_std(5)
    with pytest.raises(PrivacyError, match="without noise"):
        ledger.opened(SIZE, total)


def answering(question: Question, index: int) -> tuple[Statistics, int]:
    return Statistics(count=[1.0], distance=[1.0]), 7


def _less(question: Noised) -> Noised:
    return replace(question, sigma=question.sigma / 2.0)


def _other_unit(question: Noised) -> Noised:
    return replace(question, limits=np.array([1.0, 1.0]))


def test_a_client_pays_by_its_own_ledger_and_tells_no_count_of_clipped_rows() -> None:
    configuration = agreed()
    answerer = Admitting(answering, [ClientBudget(configuration, MemoryStore())], silent=True)
    question = noised(SIZE, {"count": 0.2, "distance": 0.2}, None, configuration)
    for index in range(2):
        assert answerer(question, index)[1] == 0
    with forbidden_by("policy:budget"):
        answerer(question, 2)


def test_a_client_pays_nothing_above_its_budget() -> None:
    configuration = agreed()
    answerer = Admitting(answering, [ClientBudget(configuration, MemoryStore())], silent=True)
    half = noised(SIZE, {"count": 0.25, "distance": 0.25}, None, configuration)
    for index in range(2):
        answerer(half, index)
    with forbidden_by("policy:budget"):
        answerer(noised(SIZE, {"count": 0.0001, "distance": 0.0001}, None, configuration), 2)


@pytest.mark.parametrize("change", [_less, _other_unit, lambda question: question.inner])
def test_a_client_refuses_what_a_server_made_cheaper(change: Callable[[Noised], Question]) -> None:
    configuration = agreed()
    answerer = Admitting(answering, [ClientBudget(configuration, MemoryStore())], silent=True)
    question = noised(SIZE, {"count": 0.3, "distance": 0.3}, None, configuration)
    with pytest.raises(PolicyError, match=r"policy:(budget|noise)"):
        answerer(change(question), 0)


@pytest.mark.parametrize("coarse", [0, 1])
def test_a_client_refuses_noise_of_too_few_steps_in_one_entry(coarse: int) -> None:
    configuration = agreed()
    answerer = Admitting(answering, [ClientBudget(configuration, MemoryStore())], silent=True)
    question = noised(SIZE, {"count": 0.3, "distance": 0.3}, None, configuration)
    sigma = np.full(2, 1e9)
    sigma[coarse] = LEAST_SIGMA * 0.99
    with forbidden_by("policy:noise"):
        answerer(replace(question, sigma=sigma), 0)


def test_a_client_takes_no_part_in_a_fit_whose_budget_is_above_its_claim() -> None:
    configuration = agreed()
    assert configuration.privacy is not None
    larger = msgspec.structs.replace(configuration.privacy, budget=configuration.privacy.budget * 1.01)
    with pytest.raises(PrivacyError, match="do not take part"):
        ClientBudget(msgspec.structs.replace(configuration, privacy=larger), MemoryStore())
