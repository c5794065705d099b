"""A run resumed from its transcript at any sum equals the uninterrupted one."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, Simulation
from privfed.algorithms.wf_kmeans import WeightedKMeans
from privfed.core.record.records import FILE, Asked, Ended, Summed
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import client_generator
from privfed.engines import Fault
from privfed.errors import ArgumentError, ProtocolError, ResumeError, RunFolderError
from privfed.federation.clients import gather
from tests.default_run import PLAIN_BY_DEFAULT

Clients = list[np.ndarray]

WORDS: dict[str, Any] = {
    "n_clusters": 4,
    "local_iter": 3,
    "max_iter": 3,
    "tol": 0.0,
    "n_init": 2,
    "init": "kfed",
    "clients_per_round": 6,
    "random_state": 5,
    "momentum": 0.3,
}


def model(folder: Path | None, protocol: str, **changes: Any) -> DWFKMeans:
    return DWFKMeans(**{**WORDS, "run_dir": folder, "protocol": protocol, **changes})


@pytest.fixture(scope="module")
def finished(blobs: Clients, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run, for tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    model(folder, "plain").fit(blobs)
    return folder


def cut(source: Path, target: Path, n_sums: int, in_flight: bool) -> None:
    """Copy a run as it stood after its first sums; `in_flight` with the next question already sent."""
    target.mkdir()
    shutil.copy(source / FILE, target / FILE)
    kept, lines = 1, (source / FILE).read_bytes().splitlines(keepends=True)
    for number, record in enumerate(Transcript.load(source).records):
        if isinstance(record, Summed) and record.index < n_sums:
            kept = number + 1
        if in_flight and isinstance(record, Asked) and record.index == n_sums:
            kept = number + 1
    (target / FILE).write_bytes(b"".join(lines[:kept]))


def assert_same_totals(one: Transcript, other: Transcript) -> None:
    ours, theirs = one.totals(), other.totals()
    assert len(ours) == len(theirs)
    for (asked, total), (asked_too, total_too) in zip(ours, theirs, strict=True):
        assert (asked.question, asked.clients) == (asked_too.question, asked_too.clients)
        assert total.contributors == total_too.contributors
        for name, array in total.statistics.items():
            np.testing.assert_array_equal(array, total_too.statistics[name])


def assert_same_outcome(one: DWFKMeans, other: DWFKMeans) -> None:
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))
    assert one.inertia_ == other.inertia_
    for ours, theirs in zip(one.labels_, other.labels_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("protocol", PLAIN_BY_DEFAULT, indirect=True)
@pytest.mark.parametrize("in_flight", [pytest.param(False, id="between"), pytest.param(True, id="in-flight")])
@pytest.mark.few(1)
def test_resumed_after_any_sum_is_the_uninterrupted_run(
    blobs: Clients, protocol: str, tmp_path: Path, in_flight: bool
) -> None:
    whole = model(tmp_path / "whole", protocol).fit(blobs)
    n_sums = len(whole.transcript_.totals())
    assert n_sums > 12
    for n in range(n_sums + 1):
        cut(tmp_path / "whole", tmp_path / str(n), n, in_flight)
        resumed = model(tmp_path / str(n), protocol).resume(blobs)
        assert_same_outcome(resumed, whole)
        assert_same_totals(resumed.transcript_, whole.transcript_)
        assert_same_totals(Transcript.load(tmp_path / str(n)), whole.transcript_)
        assert len(resumed.transcript_.of(Ended)) == 1
        assert len(resumed.transcript_.view("server").sums) == n_sums


def test_resumed_with_another_random_state_takes_that_of_the_run(blobs: Clients, tmp_path: Path) -> None:
    whole = model(tmp_path / "whole", "plain", random_state=None).fit(blobs)
    cut(tmp_path / "whole", tmp_path / "cut", 4, False)
    assert_same_outcome(model(tmp_path / "cut", "plain", random_state=None).resume(blobs), whole)


@pytest.mark.parametrize("protocol", PLAIN_BY_DEFAULT, indirect=True)
def test_resumed_after_a_crash_in_the_middle_of_a_line(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    whole = model(tmp_path / "whole", protocol).fit(blobs)
    data = (tmp_path / "whole" / FILE).read_bytes()
    for number, share in enumerate((0.3, 0.6, 0.95)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE).write_bytes(data[: int(share * len(data))])
        assert_same_outcome(model(folder, protocol).resume(blobs), whole)


@pytest.mark.few(1)
def test_resumed_after_an_interrupt(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    def interrupt(index: int, ask: Ask, total: Total) -> None:
        if index == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model(tmp_path, protocol).fit_clients(gather(blobs), watch=interrupt)
    resumed = model(tmp_path, protocol).resume(blobs)
    assert_same_outcome(resumed, model(None, protocol).fit(blobs))


@pytest.mark.few(1)
def test_resuming_a_finished_run_asks_nothing(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    whole = model(tmp_path, protocol).fit(blobs)
    before = (tmp_path / FILE).read_bytes()
    resumed = model(tmp_path, protocol).resume(blobs)
    assert_same_outcome(resumed, whole)
    assert resumed.federation_.traffic.exchanges == 0
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"n_clusters": 3}, id="n_clusters"),
        pytest.param({"local_iter": 2}, id="local_iter"),
        pytest.param({"local_tol": 0.1}, id="local_tol"),
        pytest.param({"learning_rate": 0.5}, id="learning_rate"),
        pytest.param({"momentum": 0.0}, id="momentum"),
        pytest.param({"tol": 1e-3}, id="tol"),
        pytest.param({"max_iter": 9}, id="max_iter"),
        pytest.param({"min_iter": 2}, id="min_iter"),
        pytest.param({"patience": 2}, id="patience"),
        pytest.param({"n_init": 1}, id="n_init"),
        pytest.param({"init": "coreset"}, id="init"),
        pytest.param({"clients_per_round": 7}, id="clients_per_round"),
        pytest.param({"restart_score": "client-mean"}, id="restart_score"),
        pytest.param({"relocate_empty": True}, id="relocate_empty"),
    ],
)
def test_resuming_with_other_parameters_is_an_error(
    blobs: Clients, finished: Path, change: dict[str, Any]
) -> None:
    before = (finished / FILE).read_bytes()
    with pytest.raises(ResumeError, match="of another run"):
        model(finished, "plain", **change).resume(blobs)
    assert (finished / FILE).read_bytes() == before


def test_resuming_with_other_clients_is_an_error(blobs: Clients, finished: Path) -> None:
    for others in (blobs[:-1], [*blobs, blobs[0]]):
        with pytest.raises(ResumeError, match="of another run"):
            model(finished, "plain").resume(others)
    with pytest.raises(ResumeError, match="of another run"):
        owners = np.repeat([f"site {i}" for i in range(10)], [len(rows) for rows in blobs])
        model(finished, "plain").resume(np.concatenate(blobs), groups=owners)
    with pytest.raises(ResumeError, match="of another run"):
        model(finished, "plain").resume([np.c_[rows, rows] for rows in blobs])


def test_resuming_nothing_is_an_error(blobs: Clients, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="name the folder of a run"):
        model(tmp_path, "plain").resume(blobs)
    with pytest.raises(ArgumentError, match="resume needs run_dir"):
        model(None, "plain").resume(blobs)


def test_replay_of_another_algorithm_is_an_error(
    blobs: Clients, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Same configuration, other questions, as of another version of the algorithm.
    run = WeightedKMeans.run
    monkeypatch.setattr(WeightedKMeans, "run", lambda self, setting: run(replace(self, seed=1), setting))
    with pytest.raises(ResumeError, match="answers another question"):
        model(finished, "plain").resume(blobs)


@pytest.mark.parametrize("protocol", PLAIN_BY_DEFAULT, indirect=True)
def test_watcher_hears_of_every_sum_also_of_replayed_ones(
    blobs: Clients, protocol: str, tmp_path: Path
) -> None:
    heard: list[tuple[int, str]] = []

    def watch(index: int, ask: Ask, total: Total) -> None:
        heard.append((index, ask.purpose))

    clients = gather(blobs)
    model(tmp_path, protocol).fit_clients(clients, watch=watch)
    first, n_sums = list(heard), len(Transcript.load(tmp_path).totals())
    assert [index for index, _ in first] == list(range(n_sums))
    heard.clear()
    model(tmp_path, protocol).fit_clients(clients, resume=True, watch=watch)
    assert heard == first


def test_traffic_counts_the_bytes_of_the_transcript(blobs: Clients, protocol: str) -> None:
    fitted = model(None, protocol).fit(blobs)
    traffic, view = fitted.federation_.traffic, fitted.transcript_.view("server")
    uploaded = [sum(seen.upload_bytes.get(i, 0) for seen in view.sums) for i in range(10)]
    assert uploaded == [traffic.up[i] for i in range(10)]
    assert traffic.exchanges >= len(view.sums) and min(traffic.down.values()) > 0


def test_failed_sum_keeps_what_was_opened_before(blobs: Clients, tmp_path: Path) -> None:
    dead = Simulation(faults=[Fault(client=i, sums=frozenset({4})) for i in range(10)])
    with pytest.raises(ProtocolError):
        model(tmp_path, "plain", engine=dead, clients_per_round=None).fit(blobs)
    assert len(Transcript.load(tmp_path).totals()) == 3
    resumed = model(tmp_path, "plain", clients_per_round=None).resume(blobs)
    assert_same_outcome(resumed, model(None, "plain", clients_per_round=None).fit(blobs))


def test_client_generators_are_keyed_by_seed_name_and_sum() -> None:
    def draw(seed: int, name: str, index: int) -> int:
        return int(client_generator(seed, name, index).integers(2**63))

    assert draw(1, "a", 0) == draw(1, "a", 0)
    assert len({draw(1, "a", 0), draw(2, "a", 0), draw(1, "b", 0), draw(1, "a", 1)}) == 4
