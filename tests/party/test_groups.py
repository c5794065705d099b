"""What a client's groups of rows hold, over drawn histories of its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import DataError
from privfed.party.groups import GROUPS, Groups, RawTable, as_ids
from tests.some import some

Unit = tuple[str, int]


@dataclass
class History:
    """A data set's table over time, and all that was made of it."""

    rows: dict[str, list[tuple[list[float], int]]]
    states: list[Groups] = field(default_factory=list)

    def table(self) -> RawTable:
        flat = [(one, *row) for one, rows in self.rows.items() for row in rows]
        features = np.array([row for _, row, _ in flat], dtype=np.float64).reshape(-1, 2)
        classes = np.array([kind for *_, kind in flat], dtype=np.int64)
        return RawTable(features, classes, [one for one, *_ in flat])

    def step(self, m: int) -> None:
        table = self.table()
        if not self.states:
            self.states.append(Groups.begun(table, m))
            return
        try:
            self.states.append(self.states[-1].updated(table, m))
        except DataError:  # Not one id of before is left.
            self.states.append(self.states[-1].updated(None, m))


def groups_of(state: Groups) -> list[frozenset[Unit]]:
    """Return each group's units: its ids with its class."""
    kinds = state.classes or [0] * len(state.rows)
    return [frozenset((one, kind) for one in ids) for ids, kind in zip(state.members, kinds, strict=True)]


row = st.tuples(st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=2), st.integers(0, 1))


@st.composite
def histories(draw: st.DrawFn) -> History:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def rows() -> list[tuple[list[float], int]]:
        number = int(rng.integers(1, 3))
        return [(rng.integers(-3, 4, 2).tolist(), int(rng.random() < 0.3)) for _ in range(number)]

    history = History({str(i): rows() for i in range(draw(st.integers(0, 30)))})
    gone: list[str] = []
    m, named = draw(st.integers(2, 4)), len(history.rows)
    history.step(m)
    for _ in range(draw(st.integers(1, 6))):
        for one in rng.permutation(sorted(history.rows))[: draw(st.integers(0, 3))].tolist():
            gone.append(one)
            del history.rows[one]
        for one in rng.permutation(sorted(history.rows))[: draw(st.integers(0, 5))].tolist():
            history.rows[one] = rows()
        back = gone[: draw(st.integers(0, 3))]
        gone = gone[len(back) :]
        new = [str(named + i) for i in range(draw(st.sampled_from([0, 1, 5, 9, 20])))]
        named += len(new)
        history.rows |= {one: rows() for one in [*back, *new]}
        m = draw(st.sampled_from([m, m, m, m - 1, m + 1, m + 3]))
        m = max(m, 2)
        history.step(m)
    return history


@settings(max_examples=150)
@given(histories())
def test_each_group_but_united_ones_has_m_ids_that_were_never_in_one(history: History) -> None:
    known: set[str] = set()
    before: list[frozenset[Unit]] = []
    for state in some(history.states):
        groups = groups_of(state)
        assert max(Counter(unit for group in groups for unit in group).values(), default=1) == 1
        for group in groups:
            united = frozenset().union(*(one for one in before if one <= group)) == group
            if not united:
                assert len({one for one, _ in group} - known) >= state.m
            assert state.m <= len(group) < 3 * state.m
        assert [len(group) for group in groups] == list(state.ids)
        known |= {one for group in groups for one, _ in group}
        assert set(state.known) == known
        before = groups


