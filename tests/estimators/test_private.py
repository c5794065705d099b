"""Estimators under differential privacy: what they find, what they claim, what they refuse."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from benchmarks.private_baselines import BaselineKMeans
from privfed import (
    FKM,
    KFED,
    Box,
    DPKMeans,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    Privacy,
    Simulation,
    WFKMeans,
    select_n_clusters,
)
from privfed.core.agreed.configuration import Terms
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, BudgetError, PrivacyError
from privfed.estimators.choosing import local_cluster_counts
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.privacy.ledger import BudgetLedger
from privfed.protocols import Plain
from tests.default_run import covering, slow_but
from tests.some import some

CENTERS = np.array([[-0.6, -0.5], [0.6, -0.5], [0.0, 0.6]])
BOX = Box(-1.0, 1.0)


class Trusted(Plain):
    """Plain sums in which every client is counted on for its share of the noise, as masked ones can be."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        return Terms(max_sums=max_sums, threshold=1, honest=clients)


def clients_of(n_clients: int, n_rows: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.integers(3, size=n_clients * n_rows)
    rows = CENTERS[own] + 0.1 * rng.standard_normal((len(own), 2))
    return np.array_split(np.clip(rows, -1, 1), n_clients)


CLIENTS = clients_of(5, 600)
METRICS = [
    *("inertia", "score", "davies_bouldin", "mean_distance", "simplified_silhouette"),
    *("calinski_harabasz", "fuzzy_davies_bouldin"),
]


def privacy(epsilon: float = 2.0, **words: Any) -> Privacy:
    known: dict[str, Any] = {"delta": 1e-6, "unit": "record", "domain": BOX, "neighbours": "add-remove"}
    return Privacy(epsilon=epsilon, **(known | {"noise_seed": 3} | words))


def worst(centers: np.ndarray) -> float:
    """Return how far the true center is that no found one is near to."""
    return float(np.sqrt(squared_distances(CENTERS, centers).min(axis=1)).max())


RECORD: dict[str, Any] = {
    "dp": DPKMeans(3),
    "dp-lloyd": BaselineKMeans(3, method="lloyd", random_state=4),
    "dp-fastlloyd": BaselineKMeans(3, method="fastlloyd", random_state=4),
    "dwf": DWFKMeans(3, local_iter=1, learning_rate=0.9, momentum=0.1),
    "minibatch": FederatedMiniBatchKMeans(3, momentum=0.2),
    "fuzzy": FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1),
    "kfed": KFED(3),
    "fkm": FKM(3),
}


@pytest.mark.parametrize(("name", "neighbours"), covering(list(RECORD), ["add-remove", "replace-one"]))
@pytest.mark.few(4)
def test_every_clustering_finds_the_clusters_under_record_privacy(name: str, neighbours: str) -> None:
    model = RECORD[name].set_params(privacy=privacy(8.0, neighbours=neighbours), protocol="plain")
    model.fit(CLIENTS)
    assert worst(model.cluster_centers_) < 0.15
    assert model.inertia_ is None and model.privacy_spent_ is None  # a seeded run claims nothing
    assert len(model.history_) == model.n_iter_ + 1
    assert [len(labels) for labels in model.labels_] == [600] * 5


CLIENT: dict[str, Any] = {
    "dp": DPKMeans(3),
    "dwf": DWFKMeans(3, local_iter=3),
    "ewf": EWFKMeans(3, local_iter=2),
    "minibatch": FederatedMiniBatchKMeans(3, epochs=2, batch_size=10),
    "fuzzy": FederatedFuzzyCMeans(3, averaging="weighted", local_iter=4),
}


@pytest.mark.parametrize("name", slow_but(CLIENT, "dp", "fuzzy"))
def test_clusterings_with_local_steps_find_the_clusters_under_client_privacy(name: str) -> None:
    model = CLIENT[name].set_params(privacy=privacy(9.0, unit="client", delta=1e-5), protocol=Trusted())
    model.fit(clients_of(60, 30))
    assert worst(model.cluster_centers_) < 0.3
    assert 900 < model.n_rows_ < 3600


