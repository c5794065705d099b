"""A year in an hour: a federation of real processes grows, shrinks, upgrades, loses and restores machines.

After each event `privfed flower status` and the nodes' `alive` files are compared with what is true.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

pytest.importorskip("flwr")

from examples.three_hospitals.processes import Processes, end, free_port
from privfed import DWFKMeans, metrics
from privfed.core.record.records import Summed
from privfed.nodes.deploy.adding import add, approve
from privfed.nodes.deploy.folders import new_party, read_kit, write_card, write_node
from privfed.nodes.deploy.node import ALIVE
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.settings import HOME, FederationFile, NodeSettings
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal, left
from privfed.version import EQUAL, __version__
from tests.nodes.flower.deployments import before
from tests.test_documents import ROOT

pytestmark = [pytest.mark.faults, pytest.mark.timeout(5400)]

APPROVED: dict[str, Any] = {
    "algorithms": ("WeightedKMeans",),
    "protocols": ("plain", "masked", "group-masked"),
    "max_fits": 60,
    "max_losses": 60,
}
WORDS: dict[str, Any] = {"random_state": 3, "max_iter": 1, "tol": 0}
PRIVFED = [sys.executable, "-c", "from privfed.cli.main import main; main()"]
SUMS = ("plain", "masked", "group-masked")
PATIENCE = 150.0
"""Seconds until something must have come true on a busy machine."""


def command(*words: object) -> str:
    ran = subprocess.run(
        [*PRIVFED, *map(str, words)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def fitted(
    engine: FlowerEngine, protocol: str, run: Path | None = None, *, resume: bool = False
) -> tuple[DWFKMeans, float | None]:
    """Fit, and ask a metric; the fit is over afterwards."""
    words: dict[str, Any] = {"protocol": protocol, "engine": engine, "run_dir": run, **WORDS}
    model = DWFKMeans(2, **words)
    model = model.resume() if resume else model.fit()
    index = metrics.davies_bouldin(model.federation_, model.cluster_centers_)
    engine.end_fits()
    return model, index


def driver(fed: str, run: str, protocol: str, stage: str, number: int) -> None:
    """Fit in a process that is killed before a stage of a sum."""
    with pytest.MonkeyPatch.context() as patched:
        before(patched, stage, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        fitted(FlowerEngine(fed), protocol, Path(run))


class Year:
    """A federation's sites: folders and processes, and what is true of them."""

    def __init__(self, home: Path) -> None:
        self.home, self.fed, self.port = home, home / "fed", free_port()
        self.names, self.fits, self.stopped = list[str](), dict[str, int](), dict[str, float]()
        self.refused = dict[str, str]()
        self.versions = dict[str, str]()
        self.processes: Any = None

    def card(self, name: str, **approved: Any) -> Path:
        """Make a site's folder, with rows and a card."""
        folder, rng = self.home / name, np.random.default_rng(sum(name.encode()))
        new_party(folder, name)
        if not (table := self.home / f"{name}.csv").exists():
            rows = rng.normal(rng.choice([-4.0, 4.0], (40, 2)), 1.0)
            np.savetxt(table, rows, delimiter=",", header="a,b", comments="")
        write_node(folder, str(table), "rows", tells=True, approved={**APPROVED, **approved})
        return Path(shutil.copy(write_card(folder), self.home / f"{name}.pub"))

    def change(self, *cards: Path, remove: str = "") -> None:
        """Change the list; each owner approves the new kit beside a running node."""
        add(self.fed, cards, remove=tuple(remove), hosts=("127.0.0.1",), port=self.port)
        self.names = sorted({*self.names} - {*remove} | {one.stem for one in cards})
        if self.processes is None:
            self.processes = Processes(FederationFile.read(self.fed))
            self.processes.start_superlink()
        for name in self.names:
            approve(self.home / name, read_kit(self.home / "fed.kit"))

    def start(self, name: str) -> None:
        self.processes.start_node(self.home / name)
        self.stopped.pop(name, None)

    def kill(self, name: str) -> None:
        self.processes.kill_node(name)
        self.stopped[name] = time.time()

    def join(self, name: str, **approved: Any) -> None:
        self.change(self.card(name, **approved))
        self.start(name)

    @contextmanager
    def engine(self, *clients: str) -> Iterator[FlowerEngine]:
        with FlowerEngine(self.fed, clients=clients or None) as engine:
            yield engine

    def journal(self, name: str) -> Journal:
        return Journal(self.home / name, read_identity(self.home / name))

    def fit(self, protocol: str, *clients: str) -> tuple[DWFKMeans, float | None]:
        """Fit over sites, all of which take part in each sum."""
        with self.engine(*clients) as engine:
            found = fitted(engine, protocol)
            assert engine.faults == []
        took = clients or tuple(self.names)
        assert all(len(one.contributors) == len(took) for one in found[0].transcript_.of(Summed))
        self.count(took)
        return found

    def count(self, took: tuple[str, ...]) -> None:
        for name in took:
            self.fits[name] = self.fits.get(name, 0) + 1

    def compare(self) -> None:
        """Compare status and alive with the truth, which the SuperLink may learn half a minute later."""
        until = time.monotonic() + PATIENCE
        while (wrong := self._wrong()) and time.monotonic() < until:
            time.sleep(2.0)
        assert not wrong

    def _wrong(self) -> list[str]:
        found, wrong = json.loads(command("flower", "status", self.fed, "--json")), list[str]()
        assert sorted(found) == self.names
        for name, one in found.items():
            up = name not in self.stopped and name not in self.refused
            file = self.home / name / HOME / ALIVE
            alive = file.stat().st_mtime if file.exists() else 0.0
            fresh = alive > time.time() - 60 if up else alive <= self.stopped.get(name, alive)
            right = one["link"].startswith("connected" if up else self.refused.get(name, "gone"))
            if not (fresh and right and bool(one["told"]) == up):
                wrong.append(f"{name}: alive {fresh}, {one}")
            elif up:
                settings, usage = NodeSettings.read(self.home / name), self.journal(name).usage("rows")
                told, version = one["told"], self.versions.get(name, __version__)
                assert usage.fits == self.fits.get(name, 0), name
                assert told["left"] == left(settings.policy, usage)
                assert told["open"] == [one.number for one in self.journal(name).fits if not one.closed]
                assert told["left"]["max_fits"] == settings.policy.max_fits - usage.fits  # type: ignore[operator]
                assert told["versions"]["privfed"] == version and bool(one["why"]) == (version > "0.5.9")
        return wrong


