"""A SuperLink serves nodes, and nobody else: it runs no code that came over the network."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.common.constant import NOOP_FLWR_AID
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

from privfed.deploy.folders import ADMITTED, NODE_PUBLIC, admit, nodes_of, write_node_key
from privfed.deploy.node import Processes, free_port
from privfed.deploy.superlink import Admission, fleet_app
from privfed.engines.flower.network import DrivenRun, command, environment, linked
from privfed.engines.flower.settings import FederationFile
from privfed.errors import ArgumentError
from tests.engines.flower.federations import federation
from tests.some import some


@pytest.fixture
def factory() -> object:
    return get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())[1]


def test_the_superlink_has_the_interface_of_nodes_and_no_other(factory: object) -> None:
    app = fleet_app(factory, authenticated=True)

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


def key_of(folder: Path) -> Path:
    folder.mkdir()
    write_node_key(folder)
    return folder / NODE_PUBLIC


def test_admitted_nodes_are_there_after_a_restart_and_may_be_shut_out(
    factory: object, tmp_path: Path
) -> None:
    one, other = key_of(tmp_path / "a"), key_of(tmp_path / "b")
    admit(tmp_path, [one])
    state = factory.state()  # type: ignore[attr-defined]
    admission = Admission(state, tmp_path / ADMITTED)
    admission.read()
    (first,) = state.get_node_info()
    # Another one stops nothing; nor does it to name one again, or a file that is no key.
    admit(tmp_path, [one, other])
    (tmp_path / ADMITTED / "x.pub").write_text("no key")
    admission.read()
    assert len(state.get_node_info()) == 2 and first.node_id in [x.node_id for x in state.get_node_info()]
    again = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())[1].state()
    Admission(again, tmp_path / ADMITTED).read()
    keys = {bytes(x.public_key) for x in again.get_node_info(owner_aids=[NOOP_FLWR_AID])}
    assert len(keys) == 2 and bytes(first.public_key) in keys
    for path in (tmp_path / ADMITTED).glob("*.pub"):
        if path.read_bytes() == one.read_bytes():
            path.unlink()
    admission.read()
    assert state.get_node_id_by_public_key(first.public_key) is None
    with pytest.raises(ArgumentError, match=r"is no flower-key\.pub"):
        admit(tmp_path, [tmp_path / "nowhere"])


_FOREIGN = """\
from pathlib import Path
from flwr.serverapp import ServerApp
app = ServerApp()
@app.main()
def main(grid, context):
    found = [one.read_bytes() for one in Path({fed!r}).rglob("*") if one.is_file()]
    Path({stolen!r}).write_bytes(b"".join(found))
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
    project = (folder / "app" / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project.replace("privfed.engines.flower.apps:server", "foreign:app"))
    connection = [
        "[superlink.it]",
        f'address = "{file.superlink}"',
        f'root-certificates = "{file.root_certificates}"',
    ]
    (home / "config.toml").write_text("\n".join(connection))
    with Processes(file) as running:
        running.start_superlink([one / NODE_PUBLIC for one in nodes_of(folder)])
        driven = DrivenRun(linked(file))
        assert driven.nodes() == ()
        own = key_of(tmp_path / "own")
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
                [command("flwr"), *words],
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