def test_the_whole_budget_is_paid_and_claimed_against_everyone_it_holds_against() -> None:
    model = DPKMeans(3, privacy=privacy(noise_seed=None)).fit(CLIENTS)
    spent = model.privacy_spent_
    assert (spent.epsilon, spent.delta, spent.unit, spent.neighbours) == (2.0, 1e-6, "record", "add-remove")
    assert sum(payment.share for payment in spent.payments) == pytest.approx(1.0, abs=1e-9)
    purposes = [payment.purpose for payment in spent.payments]
    assert purposes[:4] == ["size", "center", "radius", "coreset"] and purposes[-1] == "round"
    assert spent.against["the server"] == "(2, 1e-06)"
    json.dumps(spent.to_dict())


def test_seeded_runs_repeat_and_claimed_noise_does_not() -> None:
    def fitted(seed: int | None) -> np.ndarray:
        words = privacy(noise_seed=seed)
        return DPKMeans(3, privacy=words, protocol="plain").fit(CLIENTS).cluster_centers_

    np.testing.assert_array_equal(fitted(1), fitted(1))
    assert (fitted(1) != fitted(2)).any() and (fitted(None) != fitted(None)).any()


def test_rows_outside_the_domain_are_clipped_and_not_told_of() -> None:
    outside = [*CLIENTS[:-1], 50.0 * CLIENTS[-1]]
    model = DPKMeans(3, privacy=privacy(), protocol="plain").fit(outside)
    assert (np.abs(model.cluster_centers_) <= 1.0).all()


def test_an_interrupted_run_is_resumed_with_the_totals_that_it_has(tmp_path: Path) -> None:
    words = {"privacy": privacy(noise_seed=None), "protocol": "plain", "run_dir": tmp_path}
    first = DPKMeans(3, **words).fit(CLIENTS)
    again = DPKMeans(3, **words).resume(CLIENTS)
    np.testing.assert_array_equal(first.cluster_centers_, again.cluster_centers_)


def test_clients_keep_their_own_centers_when_a_run_with_local_noise_is_resumed(tmp_path: Path) -> None:
    words = {"privacy": privacy(noise_seed=None), "run_dir": tmp_path}
    first = KFED(3, **words).fit(CLIENTS)
    again = KFED(3, **words).resume(CLIENTS)
    np.testing.assert_array_equal(first.cluster_centers_, again.cluster_centers_)
    assert first.privacy_spent_.against["the server with clients"] == "(2, 1e-06) each client alone"