class SlowLink:
    """Carries the bytes of a port to another one, late and slowly."""

    def __init__(self, port: int, seconds: float, rate: float) -> None:
        self._to, self._seconds, self._rate, self.carried = port, seconds, rate, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._start(self._accept)

    def _start(self, what: Callable[..., None], *words: Any) -> None:
        threading.Thread(target=what, args=words, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, far = self._listening.accept()[0], socket.create_connection(("127.0.0.1", self._to))
                self._start(self._carry, near, far)
                self._start(self._carry, far, near)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(1 << 15):
                time.sleep(self._seconds + len(data) / self._rate)
                self.carried += len(data)
                other.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Year]:
    """Return the federation of eight sites, which joined one by one with fits between."""
    made = Year(tmp_path_factory.mktemp("y"))
    try:
        for name in "abc":
            made.join(name, **{"group_size": 1} if name == "b" else {})
        made.fit("masked")
        for i, name in enumerate("defgh"):
            made.join(name)
            with made.engine() as engine:
                made.compare()
                costs = {one: about.cost for one, about in engine.standing().items()}
                assert costs == {one: int(one in made.fits) for one in made.names}
            made.fit(SUMS[i % 3])
        yield made
    finally:
        if made.processes is not None:
            made.processes.stop()


def test_two_sites_leave(year: Year) -> None:
    for name in "gh":
        end(year.processes.nodes.pop(name))
        year.change(remove=name)
    year.fit("masked")
    year.compare()


def test_a_site_that_lost_its_disk_goes_on_from_its_record(year: Year) -> None:
    command("journal", "export", year.home / "c", "--with-groups", "--out", year.home / "c.json")
    kept = year.journal("c").usage("rows")
    lose(year, "c", year.home / "c.json")
    assert year.journal("c").usage("rows") == kept
    year.fit("group-masked")
    year.compare()


