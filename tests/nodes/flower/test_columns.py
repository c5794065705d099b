"""Columns are agreed by name: a table is read by name, whatever else it has, and lacking ones are refused."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.errors import ColumnsError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node import _JOINED, check_node
from privfed.nodes.flower.settings import FILE, NodeSettings
from tests.nodes.flower.federations import WORDS, assert_same, federation, here
from tests.nodes.flower.networks import Folders

COLUMNS = ["x", "y"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation whose first node has a table with a header."""
    made = federation(tmp_path / "fed")
    names = (made / FILE).read_text().split("columns = ")[1].split("]")[0]
    (made / FILE).write_text((made / FILE).read_text().replace(names, '["x","y"'))
    write(made, COLUMNS)
    return made


def write(folder: Path, header: list[str], more: str = "", settings: str = "") -> Path:
    """Have the first node answer from a CSV file with these columns; values stay with their names."""
    node = nodes_of(folder)[0]
    rows = np.load(node / "rows.npz")["X"]
    own = {"x": rows[:, 0], "y": rows[:, 1]}
    values = [own.get(name, own["x"]) for name in header]
    lines = [",".join([*map(repr, map(float, row)), *["0"] * bool(more)]) for row in np.stack(values, axis=1)]
    (node / "rows.csv").write_text("\n".join([",".join([*header, *[more] * bool(more)]), *lines]))
    text = (node / "node.toml").read_text().replace("rows.npz", "rows.csv")
    (node / "node.toml").write_text(settings + text)
    return node


def over(folder: Path) -> FlowerEngine:
    return FlowerEngine(folder, network=Folders(nodes_of(folder)))


def fitted(folder: Path) -> DWFKMeans:
    return DWFKMeans(3, protocol="plain", engine=over(folder), **WORDS).fit()


@pytest.mark.parametrize(
    ("header", "more", "settings"),
    [
        (COLUMNS, "", ""),
        (["y", "x"], "", ""),
        (["y", "x"], "age", 'columns = ["x", "y"]\n'),
        (["y", "x"], "ill", 'labels = "ill"\n'),
        (COLUMNS, "age", ""),
        (COLUMNS, "", 'columns = ["y", "x"]\n'),
    ],
)
def test_a_table_in_another_order_is_read_by_name(
    header: list[str], more: str, settings: str, folder: Path
) -> None:
    node = write(folder, header, more, settings)
    assert check_node(node) == node.name
    assert_same(fitted(folder), here(DWFKMeans(3, protocol="plain", **WORDS)))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("header", "more", "settings", "said"),
    [
        (COLUMNS, "", 'columns = ["y"]\n', "the agreed columns are 'x', 'y'; its owner lists 'y'"),
        (["x", "z"], "", "", r"the agreed columns are 'x', 'y'; .*rows.csv has 'x', 'z'"),
        (["x"], "", "", r"the agreed columns are 'x', 'y'; .*rows.csv has 'x'"),
    ],
)
@pytest.mark.few(3)
def test_other_columns_are_refused_at_the_join_and_the_owners_log_says_which(
    header: list[str], more: str, settings: str, said: str, folder: Path
) -> None:
    node = write(folder, header, more, settings)
    engine = over(folder)
    others = DWFKMeans(3, protocol="masked", engine=engine, **WORDS).fit().transcript_
    assert {total.contributors for _, total in others.totals()} == {(1, 2, 3)}
    assert [(one.client, one.what) for one in engine.faults] == [("c0", "refused: agreement:columns")]
    with pytest.raises(ColumnsError, match=said):
        NodeSettings.read(node).rows(COLUMNS)
    log = (node / "log" / "0.log").read_text()
    assert said.rsplit("; ", 1)[0] in log and "Traceback" in log


def test_arrays_have_no_names_and_only_their_number_is_compared(folder: Path) -> None:
    for node in nodes_of(folder):
        assert not NodeSettings.read(node).table.named or node.name == "c0"
    other = nodes_of(folder)[1]
    np.savez(other / "rows.npz", X=np.zeros((5, 3)))
    engine = over(folder)
    DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert [(one.client, one.what) for one in engine.faults] == [("c1", "refused: agreement:columns")]
    assert "has 3 feature columns, the agreement has 2" in (other / "log" / "0.log").read_text()


def test_columns_are_signed_and_an_owners_copy_is_compared(folder: Path) -> None:
    node = write(folder, ["y", "x"])
    first = fitted(folder)
    assert first.transcript_.configuration.columns == ("x", "y")
    assert list(first.feature_names_in_) == COLUMNS
    joined = next((node / "joined").glob("*[!t]"))
    (node / "approved").mkdir()
    (node / "approved" / "one").write_bytes(_JOINED.from_bytes(joined.read_bytes()).agreement)
    assert "columns" in "\n".join(NodeSettings.read(node).report())
    write(folder, ["x", "z"])
    with pytest.raises(ColumnsError, match="'x', 'z'"):
        NodeSettings.read(node).report()


def test_a_list_without_one_of_the_parties_is_its_own_code(folder: Path) -> None:
    """Not `error`: the owner has an older list than the coordinator."""
    other = federation(folder.parent / "other")
    node = nodes_of(folder)[2]
    shutil.copy(other / "parties", node / "parties")
    engine = over(folder)
    DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert [(one.client, one.what) for one in engine.faults] == [("c2", "refused: agreement:parties")]


@pytest.mark.parametrize("began", [False, True])
def test_a_node_that_cannot_keep_its_journal_stands_among_the_faults(
    began: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kept, sent = over(folder), nodes_of(folder)[0] / "journal.sqlite", list[int]()
    send = engine.network.send

    def carried(messages: Mapping[int, bytes], seconds: float) -> Heard:
        if len(sent) == began:
            kept.write_bytes(b"damaged" * 1000)
        sent.append(1)
        return send(messages, seconds)

    monkeypatch.setattr(engine.network, "send", carried)
    DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert {one.client for one in engine.faults} == {"c0" if began else "node 100"}
    assert all("journal" in one.what for one in engine.faults)
