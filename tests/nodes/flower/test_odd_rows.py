"""Nodes that run as processes: what they say on their terminals is the same, whatever their tables hold."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from examples.three_hospitals.processes import free_port
from tests.nodes.flower.test_interference import MORE, lines_of
from tests.nodes.flower.test_page import done, running

pytestmark = pytest.mark.flower

TABLES = {
    "usual": lines_of(0, 24),
    "odd": [*lines_of(1, 20), *(line for lines in MORE.values() for line in lines)],
    "none": [],
}
JOIN = (
    "privfed flower join {0} --data {0}.csv --columns x,y,z --missing leave-out --max-epsilon 9 --max-fits 9"
    " --algorithms PrivateKMeans,PrivateMoments,FeatureSummary --group-size 1"
)
CLAIM = "--epsilon 2 --delta 1e-6 --unit record --neighbours add-remove --low -1 --high 1 --max-rows 64"


def said_by(folder: Path, name: str) -> list[str]:
    """Return what a node printed once it was connected, without times and its name."""
    lines = (folder / "log").read_text().partition(" connected: ")[2].splitlines()[1:]
    assert all(re.match(rf"\S+Z {name} \w+: ", line) for line in lines), lines
    return [line.partition(f" {name} ")[2] for line in lines if f" {name} working: " not in line]


def test_nodes_of_odd_tables_start_answer_and_say_what_others_do(tmp_path: Path) -> None:
    hub, port = tmp_path / "hub", free_port()
    hub.mkdir()
    for name, lines in TABLES.items():
        own = tmp_path / name
        own.mkdir()
        # Their owners joined with rows that can be used; tables change.
        for held in (lines_of(0, 4), lines):
            text = "\n".join(["id,x,y,z,class", *held, ""])
            (own / f"{name}.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
            if held is not lines:
                done(JOIN.format(name), own)
        shutil.copy(own / f"{name}.pub", hub)
    cards = " ".join(f"{name}.pub" for name in TABLES)
    done(f"privfed flower add fed {cards} --host 127.0.0.1 --port {port}", hub)
    start = "privfed flower node {0} --kit ../hub/fed.kit --yes"
    usual, odd, none = (tmp_path / name for name in TABLES)
    with (
        running("privfed flower superlink fed", hub, "listening"),
        running(start.format("usual"), usual, "connected"),
        running(start.format("odd"), odd, "connected"),
        running(start.format("none"), none, "connected"),
    ):
        text = done(f"privfed flower run fed --algorithm dp -k 2 {CLAIM} --out run", hub)
        text += done(f"privfed flower summary fed {CLAIM}", hub)
    assert "stage" not in text
    first, *others = (said_by(tmp_path / name, name) for name in TABLES)
    assert len(first) > 20 and {line.split(":")[0] for line in first} == {"asked", "answered"}
    assert others == [first, first]
    assert not any((tmp_path / name / name / "log").exists() for name in TABLES)
