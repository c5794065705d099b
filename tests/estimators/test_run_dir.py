"""A fit's folder: what a crash leaves there is taken up by `resume` of the same fit, and by nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import (
    FKM,
    KFED,
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedScaler,
    Privacy,
    Simulation,
    metrics,
    select_n_clusters,
)
from privfed.core.record.records import FILE, Exchanged
from privfed.core.record.transcript import Transcript
from privfed.errors import ArgumentError, ResumeError, RunFolderError
from privfed.party.state import FileStore
from tests.some import some


def rows_of(seed: int) -> list[np.ndarray]:
    """Return three clients' rows; those of two seeds lie apart."""
    rng, side = np.random.default_rng(seed), 1.0 if seed else -1.0
    return [side * rng.uniform(0.5, 0.9, (200, 2)) for _ in range(3)]


THEIRS, OURS = rows_of(0), rows_of(1)


def claim(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**{"domain": Box(-1.0, 1.0), "noise_seed": None, **known, **words})


def private(folder: Path | None, kind: type[KFED | FKM] = KFED, **words: Any) -> Any:
    return kind(1, **{"protocol": "plain", "privacy": claim(), "run_dir": folder, "max_iter": 3, **words})


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()
    }


KILLED = """
import os, signal, sys
from pathlib import Path
from privfed.estimators import local_centers
from tests.estimators.test_run_dir import THEIRS, private

fit, fits = local_centers.DPKMeans.fit_clients, []

def counted(model, *args, **words):
    fits.append(1)
    if len(fits) == 3:  # Two clients have their centers.
        os.kill(os.getpid(), signal.SIGKILL)
    return fit(model, *args, **words)

local_centers.DPKMeans.fit_clients = counted
private(Path(sys.argv[1])).fit(THEIRS)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a k-FED run that was killed while clients found their own centers."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(one.name for one in (folder / "local").iterdir()) == ["0", "1"]
    return folder


@pytest.fixture
def crashed(killed: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    for name, content in contents(killed).items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(content)
    return tmp_path / "run"


@pytest.mark.parametrize("left", ["as it was", "no transcript", "half a first line"])
@pytest.mark.few(1)
def test_other_rows_never_get_the_centers_that_a_crash_left(crashed: Path, left: str) -> None:
    if left != "as it was":
        (crashed / FILE).unlink()
    if left == "half a first line":
        (crashed / FILE).write_bytes(b'{"type":"Beg')
    before = contents(crashed)
    with pytest.raises(RunFolderError, match="name another folder"):
        private(crashed).fit(OURS)
    assert contents(crashed) == before
    assert (private(crashed.parent / "another").fit(OURS).cluster_centers_ > 0).all()


def test_what_was_paid_before_the_crash_is_neither_paid_again_nor_forgotten(crashed: Path) -> None:
    before = contents(crashed)
    model = private(crashed).resume(THEIRS)
    after = contents(crashed)
    assert (model.cluster_centers_ < 0).all()
    for name in ("local/0", "local/1"):
        assert {one for one in before if one.startswith(name)} == {
            one for one in after if one.startswith(name)
        }
        assert all(after[one] == before[one] for one in before if one.startswith(name))
    assert float(after["local/2/clients/0.ledger"]) <= 1.0 + 1e-9
    again = private(crashed).resume(THEIRS)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    assert contents(crashed) == after


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"privacy": claim(epsilon=4.0)}, id="epsilon"),
        pytest.param({"privacy": claim(neighbours="replace-one")}, id="neighbours"),
        pytest.param({"privacy": claim(domain=Box(-1.0, 2.0))}, id="domain"),
        pytest.param({"privacy": claim(mechanism="skellam")}, id="mechanism"),
        pytest.param({"privacy": claim(noise_seed=3)}, id="seeded-run"),
        pytest.param({"privacy": None}, id="without"),
        pytest.param({"n_local_clusters": 3}, id="clusters"),
        pytest.param({"kind": FKM}, id="algorithm"),
    ],
)
def test_another_fit_does_not_go_on_with_what_a_crash_left(crashed: Path, words: dict[str, Any]) -> None:
    before = contents(crashed)
    with pytest.raises(ResumeError, match="another run"):
        private(crashed, **words).resume(THEIRS)
    assert contents(crashed) == before


def test_other_clients_do_not_go_on_with_what_a_crash_left(crashed: Path) -> None:
    for given in ({"X": THEIRS, "client_names": ["a", "b", "c"]}, {"X": THEIRS[:2]}):
        with pytest.raises(ResumeError, match="another run"):
            private(crashed).resume(**given)


class Killed(KeyboardInterrupt):
    """The process is gone; nothing that could still write does. No client takes it for its own error."""


class Killer:
    """Stops a fit before or after one of its writes to disk."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at, self.after, self.count = -1, False, 0
        for kind, name in ((Transcript, "_append"), (FileStore, "save")):
            patch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, write: Any) -> Any:
        def written(*args: Any, **words: Any) -> None:
            self.count += 1
            if self.count == self.at and not self.after:
                raise Killed
            write(*args, **words)
            if self.count == self.at:
                raise Killed

        return written


