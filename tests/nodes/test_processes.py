"""Estimators over clients that are processes of their own: to the last bit the same as in one process."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import (
    FKM,
    ClientPolicy,
    DPKMeans,
    DWFKMeans,
    FederatedGaussianMixture,
    FederatedScaler,
    Privacy,
    metrics,
    select_n_clusters,
)
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Summed
from privfed.errors import ArgumentError, RefusedError
from privfed.estimators.fitting import clients_of
from privfed.protocols import Masked, Slotted
from privfed.protocols.masked.masked_messages import CollectRequest, VerifiedRequest
from privfed.protocols.masked.verification import Delivery
from tests.nodes.client_process import DOMAIN
from tests.nodes.processes import ProcessEngine
from tests.protocols.masked.lying import multiplied
from tests.raised import parameter_refused

N = 4
WORDS: dict[str, Any] = {"local_iter": 2, "max_iter": 3, "tol": 0, "random_state": 3}


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0).clip(-11, 11) for i in range(N)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    with ProcessEngine(rows(), tmp_path_factory.mktemp("clients")) as made:
        yield made


def assert_same(over: Any, here: Any) -> None:
    """Assert that two fits have the same centroids, to the last bit."""
    np.testing.assert_array_equal(np.stack(over.history_), np.stack(here.history_))
    np.testing.assert_array_equal(over.cluster_centers_, here.cluster_centers_)
    assert (over.inertia_, over.n_rows_, over.converged_) == (here.inertia_, here.n_rows_, here.converged_)


def assert_same_totals(over: Any, here: Any) -> None:
    """Assert that two fits have the same centroids and totals, to the last bit."""
    assert_same(over, here)
    totals = [[one.statistics for one in fit.transcript_.of(Summed)] for fit in (over, here)]
    assert len(totals[0]) > 2 and totals[0] == totals[1]


VERIFIED = Masked(verified=True)


@pytest.mark.parametrize(
    "protocol",
    [
        *("plain", "masked", "group-masked", "ckks"),
        pytest.param(VERIFIED, id="masked-verified"),
        pytest.param("masked-proven", marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(2)
def test_each_sum_gives_the_same_over_processes(protocol: Any, engine: ProcessEngine) -> None:
    over = DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert_same_totals(over, DWFKMeans(3, protocol=protocol, **WORDS).fit(rows()))


def test_slots_give_the_same_over_processes(engine: ProcessEngine) -> None:
    words: dict[str, Any] = {"merge": "slotted", "max_iter": 2, "random_state": 3}
    # Slots are drawn from a fresh secret, so that the points of a total come in another order.
    words["protocol"] = Slotted(Masked(), sums=3, contributors=3)
    assert_same(FKM(3, engine=engine, **words).fit(), FKM(3, **words).fit(rows()))


@pytest.mark.parametrize("protocol", ["masked", pytest.param(VERIFIED, id="masked-verified")])
def test_a_claim_is_the_same_over_processes(protocol: Any, engine: ProcessEngine) -> None:
    privacy = Privacy(epsilon=2.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")
    words: dict[str, Any] = {"protocol": protocol, "privacy": privacy, "random_state": 3}
    over = DPKMeans(3, engine=engine, **words).fit()
    here = DPKMeans(3, **words).fit(rows())
    assert over.privacy_spent_.against == here.privacy_spent_.against
    assert (over.privacy_spent_.epsilon, over.privacy_spent_.seeded) == (2.0, False)


@pytest.mark.parametrize(
    ("protocol", "stage", "number"),
    [
        ("masked", "collect", 2),
        pytest.param("masked", "unmask", 2, marks=pytest.mark.slow),
        ("group-masked", "collect", 5),
        pytest.param(VERIFIED, "collect", 3, id="masked-verified"),
        pytest.param("masked-proven", "prove", 2, marks=pytest.mark.slow),
        pytest.param(VERIFIED, "unmask", 2, id="masked-verified-unmask", marks=pytest.mark.slow),
    ],
)
def test_a_client_that_is_killed_goes_on_from_what_it_stored(
    protocol: Any, stage: str, number: int, engine: ProcessEngine
) -> None:
    before = sum(engine.starts)
    engine.restarts = {(stage, number): 1}
    over = DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert sum(engine.starts) == before + 1
    assert all(len(total.contributors) == N for total in over.transcript_.of(Summed))
    assert_same_totals(over, DWFKMeans(3, protocol=protocol, **WORDS).fit(rows()))


@pytest.mark.slow
def test_a_run_resumes_over_processes(engine: ProcessEngine, tmp_path: Path) -> None:
    def stop(index: int, ask: object, total: object) -> None:
        if index == 2:
            raise KeyboardInterrupt

    whole = DWFKMeans(3, engine=engine, **WORDS)
    cut = DWFKMeans(3, engine=engine, run_dir=tmp_path / "run", **WORDS)
    with pytest.raises(KeyboardInterrupt):
        cut.fit_clients(clients_of(cut, None, None, None, None), watch=stop)
    assert_same_totals(cut.resume(), whole.fit())


def assert_same_mixture(over: Any, here: Any) -> None:
    """Assert that two mixtures have the same states and totals, to the last bit."""
    assert_same_totals(over, here)
    for ours, theirs in zip(over.states_, here.states_, strict=True):
        assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.parametrize("kind", ["full", pytest.param("tied", marks=pytest.mark.slow)])
def test_a_mixture_whose_client_is_killed_is_stopped_and_resumed(
    kind: str, engine: ProcessEngine, tmp_path: Path
) -> None:
    def stop(index: int, ask: object, total: object) -> None:
        if index == 6:
            raise KeyboardInterrupt

    words: dict[str, Any] = {"covariance_type": kind, "max_iter": 6, "tol": 0, "random_state": 3}
    here, before = FederatedGaussianMixture(3, **words).fit(rows()), sum(engine.starts)
    engine.restarts = {("collect", 4): 1}
    cut = FederatedGaussianMixture(3, engine=engine, run_dir=tmp_path / "run", **words)
    with pytest.raises(KeyboardInterrupt):
        cut.fit_clients(clients_of(cut, None, None, None, None), watch=stop)
    assert sum(engine.starts) == before + 1
    assert_same_mixture(cut.resume(), here)


def test_a_noised_mixture_is_claimed_over_processes(engine: ProcessEngine) -> None:
    privacy = Privacy(epsilon=4.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")
    words: dict[str, Any] = {"privacy": privacy, "random_state": 3}
    engine.restarts = {("collect", 5): 2}
    over = FederatedGaussianMixture(2, engine=engine, **words).fit()
    here = FederatedGaussianMixture(2, **words).fit(rows())
    assert over.privacy_spent_.against == here.privacy_spent_.against
    assert over.covariances_.shape == (2, 2, 2) and (np.linalg.eigvalsh(over.covariances_) > 0.0).all()


def test_metrics_and_scalers_ask_clients_elsewhere(engine: ProcessEngine) -> None:
    centers = np.array([[-4.0, -4.0], [4.0, 4.0], [4.0, -4.0]])
    over = metrics.inertia(None, centers, engine=engine)
    assert over == metrics.inertia(rows(), centers)
    scaled = FederatedScaler(engine=engine).fit()
    np.testing.assert_array_equal(scaled.mean_, FederatedScaler().fit(rows()).mean_)


@pytest.mark.slow
def test_the_number_of_clusters_is_chosen_over_clients_elsewhere(engine: ProcessEngine) -> None:
    words: dict[str, Any] = {"estimator": "dwf", "protocol": "plain", **WORDS}
    over = select_n_clusters(None, range(2, 4), engine=engine, **words)
    here = select_n_clusters(rows(), range(2, 4), **words)
    assert over.n_clusters == here.n_clusters and over.table == here.table
    assert copy.deepcopy(engine) is engine


def test_labels_stay_where_the_rows_are(engine: ProcessEngine) -> None:
    fitted = DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert not hasattr(fitted, "labels_")
    with pytest.raises(AttributeError, match=r"no labels_: .*clients keep their rows and labels elsewhere"):
        fitted.labels_  # noqa: B018
    assert fitted.predict(rows()[0]).shape == (20,)


def test_rows_and_engine_that_do_not_fit_together_are_an_error(engine: ProcessEngine) -> None:
    with parameter_refused("client_names"):
        DWFKMeans(3, engine=engine).fit(rows())
    with pytest.raises(ArgumentError, match="X is missing"):
        DWFKMeans(3).fit()
    with pytest.raises(ArgumentError, match="have policies of their own; leave policy out"):
        DWFKMeans(3, engine=engine, policy=ClientPolicy(min_clients=3)).fit()
    with parameter_refused("engine"):
        DWFKMeans(3, engine="ray").fit(rows())


def test_a_client_of_verified_sums_that_missed_totals_catches_up(engine: ProcessEngine) -> None:
    cohorts = [[0, 1, 2], [0, 1, 2], [1, 2, 3], [0, 2, 3]]
    words = {**WORDS, "max_iter": 4, "cohorts": cohorts}
    over = DWFKMeans(3, protocol=VERIFIED, engine=engine, **words).fit()
    assert_same_totals(over, DWFKMeans(3, protocol="masked", **words).fit(rows()))
    assert over.transcript_.of(Summed)[-1].contributors == (0, 1, 2, 3)


@pytest.mark.parametrize("lie", ["total", "question"])
def test_a_server_that_lies_to_clients_elsewhere_is_refused(
    lie: str, engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client's own run of the algorithm, in its own process, tells what comes next."""
    honest = Delivery.request

    def request(self: Delivery, client: int, collect: CollectRequest) -> Any:
        if lie == "question" and collect.index == 3:
            asked = question_from_bytes(collect.question)
            moved = dataclasses.replace(asked, centers=asked.centers + 1e-6)  # type: ignore[attr-defined]
            collect = msgspec.structs.replace(collect, question=moved.to_bytes())
        sent = honest(self, client, collect)
        assert isinstance(sent, VerifiedRequest)
        if lie == "total" and collect.index == 3:
            forged = [
                msgspec.structs.replace(
                    one, words=multiplied(one.words, 2, 8), check=multiplied(one.check, 2, 24)
                )
                for one in sent.totals
            ]
            sent = msgspec.structs.replace(sent, totals=tuple(forged))
        return sent

    monkeypatch.setattr(Delivery, "request", request)
    with pytest.raises(RefusedError) as refused:
        DWFKMeans(3, protocol=VERIFIED, engine=engine, **WORDS).fit()
    assert refused.value.codes == dict.fromkeys("0123", "total" if lie == "total" else "program")


def test_a_client_that_stays_away_is_a_dropout(engine: ProcessEngine) -> None:
    engine.stops = {("collect", 3): 2}
    over = DWFKMeans(3, engine=engine, **WORDS).fit()
    left = [total.contributors for total in over.transcript_.of(Summed)]
    assert left[1] == (0, 1, 2, 3) and left[-1] == (0, 1, 3)
