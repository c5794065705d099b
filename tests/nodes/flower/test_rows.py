"""A node's rows decide nothing of what others see: it starts, joins and answers alike, whatever they are."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.core.stored.encoding import encode
from privfed.deep import FedAvg
from privfed.errors import DataError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import check_node, report
from privfed.nodes.flower.node_messages import Answered, Joined, read_up
from privfed.protocols.crypto.keys import CIPHERTEXT_BYTES, RECEIPT_BYTES
from privfed.protocols.setup.hybrid import encapsulates
from privfed.protocols.setup.setup_messages import Capsule
from tests.default_run import covering
from tests.nodes.flower.federations import OPEN, federation
from tests.nodes.flower.models import BY_DP_SGD, WORDS, N, labelled, over
from tests.nodes.flower.networks import Folders

CAPSULE = encode(Capsule(0, bytes(CIPHERTEXT_BYTES), bytes(RECEIPT_BYTES)))
LISTED = 2
"""A node joins, advertises its keys, and answers the list."""

HEADER = "a,b,c,d,y"
PLAIN = ["0.5,0.25,0.5,0.75,1"] * 12
TABLES = {
    "no rows": [],
    "one row": PLAIN[:1],
    "labels that are no class": [f"0.5,0.25,0.5,0.75,{one}" for one in (-1, 1.5, 3, 10**9, "", "ill")],
    "no number": ["1e400,0,0,0,1", "nan,1,1,1,0", ",,,,", "?,0,0,0,2", *PLAIN[:2]],
    "huge": ["1e308,-1e308,0,1e300,1", *PLAIN[:2]],
    "broken lines": ["1,2", "1,2,3,4,5,6,7", '"0.5,1,1,1,1', "\x00\x00", "", *PLAIN[:2]],
    "all alike": PLAIN,
}
CLAIM = Privacy(
    epsilon=1.0, delta=1e-6, unit="record", domain=Box(0, 1, max_rows=64), neighbours="add-remove"
)
FITS: dict[str, Any] = {
    "by DP-SGD": lambda engine: FedAvg(**{**WORDS, **BY_DP_SGD, "rounds": 1}, engine=engine),
    "models": lambda engine: FedAvg(**{**WORDS, "rounds": 2}, engine=engine),
    "private k-means": lambda engine: DPKMeans(2, privacy=CLAIM, engine=engine),
    "k-means": lambda engine: DWFKMeans(
        2, domain=Box(0.0, 1.0), max_iter=2, tol=0, engine=engine, random_state=0
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = labelled(tmp_path_factory.mktemp("nodes") / "made")
    node = nodes_of(folder)[0]
    (node / "node.toml").write_text((node / "node.toml").read_text().replace("rows.npz", "rows.csv"))
    return folder


def with_rows(made: Path, folder: Path, lines: list[str]) -> Path:
    shutil.copytree(made, folder)
    (nodes_of(folder)[0] / "rows.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return folder


def said(folder: Path, fit: str) -> list[list[tuple[type, int]]]:
    """Return kind and length of what each node says, exchange by exchange, in a fit that all take part in."""
    engine, network = over(folder)
    # Of too large values a total without privacy may tell, and the coordinator ends the fit.
    with suppress(*[DataError] * (fit in ("k-means", "models"))):
        fitted = FITS[fit](engine).fit()
        assert {total.contributors for _, total in fitted.transcript_.totals()} == {tuple(range(N))}
    assert not engine.faults and network.trips > 3
    replies = [(type(read_up(one, "a node")), len(one)) for one in network.up]
    assert {kind for kind, _ in replies} == {Joined, Answered}
    # What a client encapsulates to others goes with its answer to the list; to how many, its position says.
    for client in range(N):
        place = LISTED * N + client
        made = sum(encapsulates(client, j) for j in range(N) if j != client)
        replies[place] = replies[place][0], replies[place][1] - made * len(CAPSULE)
    return [replies[first : first + N] for first in range(0, len(replies), N)]


@pytest.mark.parametrize(("name", "fit"), covering(list(TABLES), list(FITS)))
@pytest.mark.few(2)
def test_a_node_starts_joins_and_answers_as_others_do_whatever_its_rows_are(
    name: str, fit: str, made: Path, tmp_path: Path
) -> None:
    folder = with_rows(made, tmp_path / "federation", TABLES[name])
    own = nodes_of(folder)[0]
    assert check_node(own) == "c0"
    for first, *others in said(folder, fit):
        assert set(others) == {first}
    assert not (own / "log").exists()


@pytest.mark.parametrize("groups", [1, 5])
def test_a_node_with_more_rows_than_were_agreed_on_tells_its_owner_alone(groups: int, tmp_path: Path) -> None:
    most = {"c0": 40, "c1": 24, "c2": 40, "c3": 40}
    folder = federation(tmp_path / "fed", approved={**OPEN, "group_size": groups, "min_clients": 1})
    network = Folders(nodes_of(folder))
    engine = FlowerEngine(folder, network=network)
    DWFKMeans(
        2, domain=Box(-12.0, 12.0, max_rows=most), max_iter=1, tol=0, engine=engine, random_state=0
    ).fit()
    assert not engine.faults
    for own in nodes_of(folder):
        said = [line for line in report(own) if line.startswith("25 rows") and " 24 " in line]
        assert bool(said) == (own / "log").exists() == (own.name == "c1")
    engine.end_fits()
    # Nothing that the others hear has it, and an ended fit is none to correct.
    assert all(b"at most" not in one for one in network.up)
    assert report(nodes_of(folder)[1]) == [one for one in report(nodes_of(folder)[1]) if "24" not in one]
