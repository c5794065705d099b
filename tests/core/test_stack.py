"""Simulated clients in one table have the rows, and the answers, that they have alone."""

import numpy as np
import pytest

from privfed.core.asking.data import Stack, all_within, in_one_stack, stacked
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges, frozen, frozen_array
from privfed.errors import DataError
from privfed.federation.clients import gather
from tests.some import some

RNG = np.random.default_rng(0)
PARTS = [RNG.normal(size=(n, 3)) for n in (4, 1, 6)]


def test_rows_in_one_table_are_the_clients_rows() -> None:
    labels = [np.arange(len(rows)) for rows in PARTS]
    clients = in_one_stack([ClientData(rows, own) for rows, own in zip(PARTS, labels, strict=True)])
    assert [one.features.tolist() for one in clients] == [rows.tolist() for rows in PARTS]
    assert [one.labels.tolist() for one in clients if one.labels is not None] == [
        own.tolist() for own in labels
    ]
    assert all(np.shares_memory(one.features, stacked(clients).stack.rows) for one in clients)
    assert in_one_stack(clients)[0] is clients[0]
    some = stacked([clients[2], clients[0]])
    assert some.places.tolist() == [2, 0]
    assert [part.tolist() for part in some.parts] == [PARTS[2].tolist(), PARTS[0].tolist()]


def test_clients_without_a_common_table_are_stacked_anew() -> None:
    mixed = [ClientData(rows) for rows in PARTS]
    assert [part.tolist() for part in stacked(mixed).parts] == [rows.tolist() for rows in PARTS]
    assert stacked(mixed[:1]).stack is stacked(mixed[:1]).stack


def test_clipping_a_table_clips_each_client_as_if_alone() -> None:
    alone = [ClientData(rows) for rows in PARTS]
    together = in_one_stack(alone)
    for bound in (0.5, 1.0, 9.0):
        ranges = Ranges([-bound] * 3, [bound] * 3, 9)
        found, moved = all_within(together, ranges)
        expected = [one.within(ranges) for one in alone]
        assert [one.features.tolist() for one in found] == [one.features.tolist() for one, _ in expected]
        assert moved == [number for _, number in expected]
        assert len({id(one.stack) for one in found if one.stack is not None}) <= 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_an_error(wrong: float) -> None:
    rows = PARTS[0].copy()
    rows[1, 2] = wrong
    with pytest.raises(DataError, match="NaN or infinity"):
        in_one_stack([ClientData(PARTS[1]), ClientData(rows)])


def test_what_nobody_can_write_to_is_not_copied() -> None:
    own = frozen(RNG.normal(size=(6, 2)))
    assert frozen_array(own) is own and frozen_array(own[2:4]).base is own
    assert gather(own, np.repeat([0, 1], 3)).here[1].features.base is own
    behind = RNG.normal(size=(6, 2))
    view = frozen(behind[:])
    assert not np.shares_memory(frozen_array(view), behind)
    assert frozen_array(own.T).flags.c_contiguous
    assert not np.shares_memory(Stack.of([behind]).rows, behind)


def test_tables_of_columns_are_stacked_row_by_row() -> None:
    stack = Stack.of([np.asfortranarray(one) for one in PARTS])
    assert stack.rows.flags.c_contiguous
    np.testing.assert_array_equal(stack.rows, np.concatenate(PARTS))


def test_rows_in_any_order_go_to_their_clients() -> None:
    table, owner = RNG.normal(size=(8, 2)), np.array([2, 0, 1, 0, 2, 2, 1, 0])
    clients = gather(table, owner, np.arange(8))
    for i, one in some(enumerate(clients.here)):
        assert one.features.tolist() == table[owner == i].tolist()
        assert one.labels is not None and one.labels.tolist() == np.flatnonzero(owner == i).tolist()
