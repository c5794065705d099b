"""Skellam noise on the whole path: what is drawn, what it costs, what is claimed, and what audits find."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DPKMeans
from privfed.attacks.audits import Claim, audit_noises, audit_run, audit_units
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Box, Ranges
from privfed.errors import ArgumentError, PolicyError, PrivacyError
from privfed.party.state import MemoryStore
from privfed.privacy import noised
from privfed.privacy.accounting import budget_of, gdp_mu
from privfed.privacy.claim import Privacy, claimed, unless_seeded
from privfed.privacy.ledger import BudgetLedger, ClientBudget
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import cost
from privfed.privacy.skellam import skellam
from privfed.questions.bounded.bounded_sums import GridSums, RelativeSums, SizeSums
from tests.default_run import covering, slow
from tests.privacy.audited import CLIENT, RECORD, centers_of
from tests.privacy.paths import Path
from tests.privacy.shifts import (
    DELTA,
    Recorder,
    Trusted,
    claim,
    rows_of,
    shift_of_a_client,
    shift_of_a_record,
)
from tests.privacy.test_audit_path import audited, meets, noises
from tests.privacy.test_shift_audit import LEAST as LEAST_OF_RECORDS
from tests.privacy.test_shift_audit import OTHERS as OTHER_RECORDS
from tests.privacy.test_skellam import p_value
from tests.seeded import seeded

RANGES = Ranges(np.array([-1.0, -1.0]), np.array([1.0, 1.0]), 100)
SUMS = RelativeSums(ranges=RANGES, centers=np.array([[0.0, 0.0], [0.5, 0.5]]), radius=0.7)
SPLIT = {"count": 0.1, "sum": 0.2, "distance": 0.05}


def agreed(honest: int = 4, **words: Any) -> Configuration:
    known: dict[str, Any] = {
        "epsilon": 1.0,
        "unit": "record",
        "neighbours": "add-remove",
        "mechanism": "skellam",
    }
    return Configuration(
        protocol="masked",
        algorithm="test",
        clients=tuple("012345"),
        n_features=2,
        terms=Terms(honest=honest),
        privacy=Privacy(delta=DELTA, domain=Box(-1, 1), **(known | words)).terms(),
    )


def priced(configuration: Configuration, question: Any = SUMS, weights: Any = SPLIT) -> Noised:
    asked = BudgetLedger(configuration).price(Ask(question, weights=weights)).question
    assert isinstance(asked, Noised) and asked.mechanism == "skellam"
    return asked


def test_noise_of_a_sum_is_skellam_with_the_variances_of_those_who_are_left() -> None:
    grid = GridSums(ranges=RANGES, radius=0.01, per_axis=200)
    question = Noised(
        ranges=RANGES,
        inner=grid,
        sigma=np.array([1024.0, 3000.0]),
        limits=np.array([]),
        mechanism="skellam",
    )
    clients = [ClientData(np.full((1, 2), 0.5))] * 5
    answers = question.answer_all(clients, [seeded([8, i]) for i in range(5)])
    exact = grid.answer(clients[0], np.random.default_rng(0))
    for name, sigma, step in zip(("count", "sum"), question.sigma, question.steps, strict=True):
        for left in ([0, 1, 2, 3, 4], [1, 4]):
            total = sum(answers[i][name] - exact[name] for i in left)
            draws = np.rint(total.ravel() / step).astype(np.int64)
            assert p_value(draws, len(left) * sigma**2) > 0.001
            assert question.noise_std(len(left))[name] == pytest.approx(np.sqrt(len(left)) * sigma * step)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("honest", [1, 4, 1000])
def test_a_question_costs_its_weights_whoever_computes_it(neighbours: str, honest: int) -> None:
    configuration = agreed(honest, neighbours=neighbours)
    assert 0.35 * (1 - 1e-9) <= cost(priced(configuration), configuration) <= 0.35


def test_noise_is_wider_than_the_discrete_gaussians_by_the_root_of_the_budgets() -> None:
    wide = priced(agreed())
    narrow = BudgetLedger(agreed(mechanism="gaussian")).price(Ask(SUMS, weights=SPLIT)).question
    assert isinstance(narrow, Noised)
    np.testing.assert_allclose(wide.sigma / narrow.sigma, 1.0725, atol=1e-4)


def test_a_share_has_room_for_the_samplers_proof_or_the_error_names_a_remedy() -> None:
    # The number of rows is public where one is replaced: it gets the least noise that can be drawn.
    size = SizeSums(ranges=RANGES, center=np.zeros(2), radius=1.0)
    free = priced(agreed(neighbours="replace-one"), size, {"count": 0.5, "distance": 0.1})
    assert free.sigma[0] == 1024.0
    with pytest.raises(PrivacyError, match=r'needs 1024 .* smaller epsilon, or use mechanism="gaussian"'):
        priced(agreed(10**7, epsilon=9.0))


def refusal(question: Noised, configuration: Configuration) -> str:
    budget = ClientBudget(configuration, MemoryStore())
    with pytest.raises(PolicyError) as refused:
        budget(question, 0)
    return str(refused.value)


def test_a_client_agrees_to_no_budget_beyond_the_renyi_bound() -> None:
    configuration = agreed()
    assert configuration.privacy is not None
    curve = gdp_mu(1.0, DELTA) ** 2
    greedy = msgspec.structs.replace(
        configuration, privacy=msgspec.structs.replace(configuration.privacy, budget=curve)
    )
    with pytest.raises(PrivacyError, match="do not take part"):
        ClientBudget(greedy, MemoryStore())


def test_a_client_answers_no_question_with_noise_of_the_other_mechanism() -> None:
    configuration, other = agreed(), agreed(mechanism="gaussian")
    question = priced(configuration)
    assert "policy:noise" in refusal(replace(question, mechanism="gaussian"), configuration)
    assert "policy:noise" in refusal(question, other)


def test_the_server_adds_no_skellam_noise() -> None:
    with pytest.raises(ArgumentError, match='noise="server", one draw a sum, use mechanism="gaussian"'):
        agreed(noise="server")


def test_a_claim_says_that_it_is_by_renyi_differential_privacy() -> None:
    spent = unless_seeded(claimed(agreed(), (), one_key=False))
    assert spent is not None and spent.composed.startswith("all releases together, by Renyi")
    assert (spent.epsilon, spent.delta) == (1.0, DELTA)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("epsilon", [4.0, 10.0])
@pytest.mark.few(1)
def test_totals_give_away_what_is_claimed_but_for_the_price_of_the_bound(
    epsilon: float, masked: bool
) -> None:
    path = Path(epsilon=epsilon, masked=masked, mechanism="skellam")
    # The curve of noise so wide is at 0.93 of the claim.
    found = audited(path, 10_000 if masked else 200_000)
    assert meets(found, 0.75 if masked else 0.88)
    assert not meets(found, 0.95)


OTHER_PATHS = {
    "in three rounds": Path(epsilon=4.0, rounds=3, mechanism="skellam"),
    "replaced": Path(epsilon=4.0, replaced=True, claimed="replace-one", mechanism="skellam"),
    "three of eight lost, as the noise allows for": Path(
        epsilon=4.0, masked=True, clients=8, honest=5, lost=(1, 3, 6), mechanism="skellam"
    ),
    "claimed": Path(epsilon=4.0, masked=True, secure=True, mechanism="skellam"),
}


@pytest.mark.parametrize("name", OTHER_PATHS)
@pytest.mark.few(1)
def test_other_paths_meet_their_claims(name: str) -> None:
    # Fresh noise in every run, where it is claimed: a sound path fails this once in a million.
    assert meets(audited(OTHER_PATHS[name], 50_000, confidence=1 - 1e-6), 0.78)


def test_noise_of_half_the_width_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noised, "skellam", lambda variance, *rest: skellam(variance / 4, *rest))
    found = audited(Path(epsilon=1.0, mechanism="skellam"), 50_000)
    assert found.verdict == "violated"


def test_noise_is_independent_across_rounds_statistics_and_runs() -> None:
    found = noises(Path(epsilon=1.0, rounds=2, masked=True, mechanism="skellam"), 2)
    assert audit_noises(found, confidence=1 - 1e-7) == []


@pytest.mark.parametrize(
    ("name", "neighbours"),
    covering(
        ["DPKMeans", "DWFKMeans", "FederatedFuzzyCMeans", "select_n_clusters", "KFED"],
        ["add-remove", "replace-one"],
    ),
)
@pytest.mark.few(2)
def test_no_record_moves_a_run_by_more_than_its_budget(
    name: str, neighbours: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, recorder = rows_of(900, 2), Recorder(monkeypatch)
    privacy = replace(claim(2.0, neighbours, "record"), mechanism="skellam")
    found = RECORD[name]([rows], privacy=privacy, protocol="plain", run_dir=tmp_path / "run")
    recorder.silence()
    (asked,) = recorder.runs()
    assert {question.mechanism for question in asked} == {"skellam"}
    shift = shift_of_a_record(asked, rows, centers_of(found, 2), privacy)
    least = LEAST_OF_RECORDS.get(name, OTHER_RECORDS)[neighbours == "replace-one"]
    assert least <= shift / budget_of("skellam", 2.0, DELTA) <= 1.0


@pytest.mark.parametrize("name", ["DPKMeans", slow("DWFKMeans, 3 steps")])
def test_no_client_moves_a_run_by_more_than_its_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, recorder = np.array_split(rows_of(900, 2), 90), Recorder(monkeypatch)
    privacy = replace(claim(4.0, "add-remove", "client"), mechanism="skellam")
    found = CLIENT[name](clients, privacy=privacy, protocol=Trusted())
    recorder.silence()
    (asked,) = recorder.runs()
    shift = shift_of_a_client(asked, centers_of(found, 2), privacy, len(clients))
    assert 0.75 <= shift / budget_of("skellam", 4.0, DELTA) <= 1.0


def test_audits_of_a_run_draw_its_noise_and_find_its_claim_kept() -> None:
    rows = list(np.array_split(rows_of(900, 2), 3))
    privacy = replace(claim(1.0, "add-remove", "record"), mechanism="skellam")
    model = DPKMeans(4, protocol="plain", privacy=privacy, random_state=3).fit(rows)
    assert audit_run(model.transcript_, rows).verdict == "not refuted"
    assert audit_units(model.transcript_, trials=5_000).verdict == "not refuted"
    bold = Claim(epsilon=0.4, delta=DELTA)
    assert audit_units(model.transcript_, trials=20_000, claim=bold).verdict == "violated"


@pytest.mark.parametrize("protocol", ["masked", "group-masked"])
def test_clusters_are_found_under_skellam_noise_as_under_gaussian(protocol: str) -> None:
    rng = np.random.default_rng(4)
    wanted = np.array([[-0.6, -0.6], [0.6, -0.6], [0.0, 0.6]])
    rows = [wanted[rng.integers(3, size=400)] + 0.05 * rng.standard_normal((400, 2)) for _ in range(5)]
    privacy = Privacy(
        epsilon=2.0,
        delta=DELTA,
        unit="record",
        domain=Box(-1.0, 1.0, max_rows=1000),
        neighbours="add-remove",
        mechanism="skellam",
        noise_seed=3,
    )
    model = DPKMeans(3, protocol=protocol, privacy=privacy, random_state=0).fit(rows)
    found = model.cluster_centers_[np.argsort(model.cluster_centers_ @ [1.0, 3.0])]
    np.testing.assert_allclose(found, wanted[np.argsort(wanted @ [1.0, 3.0])], atol=0.05)
