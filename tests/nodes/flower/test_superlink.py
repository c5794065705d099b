"""A SuperLink serves nodes, and nobody else: it runs no code that came over the network."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import NOOP_FLWR_AID
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

from examples.three_hospitals.processes import Processes, free_port
from privfed.errors import ArgumentError
from privfed.nodes.deploy.adding import MEMBERS, REMOVED, add, members
from privfed.nodes.deploy.certificates import write_node_key
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.deploy.node import Says
from privfed.nodes.deploy.superlink import MOST, Admission, fleet_app
from privfed.nodes.flower.network import DrivenRun, environment, linked
from privfed.nodes.flower.settings import FederationFile
from tests.nodes.flower.federations import federation
from tests.some import some


@pytest.fixture
def factory() -> object:
    return get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())[1]


def test_the_superlink_has_the_interface_of_nodes_and_no_other(factory: object) -> None:
    app = fleet_app(factory, Admission(factory.state(), Path("none"), Says("superlink")))  # type: ignore[attr-defined]

    async def codes() -> dict[str, int]:
        headers = {"Content-Type": PROTOBUF_MEDIA_TYPE}
        found = {}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="https://hub"
        ) as client:
            for method, path in PROTOBUF_REQUEST_TYPES:
                found[path] = (await client.request(method, path, content=b"", headers=headers)).status_code
            for path in ("/", "/docs", "/openapi.json", "/v1/control/list-runs", "/v1/runtime/responses"):
                found[f"GET {path}"] = (await client.get(path)).status_code
        return found

    for path, code in some(asyncio.run(codes()).items()):
        # Nodes' own requests need the signature of an admitted key.
        assert code == (401 if path.startswith("/v1/fleet/") else 404), path


def test_a_request_is_refused_by_its_headers_before_its_body_is_read(factory: object, tmp_path: Path) -> None:
    """A stranger's one request of 1.5 GB took 3 GB of memory: the body was read before its signature."""
    folder = federation(tmp_path / "fed", 3)
    admission = Admission(factory.state(), folder / MEMBERS, Says("superlink"))  # type: ignore[attr-defined]
    admission.read()
    app, secret = fleet_app(factory, admission), (nodes_of(folder)[0] / "flower-key").read_bytes()
    own, foreign = load_ssh_private_key(secret, None), generate_key_pairs()[0]
    read = list[int]()

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield b""

    def headers(key: Any, at: datetime, size: int | None = 10) -> dict[str, str]:
        stamp = at.isoformat()
        signature = b64encode(sign_message(key, stamp.encode()))
        named = b64encode(public_key_to_bytes(key.public_key()))
        signed = {"flwr-public-key": named.decode(), "flwr-signature": signature.decode()}
        length = {} if size is None else {"content-length": str(size)}
        return {**signed, **length, "flwr-timestamp": stamp, "content-type": PROTOBUF_MEDIA_TYPE}

    async def codes() -> list[int]:
        found, now = [], datetime.now(UTC)
        cases = (
            ("/v1/control/start-run", headers(own, now)),
            ("/v1/fleet/pull-messages", {"content-length": "1"}),
            ("/v1/fleet/pull-messages", headers(foreign, now)),
            ("/v1/fleet/pull-messages", {**headers(own, now), "flwr-signature": "AAAA"}),
            ("/v1/fleet/pull-messages", headers(own, now, None)),
            ("/v1/fleet/pull-messages", headers(own, now, MOST + 1)),
            ("/v1/fleet/pull-messages", headers(own, now + timedelta(minutes=10))),
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="https://hub"
        ) as client:
            for path, words in cases:
                found.append((await client.post(path, content=body(), headers=words)).status_code)
        return found

    assert asyncio.run(codes()) == [404, 401, 401, 401, 401, 413, 401] and not read
    assert admission.parties["c0"].startswith("refused: its clock is +")


