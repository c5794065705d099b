"""Fits over one Flower deployment, with all its processes on this machine."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from examples.three_hospitals.processes import Processes
from privfed import DWFKMeans, FederatedScaler, FederatedSummary
from privfed.core.record.records import Summed
from privfed.deep import DCFL
from privfed.errors import RefusedError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from tests.nodes.flower.deployments import before, deployed
from tests.nodes.flower.federations import CLAIM, WORDS, assert_same, here, labels
from tests.test_documents import ROOT, write_files

pytestmark = pytest.mark.flower
SHORT: dict[str, Any] = {**WORDS, "max_iter": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Start a deployment whose machines have the algorithm of docs/extending.md."""
    folder = tmp_path_factory.mktemp("d")
    write_files(ROOT / "docs" / "extending.md", folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(folder))
        patched.syspath_prepend(folder)
        with deployed(folder / "fed", labelled=True) as started:
            yield started


@pytest.fixture(scope="module")
def engine(running: Processes) -> Iterator[FlowerEngine]:
    """Return one engine: its Flower run, which takes half a minute to start, serves all fits."""
    with FlowerEngine(running.file.folder) as made:
        yield made


def test_masked_sums_over_tls_and_known_nodes_are_those_in_one_process(engine: FlowerEngine) -> None:
    fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
    assert_same(fitted, here(DWFKMeans(3, **SHORT)))
    assert engine.faults == []


def test_counts_means_and_histograms_are_those_in_one_process(engine: FlowerEngine) -> None:
    found, own = FederatedSummary(5, engine=engine).fit(), here(FederatedSummary(5))
    np.testing.assert_array_equal(found.histograms_, own.histograms_)
    for name in ("n_samples_seen_", "mean_", "std_", "data_min_", "data_max_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(own, name))
    scaled = FederatedScaler(protocol="plain", engine=engine).fit()
    np.testing.assert_array_equal(scaled.mean_, here(FederatedScaler(protocol="plain")).mean_)


def test_models_by_dp_sgd_are_paid_by_every_node(engine: FlowerEngine) -> None:
    """Each message is answered by a new process, which remembers what the ones before trained."""
    words: dict[str, Any] = {"n_classes": 2, "rounds": 3, "rows_per_client": 25, "random_state": 1}
    words |= {"protocol": "plain", "merge": "gathered", "privacy": replace(CLAIM, noise="local")}
    settings = [(one / "node.toml", (one / "node.toml").read_text()) for one in nodes_of(engine.file.folder)]
    for path, text in settings:
        # A data set is exact or private for life; here the same rows go by two names.
        path.write_text(text.replace('data_set = "rows"', 'data_set = "private rows"'))
    fitted = DCFL(engine=engine, **words).fit()
    for path, text in settings:
        path.write_text(text)
    assert fitted.privacy_spent_ == here(DCFL(**words), y=labels()).privacy_spent_
    assert len(fitted.history_) == 4 and np.abs(fitted.models_).max() > 0
    spent = [Journal(one, read_identity(one)).fits[-1].spent for one in nodes_of(engine.file.folder)]
    assert spent == pytest.approx([1.0] * 4)


def test_an_algorithm_of_ones_own_runs_where_nodes_owners_have_it(engine: FlowerEngine) -> None:
    own: Any = importlib.import_module("spherical")
    words: dict[str, Any] = {"protocol": "plain", "max_iter": 2, "tol": 0, "random_state": 3}
    with pytest.raises(RefusedError, match="has not registered an algorithm") as refused:
        own.SphericalKMeans(3, engine=engine, **words).fit()
    assert set(refused.value.codes.values()) == {"agreement:program"} and len(refused.value.codes) == 4
    for folder in nodes_of(engine.file.folder):
        settings = folder / "node.toml"
        approved = settings.read_text().replace('algorithms = ["', 'algorithms = ["Spherical", "')
        settings.write_text(f'modules = ["spherical"]\n{approved}')
    assert_same(own.SphericalKMeans(3, engine=engine, **words).fit(), here(own.SphericalKMeans(3, **words)))


def test_a_killed_node_is_a_dropout_and_joins_again(
    running: Processes, engine: FlowerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = len(engine.faults)  # of other fits
    before(monkeypatch, "collect", 3, lambda: running.kill_node("c2"))
    fitted = DWFKMeans(3, engine=engine, **SHORT).fit()
    left = [total.contributors for total in fitted.transcript_.of(Summed)]
    assert left[1] == (0, 1, 2, 3) and left[2] == left[-1] == (0, 1, 3)
    assert {one.client for one in engine.faults[known:]} == {"c2"}
    running.start_node(nodes_of(running.file.folder)[2])
    again = DWFKMeans(3, engine=engine, **SHORT).fit()
    assert_same(again, here(DWFKMeans(3, **SHORT)))
