import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.core.values.domain import Box
from privfed.core.values.guarantee import SampledSteps
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.training import local
from privfed.errors import ArgumentError, BudgetError, PrivacyError, ResumeError
from privfed.federation.clients import gather
from privfed.federation.simulation import ledger_of
from privfed.privacy.claim import Privacy
from privfed.privacy.dp_sgd import epsilon_of, noise_of_fit
from tests.deep.population import clients, kinds, same
from tests.raised import forbidden_by, refused_with

RECORDS = Privacy(
    epsilon=8.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
)
CLIENTS = Privacy(epsilon=8.0, delta=1e-6, unit="client", domain=Box(0, 1), neighbours="add-remove")
SEEDED = Privacy(
    epsilon=8.0,
    delta=1e-6,
    unit="record",
    domain=Box(0, 1),
    neighbours="add-remove",
    noise="local",
    noise_seed=1,
)
WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 3,
    "learning_rate": 1.0,
    "rows_per_client": 200,
    "sample_rate": 0.2,
    "noise_multiplier": 1.5,
}
GATHERED: dict[str, Any] = {**WORDS, "protocol": "plain", "merge": "gathered"}


def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    all_steps = SampledSteps(
        noise_multiplier=1.0, sample_rate=sample_rate, max_grad_norm=1.0, steps=steps, trainings=1
    )
    return noise_of_fit(epsilon, delta, all_steps)


def test_the_noise_for_a_claim_is_the_least() -> None:
    found = noise_for(1.0, 1e-5, 0.05, 20)
    assert epsilon_of(found, 0.05, 20, 1e-5) <= 1.0 < epsilon_of(found * 0.99, 0.05, 20, 1e-5)
    assert epsilon_of(1.0, 1.0, 4, 1e-5) == pytest.approx(epsilon_of(0.5, 1.0, 1, 1e-5))
    assert epsilon_of(1.0, 0.1, 0, 1e-5) == 0.0
    with pytest.raises(PrivacyError, match="fewer rounds"):
        noise_for(1e-9, 1e-12, 1.0, 10**6)


def test_the_same_clients_answer_a_later_fit_from_nothing_of_an_earlier_one() -> None:
    """A fit by DP-SGD took the update of one without noise, of the same round, for its own."""
    X, y = clients(4)
    same_clients = gather(X, y=y)
    words = {**WORDS, "rounds": 1}
    plain = FedAvg(**words, domain=Box(0, 1)).fit_clients(same_clients)
    private = FedAvg(**words, privacy=SEEDED).fit_clients(same_clients)
    alone = FedAvg(**words, privacy=SEEDED).fit(X, y)
    assert np.array_equal(private.models_, alone.models_)
    assert not np.allclose(private.models_, plain.models_)


def test_dp_sgd_at_every_client_is_claimed_against_everybody() -> None:
    X, y = clients(6, rows=200)
    fitted = DCFL(**{**GATHERED, "rounds": 6}, privacy=RECORDS).fit(X, y)
    assert same(fitted.labels_, kinds(6))
    assert [fitted.join(*pair) for pair in zip(X, y, strict=True)] == fitted.labels_.tolist()
    claim = fitted.privacy_spent_
    assert claim is not None and (claim.unit, claim.noise, claim.epsilon) == ("record", "local", 8.0)
    assert set(claim.against) == {"readers of the model", "a client", "the server", "the server with clients"}
    assert epsilon_of(1.5, 0.2, 5 * 6, 1e-6) <= 8.0
    assert [payment.share for payment in claim.payments] == pytest.approx([1 / 6] * 6)


@pytest.mark.slow
def test_without_a_given_noise_the_least_is_taken() -> None:
    X, y = clients(4)
    fitted = FedAvg(**{**WORDS, "noise_multiplier": None}, protocol="plain", privacy=RECORDS).fit(X, y)
    assert fitted._training_.noise_multiplier == noise_for(8.0, 1e-6, 0.2, 15)
    assert 0.98 * 8.0 < epsilon_of(fitted._training_.noise_multiplier, 0.2, 15, 1e-6) <= 8.0