def test_nodes_of_the_list_are_there_after_a_restart_and_may_be_shut_out(
    factory: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = federation(tmp_path / "fed", 3)
    cards = [one / "card" for one in nodes_of(folder)]
    add(folder, [], remove=["c1"])
    state = factory.state()  # type: ignore[attr-defined]
    admission = Admission(state, folder / MEMBERS, Says("superlink"))
    admission.read()
    first = {bytes(one.public_key) for one in state.get_node_info()}
    assert len(first) == 2
    # Who was removed is not added by an old card, unless the coordinator deletes that mark.
    with pytest.raises(ArgumentError, match="was removed"):
        add(folder, cards)
    (mark,) = (folder / REMOVED).iterdir()
    mark.unlink()
    add(folder, cards)
    (folder / MEMBERS / "x.pub").write_text("no card")
    admission.read()
    assert first < {bytes(one.public_key) for one in state.get_node_info()}
    again = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())[1].state()
    Admission(again, folder / MEMBERS, Says("superlink")).read()
    assert len(again.get_node_info(owner_aids=[NOOP_FLWR_AID])) == 3
    (folder / MEMBERS / "x.pub").unlink()
    add(folder, [], remove=["c0"])
    admission.read()
    assert set(members(folder)) == {"c1", "c2"}
    registered = [one for one in state.get_node_info() if one.status == "registered"]
    assert len(registered) == 2
    (node,) = [one for one in registered if bytes(one.public_key) in first]
    state.activate_node(node.node_id, 10.0)
    admission.read()
    assert "superlink connected: c2; 1 of 2 are there, without c1 not seen since" in capsys.readouterr().out
    # Who was taken back comes in with another process; nobody else notices.
    next((folder / REMOVED).iterdir()).unlink()
    add(folder, cards)
    admission.read()
    assert "c0 is back in the list; your move: start the SuperLink again" in capsys.readouterr().out
    admission.read()
    assert not capsys.readouterr().out


_FOREIGN = """\
from pathlib import Path
from flwr.serverapp import ServerApp
app = ServerApp()
@app.main()
def main(grid, context):
    found = [one.read_bytes() for one in Path({fed!r}).rglob("*") if one.is_file()]
    Path({stolen!r}).write_bytes(b"".join(found))
"""

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "app"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "stranger"
[tool.flwr.app.components]
serverapp = "foreign:app"
clientapp = "foreign:app"
"""


@pytest.mark.flower
def test_a_stranger_with_the_public_certificate_starts_lists_reads_and_stops_nothing(tmp_path: Path) -> None:
    """As whoever reaches the port of a real SuperLink, by Flower's own commands."""
    folder = federation(tmp_path / "fed", 1, superlink=f"127.0.0.1:{free_port()}")
    file, stolen = FederationFile.read(folder), tmp_path / "stolen"
    home, app = tmp_path / "stranger", tmp_path / "app"
    home.mkdir()
    app.mkdir()
    (app / "foreign.py").write_text(_FOREIGN.format(stolen=str(stolen), fed=str(folder / "coordinator")))
    (app / "pyproject.toml").write_text(_PROJECT)
    connection = [
        "[superlink.it]",
        f'address = "{file.superlink}"',
        f'root-certificates = "{folder / "certificates" / "ca.crt"}"',
    ]
    (home / "config.toml").write_text("\n".join(connection))
    with Processes(file) as running:
        running.start_superlink()
        driven = DrivenRun(linked(file))
        assert driven.nodes() == ()
        own = tmp_path / "own"
        own.write_bytes(write_node_key(tmp_path))
        for words in some(
            (
                ["run", str(app), "it"],
                ["list", "it"],
                ["ls", "it"],
                ["log", "1", "it"],
                ["stop", "1", "it"],
                ["federation", "list", "it"],
                ["supernode", "list", "it"],
                ["supernode", "register", str(own), "it"],
            )
        ):
            done = subprocess.run(
                [str(Path(sys.executable).with_name("flwr")), *words],
                env=environment(home),
                cwd=home,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode and "Not Found" in done.stdout + done.stderr, (words, done.stdout)
        # The coordinator's run goes on.
        assert driven.nodes() == () and running.superlink is not None and running.superlink.poll() is None
        driven.close()
    assert not stolen.exists()