def test_a_site_that_lost_its_disk_and_has_no_record_goes_on_from_others_testimonies(year: Year) -> None:
    kept, told = year.journal("b").usage("rows"), list[Path]()
    for name in ("fed", *year.names):
        if name != "b":
            told.append(year.home / f"{name}.word")
            command("journal", "testify", year.home / name, "b", "--out", told[-1])
    lose(year, "b", *told, group_size=1)
    found = year.journal("b").usage("rows")
    assert (found.fits, found.starts) == (kept.fits, kept.starts) and found.losses >= kept.losses
    year.fit("masked")
    year.compare()


def lose(year: Year, name: str, *carried: Path, group_size: int = 5) -> None:
    """Lose a site's folder; join with a new identity that carries on, and start."""
    year.kill(name)
    shutil.rmtree(year.home / name)
    command(
        *("flower", "join", year.home / name, "--data", year.home / f"{name}.csv", "--data-set", "rows"),
        *("--tells", "--algorithms", "WeightedKMeans", "--max-fits", 60, "--max-losses", 60),
        *("--group-size", group_size, *(word for one in carried for word in ("--carry", one))),
    )
    with (year.home / name / "node.toml").open("a") as settings:
        settings.write(f"protocols = {json.dumps(APPROVED['protocols'])}\n")
    year.change(year.home / f"{name}.pub", remove=name)
    year.start(name)
    year.compare()


def test_a_site_restored_from_an_old_copy_is_left_out_until_it_joins_anew(year: Year, tmp_path: Path) -> None:
    folder = year.home / "d"
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns(HOME))
    year.fit("masked")
    command("journal", "export", folder, "--with-groups", "--out", tmp_path / "d.json")
    year.kill("d")
    (folder / "journal.sqlite").unlink()
    shutil.copytree(tmp_path / "copy", folder, dirs_exist_ok=True)
    year.start("d")
    others = [one for one in year.names if one != "d"]
    with year.engine() as engine:
        model, _ = fitted(engine, "masked")
    total = model.transcript_.of(Summed)[-1]
    assert [year.names[i] for i in total.contributors] == others
    year.count(tuple(others))
    lose(year, "d", tmp_path / "d.json")
    year.fit("masked")
    year.compare()


def version_of(place: Path, version: str, **equal: str) -> Path:
    """Copy the package as another version of it; return the folder to put on PYTHONPATH."""
    shutil.copytree(ROOT / "privfed", place / "privfed", ignore=shutil.ignore_patterns("__pycache__"))
    path = place / "privfed" / "version.py"
    text = path.read_text().replace(f'"{__version__}"', f'"{version}"')
    path.write_text(text.replace(repr(EQUAL).replace("'", '"'), json.dumps({**EQUAL, **equal})))
    return place


