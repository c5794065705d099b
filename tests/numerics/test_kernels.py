"""Both kernels give exact labels and sums, whatever they remember and whoever is beside."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.data import Stacked
from privfed.numerics.kernels.dispatch import Choice, Memory, assign, groups, load, may_be_read, step
from privfed.numerics.kernels.interpreted import FEW_FEATURES
from tests.default_run import examples
from tests.some import some

SEEDS = st.integers(0, 2**32 - 1)
ALWAYS, NEVER = 0.0, np.inf
KERNELS = [
    pytest.param(NEVER, id="interpreted"),
    pytest.param(
        ALWAYS, id="compiled", marks=pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
    ),
]


def literal_label(row: np.ndarray, centers: np.ndarray) -> int:
    """The exact label, as it is defined."""
    least, label = np.inf, 0
    for j, center in enumerate(centers):
        distance = np.float64(0.0)
        with np.errstate(over="ignore"):
            for value, place in zip(row, center, strict=True):
                distance += (value - place) * (value - place)
        if distance < least:
            least, label = distance, j
    return label


def literal_step(parts: list[np.ndarray], centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Exact labels and sums, as they are defined."""
    counts, sums, labels = np.zeros((len(parts), centers.shape[1])), [], []
    for i, rows in enumerate(parts):
        own, total = centers[i % len(centers)], np.zeros(centers.shape[1:])
        for row in rows:
            label = literal_label(row, own)
            counts[i, label] += 1
            total[label] += row
            labels.append(label)
        sums.append(total)
    return counts, np.stack(sums), labels


def points(rng: np.random.Generator, n: int, d: int, kind: int) -> np.ndarray:
    """Blobs; a lattice, full of ties; the lattice far from the origin; numbers of all sizes; huge; tiny."""
    lattice = rng.integers(0, 3, (n, d)).astype(float)
    return (
        rng.normal(size=(n, d)) + 3 * rng.integers(0, 3, (n, 1)),
        lattice,
        lattice + 1e6,
        rng.normal(size=(n, d)) * 10.0 ** rng.integers(-30, 30, (n, 1)),
        rng.normal(size=(n, d)) * 1e300,
        rng.normal(size=(n, d)) * 1e-170,
    )[kind]


def walk(rng: np.random.Generator, rows: np.ndarray, k: int, own: int) -> Iterator[np.ndarray]:
    """Centers as an algorithm moves them: small steps, none, some that jump, and on a row."""
    centers = rows[rng.integers(0, len(rows), (own, k))].copy()
    for kind in (0, 1, 2, 1, 3, 2, 1):
        if kind == 1:
            centers = centers + 0.02 * (rows[rng.integers(0, len(rows), (own, k))] - centers)
        if kind == 3:
            centers = centers.copy()
            centers[:, rng.integers(k)] = rows[rng.integers(len(rows))]
        yield centers


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(25), deadline=None)
@given(
    seed=SEEDS,
    d=st.sampled_from([1, 2, 8, 9, 20]),
    k=st.integers(1, 6),
    kind=st.integers(0, 5),
    own=st.booleans(),
)
def test_steps_are_exact_along_a_walk(budget: float, seed: int, d: int, k: int, kind: int, own: bool) -> None:
    rng = np.random.default_rng(seed)
    parts = [points(rng, int(n), d, kind) for n in rng.integers(1, 30, 3)]
    held, choice = Stacked.of(parts), Choice(budget)
    for centers in some(walk(rng, np.concatenate(parts), k, len(parts) if own else 1)):
        # Not every client is asked each time.
        asked = np.flatnonzero(rng.random(3) < 0.7) if rng.random() < 0.5 else np.arange(3)
        if not len(asked):
            continue
        mine = centers[asked] if own else centers
        counts, sums = step(held.only(asked), mine, choice=choice)
        expected = literal_step([parts[i] for i in asked], mine)
        assert counts.tolist() == expected[0].tolist()
        assert sums.tobytes() == expected[1].tobytes()


