"""Fits over a Flower deployment, with all its processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("flwr")

from privfed import DWFKMeans
from privfed.core.record.transcript import Summed
from privfed.deploy.folders import nodes_of
from privfed.deploy.processes import Processes
from privfed.engines.flower import FlowerEngine
from tests.engines.flower.deployments import before, deployed
from tests.engines.flower.federations import WORDS, assert_same, here

pytestmark = pytest.mark.flower
SHORT = {**WORDS, "max_iter": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with deployed(tmp_path_factory.mktemp("d") / "fed") as started:
        yield started


def test_masked_sums_over_tls_and_known_nodes_are_those_in_one_process(running: Processes) -> None:
    with FlowerEngine(running.file.folder) as engine:
        fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
    assert_same(fitted, here(DWFKMeans(3, **SHORT)))
    assert engine.faults == []


def test_a_killed_node_is_a_dropout_and_joins_again(
    running: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, "collect", 3, lambda: running.kill_node("c2"))
    with FlowerEngine(running.file.folder) as engine:
        fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
        left = [total.contributors for total in fitted.transcript_.of(Summed)]
        assert left[1] == (0, 1, 2, 3) and left[2] == left[-1] == (0, 1, 3)
        assert {one.client for one in engine.faults} == {"c2"}
        running.start_node(nodes_of(running.file.folder)[2])
        again = DWFKMeans(3, engine=engine, **SHORT).fit()
    assert_same(again, here(DWFKMeans(3, **SHORT)))