def test_a_run_that_would_pass_the_budget_stops_before_anybody_trains() -> None:
    X, y = clients(4)
    model = FedAvg(**{**WORDS, "noise_multiplier": 0.8, "rounds": 9}, protocol="plain", privacy=RECORDS)
    with pytest.raises(BudgetError, match=r"pays for (\d) of 9 rounds"):
        model.fit(X, y)
    assert not hasattr(model, "federation_")


def test_at_unit_client_updates_are_noised_through_the_ledger() -> None:
    X, y = clients(6)
    words = {"n_classes": 3, "rounds": 2, "max_update_norm": 1.0, "privacy": CLIENTS}
    for fitted in (FedAvg(**words).fit(X, y), IFCA(**words).fit(X, y), DCFL(**words).fit(X, y)):
        claim = fitted.privacy_spent_
        assert claim is not None and claim.unit == "client"
        assert sum(payment.share for payment in claim.payments) == pytest.approx(1.0)
        assert all(total.noise_std is not None for _, total in fitted.transcript_.totals()) or claim


def test_a_client_refuses_to_train_more_often_than_was_planned() -> None:
    X, y = clients(4)
    fitted = FedAvg(**WORDS, protocol="plain", privacy=SEEDED).fit(X, y)
    from privfed.core.asking.question import ClientData, question_from_bytes
    from privfed.deep.training.memory import memory_of

    asked = fitted.transcript_.totals()[-1][0]
    question, client = question_from_bytes(asked.question), ClientData(X[0], y[0])
    memory_of(client).trainings = 3
    with forbidden_by("policy:budget"):
        question.answer(client, np.random.default_rng(0))


def strange(rows: np.ndarray) -> np.ndarray:
    moved = rows.copy()
    moved[0] = 1e30
    return moved


def test_nothing_but_noised_updates_depends_on_rows() -> None:
    """Rows outside the domain, labels that are no class, a client without rows: nothing tells of them."""
    X, y = clients(4)
    odd_X, odd_y = [strange(X[0]), X[1][:0], *X[2:]], [np.where(y[0] == 0, 99, y[0]), y[1][:0], *y[2:]]
    one, other = (DCFL(**{**WORDS, "rounds": 2}, protocol="masked", privacy=RECORDS) for _ in range(2))
    one.fit([*X, *X[:2]], [*y, *y[:2]])
    other.fit([*odd_X, *X[:2]], [*odd_y, *y[:2]])
    first, second = one.federation_.traffic, other.federation_.traffic
    kept = [len(asked.question) for asked, _ in one.transcript_.totals()]
    assert len(kept) == len(other.transcript_.totals())
    assert first.exchanges == second.exchanges
    ups = [[total.clipped for _, total in fitted.transcript_.totals()] for fitted in (one, other)]
    assert ups[0] == ups[1] == [0] * len(kept)


def test_a_copy_holds_nothing_that_clients_know_of_their_rows() -> None:
    X, y = clients(4)
    fitted = FedAvg(**WORDS, protocol="plain", privacy=SEEDED).fit(X, y)
    state = fitted.__getstate__()
    assert not {"labels_", "labels_history_", "federation_"} & set(state)
    assert fitted.privacy_spent_ is None and "not private" in fitted.privacy_claim_.line
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.models_, fitted.models_)


def test_a_seeded_run_repeats() -> None:
    X, y = clients(4)
    one, other = (FedAvg(**WORDS, protocol="plain", privacy=SEEDED).fit(X, y) for _ in range(2))
    assert np.array_equal(one.models_, other.models_)


