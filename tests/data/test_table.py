"""Tables of clients refuse what a fit could not use, and say whose it is without quoting it."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, FederatedScaler, FederatedSummary
from privfed.data import ClientTable, ClientTables
from privfed.errors import DataError

ROWS = np.arange(6.0).reshape(3, 2)
CODES = np.array([0, 1, 1])


def tables(*clients: ClientTable, label_names: tuple[str, ...] | None = None) -> ClientTables:
    return ClientTables(clients, ("x", "z"), label_names)


def test_tables_list_names_arrays_and_labels_in_order() -> None:
    data = tables(
        ClientTable("b", ROWS, CODES), ClientTable("a", ROWS[:1], CODES[:1]), label_names=("n", "y")
    )
    assert data.names == ("b", "a")
    assert [array.tolist() for array in data.arrays] == [ROWS.tolist(), ROWS[:1].tolist()]
    assert data.labels is not None
    assert [codes.tolist() for codes in data.labels] == [[0, 1, 1], [0]]
    assert data.label_names == ("n", "y")


def test_labels_are_none_without_labels() -> None:
    assert tables(ClientTable("a", ROWS)).labels is None


def test_table_keeps_a_read_only_float64_copy() -> None:
    rows, codes = np.array([[1, 2]], dtype=np.int32, order="F"), np.array([3], dtype=np.uint8)
    table = ClientTable("a", rows, codes)  # type: ignore[arg-type]
    rows[0, 0], codes[0] = 9, 9
    assert table.features.tolist() == [[1.0, 2.0]]
    assert table.features.dtype == np.float64
    assert table.labels is not None
    assert table.labels.dtype == np.int64
    assert table.labels.tolist() == [3]
    for array in (table.features, table.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClientTable("a", ROWS).name = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("", ROWS), "a client has an empty name; give each", id="no-name"),
        pytest.param(("a", ROWS[:, :0]), "client 'a' has no feature columns; give it", id="no-columns"),
        pytest.param(("a", ROWS[0]), r"client 'a' has features of shape \(2,\)", id="one-dimension"),
        pytest.param(("a", ROWS.astype(str)), "client 'a' has features of .* type <U", id="text"),
        pytest.param(("a", ROWS.astype(complex)), "client 'a' has features of .* complex128", id="complex"),
        pytest.param(("a", ROWS.astype(object)), "client 'a' has features of .* object", id="objects"),
        pytest.param(
            ("a", ROWS, CODES[:2]), r"labels of shape \(2,\) .* each of its 3 rows", id="few-labels"
        ),
        pytest.param(
            ("a", ROWS, CODES / 2), "labels of shape .* float64; give one integer", id="float-labels"
        ),
    ],
)
def test_table_refuses(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ClientTable(*arguments)


def with_values(*values: float) -> ClientTable:
    rows = np.full((3, 2), 7777.0)
    rows.flat[: len(values)] = values
    return ClientTable("ward", rows)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        pytest.param((), "there are no clients; give at least one", id="no-client"),
        pytest.param(
            (ClientTable("a", ROWS), ClientTable("a", ROWS)),
            "two clients are called 'a'; rename",
            id="name-twice",
        ),
        pytest.param(
            (ClientTable("b", ROWS), ClientTable("a", ROWS[:0])),
            "client 'a' has no rows; leave it out or",
            id="no-rows",
        ),
        pytest.param(
            (ClientTable("a", ROWS), ClientTable("b", ROWS[:, :1])),
            "client 'b' has 1 columns, expected 2; give every client the same",
            id="columns-missing",
        ),
        pytest.param(
            (ClientTable("a", ROWS, CODES), ClientTable("b", ROWS)),
            "client 'b' has no labels, but others have; give",
            id="labels-at-some",
        ),
    ],
)
def test_tables_refuse(clients: tuple[ClientTable, ...], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        tables(*clients)
    assert "7777" not in str(caught.value)


@pytest.mark.parametrize("values", [(np.nan, 1, np.nan), (1, -np.inf), (np.nan, np.inf)])
def test_tables_carry_gaps_and_whoever_cannot_fill_them_names_who_can(values: tuple[float, ...]) -> None:
    held = tables(with_values(*values))
    for estimator in (DWFKMeans(2, protocol="plain"), FederatedScaler(protocol="plain"), FederatedSummary()):
        with pytest.raises(DataError, match=r"client ward: .* columns .*FederatedImputer") as caught:
            estimator.fit(held)
        assert "7777" not in str(caught.value)


def test_tables_refuse_two_columns_of_one_name() -> None:
    with pytest.raises(DataError, match="two columns are called 'x'; rename"):
        ClientTables((ClientTable("a", ROWS),), ("x", "x"))


@pytest.mark.parametrize("code", [-1, 2])
def test_tables_refuse_codes_without_a_name(code: int) -> None:
    with pytest.raises(DataError, match=r"client 'a' has label codes outside \[0, 2\)"):
        tables(ClientTable("a", ROWS, np.array([0, 1, code])), label_names=("n", "y"))


def test_tables_refuse_label_names_without_labels() -> None:
    with pytest.raises(DataError, match="label_names are given, but no client has labels"):
        tables(ClientTable("a", ROWS), label_names=("n", "y"))
