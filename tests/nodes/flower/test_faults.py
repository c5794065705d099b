"""Nodes and servers of a Flower deployment that fail, and all that runs over one. Takes about an hour."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from examples.three_hospitals.processes import Processes
from privfed import (
    FKM,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedScaler,
    FederatedSummary,
    metrics,
    select_n_clusters,
)
from privfed.core.record.records import Summed
from privfed.errors import ProtocolError, RefusedError
from privfed.nodes.deploy.local import LocalNodes, nodes_of
from privfed.nodes.flower import FlowerEngine
from tests.nodes.flower.deployments import TIMEOUT, before, deployed
from tests.nodes.flower.federations import CLAIM, WORDS, assert_same, here, rows

pytestmark = pytest.mark.faults
SHORT: dict[str, Any] = {**WORDS, "max_iter": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with deployed(tmp_path_factory.mktemp("d") / "fed") as started:
        yield started


@pytest.fixture
def engine(running: Processes) -> Iterator[FlowerEngine]:
    for folder in nodes_of(running.file.folder):
        if folder.name not in running.nodes:
            running.start_node(folder)
    with FlowerEngine(running.file.folder) as made:
        yield made


@pytest.mark.parametrize("protocol", ["group-masked", "ckks", "masked-verified"])
def test_each_sum_is_the_one_in_this_process(protocol: str, engine: FlowerEngine) -> None:
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **SHORT).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol=protocol, **SHORT)))


def test_a_claim_is_the_one_in_this_process(engine: FlowerEngine) -> None:
    fitted = DPKMeans(3, privacy=CLAIM, engine=engine, random_state=3).fit()
    own = here(DPKMeans(3, privacy=CLAIM, random_state=3))
    assert fitted.privacy_spent_.against == own.privacy_spent_.against
    assert fitted.privacy_spent_.epsilon == 2.0


def test_local_centers_and_fuzzy_memberships_with_their_index_are_the_same(engine: FlowerEngine) -> None:
    over = FKM(3, protocol="plain", max_iter=2, random_state=3, engine=engine).fit()
    own = here(FKM(3, protocol="plain", max_iter=2, random_state=3))
    np.testing.assert_array_equal(over.cluster_centers_, own.cluster_centers_)
    over_fuzzy = FederatedFuzzyCMeans(
        3, protocol="plain", max_iter=2, tol=0, random_state=3, engine=engine
    ).fit()
    own_fuzzy = here(FederatedFuzzyCMeans(3, protocol="plain", max_iter=2, tol=0, random_state=3))
    np.testing.assert_array_equal(over_fuzzy.cluster_centers_, own_fuzzy.cluster_centers_)
    index = [
        metrics.fuzzy_davies_bouldin(one.federation_, one.cluster_centers_) for one in (over_fuzzy, own_fuzzy)
    ]
    assert index[0] == index[1]


def test_statistics_and_the_number_of_clusters_are_the_same(engine: FlowerEngine) -> None:
    scaled = FederatedScaler(engine=engine).fit()
    np.testing.assert_array_equal(scaled.mean_, here(FederatedScaler()).mean_)
    words: dict[str, Any] = {"estimator": "dwf", "protocol": "plain", **SHORT}
    over = select_n_clusters(None, range(2, 4), engine=engine, **words)
    own = select_n_clusters(rows(), range(2, 4), client_names=[f"c{i}" for i in range(4)], **words)
    assert over.table == own.table


@pytest.mark.parametrize(
    ("stage", "number"),
    [("advertise", 0), ("agree", 1), ("prepare", 1), ("collect", 2), ("unmask", 2), ("collect", 3)],
)
def test_a_node_killed_in_a_stage_is_a_dropout(
    stage: str, number: int, running: Processes, engine: FlowerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, stage, number, lambda: running.kill_node("c1"))
    fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
    assert fitted.transcript_.of(Summed)[-1].contributors == (0, 2, 3)
    assert {one.client for one in engine.faults} == {"c1"}


def test_a_node_that_is_too_slow_is_a_dropout_of_that_sum(
    running: Processes, engine: FlowerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, "collect", 2, lambda: running.hold("c1", TIMEOUT + 15))
    fitted = DWFKMeans(3, protocol="plain", engine=engine, **SHORT).fit()
    left = [total.contributors for total in fitted.transcript_.of(Summed)]
    assert left[0] == (0, 1, 2, 3) and left[1] == (0, 2, 3)


def test_a_client_without_its_table_refuses_and_says_nothing(
    running: Processes, engine: FlowerEngine
) -> None:
    FederatedSummary(protocol="plain", engine=engine).fit()  # All nodes run, and have read their rows once.
    table = nodes_of(running.file.folder)[1] / "rows.npz"
    kept = table.read_bytes()
    table.unlink()
    try:
        fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
    finally:
        table.write_bytes(kept)
    assert all(one.contributors == (0, 2, 3) for one in fitted.transcript_.of(Summed))
    assert [(one.client, one.what) for one in engine.faults] == [("c1", "refused: error")]


@pytest.mark.parametrize("protocol", ["masked", "group-masked", "plain"])
def test_a_fit_goes_on_once_a_killed_superlink_is_back(
    protocol: str, running: Processes, engine: FlowerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restart() -> None:
        # The nodes that were admitted are, without being named again.
        running.kill_superlink()
        threading.Timer(5.0, running.start_superlink).start()

    before(monkeypatch, "collect", 3, restart)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **SHORT).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol=protocol, **SHORT)))
    assert fitted.transcript_.of(Summed)[-1].contributors == (0, 1, 2, 3)


@pytest.mark.parametrize("kind", [DWFKMeans, FederatedGaussianMixture])
def test_a_fit_whose_superlink_is_killed_is_resumed(
    kind: Any, running: Processes, engine: FlowerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine.file = replace(engine.file, wait=1.0)
    before(monkeypatch, "collect", 3, running.kill_superlink)
    words = SHORT if kind is DWFKMeans else {"max_iter": 3, "tol": 0.0, "random_state": 3}
    model = kind(3, engine=engine, run_dir=tmp_path / "run", **words)
    with pytest.raises(ProtocolError, match=r"no SuperLink of .* runs on this machine"):
        model.fit()
    engine.file = replace(engine.file, wait=120.0)
    running.start_superlink()
    assert_same(model.resume(), here(kind(3, **words)))


def test_a_node_restored_from_a_backup_is_refused_by_the_others(
    running: Processes, engine: FlowerEngine, tmp_path: Path
) -> None:
    folder = nodes_of(running.file.folder)[3]
    shutil.copytree(folder, tmp_path / "backup", ignore=shutil.ignore_patterns("flwr"))
    DWFKMeans(3, engine=engine, **SHORT).fit()
    (folder / "journal.sqlite").unlink()
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    with pytest.raises(RefusedError) as refused:
        DWFKMeans(3, engine=engine, **SHORT).fit()
    assert set(refused.value.codes.values()) == {"journal:3"}


def test_a_simulation_is_the_deployment(running: Processes) -> None:
    """Simulated nodes share processes: nothing of one may be left for the next."""
    with FlowerEngine(running.file.folder, network=LocalNodes(running.file)) as engine:
        fitted = DWFKMeans(3, engine=engine, **WORDS).fit()
    assert_same(fitted, here(DWFKMeans(3, **WORDS)))