def test_sites_upgrade_one_by_one_and_another_wire_is_said(
    year: Year, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, other = version_of(tmp_path / "patch", "0.5.1"), version_of(tmp_path / "other", "0.6.0", wire="2")
    for name, place, version in (("a", patch, "0.5.1"), ("c", patch, "0.5.1"), ("e", other, "0.6.0")):
        year.kill(name)
        with monkeypatch.context() as patched:
            patched.setenv("PYTHONPATH", str(place))
            year.start(name)
        year.versions[name] = version
    year.compare()
    others = tuple(one for one in year.names if one != "e")
    with year.engine() as engine:
        model, _ = fitted(engine, "masked")
        assert {(one.client, one.what.split(":")[2]) for one in engine.faults} == {("e", "wire")}
    assert len(model.transcript_.of(Summed)[-1].contributors) == len(others)
    year.count(others)
    for name in ("a", "c", "e"):
        year.kill(name)
        year.start(name)
    year.versions.clear()
    year.compare()
    year.fit("masked")


SHIFTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += SHIFT;
    return done;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("shift", [600, -600])
def test_a_clock_that_is_ten_minutes_off_is_said_and_fits_go_on_without(
    shift: int, year: Year, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock.c").write_text(SHIFTED)
    words = ["cc", "-shared", "-fPIC", f"-DSHIFT={shift}", "clock.c", "-o", "clock.so", "-ldl"]
    subprocess.run(words, cwd=tmp_path, check=True)
    year.kill("f")
    year.compare()
    with monkeypatch.context() as patched:
        patched.setenv("LD_PRELOAD", str(tmp_path / "clock.so"))
        year.start("f")
    year.refused["f"] = f"refused: its clock is {'+' if shift > 0 else '-'}"
    year.stopped["f"] = time.time()
    year.compare()
    year.fit("masked", *(one for one in year.names if one != "f"))
    log = (year.fed / HOME / "f.log").read_text()
    assert "clock is" in log
    year.kill("f")
    year.start("f")
    del year.refused["f"]
    year.compare()
    year.fit("plain")


def test_a_slow_link_is_slow_and_loses_nothing(year: Year) -> None:
    link, kit = SlowLink(year.port, 0.2, 2e5), read_kit(year.home / "fed.kit")
    slow = structs.replace(kit, address=f"127.0.0.1:{link.port}")
    approve(year.home / "a", slow.signed(read_identity(year.fed / "coordinator").key))
    until = time.monotonic() + PATIENCE
    while not link.carried and time.monotonic() < until:
        time.sleep(0.5)
    year.fit("masked")
    assert link.carried > 1e4
    year.compare()
    approve(year.home / "a", kit)
    time.sleep(5.0)
    link.close()
    year.fit("masked")


KILLS = {
    "plain": {"superlink": "fit", "driver": "metric", "node": "fit"},
    "masked": {"superlink": "metric", "driver": "fit", "node": "metric"},
    "group-masked": {"superlink": "fit", "driver": "metric", "node": "fit"},
}
"""Secure sum -> what is killed -> in the last sum of the fit, or in a metric."""


@pytest.mark.parametrize("protocol", KILLS)
def test_fits_and_metrics_go_on_where_the_superlink_the_driver_or_a_node_is_killed(
    protocol: str, year: Year, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    undisturbed, index = year.fit(protocol)
    sums = len(undisturbed.transcript_.of(Summed))
    places = {what: sums - (place == "fit") for what, place in KILLS[protocol].items()}
    restarts = list[float]()

    def restarted() -> None:
        year.processes.kill_superlink()
        restarts.append(time.time() + 2.0)
        time.sleep(8.0)
        # Nobody is alive without a link.
        assert all((year.home / one / HOME / ALIVE).stat().st_mtime < restarts[0] for one in year.names)
        year.processes.start_superlink()

    def same(model: DWFKMeans, found: float | None) -> None:
        assert model.cluster_centers_.tobytes() == undisturbed.cluster_centers_.tobytes() and found == index
        year.count(tuple(year.names))
        year.compare()

    with monkeypatch.context() as patched, year.engine() as engine:
        before(patched, "collect", places["superlink"], restarted)
        same(*fitted(engine, protocol))
    assert restarts

    words = (str(year.fed), str(tmp_path / "run"), protocol, "collect", places["driver"])
    code = f"from tests.nodes.flower.test_year import driver; driver(*{words!r})"
    dead = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=600)
    assert dead.returncode == -signal.SIGKILL
    with year.engine() as engine:
        same(*fitted(engine, protocol, tmp_path / "run", resume=True))

    with monkeypatch.context() as patched, year.engine() as engine:
        engine.file = replace(engine.file, timeout=75.0)
        before(patched, "collect", places["node"], lambda: year.kill("a"))
        model, _ = fitted(engine, protocol)
        assert {one.client for one in engine.faults} == {"a"}
    year.count(tuple(year.names))
    assert len(model.transcript_.of(Summed)[-1].contributors) == len(year.names) - 1
    year.compare()
    year.start("a")
    year.compare()
    # It was not there when the fit was ended, and its owner ends it.
    (left_open,) = (one.number for one in year.journal("a").fits if not one.closed)
    command("journal", "end", year.home / "a", left_open)
    year.compare()
