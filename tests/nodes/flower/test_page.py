"""The commands of docs/flower.md lead from empty folders to centroids, word by word."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from examples.three_hospitals.processes import free_port
from privfed import ClientPolicy, DWFKMeans, load
from privfed.core.agreed.policy import GROUP_SIZE, MOST_FITS, MOST_LOSSES
from privfed.data import ClientTable, ClientTables
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from tests.test_documents import ROOT

pytestmark = pytest.mark.flower

WARDS = ("ward3", "ward5", "ward7")
PRIVFED = [sys.executable, "-c", "from privfed.cli.main import main; main()"]


def commands() -> list[str]:
    """Return the page's commands in their order."""
    page = (ROOT / "docs" / "flower.md").read_text()
    section = page.partition("## From empty machines")[2].partition("In Python")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    privfed ")]


def done(command: str, folder: Path) -> str:
    words = shlex.split(command)
    assert words[0] == "privfed"
    ran = subprocess.run([*PRIVFED, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def running(command: str, folder: Path, word: str) -> Iterator[None]:
    """Run a command that goes on; wait until it says a word."""
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [*PRIVFED, *shlex.split(command)[1:]], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            until = time.monotonic() + 120.0
            while word not in (folder / "log").read_text():
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


def untrusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_the_commands_of_the_page_lead_to_the_centroids_of_one_process(tmp_path: Path) -> None:
    join, add, superlink, node, run, more, approve, *_ = commands()
    hub, port, rng = tmp_path / "hub", free_port(), np.random.default_rng(1)
    hub.mkdir()
    rows = [rng.normal([40.0 + 10 * i, 25.0], [8.0, 3.0], (40, 2)).round(2) for i in range(4)]

    def joined(ward: str, table: np.ndarray) -> None:
        own = tmp_path / ward
        own.mkdir()
        np.savetxt(own / "stays.csv", table, delimiter=",", header="age,bmi", comments="")
        done(join.replace("ward3", ward), own)
        shutil.copy(own / f"{ward}.pub", hub)

    for ward, table in zip(WARDS, rows, strict=False):
        joined(ward, table)
    cards = " ".join(f"{ward}.pub" for ward in WARDS)
    done(f"{add.replace('*.pub', cards).replace('--host hub', '--host 127.0.0.1')} --port {port}", hub)
    for ward in WARDS:
        shutil.copy(hub / "fed.kit", tmp_path / ward)
    starts = {ward: f"{node.replace('ward3', ward)} --yes" for ward in WARDS}
    with (
        running(superlink, hub, "listening"),
        running(starts["ward3"], tmp_path / "ward3", "connected"),
        running(starts["ward5"], tmp_path / "ward5", "connected"),
        running(starts["ward7"], tmp_path / "ward7", "connected"),
    ):
        said = done(f"{run} --max-iter 1 --tol 0", hub)
        # A fourth is one new file; the others approve the list, and their nodes go on.
        joined("ward9", rows[3])
        done(more, hub)
        for ward in (*WARDS, "ward9"):
            shutil.copy(hub / "fed.kit", tmp_path / ward)
        for ward in WARDS:
            assert "goes on with this kit" in done(f"{approve.replace('ward3', ward)} --yes", tmp_path / ward)
        last = f"{node.replace('ward3', 'ward9')} --yes"
        with running(last, tmp_path / "ward9", "connected"):
            more_said = done(f"{run} --max-iter 1 --tol 0 --out four".replace("--out run ", ""), hub)
            found = json.loads(done("privfed flower status fed --json", hub))
            assert [(name, one["why"]) for name, one in found.items()] == [
                (one, []) for one in (*WARDS, "ward9")
            ]
            assert found["ward3"]["told"]["left"] == {
                "max_fits": MOST_FITS - 2,
                "max_losses": MOST_LOSSES - 1,
            }
            # A stranger's body is not read: the SuperLink's memory stays as it is.
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                untrusting().wrap_socket(plain) as link,
            ):
                path, size = b"/v1/fleet/pull-messages", b"9999999999"
                link.sendall(b"POST %b HTTP/1.1\r\nHost: hub\r\nContent-Length: %b\r\n\r\n" % (path, size))
                assert b" 401 " in link.recv(4096)
        # ward9 was stopped: its name, and that it has gone.
        gone = json.loads(done("privfed flower status fed --json", hub))["ward9"]
        assert gone["told"] is None and gone["link"].split()[0] in ("gone", "connected")
    assert "3 clients" in said and "differential privacy: none claimed" in said and "4 clients" in more_said
    # Nodes answer from groups of rows where their owners say nothing else.
    policy = ClientPolicy(group_size=GROUP_SIZE)
    for n, out in ((3, "run"), (4, "four")):
        tables = [ClientTable(*one) for one in zip((*WARDS, "ward9"), rows, strict=True)][:n]
        here = DWFKMeans(3, max_iter=1, tol=0, policy=policy).fit(ClientTables(tables, ("age", "bmi")))
        found = load(hub / out / "model.npz").cluster_centers_
        np.testing.assert_array_equal(found, here.cluster_centers_)
    for ward in WARDS:
        folder = tmp_path / ward / ward
        assert [(one.closed, one.answered) for one in Journal(folder, read_identity(folder)).fits] == [
            (True, 4)
        ] * 2
        assert " asked: fit " in (tmp_path / ward / "log").read_text()