@settings(max_examples=150)
@given(histories(), st.data())
def test_every_combination_of_groups_has_m_units_with_one_coefficient(
    history: History, data: st.DataObject
) -> None:
    shown = sorted({group for state in history.states for group in groups_of(state)}, key=sorted)
    units = sorted({unit for group in shown for unit in group})
    table = np.array([[unit in group for unit in units] for group in shown], dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    tried = 0
    for _ in range(200 if len(shown) else 0):
        few = rng.choice(len(shown), size=int(rng.integers(1, min(6, len(shown)) + 1)), replace=False)
        found = rng.integers(-2, 3, len(few)) @ table[few]
        values = Counter(found[found != 0].tolist())
        tried += bool(values)
        assert not values or max(values.values()) >= history.states[0].least
    assert tried or not shown


@given(histories(), st.data())
def test_rows_of_ids_in_groups_and_of_waiting_ids_move_no_bit(history: History, data: st.DataObject) -> None:
    state = history.states[-1]
    table = history.table()
    assert table.ids is not None and table.classes is not None
    inside = {one for ids in state.members for one in ids}
    most = 4 * state.m - 1 if inside or not state.known else 0
    others = [str(10_000 + i) for i in range(data.draw(st.integers(0, most)))]
    # All present ids of the state stay, with any rows; all others are replaced by some that never were there.
    ids = [*sorted(inside), *others]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    changed = RawTable(rng.normal(size=(len(ids), 2)), rng.integers(0, 2, len(ids)), ids)
    quiet = RawTable(np.zeros((len(inside), 2)), np.zeros(len(inside), dtype=np.int64), sorted(inside))
    assert GROUPS.to_bytes(state.updated(changed, state.m)) == GROUPS.to_bytes(state.updated(quiet, state.m))
    assert state.updated(quiet, 2).expanded().features.tobytes() == state.expanded().features.tobytes()


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_rows_moves_no_bit(history: History, random: Any) -> None:
    other = History(dict(history.rows))
    order = sorted(other.rows)
    random.shuffle(order)
    other.rows = {one: random.sample(other.rows[one], len(other.rows[one])) for one in order}
    first, second = Groups.begun(history.table(), 2), Groups.begun(other.table(), 2)
    assert GROUPS.to_bytes(first) == GROUPS.to_bytes(second)
    assert GROUPS.from_bytes(GROUPS.to_bytes(first)) == first


def test_ids_are_the_same_however_a_file_is_saved_again() -> None:
    assert (
        as_ids([3, 3.0, "3", " 3 ", np.int64(3), np.float32(3), "3.0", "003", "3e0", "\uff13"]) == ("3",) * 10
    )
    assert as_ids([2**53 + 1, float(2**53 + 1), str(2**53 + 1)]) == (str(2**53),) * 3
    assert as_ids(["P-7", "p-7 ", "\uff30-7"]) == ("p-7",) * 3
    assert as_ids(["\ufeffp-7", "p-\u200b7", b"P-7", np.bytes_(b"p-7")]) == ("p-7",) * 4
    assert len(set(as_ids(["\u0390", "\u0390".upper(), "\u03b9\u0308\u0301"]))) == 1
    assert as_ids([2.5, "2.50", "a  b", True, "1_0"]) == ("2.5", "2.5", "a b", "true", "1_0")
    assert as_ids([None, float("nan"), "", "  ", "\x1c"]) == ("",) * 5
    assert len(set(as_ids(["1e400", "inf", "-3", "3-", "3 4", "2020-01-01", "0x3"]))) == 7


def test_rows_of_nobody_are_in_no_group() -> None:
    groups = Groups.begun(RawTable(np.arange(6.0)[:, None], None, ["a", "", "b", "\x1c", "c", "d"]), 2)
    assert groups.known == ("a", "b", "c", "d") and sum(groups.rows) == 4


def test_the_same_rows_under_other_ids_are_not_grouped_a_second_time() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))

    def table(prefix: str, first: int = 0) -> RawTable:
        return RawTable(rows[first:], None, [f"{prefix}{i}" for i in range(first, 60)])

    groups = Groups.begun(table("a"), 5)
    for first in (0, 1):
        with pytest.raises(DataError, match="no id of this table was in a group"):
            groups.updated(table("b", first), 5)
    gone = groups.updated(RawTable(rows[:0], None, []), 5)
    assert gone.rows == () and gone.known == groups.known
    with pytest.raises(DataError, match="no id of this table was in a group"):
        gone.updated(table("b"), 5)


def test_a_group_is_the_mean_of_its_ids_means_once_for_each() -> None:
    features = np.array([[0.0], [1.0], [2.0], [30.0], [31.0], [35.0], [40.0]])
    groups = Groups.begun(RawTable(features, None, ["a", "b", "b", "c", "d", "d", "d"]), 2)
    assert groups.members == (("a", "b"), ("c", "d")) and groups.known == ("a", "b", "c", "d")
    # a: 0, b: 1.5, c: 30, d: 106 / 3, of three rows.
    np.testing.assert_allclose(groups.expanded().features, [[0.75]] * 2 + [[98.0 / 3]] * 2, rtol=1e-15)
    assert groups.expanded().labels is None and groups.rows == groups.ids == (2, 2)


@pytest.mark.parametrize("visits", [1, 2, 60, 1000])
def test_an_id_with_many_rows_moves_its_group_no_more_than_another(visits: int) -> None:
    """With 60 rows among ids of one to three it had stood within .1 deviations of its group's mean."""
    rng = np.random.default_rng(5)
    people = rng.normal(size=(40, 3))
    often = np.concatenate([np.repeat(people[:1], visits, axis=0), people])
    ids = ["p0"] * visits + [f"p{i}" for i in range(40)]
    once = Groups.begun(RawTable(people, None, [f"p{i}" for i in range(40)]), 5)
    found = Groups.begun(RawTable(often, None, ids), 5)
    assert (found.members, found.rows, found.ids) == (once.members, once.rows, once.ids)
    np.testing.assert_allclose(found.means.to_numpy(), once.means.to_numpy(), atol=1e-12)


@given(histories(), st.integers(2, 40))
def test_how_often_a_row_stands_shows_in_no_group(history: History, times: int) -> None:
    """All rows of some ids many times give the same groups, since an id's mean stays the same."""
    other = History(
        {one: rows * (times if place % 3 else 1) for place, (one, rows) in enumerate(history.rows.items())}
    )
    mine = History(dict(history.rows))
    mine.step(2)
    other.step(2)
    assert [len(one) for one in mine.states[0].members] == [len(one) for one in other.states[0].members]
    assert sum(mine.states[0].rows) == sum(other.states[0].rows) == sum(mine.states[0].ids)


