"""Nodes that answer from groups of rows: as simulated clients do, and whatever becomes of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy, DPKMeans, DWFKMeans
from privfed.data import ClientTable, ClientTables
from privfed.errors import ArgumentError, DataError, RefusedError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import check_node, report
from privfed.nodes.flower.settings import NodeSettings
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from tests.nodes.flower.federations import CLAIM, WORDS, N, assert_same, federation, rows
from tests.nodes.flower.networks import Folders
from tests.some import some

M = 3


def ids_of(own: np.ndarray) -> list[str]:
    """Two rows of each patient."""
    return [f"p{i // 2}" for i in range(len(own))]


PATIENTS = sum(len(set(ids_of(own))) for own in rows())
"""Each counts once, however many rows it has."""


def write(node: Path, own: np.ndarray, ids: list[str] | None = None) -> None:
    names = ids_of(own) if ids is None else ids
    lines = [f"{one},{float(x)!r},{float(y)!r}" for one, (x, y) in zip(names, own, strict=True)]
    (node / "rows.csv").write_text("\n".join(["patient,x0,x1", *lines]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation of nodes with ids that answer from groups of three."""
    made = federation(tmp_path / "fed")
    for node, own in zip(nodes_of(made), rows(), strict=True):
        write(node, own)
        text = (node / "node.toml").read_text().replace("rows.npz", "rows.csv")
        text = text.replace("group_size = 1\n", f"group_size = {M}\n")
        (node / "node.toml").write_text('id = "patient"\n' + text)
    return made


def fitted(folder: Path, **words: Any) -> tuple[Any, list[int]]:
    """Return a fit, and the lengths of all that nodes sent."""
    network = Folders(nodes_of(folder))
    engine = FlowerEngine(folder, network=network)
    model = DWFKMeans(3, engine=engine, **{"protocol": "plain", **WORDS, **words}).fit()
    assert not engine.faults
    return model, list(map(len, network.up))


def groups_of(node: Path) -> Any:
    found = Journal(node, read_identity(node)).data_set(NodeSettings.read(node).data_set)._groups()
    assert found is not None
    return found


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_nodes_answer_as_simulated_clients_with_the_same_groups(protocol: str, folder: Path) -> None:
    assert [check_node(node) for node in nodes_of(folder)] == [f"c{i}" for i in range(N)]
    over, _ = fitted(folder, protocol=protocol)
    tables = ClientTables(
        tuple(ClientTable(f"c{i}", own, None, tuple(ids_of(own))) for i, own in enumerate(rows())),
        ("x0", "x1"),
    )
    own = DWFKMeans(3, policy=ClientPolicy(group_size=M), protocol=protocol, **WORDS).fit(tables)
    assert_same(over, own)
    assert over.n_rows_ == PATIENTS
    assert groups_of(nodes_of(folder)[0]).known == tuple(sorted({f"p{i}" for i in range(10)}))


@pytest.mark.parametrize("change", ["other rows", "waiting ids", "no file", "no column", "broken", "no ids"])
@pytest.mark.few(2)
def test_what_becomes_of_a_table_changes_no_byte_of_a_later_fit(change: str, folder: Path) -> None:
    first, lengths = fitted(folder)
    node, own = nodes_of(folder)[0], rows()[0]
    groups = groups_of(node)
    table = node / "rows.csv"
    if change == "other rows":
        write(node, np.vstack([own + 1, own[:2]]), [*ids_of(own), "p0", "p1"])
    elif change == "waiting ids":
        more = [f"new{i}" for i in range(4 * M - 1)]
        write(node, np.vstack([own, np.full((len(more), 2), 9.0)]), [*ids_of(own), *more])
    elif change == "no file":
        table.unlink()
    elif change == "no column":
        table.write_text(table.read_text().replace("x1", "x2"))
    elif change == "no ids":
        table.write_text(table.read_text().replace("patient", "person"))
    else:
        lines = table.read_text().splitlines()
        table.write_text("\n".join([lines[0], *(f"{line.split(',')[0]},ill,nan" for line in lines[1:])]))
    again, others = fitted(folder)
    if change == "broken":
        # Rows without numbers are left out, and so are their ids: they have left, and their groups with them.
        assert groups_of(node).rows == () and again.n_rows_ == first.n_rows_ - len(set(ids_of(own)))
    else:
        assert groups_of(node) == groups and others == lengths
        assert_same(again, first)
    assert (node / "log").exists() == (change in ("no file", "no column", "no ids"))


def test_an_owner_is_told_how_many_ids_wait(folder: Path) -> None:
    node, own = nodes_of(folder)[0], rows()[0]
    assert report(node)[-1] == "10 of 10 ids will be in 3 groups, 0 wait: new ids for 12 of a class"
    fitted(folder)
    write(node, np.vstack([own[2:], own[:5]]), [*ids_of(own)[2:], *"abcde"])
    assert report(node)[-1] == "6 of 14 ids will be in 2 groups, 8 wait: new ids for 12 of a class"
    assert sum(groups_of(node).ids) == 10
    write(node, own, [f"other{i}" for i in range(len(own))])
    with pytest.raises(DataError, match="no id of this table was in a group"):
        report(node)


