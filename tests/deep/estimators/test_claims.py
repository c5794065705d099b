"""What a run by DP-SGD claims stands in agreement, transcript and ledgers, as every other claim."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.cli.result import claim_of_run
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask
from privfed.core.roles.engine import Admitting
from privfed.core.values.guarantee import SampledSteps
from privfed.deep import CFL, DCFL, FedAvg
from privfed.deep.training.memory import memory_of
from privfed.deep.training.regrouping import Regrouping
from privfed.errors import ArgumentError, BudgetError, PrivacyError
from privfed.party.answerer import own_answerer
from privfed.party.state import MemoryStore
from privfed.privacy.claim import PrivacySpent
from privfed.privacy.dp_sgd import ClientSteps, SteppedLedger, epsilon_of, trained
from privfed.questions.lloyd import Inertia
from tests.cli.wide import run
from tests.deep.estimators.test_private import GATHERED, RECORDS, SEEDED, WORDS
from tests.deep.population import clients
from tests.raised import forbidden_by


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a fit by DP-SGD whose second client joins in round 3, and its folder."""
    folder, (X, y) = tmp_path_factory.mktemp("claims") / "run", clients(4)
    cohorts = [[0, 2, 3], [0, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    words = {**GATHERED, "rounds": 4, "privacy": RECORDS, "run_dir": folder, "cohorts": cohorts}
    return DCFL(**words).fit(X, y), folder


def test_the_agreement_names_the_guarantee_and_the_steps(fitted: Any) -> None:
    model, folder = fitted
    terms = Transcript.load(folder).configuration.privacy
    assert terms is not None and (terms.epsilon, terms.delta, terms.unit) == (8.0, 1e-6, "record")
    assert terms.steps == SampledSteps(
        noise_multiplier=1.5, sample_rate=0.2, max_grad_norm=1.0, steps=5, trainings=4
    )
    assert terms.budget == terms.steps.total == 20
    again = Configuration.from_bytes(model.federation_.configuration.to_bytes())
    assert again == model.federation_.configuration


def test_python_the_folder_and_the_command_line_say_the_same(fitted: Any) -> None:
    model, folder = fitted
    claim = claim_of_run(folder, Transcript.load(folder))
    assert claim == model.privacy_spent_ and claim.facts() == model.privacy_spent_.facts()
    shown = json.loads(run("show", folder, "--json").stdout)
    assert PrivacySpent.from_dict(shown["privacy"]) == claim
    said = run("show", folder).stdout
    assert "epsilon 8, delta 1e-06" in said and "each client adds all of it by itself" in said
    assert "Poisson-sampled" in " ".join(said.split())


def test_the_ledger_pays_for_each_round_once(fitted: Any) -> None:
    model, _ = fitted
    payments = model.privacy_spent_.payments
    assert [one.share for one in payments] == pytest.approx([0.25] * 4)
    assert {tuple(one.sigma.items()) for one in payments} == {(("gradient", 1.5),)}


def test_a_seeded_run_by_dp_sgd_is_shown_as_not_private(tmp_path: Path) -> None:
    X, y = clients(4)
    model = FedAvg(**WORDS, protocol="plain", privacy=SEEDED, run_dir=tmp_path / "r").fit(X, y)
    assert model.privacy_spent_ is None
    assert "not private: a seeded run of epsilon 8" in " ".join(run("show", tmp_path / "r").stdout.split())


def asked(model: Any) -> list[Any]:
    return [question_from_bytes(one.question) for one, _ in model.transcript_.totals()]


def answerer(model: Any, store: MemoryStore, client: ClientData | None = None) -> Admitting:
    X, y = clients(4)
    own = own_answerer("1", client or ClientData(X[1], y[1]), 0)
    return Admitting(own, [ClientSteps(model.federation_.configuration, store)], silent=True)


def test_a_client_pays_for_each_round_and_twice_where_it_may_join(fitted: Any) -> None:
    model, _ = fitted
    questions, store = asked(model), MemoryStore()
    third = next(one for one in questions if getattr(one, "training", None) and one.training.round == 3)
    own = answerer(model, store)
    own(third, 2)
    assert store.load() == pytest.approx(0.5)
    own(third, 2)
    assert store.load() == pytest.approx(0.5)
    # What a client forgot it trains again, and pays for again.
    answerer(model, store)(third, 2)
    assert store.load() == pytest.approx(1.0)
    with forbidden_by("policy:budget"):
        answerer(model, store)(questions[-2], 3)


def other_models(question: Any, number: int) -> Any:
    """The question of a round, as a server would ask it that claims clusters that kept no number."""
    models = np.concatenate([question.models[:1], question.models[:1] + 1.0])
    training = replace(question.training, round=number)
    return replace(
        question, models=models, training=training, structure=7, before=Regrouping(), numbered=False
    )


def test_a_client_trains_no_more_often_than_it_pays(fitted: Any) -> None:
    """It joins anew, and trains twice, only where it paid twice; and goes back to no earlier round."""
    model, _ = fitted
    first, store = asked(model)[0], MemoryStore()
    X, y = clients(4)
    own = ClientData(X[1], y[1])
    one = answerer(model, store, own)
    one(first, 0)
    with forbidden_by("policy:budget"):
        one(other_models(first, 2), 1)
    assert memory_of(own).trainings == 1 and store.load() == pytest.approx(0.5)
    with forbidden_by("policy:budget"):
        answerer(model, MemoryStore())(other_models(first, 1), 0)
    # After a round that it was not asked in it may join, and then the round before is over.
    later, joining = MemoryStore(), ClientData(X[1], y[1])
    late = answerer(model, later, joining)
    late(other_models(first, 3), 2)
    assert memory_of(joining).trainings == 2 and later.load() == pytest.approx(0.5)
    with forbidden_by("policy:budget"):
        late(replace(first, training=replace(first.training, round=2)), 3)
    assert memory_of(joining).trainings == 2


def test_a_client_refuses_what_the_agreed_steps_do_not_cover(fitted: Any) -> None:
    model, _ = fitted
    question, own = asked(model)[0], answerer(model, MemoryStore())
    weaker = replace(question, training=replace(question.training, noise_multiplier=1.0))
    none = replace(question, training=replace(question.training, noise_multiplier=0.0))
    more = replace(question, training=replace(question.training, trainings=9))
    centers = Inertia(ranges=question.ranges, centers=np.zeros((2, 4)))
    for other in (weaker, none, more, centers):
        with forbidden_by("policy:noise"):
            own(other, 0)
        with pytest.raises(PrivacyError):
            SteppedLedger(model.federation_.configuration).price(Ask(other))


def test_steps_that_come_to_more_than_the_claim_are_refused_before_the_fit(fitted: Any) -> None:
    model, _ = fitted
    agreed = model.federation_.configuration
    for words in ({"epsilon": 1.0}, {"budget": 19.0}, {"unit": "client"}, {"noise": "distributed"}):
        other = msgspec.convert(msgspec.to_builtins(agreed.privacy) | words, type(agreed.privacy))
        with pytest.raises(PrivacyError, match="do not take part"):
            ClientSteps(msgspec.structs.replace(agreed, privacy=other), MemoryStore())  # type: ignore[arg-type]
    assert epsilon_of(1.5, 0.2, 20, 1e-6) > 1.0


def test_one_training_too_many_is_not_paid(fitted: Any) -> None:
    model, _ = fitted
    question = asked(model)[0]
    ledger = SteppedLedger(model.federation_.configuration)
    with pytest.raises(BudgetError, match="4 were agreed on"):
        ledger.price(Ask(replace(question, training=replace(question.training, round=5))))
    assert trained(question, question.training.sampled_steps).number == 1


@pytest.mark.parametrize("kind", [FedAvg, CFL])
def test_the_claim_holds_over_other_sums_too(kind: Any) -> None:
    X, y = clients(6)
    model = kind(**{**WORDS, "rounds": 1}, privacy=RECORDS).fit(X, y)
    assert model.privacy_spent_.against["the server with clients"] == "(8, 1e-06) each client alone"
    assert model.federation_.configuration.privacy.steps.trainings == 1


def test_nonsense_is_no_step() -> None:
    words = {"noise_multiplier": 1.0, "sample_rate": 0.5, "max_grad_norm": 1.0, "steps": 1, "trainings": 1}
    for wrong in ({"sample_rate": 2.0}, {"noise_multiplier": 0.0}, {"steps": 0}, {"trainings": 0}):
        with pytest.raises(ArgumentError):
            SampledSteps(**{**words, **wrong})  # type: ignore[arg-type]