def private(**words: Any) -> Privacy:
    return Privacy(
        **{
            "epsilon": 8.0,
            "delta": 1e-6,
            "unit": "record",
            "domain": Box(0, 1),
            "neighbours": "add-remove",
            "noise": "local",
            **words,
        }
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg(**WORDS, privacy=private(noise="distributed")), 'noise="local"'),
        (lambda: FedAvg(**WORDS, privacy=private(neighbours="replace-one")), 'neighbours="add-remove"'),
        (lambda: FedAvg(**WORDS, privacy=private(noise="server"), protocol="ckks"), "models are sent"),
        (lambda: FedAvg(**{**WORDS, "rows_per_client": None}, privacy=RECORDS), "rows_per_client"),
        (lambda: FedAvg(**WORDS, weighting="rows", privacy=RECORDS), 'weighting="clients"'),
        (lambda: IFCA(**WORDS, privacy=RECORDS), 'unit="client"'),
    ],
)
def test_what_is_not_proven_is_an_error_that_names_the_alternative(make: Any, message: str) -> None:
    X, y = clients(6)
    with pytest.raises((PrivacyError, ArgumentError), match=message):
        make().fit(X, y)


def test_a_run_by_dp_sgd_is_resumed_only_where_nobody_trains_again(tmp_path: Path) -> None:
    X, y = clients(4)
    model = FedAvg(**WORDS, protocol="plain", privacy=RECORDS, run_dir=tmp_path / "run")

    def stop(index: int, ask: Any, total: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit_clients(model._gather(X, y, None), watch=stop)
    with pytest.raises(ResumeError, match=r"Privacy\(spare=...\)"):
        model.resume(X, y)
    whole = model.set_params(run_dir=tmp_path / "whole").fit(X, y).models_
    assert np.array_equal(model.resume(X, y).models_, whole)


SPARE = dataclasses.replace(RECORDS, spare=0.4)


def stopped_after(model: Any, index: int, X: Any, y: Any, resume: bool = False) -> None:
    """Fit as far as a sum, and lose the process: nothing is known any more but what lies in the folder."""

    def stop(number: int, ask: Any, total: Any) -> None:
        if number == index:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit_clients(model._gather(X, y, None), resume=resume, watch=stop)


@pytest.mark.parametrize("kind", [FedAvg, DCFL, CFL], ids=lambda one: one.__name__)
def test_a_run_with_spare_trainings_is_resumed_and_no_client_trains_more_than_it_pays_for(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = clients(6)
    words = {**(WORDS if kind is FedAvg else GATHERED), "protocol": "plain", "rounds": 6}
    done, honest = [], local.private_sgd
    monkeypatch.setattr(local, "private_sgd", lambda *given: done.append(1) or honest(*given))
    made = [kind(**words, privacy=SPARE, run_dir=tmp_path / "run") for _ in range(2)]
    stopped_after(made[0], 3, X, y)
    fitted = made[1].resume(X, y)
    assert fitted._training_.trainings == 10
    # Six rounds; in the first one after the kill a client may train twice, since it knows no cluster.
    assert 36 <= len(done) <= 42
    spent = [ledger_of(tmp_path / "run", i).load() for i in range(6)]
    assert spent == pytest.approx([0.7] * 6)
    claim = fitted.privacy_spent_
    assert claim is not None and claim.epsilon == 8.0 and sum(p.share for p in claim.payments) <= 0.6 + 1e-9
    assert epsilon_of(1.5, 0.2, 50, 1e-6) <= 8.0


def test_a_run_that_is_killed_too_often_is_refused_by_its_clients(tmp_path: Path) -> None:
    X, y = clients(4)
    words = {**WORDS, "protocol": "plain", "rounds": 6, "privacy": SPARE, "run_dir": tmp_path / "run"}
    stopped_after(FedAvg(**words), 0, X, y)
    for number in (1, 2, 3, 4):
        stopped_after(FedAvg(**words), number, X, y, resume=True)
    # Paid: 1, then 2 each time; the last one is not there.
    assert ledger_of(tmp_path / "run", 0).load() == pytest.approx(0.9)
    with refused_with("policy:budget"):
        FedAvg(**words).resume(X, y)
    assert ledger_of(tmp_path / "run", 0).load() == pytest.approx(0.9)