def test_a_saved_model_predicts_as_before(tmp_path: Path) -> None:
    model = DPKMeans(3, privacy=privacy(), protocol="plain").fit(CLIENTS)
    model.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(CLIENTS[0]), model.predict(CLIENTS[0]))
    assert loaded.inertia_ is None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(DWFKMeans(3), '5 local steps.*local_iter=1.*unit="client"', id="local-steps"),
        pytest.param(EWFKMeans(3, local_iter=1), "'equal'.*DWFKMeans", id="equal-weights"),
        pytest.param(DWFKMeans(3, local_iter=1, n_init=2), "n_init=2.*n_init=1", id="restarts"),
        pytest.param(DWFKMeans(3, local_iter=1, init="kfed"), '"coreset"', id="kfed-start"),
        pytest.param(DWFKMeans(3, local_iter=1, clients_per_round=3), "clients_per_round", id="sampling"),
        pytest.param(FederatedMiniBatchKMeans(3, epochs=2), "epochs=1", id="epochs"),
        pytest.param(FederatedMiniBatchKMeans(3, batch_size=8), "leave out batch_size=", id="batches"),
        pytest.param(FederatedFuzzyCMeans(3), 'averaging="weighted"', id="k-means-averaging"),
        pytest.param(FederatedFuzzyCMeans(3, averaging="weighted"), "local_iter=1", id="fuzzy-steps"),
        pytest.param(KFED(3, merge="gathered", protocol="plain"), 'merge="summed"', id="gathered"),
    ],
)
def test_what_has_no_bound_for_a_record_is_an_error_that_names_the_way_out(model: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        model.set_params(privacy=privacy()).fit(CLIENTS)


def test_local_noise_protects_records_and_not_clients() -> None:
    with pytest.raises(PrivacyError, match="DWFKMeans"):
        FKM(3, privacy=privacy(unit="client")).fit(CLIENTS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "needs privacy=..."),
        ({"privacy": 1.0}, "privacy must be None or of type Privacy"),
        ({"privacy": privacy(), "domain": Box(-2, 2)}, "declare the domain there"),
        ({"privacy": privacy(), "n_clusters": 0}, "n_clusters"),
    ],
)
def test_words_that_do_not_fit_are_an_error(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DPKMeans(**words).fit(CLIENTS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        pytest.param(lambda update: np.ones(4), "must return 3 numbers", id="shape"),
        pytest.param(lambda update: update.count, "failed with AttributeError", id="error"),
    ],
)
def test_a_weighting_that_fails_for_everybody_is_an_error_before_anything_is_sent(
    weights: Any, message: str, tmp_path: Path
) -> None:
    model = WFKMeans(3, weights=weights, privacy=privacy(unit="client"), run_dir=tmp_path / "run")
    with pytest.raises(ArgumentError, match=message):
        model.fit(CLIENTS)
    assert not (tmp_path / "run").exists()


def test_nothing_more_is_answered_once_the_budget_is_spent() -> None:
    model = DPKMeans(3, privacy=privacy(), protocol="plain").fit(CLIENTS)
    sums = len(model.transcript_.totals())
    with pytest.raises(BudgetError, match="nothing was sent"):
        privfed.metrics.inertia(model.federation_, model.cluster_centers_)
    assert len(model.transcript_.totals()) == sums


def test_a_delta_too_large_for_the_rows_warns_after_the_fit() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DPKMeans(3, privacy=privacy(delta=1e-3), protocol="plain").fit(CLIENTS)
    assert any("is at least 1" in str(one.message) for one in caught)


@pytest.mark.parametrize(("name", "neighbours"), covering(list(METRICS), ["add-remove", "replace-one"]))
def test_metrics_are_near_their_values_for_a_budget_of_their_own(name: str, neighbours: str) -> None:
    metric = getattr(privfed.metrics, name)
    exact = metric(CLIENTS, CENTERS, domain=BOX, protocol="plain")
    noised = metric(CLIENTS, CENTERS, privacy=privacy(9.0, neighbours=neighbours), protocol="plain")
    assert noised == pytest.approx(exact, rel=0.25) and noised != exact


@pytest.mark.parametrize("name", slow_but(METRICS, "mean_distance"))
def test_metrics_are_near_their_values_with_clients_as_the_unit(name: str) -> None:
    clients, metric = clients_of(1000, 10), getattr(privfed.metrics, name)
    exact = metric(clients, CENTERS, domain=BOX, protocol="plain")
    noised = metric(clients, CENTERS, privacy=privacy(9.0, unit="client"), protocol=Trusted())
    assert noised == pytest.approx(exact, rel=0.25) and noised != exact


def test_a_metric_of_clients_as_a_whole_is_an_error_at_unit_record() -> None:
    with pytest.raises(PrivacyError, match='claim unit="client"'):
        local_cluster_counts(CLIENTS, privacy=privacy(), protocol="plain")