def killed_at(killer: Killer, folder: Path, place: int, after: bool, words: dict[str, Any]) -> Path:
    """Kill a fit at a write, and return its folder; what noise has end before that write is fitted again."""
    for attempt in range(60):
        one = folder / str(attempt)
        killer.at, killer.after, killer.count = place, after, 0
        try:
            private(one, **words).fit(THEIRS)
        except Killed:
            return one
        finally:
            killer.at = -1
    raise AssertionError(f"no fit came to write {place}")


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
def test_killed_at_any_write_a_fit_goes_on_and_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    killer, words = Killer(monkeypatch), {"privacy": claim(spare=0.3)}
    # Noise decides how many sums a fit has; to the shortest of three most others come, too.
    counts = []
    for whole in range(3):
        killer.count = 0
        private(tmp_path / f"whole {whole}", **words).fit(THEIRS)
        counts.append(killer.count)
    last = min(counts)
    # The agreements' first line, one of a question's writes, and the last line of all.
    places = range(1, last + 1, 7) if many else (1, 6, last)
    for place, after in some([(place, after) for place in places for after in (False, True)]):
        folder = killed_at(killer, tmp_path / f"{place} {after}", place, after, words)
        before = contents(folder)
        if not (folder / FILE).exists():
            assert not before
            continue
        with pytest.raises(RunFolderError, match="resume it or name another folder"):
            private(folder, **words).fit(OURS)
        assert (private(folder, **words).resume(THEIRS).cluster_centers_ < 0).all()
        for own in sorted((folder / "local").iterdir()):
            found = contents(own)
            assert float(found["clients/0.ledger"]) <= 1.0 + 1e-9
            # What was opened before the crash stands as it was.
            assert found[FILE].startswith(before.get(f"local/{own.name}/{FILE}", b"").rpartition(b"\n")[0])


def test_a_private_selection_that_was_killed_goes_on_under_the_same_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(rows: list[np.ndarray], **words: Any) -> Any:
        known = {"protocol": "plain", "privacy": claim(spare=0.3), "run_dir": tmp_path, "random_state": None}
        return select_n_clusters(rows, [2, 3], estimator="dp", **(known | words))

    killer = Killer(monkeypatch)
    killer.at = 12
    with pytest.raises(Killed):
        chosen(THEIRS)
    killer.at, before = -1, (tmp_path / FILE).read_bytes()
    with pytest.raises(RunFolderError, match="resume it or name another folder"):
        chosen(OURS)
    with pytest.raises(ResumeError, match="another run"):
        chosen(THEIRS, privacy=claim(epsilon=4.0, spare=0.3), resume=True)
    first = chosen(THEIRS, resume=True).to_dict()
    assert (tmp_path / FILE).read_bytes().startswith(before.rpartition(b"\n")[0])
    assert chosen(THEIRS, resume=True).to_dict() == first
    with pytest.raises(ArgumentError, match="resume needs run_dir"):
        chosen(THEIRS, run_dir=None, resume=True)


