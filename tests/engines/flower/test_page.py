"""The commands of docs/flower.md lead from empty folders to centroids, word by word."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from privfed import ClientPolicy, DWFKMeans, load
from privfed.core.agreed.policy import GROUP_SIZE
from privfed.data import ClientTable, ClientTables
from privfed.deploy.node import free_port
from privfed.party.identity import read_identity
from privfed.party.journal import Journal
from tests.test_documents import ROOT

pytestmark = pytest.mark.flower

WARDS = ("ward3", "ward5", "ward7")
PRIVFED = [sys.executable, "-c", "from privfed.cli.main import main; main()"]


def commands() -> list[str]:
    """Return the page's commands in their order."""
    page = (ROOT / "docs" / "flower.md").read_text()
    section = page.partition("## From three empty machines")[2].partition("In Python")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    privfed ")]


def done(command: str, folder: Path) -> str:
    words = shlex.split(command)
    assert words[0] == "privfed"
    ran = subprocess.run([*PRIVFED, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def running(command: str, folder: Path) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*PRIVFED, *shlex.split(command)[1:]], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


@contextmanager
def listening(log: Path) -> Iterator[None]:
    """Wait until the SuperLink says that it listens."""
    until = time.monotonic() + 120.0
    while "the SuperLink listens" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.5)
    yield


def test_the_commands_of_the_page_lead_to_the_centroids_of_one_process(tmp_path: Path) -> None:
    keys, join, new, registry, superlink, node, run = commands()
    hub, port, rng = tmp_path / "hub", free_port(), np.random.default_rng(1)
    rows = [rng.normal([40.0 + 10 * i, 25.0], [8.0, 3.0], (40, 2)).round(2) for i in range(3)]
    for name in ("public", "keys"):
        (hub / name).mkdir(parents=True)
    for ward, table in zip(WARDS, rows, strict=True):
        own = tmp_path / ward
        own.mkdir()
        np.savetxt(own / "rows.csv", table, delimiter=",", header="age,bmi", comments="")
        done(keys.replace("ward 3", f"ward {ward[-1]}"), own)
        done(join.replace("/srv/ward3.csv", str(own / "rows.csv")).replace("ward 3", ward), own)
        shutil.copy(own / "party" / "public", hub / "public" / ward)
        shutil.copy(own / "party" / "flower-key.pub", hub / "keys" / f"{ward}.pub")
    done(f"{new.replace('10.0.0.5', '127.0.0.1')} --port {port}", hub)
    done(registry, hub)
    address = node.replace("10.0.0.5:9092", f"127.0.0.1:{port}")
    for ward in WARDS:
        shutil.copy(hub / "fed" / "certificates" / "ca.crt", tmp_path / ward)
        shutil.copy(hub / "fed" / "parties", tmp_path / ward / "party" / "parties")
    with (
        running(superlink, hub),
        listening(hub / "log"),
        running(address, tmp_path / WARDS[0]),
        running(address, tmp_path / WARDS[1]),
        running(address, tmp_path / WARDS[2]),
    ):
        said = done(f"{run} --max-iter 1 --tol 0", hub)
    assert "3 clients" in said and "differential privacy: none claimed" in said
    names = [f"ward {ward[-1]}" for ward in WARDS]
    # Nodes answer from groups of rows where their owners say nothing else.
    tables = ClientTables([ClientTable(*one) for one in zip(names, rows, strict=True)], ("age", "bmi"))
    here = DWFKMeans(3, max_iter=1, tol=0, policy=ClientPolicy(group_size=GROUP_SIZE)).fit(tables)
    found = load(hub / "run" / "model.npz").cluster_centers_
    np.testing.assert_array_equal(found, here.cluster_centers_)
    for ward in WARDS:
        folder = tmp_path / ward / "party"
        (fit,) = Journal(folder, read_identity(folder)).fits
        assert fit.closed and fit.answered == 4