def test_a_replaced_record_costs_a_lone_number_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    price, asked = BudgetLedger.price, list[Any]()
    monkeypatch.setattr(BudgetLedger, "price", lambda self, ask: asked.append(price(self, ask)) or asked[-1])
    for neighbours in ("add-remove", "replace-one"):
        privfed.metrics.inertia(CLIENTS, CENTERS, privacy=privacy(neighbours=neighbours), protocol="plain")
    sigma = [one.question.sigma for one in asked]
    # One squared distance in the place of another moves the sum no further, and the rows are public.
    assert sigma[1][0] == pytest.approx(sigma[0][0] / np.sqrt(2.0))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_labels_agree_under_privacy_as_without(unit: str) -> None:
    clients = clients_of(300, 30)
    labels = [squared_distances(rows, CENTERS).argmin(axis=1) for rows in clients]
    words: dict[str, Any] = {"privacy": privacy(9.0, unit=unit), "protocol": Trusted()}
    found = privfed.metrics.labels_agreement(clients, CENTERS, labels, n_labels=3, **words)
    assert found.accuracy > 0.95
    with pytest.raises(ArgumentError, match="are protected"):
        privfed.metrics.labels_agreement(clients, CENTERS, labels, **words)


def test_a_metric_tells_of_no_row_outside_the_domain() -> None:
    far = [CLIENTS[0], np.vstack([CLIENTS[1], [[9.0, 9.0]]])]
    words: dict[str, Any] = {"privacy": privacy(), "protocol": "plain"}
    assert privfed.metrics.inertia(far, CENTERS, domain=BOX, **words) > 0.0


@pytest.mark.parametrize("unit", ["record", "client"])
def test_scaling_is_near_what_it_is_without_privacy(unit: str) -> None:
    clients = CLIENTS if unit == "record" else clients_of(60, 30)
    protocol: Any = "plain" if unit == "record" else Trusted()
    words = privacy(9.0, unit=unit, delta=1e-5)
    noised = FederatedScaler(privacy=words, protocol=protocol).fit(clients)
    exact = FederatedScaler(protocol="plain").fit(clients)
    np.testing.assert_allclose(noised.mean_, exact.mean_, atol=0.1)
    np.testing.assert_allclose(noised.scale_, exact.scale_, rtol=0.25)
    assert noised.privacy_spent_ is None


def test_range_scaling_takes_the_declared_domain() -> None:
    scaler = FederatedScaler("range", privacy=privacy(), protocol="plain").fit(CLIENTS)
    np.testing.assert_array_equal(scaler.data_min_, [-1.0, -1.0])
    assert scaler.n_samples_seen_ == pytest.approx(3000, abs=60)


@pytest.mark.parametrize("estimator", ["dp", FederatedFuzzyCMeans(averaging="weighted", local_iter=1)])
def test_the_number_of_clusters_is_chosen_from_one_budget(estimator: Any) -> None:
    index = "davies_bouldin" if estimator == "dp" else "fuzzy_davies_bouldin"
    result = select_n_clusters(
        CLIENTS, range(2, 7), estimator=estimator, index=index, privacy=privacy(4.0), protocol="plain"
    )
    assert result.n_clusters == 3 and worst(result.estimator.cluster_centers_) < 0.15
    assert [row.n_clusters for row in result.table] == [2, 3, 4, 5, 6]
    ledger = result.estimator.federation_.ledger
    assert ledger.spent == pytest.approx(1.0, abs=1e-9)