@pytest.mark.parametrize("left", ["clients", "local"])
def test_no_fit_begins_where_another_left_something(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir()
    fits: dict[str, Any] = {
        "dp": lambda: DPKMeans(2, protocol="plain", privacy=claim(), run_dir=tmp_path).fit(OURS),
        "dwf": lambda: DWFKMeans(2, protocol="plain", run_dir=tmp_path).fit(OURS),
        "scaler": lambda: FederatedScaler(protocol="plain", run_dir=tmp_path).fit(OURS),
        "fkm": lambda: private(tmp_path, FKM).fit(OURS),
        "kfed": lambda: private(tmp_path, privacy=None).fit(OURS),
        "selection": lambda: select_n_clusters(
            OURS, [2, 3], estimator="dp", protocol="plain", privacy=claim(), run_dir=tmp_path
        ),
    }
    (tmp_path / left / "0").mkdir()
    for name, fit in some(fits.items()):
        with pytest.raises(RunFolderError, match="was left by another fit"):
            fit()
        assert not (tmp_path / FILE).exists(), name
    # Nothing in it, nothing to take: as an earlier version left it before the first line.
    (tmp_path / left / "0").rmdir()
    fits["dwf"]()


def test_a_folder_with_other_files_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / FILE).write_bytes(b'{"type":"Beg')
    model = DWFKMeans(2, protocol="plain", run_dir=tmp_path, max_iter=2, tol=0).fit(OURS)
    assert Transcript.load(tmp_path).records == model.transcript_.records


@pytest.mark.parametrize("kind", [KFED, FKM])
def test_resume_without_a_folder_asks_for_one_before_anything_runs(kind: type[KFED | FKM]) -> None:
    with pytest.raises(ArgumentError, match="resume needs run_dir"):
        private(None, kind).resume(THEIRS)


@pytest.mark.parametrize("seed", [None, "generator"])
@pytest.mark.few(1)
def test_a_run_with_a_seed_of_its_own_is_resumed_with_it(tmp_path: Path, seed: str | None) -> None:
    words = {"random_state": None if seed is None else np.random.default_rng(5)}
    first = private(tmp_path, **words).fit(THEIRS)
    again = private(tmp_path, **words).resume(THEIRS)
    np.testing.assert_array_equal(again.cluster_centers_, first.cluster_centers_)


@pytest.mark.parametrize(
    ("forget", "message"),
    [
        pytest.param(lambda ledger: ledger.unlink(), "what client '0' spent", id="missing"),
        pytest.param(lambda ledger: ledger.write_text("0.5"), "what client '0' spent", id="older"),
        pytest.param(lambda ledger: ledger.write_text("nan"), "is damaged", id="no-number"),
        pytest.param(lambda ledger: ledger.write_text("-1.0"), "is damaged", id="negative"),
        pytest.param(lambda ledger: ledger.write_text("half"), "is damaged", id="text"),
    ],
)
def test_a_client_that_forgot_what_it_spent_does_not_go_on(tmp_path: Path, forget: Any, message: str) -> None:
    words = {"protocol": "plain", "privacy": claim(), "run_dir": tmp_path}
    DPKMeans(2, **words).fit(THEIRS)
    forget(tmp_path / "clients" / "0.ledger")
    with pytest.raises(RunFolderError, match=message):
        DPKMeans(2, **words).resume(THEIRS)


def test_a_resumed_run_keeps_the_messages_that_it_was_told_to_keep(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "protocol": "plain",
        "run_dir": tmp_path,
        "engine": Simulation(record="messages"),
    }
    model = DWFKMeans(2, max_iter=2, tol=0, **words).fit(THEIRS)
    model = DWFKMeans(2, max_iter=2, tol=0, **words).resume(THEIRS)
    metrics.inertia(model.federation_, model.cluster_centers_)
    assert all(sent.data is not None for one in model.transcript_.of(Exchanged) for sent in one.up)