def test_an_id_that_leaves_is_in_no_later_fit(folder: Path) -> None:
    fitted(folder)
    node, own = nodes_of(folder)[0], rows()[0]
    left = [i for i, one in enumerate(ids_of(own)) if one != "p3"]
    write(node, own[left], [ids_of(own)[i] for i in left])
    gone = next(members for members in groups_of(node).members if "p3" in members)
    before = groups_of(node)
    again, _ = fitted(folder)
    assert set(before.members) - set(groups_of(node).members) == {gone}
    assert again.n_rows_ == PATIENTS - len(gone)


def test_a_node_that_cannot_read_its_first_table_gives_nothing_and_groups_it_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, own = nodes_of(folder)[0], rows()[0]
    raw = NodeSettings.raw

    def fails(settings: NodeSettings, *asked: Any, **words: Any) -> Any:
        if settings.folder == node:
            raise MemoryError
        return raw(settings, *asked, **words)

    with monkeypatch.context() as patched:
        patched.setattr(NodeSettings, "raw", fails)
        first, lengths = fitted(folder)
    again, others = fitted(folder)
    assert (first.n_rows_, again.n_rows_) == (PATIENTS - 10, PATIENTS)
    assert len(groups_of(node).known) == 10 and len(own) == 20 and lengths == others


def test_a_grouped_data_set_gives_neither_rows_nor_a_private_fit(folder: Path) -> None:
    fitted(folder)
    for node in nodes_of(folder):
        text = (node / "node.toml").read_text()
        (node / "node.toml").write_text(text.replace(f"group_size = {M}", "group_size = 1"))
    engine = FlowerEngine(folder, network=Folders(nodes_of(folder)))
    for model in (DWFKMeans(3, **WORDS), DPKMeans(3, privacy=CLAIM, random_state=3)):
        with pytest.raises(RefusedError) as refused:
            model.set_params(engine=engine).fit()
        assert set(refused.value.codes.values()) == {"journal:grouped"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('id = 3\ndata = "r.csv"\ndata_set = "a"', "id must be a text"),
        ('id = "a"\ncolumns = ["a", "b"]\ndata = "r.csv"\ndata_set = "a"', "id must be none of the feature"),
        ('id = "a"\nlabels = "a"\ndata = "r.csv"\ndata_set = "a"', "labels and id must be two columns"),
        ('data = "r.csv"\ndata_set = "a"\n[policy]\ngroup_size = 0', "group_size"),
    ],
)
def test_settings_of_ids_and_groups_are_checked(words: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(words)
    with pytest.raises(ArgumentError, match=said):
        NodeSettings.read(tmp_path)


def test_rows_without_an_id_are_left_out_and_counted_for_their_owner(folder: Path) -> None:
    node = nodes_of(folder)[0]
    (node / "rows.csv").write_text((node / "rows.csv").read_text().replace("p0,", ","))
    assert len(NodeSettings.read(node).rows().features) == 18
    said = NodeSettings.read(node).table.read().problems()
    assert said == ["2 of 20 rows have no id: left out"]


@pytest.mark.parametrize("named", [True, False])
def test_a_scale_that_is_learnt_later_scales_the_groups_that_there_are(named: bool, folder: Path) -> None:
    """Groups that were made before kept their units, whatever scale the schema had got."""
    tables = ClientTables(
        tuple(
            ClientTable(f"c{i}", own, None, tuple(ids_of(own)) if named else None)
            for i, own in enumerate(rows())
        ),
        ("x0", "x1"),
    )
    own = DWFKMeans(3, scale="standard", policy=ClientPolicy(group_size=M), protocol="plain", **WORDS)
    own.fit(tables)

    def schema(shift: Sequence[float], spread: Sequence[float]) -> None:
        lines = [
            f'[columns.x{i}]\nkind = "number"\nshift = {shift[i]!r}\nspread = {spread[i]!r}' for i in (0, 1)
        ]
        (folder / "schema.toml").write_text("\n".join(lines))

    schema((0.0, 0.0), (1.0, 1.0))
    for node in some(nodes_of(folder)):
        settings = (node / "node.toml").read_text()
        settings = settings if named else settings.replace('id = "patient"\n', "")
        (node / "node.toml").write_text(f'schema = "{folder / "schema.toml"}"\n{settings}')
    fitted(folder)
    made = [groups_of(node) for node in nodes_of(folder)]
    schema(own.scaling_.shift, own.scaling_.scale)
    over, _ = fitted(folder)
    assert_same(over, own)
    assert [groups_of(node) for node in nodes_of(folder)] == made