SIZES = [-170, -140, -60, -44, -42, -38, -30, 0, 30, 37, 38, 39, 60, 100, 138, 139, 140, 150, 154]


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(60), deadline=None)
@given(
    seed=SEEDS,
    d=st.sampled_from([1, 2, 9, 20]),
    size=st.sampled_from(SIZES),
    spread=st.sampled_from([0, 3, 15]),
    jump=st.sampled_from([1.0, 1e5, 1e20, 1e50]),
)
def test_steps_are_exact_at_all_scales_and_after_a_center_was_far_away(
    budget: float, seed: int, d: int, size: int, spread: int, jump: float
) -> None:
    """Bounds are float32: they would be infinite above 3e38, and lose digits below 1e-38."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(12, d)) * 10.0 ** rng.integers(-spread, spread + 1, (12, 1)) * 10.0**size
    rows = np.concatenate([rows, -0.0 * rows[:1], rows[:2]])
    held, choice = Stacked.of([rows]), Choice(budget)
    centers = rows[rng.integers(0, len(rows), 4)].copy()
    for kind in range(6):
        counts, sums = step(held, centers[None], choice=choice)
        expected = literal_step([rows], centers[None])
        assert counts.tolist() == expected[0].tolist()
        assert sums.tobytes() == expected[1].tobytes()
        centers = centers + 0.2 * (rows[rng.integers(0, len(rows), 4)] - centers)
        if kind % 2:
            moved = rows[rng.integers(len(rows))] * (jump if kind == 1 else 1.0)
            centers[rng.integers(4)] = np.nan_to_num(moved, posinf=0.0, neginf=0.0)


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
def test_a_row_is_found_again_after_a_center_was_far_away() -> None:
    rows, choice = np.random.default_rng(0).normal(size=(9, 2)), Choice(ALWAYS)
    held, near = Stacked.of([rows]), np.array([[[0.0, 0.0], [5.0, 5.0]]])
    for centers in (near, near * [[[1.0], [1e50]]], near, near[:, ::-1]):
        counts, _ = step(held, centers, choice=choice)
    assert counts.tolist() == [[0.0, 9.0]]


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(15), deadline=None)
@given(seed=SEEDS, d=st.sampled_from([2, FEW_FEATURES, FEW_FEATURES + 1, 40]), kind=st.integers(0, 5))
def test_a_rows_label_depends_on_no_other_row(budget: float, seed: int, d: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    rows, centers, choice = points(rng, 40, d, kind), points(rng, 5, d, kind), Choice(budget)
    # Rows halfway between two centers, a last bit to either side.
    middle = (centers[0] / 2 + centers[1] / 2) * (1 + 1e-16 * rng.integers(-3, 4, (10, 1)))
    rows = np.concatenate([rows, middle])
    found = assign(rows, centers, choice=choice)
    assert found.tolist() == [literal_label(row, centers) for row in rows]
    assert found.tolist() == [int(assign(row[None], centers, choice=choice)[0]) for row in rows]
    order = rng.permutation(len(rows))
    assert assign(rows[order], centers, choice=choice).tolist() == found[order].tolist()


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
def test_what_is_remembered_may_be_dropped_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [points(rng, 200, 12, 0) for _ in range(4)]
    kept, dropped, choice = Stacked.of(parts), Stacked.of(parts), Choice(ALWAYS)
    for centers in some(walk(rng, np.concatenate(parts), 5, 1)):
        one = step(kept, centers, choice=choice)
        dropped.stack.cache.clear()
        other = step(dropped, centers, choice=choice)
        monkeypatch.setattr(Memory, "of", lambda *words: None)
        without = step(kept.only(np.array([1, 3])), centers, choice=choice)
        monkeypatch.undo()
        assert [a.tobytes() for a in one] == [a.tobytes() for a in other]
        assert [a[[1, 3]].tobytes() for a in one] == [a.tobytes() for a in without]


def test_memory_is_bounded_by_the_rows() -> None:
    held = Stacked.of([np.zeros((4, 1 << 16))] * 3)
    rows: Callable[[int], Memory | None] = lambda number: Memory.of(held.stack, number, 20)  # noqa: E731
    assert rows(0) is not None and rows(1) is None


@pytest.mark.parametrize("own", [False, True])
def test_groups_of_clients_answer_as_each_alone(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [points(rng, n, 3, 0) for n in (5, 9, 2, 7)]
    centers = points(rng, 4 * (4 if own else 1), 3, 0).reshape(-1, 4, 3)
    monkeypatch.setattr("privfed.numerics.kernels.dispatch.GROUP_BYTES", 300)
    counts, sums = step(Stacked.of(parts), centers, choice=Choice(NEVER))
    expected = literal_step(parts, centers)
    assert counts.tolist() == expected[0].tolist() and sums.tobytes() == expected[1].tobytes()


def test_groups_hold_all_clients_in_order() -> None:
    held = Stacked.of([np.zeros((n, 1 << 16)) for n in (1, 2, 30, 4, 3)])
    assert [one.places.tolist() for one in groups(held)] == [[0, 1], [2], [3, 4]]


def test_the_compiled_kernel_is_loaded_once_there_is_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    monkeypatch.setattr("privfed.numerics.kernels.dispatch.load", lambda: loaded.append(1))
    choice = Choice(budget=1.0)
    choice.compiled(1_000, 5, 2)
    assert not loaded
    for _ in range(3):
        choice.compiled(10_000_000, 20, 100)
    assert loaded == [1]


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
@pytest.mark.skipif(os.name != "posix", reason="needs modes of folders")
@pytest.mark.parametrize(
    ("above", "folder", "ours"),
    [
        (0o755, 0o755, True),
        (0o755, 0o777, False),
        (0o755, 0o775, False),
        (0o777, 0o700, False),
        (0o1777, 0o755, True),
        (0o1777, 0o1777, False),
        (0o700, 0o777, True),
    ],
)
def test_machine_code_is_read_only_where_nobody_else_can_write(
    above: int, folder: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory() as outer:
        inner = Path(outer, "numba")
        inner.mkdir()
        inner.chmod(folder)
        Path(outer).chmod(above)
        # Where nobody else may enter a folder above, modes below it do not matter.
        ours = ours or any(not one.stat().st_mode & 0o011 for one in Path(outer).resolve().parents)
        monkeypatch.setattr("privfed.numerics.kernels.dispatch.cache_folder", lambda: inner)
        assert may_be_read(inner) is ours
        assert (load() is not None) is ours