def test_a_choice_among_clusters_along_a_line_asks_for_slabs_within_its_budget() -> None:
    """Hyperplanes through one point leave two cells of a line: nothing could be chosen among these."""
    rng = np.random.default_rng(2)
    places = np.linspace(-2.0, 2.0, 6)[rng.integers(6, size=3000)] + 0.05 * rng.standard_normal(3000)
    rows = places[:, None] * np.full(8, 8**-0.5) + 0.01 * rng.standard_normal((3000, 8))
    chosen = select_n_clusters(
        [rows], range(3, 9), estimator="dp", privacy=privacy(4.0), protocol="plain", random_state=0
    )
    federation = chosen.estimator.federation_
    asked = [one.purpose for one, _ in federation.transcript.totals()]
    assert asked.count("coreset") == 2  # Cells between hyperplanes, then slabs.
    assert federation.ledger.spent == pytest.approx(1.0, abs=1e-9)
    assert chosen.n_clusters >= 5
    far = squared_distances(rows, chosen.estimator.cluster_centers_).min(axis=1)
    assert far.mean() < 0.05  # Two cells of a line would leave 0.4.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"range": None}, "say which numbers to try, range="),
        ({"index": "inertia"}, "davies_bouldin"),
        ({"estimator": "fkm"}, "DPKMeans"),
    ],
)
def test_a_selection_that_would_be_paid_for_each_number_is_an_error(
    words: dict[str, Any], message: str
) -> None:
    known: dict[str, Any] = {"range": [2, 3], "estimator": "dp", "privacy": privacy()}
    with pytest.raises(PrivacyError, match=message):
        select_n_clusters(CLIENTS, **(known | words))


@pytest.mark.parametrize("spare", [0.3, 0.0])
def test_a_sum_asked_again_is_paid_by_its_clients_and_by_the_coordinator(
    tmp_path: Path, spare: float
) -> None:
    words: dict[str, Any] = {"unit": "record", "domain": BOX, "neighbours": "add-remove", "spare": spare}
    privacy, clients = Privacy(epsilon=4.0, delta=1e-6, **words), clients_of(8, 40)
    lost = Simulation(faults=[Fault(3, "collect", sums=frozenset({2}))])
    model = DPKMeans(
        3, protocol="group-masked", privacy=privacy, engine=lost, run_dir=tmp_path, random_state=0
    )
    if not spare:
        with pytest.raises(BudgetError, match=r"paid again: keep a share for that with Privacy\(spare"):
            model.fit(clients)
        return
    payments = model.fit(clients).privacy_spent_.payments
    assert [payment.purpose for payment in payments].count("repeat") == 1
    client = float((tmp_path / "clients" / "0.ledger").read_text())
    assert client <= 1.0
    assert client == pytest.approx(sum(payment.share for payment in payments))


@pytest.mark.filterwarnings("ignore")
def test_a_start_from_public_data_asks_for_no_cells_and_is_of_the_agreed_program() -> None:
    rng = np.random.default_rng(0)
    centers = rng.uniform(-8, 8, (5, 6))
    rows = centers[rng.integers(5, size=600)] + rng.normal(size=(600, 6))
    claim = Privacy(
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        neighbours="add-remove",
        domain=Box(-12, 12, max_rows=600),
        noise_seed=0,
    )
    costs = {}
    for name, init in (("coreset", "coreset"), ("public", centers + 0.3)):
        found = []
        for seed in some(range(6)):
            model = DPKMeans(5, init=init, privacy=claim, random_state=seed, protocol="plain")
            model.fit(np.array_split(rows, 4))
            found.append(np.square(rows[:, None] - model.cluster_centers_).sum(axis=2).min(axis=1).sum())
            purposes = {one.purpose for one in model.privacy_claim_.payments}
            assert ("coreset" in " ".join(purposes)) == (name == "coreset")
            assert sum(one.share for one in model.privacy_claim_.payments) <= 1.0 + 1e-9
        costs[name] = float(np.median(found))
    assert costs["public"] < costs["coreset"]


@pytest.mark.parametrize(
    "words",
    [
        {"init": "random"},
        {"init": "kfed"},
        {"init": np.zeros((4, 2))},
        {"init": np.zeros((3, 3))},
        {"init": np.full((3, 2), np.nan)},
    ],
    ids=str,
)
def test_starts_that_a_private_fit_cannot_take_are_named(words: dict[str, Any]) -> None:
    claim = Privacy(epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-1, 1))
    with pytest.raises(ArgumentError) as found:
        DPKMeans(3, privacy=claim, **words).fit([np.zeros((9, 2))] * 3)
    assert "init" in found.value.parameters
