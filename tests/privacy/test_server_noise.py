"""Noise of the server: what it must know, when it draws, and that nothing it sees follows from a total."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from privfed import (
    KFED,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    metrics,
    select_n_clusters,
)
from privfed.algorithms.private.kmeans import FixedKMeans
from privfed.algorithms.private.scale import octave
from privfed.core.agreed.configuration import AddedNoise, Configuration, Terms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.roles.engine import Admitting
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PrivacyError
from privfed.party.state import MemoryStore
from privfed.privacy.accounting import gdp_mu
from privfed.privacy.claim import Privacy
from privfed.privacy.ledger import BudgetLedger, ClientBudget
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import ServerNoise, added_noise, agreed_on, cost, noised, scheduled
from privfed.protocols import Masked, Slotted
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.lloyd import LloydSums
from tests.default_run import covering, examples, slow
from tests.privacy.served import BOX, Asks, by_server
from tests.raised import forbidden_by
from tests.some import some

RANGES = Ranges([-1.0, -1.0], [1.0, 1.0], 64)
LLOYD = RelativeSums(ranges=RANGES, centers=np.array([[0.0, 0.0], [0.5, 0.5]]), radius=0.7)
SPLIT = {"count": 0.1, "sum": 0.2, "distance": 0.05}
ASK = Ask(LLOYD, weights=SPLIT)
ROWS = np.random.default_rng(0).uniform(-0.9, 0.9, (200, 2))
CLIENTS = np.array_split(ROWS, 5)


def agreed(privacy: Privacy | None = None, runs: Any = None, n_features: int = 2) -> Configuration:
    privacy = by_server() if privacy is None else privacy
    bare = Configuration(
        protocol="ckks",
        algorithm="test",
        clients=tuple("abcdef"),
        n_features=n_features,
        terms=Terms(honest=4),
        privacy=privacy.terms(),
    )
    return bare if privacy.noise != "server" else scheduled(bare, runs or Asks(ASK, ASK), privacy.domain)


def noise_of(configuration: Configuration) -> tuple[AddedNoise, ...]:
    assert configuration.privacy is not None
    return configuration.privacy.schedule


# One draw for the whole claim.


def test_one_draw_is_the_whole_claim_however_many_clients_are_honest() -> None:
    asked = noised(LLOYD, SPLIT, None, agreed())
    alone = noised(LLOYD, SPLIT, None, agreed(by_server(noise="local")))
    assert asked.by_server and not alone.by_server
    # A hundredth of the budget is for what encoding loses.
    np.testing.assert_allclose(asked.sigma, alone.sigma / np.sqrt(0.99), rtol=1e-6)
    # However many answers are in the sum, its noise is one draw's.
    assert asked.noise_std(100) == asked.noise_std(1)
    assert cost(asked, agreed()) == pytest.approx(0.35, rel=1e-9)


def test_clients_answer_exactly_and_ranges_are_those_of_exact_answers() -> None:
    asked, data = noised(LLOYD, SPLIT, None, agreed()), ClientData(ROWS[:64])
    rng = np.random.default_rng(0)
    for name in some(SPLIT):
        np.testing.assert_array_equal(asked.answer(data, rng)[name], LLOYD.answer(data, rng)[name])
    reach = [64 * LLOYD.bounds[name].l2 / step for name, step in zip(SPLIT, asked.steps, strict=True)]
    added = added_noise(asked)
    for i, sigma in enumerate(added.sigma):
        assert added.high[i] == np.floor(reach[i]) and added.low[i] == (np.ceil(-reach[i]) if i == 1 else 0)
        assert asked.noise_reach[[0, 2, 6][i]] == np.ceil(40 * sigma) * asked.steps[i]


def test_noise_is_exactly_discrete_gaussian() -> None:
    one = AddedNoise(sizes=(150_000, 50_000), sigma=(5.0, 40.0), low=(-1e4, -1e4), high=(1e4, 1e4))
    terms = msgspec.structs.replace(by_server().terms(), schedule=(one,))
    found = ServerNoise(msgspec.structs.replace(agreed(), privacy=terms)).draw(0)
    drawn = found.values
    assert found.spec.size == drawn.size == 200_000 and (drawn == np.rint(drawn)).all()
    for part, sigma in ((drawn[:150_000], 5.0), (drawn[150_000:], 40.0)):
        values = np.arange(-int(3 * sigma), int(3 * sigma) + 1)
        mass = np.exp(-np.square(np.arange(-1000, 1001)) / (2 * sigma**2))
        expected = len(part) * np.exp(-np.square(values) / (2 * sigma**2)) / mass.sum()
        counts = np.array([(part == value).sum() for value in values])
        rest = len(part) - counts.sum(), len(part) - expected.sum()
        fits = chisquare(np.append(counts, rest[0]), np.append(expected, rest[1]))
        assert fits.pvalue > 1e-3
        assert abs(part.mean()) < 4 * sigma / np.sqrt(len(part))


def test_a_sum_gets_its_noise_once_and_what_was_not_agreed_on_none() -> None:
    noise = ServerNoise(agreed())
    noise.draw(0)
    for index in (0, 2):
        with pytest.raises(PrivacyError, match=f"sum {index} was not agreed on, or has had its noise"):
            noise.draw(index)
    noise.draw(1)


def test_a_seeded_runs_noise_repeats_and_differs_from_sum_to_sum_and_claimed_noise_does_not_repeat() -> None:
    def drawn(privacy: Privacy, index: int = 0) -> np.ndarray:
        return ServerNoise(agreed(privacy)).draw(index).values

    np.testing.assert_array_equal(drawn(by_server()), drawn(by_server()))
    assert (drawn(by_server(), 0) != drawn(by_server(), 1)).any()
    claimed = by_server(noise_seed=None)
    assert (drawn(claimed) != drawn(claimed)).any()


# What is agreed on before.


@pytest.mark.parametrize(
    ("unit", "neighbours", "d"), covering(["record", "client"], ["add-remove", "replace-one"], [2, 5])
)
@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.0, 1.0, 1e3, 1e6]))
def test_no_total_changes_what_the_server_must_know(
    unit: str, neighbours: str, d: int, seed: int, size: float
) -> None:
    privacy, algorithm = by_server(unit=unit, neighbours=neighbours), FixedKMeans(n_clusters=3, rounds=4)
    configuration = agreed(privacy, algorithm, d)
    rng, ledger, asked = np.random.default_rng(seed), BudgetLedger(configuration), 0
    conversation = algorithm.run(
        Setting(configuration.clients, d, BOX, privacy=configuration.privacy, noising=1)
    )
    ask = next(conversation)
    try:
        while True:
            # The ledger refuses what is not as agreed on.
            question = ledger.price(ask).question
            assert isinstance(question, Noised)
            asked += 1
            found = question.spec.unflatten(size * rng.standard_normal(question.spec.size))
            ask = conversation.send(Total(found, (0, 1, 2), noise_std=question.noise_std(1)))
    except StopIteration:
        assert asked == len(noise_of(configuration)) <= algorithm.max_sums
        # Where a record is replaced, their number costs nothing.
        assert 0.99 < ledger.spent <= 1.0 + 1e-9


def test_octaves_of_a_radius_need_the_same_noise_and_other_radii_another() -> None:
    def added(radius: float) -> AddedNoise:
        return added_noise(noised(replace(LLOYD, radius=radius), SPLIT, None, agreed()))

    assert added(0.7) == added(0.35) == added(0.7 * 2.0**-30)
    assert added(0.7) != added(0.69)
    below = 1.0 - 2.0**-48.5
    assert added(below) == added(below * 2.0**-30) != added(1.0)
    assert octave(0.36, 0.7) == 0.35 and octave(9.0, 0.7) == 0.7 and octave(0.0, 1.0) == 2.0**-40


def test_a_question_is_agreed_on_for_its_own_sum_alone() -> None:
    asks = ASK, replace(ASK, question=replace(LLOYD, radius=0.6))
    configuration = agreed(runs=Asks(*asks))
    asked = [noised(one.question, SPLIT, None, configuration) for one in asks]
    found = [[agreed_on(one, configuration, index) for index in range(3)] for one in asked]
    assert found == [[True, False, False], [False, True, False]]


def test_a_ledger_and_a_client_refuse_what_was_not_agreed_on() -> None:
    configuration = agreed()
    other = replace(ASK, question=replace(LLOYD, radius=0.6))
    with pytest.raises(PrivacyError, match=r"not agreed on for sum 0.*noise=\"distributed\""):
        BudgetLedger(configuration).price(other)
    ledger = BudgetLedger(configuration)
    for _ in range(2):
        ledger.price(ASK)
    with pytest.raises(PrivacyError, match="not agreed on for sum 2"):
        ledger.price(replace(ASK, weights=dict.fromkeys(SPLIT, 0.01)))

    def answering(question: Any, index: int) -> tuple[Statistics, int]:
        return Statistics(count=[1.0]), 3

    question = noised(LLOYD, SPLIT, None, configuration)
    client = Admitting(answering, [ClientBudget(configuration, MemoryStore())], silent=True)
    assert client(question, 0)[1] == 0
    less = replace(question, sigma=question.sigma * 1.01)
    for asked, index in ((question, 2), (less, 1), (replace(question, by_server=False), 1)):
        with forbidden_by("policy:noise"):
            client(asked, index)
    # Nor does a client without such an agreement answer without noise.
    distributed = ClientBudget(agreed(by_server(noise="distributed")), MemoryStore())
    with forbidden_by("policy:noise"):
        distributed(question, 0)


def test_extreme_steps_and_entries_of_uneven_ranges_are_refused() -> None:
    with pytest.raises(PrivacyError, match="steps are within"):
        added_noise(noised(replace(LLOYD, radius=2.0**-440), SPLIT, None, agreed()))
    ranges = Ranges([-1.0, -3.0], [1.0, 1.0], 64)
    uneven = Noised(
        ranges=ranges,
        inner=LloydSums(ranges=ranges, centers=np.zeros((2, 2))),
        sigma=np.full(2, 9.0),
        limits=np.full(2, 200.0),
        by_server=True,
    )
    with pytest.raises(PrivacyError, match="all have the same range"):
        added_noise(uneven)


# Who may use it.


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(DPKMeans(3), "DWFKMeans.local_iter=1, tol=0", id="a-plan-by-totals"),
        pytest.param(DWFKMeans(3, local_iter=1), r"got tol=1e-06; use tol=0 .*distributed", id="tol"),
        pytest.param(DWFKMeans(3, local_iter=1, tol=0, patience=2), "use patience=None", id="patience"),
        pytest.param(DWFKMeans(3, local_iter=1, tol=0, n_init=2), "n_init=1", id="restarts"),
        pytest.param(DWFKMeans(3, local_iter=1, tol=0, relocate_empty=True), "relocate_empty", id="moved"),
        pytest.param(FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1), "use tol=0", id="fuzzy"),
        pytest.param(KFED(3), 'noise="local" or "distributed"', id="local-noise"),
        pytest.param(FederatedScaler(), 'noise="distributed"', id="scaler"),
    ],
)
def test_what_totals_decide_on_is_an_error_that_names_the_way_out(model: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        model.set_params(privacy=by_server(), protocol="ckks").fit(CLIENTS)


def test_the_choice_of_a_number_of_clusters_and_metrics_are_refused() -> None:
    with pytest.raises(PrivacyError, match='noise="distributed"'):
        select_n_clusters(CLIENTS, [2, 3], estimator=DPKMeans(2, protocol="ckks", privacy=by_server()))
    with pytest.raises(PrivacyError, match='noise="distributed"'):
        metrics.inertia(CLIENTS, np.zeros((1, 2)), privacy=by_server(), protocol="ckks")


@pytest.mark.parametrize("protocol", ["plain", "masked", Masked(), Slotted(Masked(), sums=1, contributors=3)])
def test_sums_that_the_server_opens_are_refused(protocol: Any) -> None:
    model = DWFKMeans(3, local_iter=1, tol=0, max_iter=2, protocol=protocol, privacy=by_server())
    with pytest.raises(ArgumentError, match=r'opens .* sums; use noise="distributed", or protocol="ckks"'):
        model.fit(CLIENTS)


def test_a_claim_beside_which_floats_would_tell_is_refused_over_ckks_alone() -> None:
    words: dict[str, Any] = {"local_iter": 1, "tol": 0, "max_iter": 2, "privacy": by_server(epsilon=0.05)}
    with pytest.raises(ArgumentError, match=r'epsilon=0.05.*protocol="group-masked"'):
        DWFKMeans(3, protocol="ckks", **words).fit(CLIENTS)
    assert DWFKMeans(3, protocol="group-masked", **words).fit(CLIENTS).n_iter_ == 2


FITTED: dict[str, Any] = {
    "DWF": DWFKMeans(3, local_iter=1, tol=0, max_iter=3, momentum=0.2),
    "DWF, given centers": DWFKMeans(3, local_iter=1, tol=0, max_iter=3, init=np.eye(3, 2)),
    "mini-batch": FederatedMiniBatchKMeans(3, epochs=1, batch_size=None, tol=0, max_iter=3),
    "fuzzy": FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1, tol=0, max_iter=3),
}


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("name", FITTED)
@pytest.mark.few(3)
def test_estimators_of_a_fixed_number_of_rounds_run_under_it(name: str, unit: str) -> None:
    model = FITTED[name].set_params(privacy=by_server(unit=unit), protocol="group-masked").fit(CLIENTS)
    assert model.n_iter_ == 3 and model.privacy_spent_ is None
    assert (np.abs(model.cluster_centers_) <= 1.0).all()


def test_several_local_steps_run_under_it_for_a_whole_client() -> None:
    model = DWFKMeans(2, tol=0, max_iter=2, privacy=by_server(unit="client"), protocol="group-masked")
    assert model.fit(CLIENTS).n_iter_ == 2


@pytest.mark.parametrize("protocol", ["ckks", "group-masked"])
def test_the_claim_says_against_whom_it_holds_and_against_whom_not(protocol: str) -> None:
    privacy = by_server(noise_seed=None)
    model = DWFKMeans(3, local_iter=1, tol=0, max_iter=2, protocol=protocol, privacy=privacy).fit(CLIENTS)
    spent = model.privacy_spent_
    assert spent.against == {
        "readers of the model": "(4, 1e-06) if the server adds the noise honestly",
        "a client": "(4, 1e-06) if the server adds the noise honestly",
        "the server": "ciphertext only: none once it learns a total or the model",
        "the server with clients": "none: it knows the noise, and they know the totals",
    }
    assert ("estimated" in spent.composed) == (protocol == "ckks")
    assert sum(payment.share for payment in spent.payments) == pytest.approx(1.0)


def test_clients_keep_aside_themselves_what_encryption_loses() -> None:
    honest = agreed(runs=Asks(ASK))
    assert honest.privacy is not None
    whole = msgspec.structs.replace(honest.privacy, budget=gdp_mu(4.0, 1e-6) ** 2)
    ClientBudget(honest, MemoryStore())
    with pytest.raises(PrivacyError, match="more than epsilon=4"):
        ClientBudget(msgspec.structs.replace(honest, privacy=whole), MemoryStore())


@pytest.mark.parametrize("d", [2, slow(6)])
def test_a_fit_in_fixed_sums_finds_clusters(d: int) -> None:
    rng = np.random.default_rng(d)
    middles = rng.choice([-0.6, 0.6], (3, d))
    middles[:, 0] = (-0.6, 0.0, 0.6)
    rows = [middles[rng.integers(3, size=60)] + 0.05 * rng.standard_normal((60, d)) for _ in range(40)]
    words: dict[str, Any] = {"local_iter": 1, "tol": 0, "max_iter": 4, "protocol": "group-masked"}
    found = DWFKMeans(3, privacy=by_server(epsilon=2.0), **words).fit(rows).cluster_centers_
    for middle in some(middles):
        assert np.linalg.norm(found - middle, axis=1).min() < 0.1