def test_each_class_has_groups_of_its_own_and_a_small_class_none() -> None:
    features = np.arange(9.0)[:, None]
    classes = np.array([0, 1, 0, 1, 0, 1, 0, 2, 2])
    groups = Groups.begun(RawTable(features, classes), 3)
    assert groups.classes == (0, 1) and groups.rows == (4, 3)
    shown = groups.expanded()
    assert shown.labels is not None and shown.labels.tolist() == [0] * 4 + [1] * 3
    np.testing.assert_array_equal(shown.features.ravel(), [3.0] * 4 + [3.0] * 3)


def test_fewer_than_m_rows_give_a_table_without_rows() -> None:
    groups = Groups.begun(RawTable(np.ones((4, 3))), 5)
    assert groups.expanded().features.shape == (0, 3)


def test_a_table_without_ids_is_never_read_again() -> None:
    groups = Groups.begun(RawTable(np.arange(12.0)[:, None]), 3)
    for table in (None, RawTable(np.ones((40, 2))), RawTable(np.ones((4, 1)), None, list("abcd"))):
        assert groups.updated(table, 3) == groups


def test_a_larger_m_unites_the_nearest_groups_and_a_smaller_one_changes_nothing() -> None:
    groups = Groups.begun(RawTable(np.array([0.0, 1, 10, 11, 100, 101, 110, 111])[:, None]), 2)
    united = groups.updated(None, 4)
    assert groups.rows == (2,) * 4 and united.rows == (4, 4) and (united.m, united.least) == (4, 2)
    np.testing.assert_array_equal(united.expanded().features.ravel(), [5.5] * 4 + [105.5] * 4)
    assert united.updated(None, 2) == united
    assert united.updated(None, 9).rows == ()


def test_new_ids_wait_until_there_are_four_times_m() -> None:
    def table(n: int) -> RawTable:
        return RawTable(np.arange(float(n))[:, None], None, as_ids(range(n)))

    groups = Groups.begun(table(10), 5)
    assert groups.updated(table(29), 5) == groups
    later = groups.updated(table(30), 5)
    assert sum(later.ids) == 30 and set(groups.members) < set(later.members)


def test_an_id_that_leaves_takes_its_group_along_and_the_others_return_only_with_m_new_ones() -> None:
    def table(ids: list[int]) -> RawTable:
        return RawTable(np.array(ids, dtype=np.float64)[:, None], None, as_ids(ids))

    groups = Groups.begun(table([*range(10)]), 5)
    left = groups.updated(table([*range(1, 10)]), 5)
    assert left.members == (("5", "6", "7", "8", "9"),) and len(left.known) == 10
    # It returns: it is never new, nor are those that were with it.
    assert left.updated(table([*range(10)]), 5).members == left.members
    assert left.updated(table([*range(29)]), 5).members == left.members
    back = left.updated(table([*range(30)]), 5)
    for members in some(set(back.members) - set(left.members)):
        assert len(set(members) - set(left.known)) >= 5
    assert sum(back.ids) > 25


def test_ids_of_another_data_set_are_left_out() -> None:
    ids = as_ids(range(12))
    groups = Groups.begun(RawTable(np.arange(12.0)[:, None], None, ids), 3, elsewhere={"0", "11"})
    assert set(groups.known) == set(ids) - {"0", "11"}
    more = RawTable(np.arange(30.0)[:, None], None, as_ids(range(30)))
    later = groups.updated(more, 3, elsewhere={"0", "11", "29"})
    assert set(later.known) == set(as_ids(range(30))) - {"0", "11", "29"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (RawTable(np.ones((4, 2)), np.zeros(4, dtype=np.int64)), "had ids"),
        (RawTable(np.ones((4, 2)), None, list("abcd")), "labels"),
        (RawTable(np.ones((4, 1)), np.zeros(4, dtype=np.int64), list("abcd")), "other columns"),
    ],
)
def test_a_table_of_another_kind_is_an_error_of_its_owner(table: RawTable, message: str) -> None:
    begun = Groups.begun(RawTable(np.ones((4, 2)), np.zeros(4, dtype=np.int64), list("abcd")), 2)
    with pytest.raises(DataError, match=message):
        begun.updated(table, 2)


def test_a_table_without_rows_has_no_groups() -> None:
    assert Groups.begun(RawTable(np.empty((0, 2)), None, ()), 2).rows == ()
    assert Groups.begun(RawTable(np.empty((0, 2))), 2).updated(None, 5).rows == ()


def test_groups_of_a_journal_that_said_nothing_of_units_are_read_and_written_as_they_were() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    state = Groups.begun(RawTable(rows, None), 5)
    fields = msgspec.structs.asdict(state)
    del fields["in_units"]
    older = msgspec.msgpack.encode(("groups of rows", 1, msgspec.msgpack.encode(fields)))
    read = GROUPS.from_bytes(older)
    assert not read.in_units and GROUPS.to_bytes(read) == older
    assert GROUPS.from_bytes(GROUPS.to_bytes(msgspec.structs.replace(read, in_units=True))).in_units
