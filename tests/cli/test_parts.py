"""Parts of the command line that need no run: progress, projection, careful files."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, RoundProgress
from privfed.cli.progress import Rounds
from privfed.cli.run_folder import former_seconds
from privfed.cli.settings import settings_of
from privfed.core.roles.conversation import Ask
from privfed.core.stored.files import replaced
from privfed.core.values.domain import Ranges
from privfed.plot.fits import flat
from privfed.questions.lloyd import Inertia, LloydSums

RANGES = Ranges(np.zeros(2), np.ones(2), 8)


def test_options_of_a_constructor_without_types_have_those_of_its_defaults() -> None:
    class Own:
        """An attack.

        Args:
            few: most rows of a cell.
        """

        def __init__(self, few=1, share=0.5, deep=False, name="a", points=None, rows=()):  # type: ignore
            """Store nothing."""

    found = {one.name: (one.type.name, one.help) for one in settings_of(Own)}
    assert found == {
        "few": ("integer", "Most rows of a cell."),
        "share": ("float", "Share."),
        "deep": ("boolean", "Deep."),
        "name": ("text", "Name."),
    }


def ask(value: float, purpose: str = "round") -> Ask:
    kind = Inertia if purpose == "score" else LloydSums
    return Ask(kind(ranges=RANGES, centers=np.full((1, 2), value)), purpose=purpose)


def test_rounds_and_movement_are_counted_from_the_questions() -> None:
    rounds = Rounds(max_iter=10, n_init=2)
    assert str(rounds) == "restart 1 of 2, starting"
    for second, value in enumerate((0.0, 0.3, 0.5)):
        rounds.count(ask(value), second)
    assert rounds.round == 3
    assert rounds.movement == pytest.approx(0.2 * np.sqrt(2))
    # One second a round: seven rounds of this restart are left, and ten of the next.
    assert rounds.left().total_seconds() == 17
    rounds.count(ask(0.5, "score"), 3)
    assert str(rounds) == "restart 2 of 2, starting"
    rounds.count(ask(0.1), 4)
    assert (rounds.round, rounds.movement) == (1, None)
    for second in range(5, 17):
        rounds.count(ask(0.1), second)
    assert (rounds.round, rounds.left().total_seconds()) == (13, 0)
    rounds.count(ask(0.1, "score"), 17)
    assert str(rounds) == "finishing"


def test_a_fit_says_each_of_its_sums_to_who_watches(capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    seen, progress = [], RoundProgress("fit", 3)

    def watch(index: int, asked: Ask, total: Any) -> None:
        seen.append(asked.purpose)
        progress(index, asked, total)

    model = DWFKMeans(2, tol=0, max_iter=3, protocol="plain").fit([rows[:30], rows[30:]], watch=watch)
    assert seen.count("round") == model.n_iter_ == 3
    progress.show("the last", "", time.monotonic(), last=True)
    assert capsys.readouterr().err.count("\n") == 1


def test_pictures_are_written_where_a_notebook_named_its_own_backend(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,x,y\n" + "".join(f"{i % 3},{i % 7},{i % 5}\n" for i in range(60)))
    words = ["fit", "t.csv", "--group", "g", "-k", "2", "--protocol", "plain", "--quiet"]
    subprocess.run(
        [sys.executable, "-c", "from privfed.cli.main import main; main()", *words],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "module://no_such_module.backend"},
        check=True,
    )
    assert [*(tmp_path / "run").glob("*.png")]


def test_other_sums_are_no_rounds() -> None:
    rounds = Rounds(max_iter=10, n_init=1)
    rounds.count(ask(0.0, "fallback"), 0.0)
    assert str(rounds) == "starting"
    assert rounds.left() is None


def test_replayed_rounds_are_soon_forgotten_in_the_time_left() -> None:
    rounds = Rounds(max_iter=1000, n_init=1)
    for _ in range(500):
        rounds.count(ask(0.5), 0.0)
    for second in range(1, 22):
        rounds.count(ask(0.5), 2.0 * second)
    assert rounds.left().total_seconds() == pytest.approx(2.0 * (1000 - 521))


@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 1), (1, 2), (4, 2), (1, 5), (2, 3), (9, 6)])
def test_centroids_are_projected_to_the_plane(k: int, d: int) -> None:
    history = np.random.default_rng(0).normal(size=(4, k, d))
    points, names = flat(history, [f"x{i}" for i in range(d)])
    assert points.shape == (4, k, 2)
    assert np.isfinite(points).all()
    assert len(names) == 2
    if d == 2:
        np.testing.assert_array_equal(points, history)


def test_the_first_principal_axis_spreads_the_centroids_most() -> None:
    history = np.random.default_rng(0).normal(size=(1, 9, 6)) * [9, 1, 1, 1, 1, 1]
    points, names = flat(history, "abcdef")
    assert points[0, :, 0].std() > points[0, :, 1].std()
    assert "%" in names[0]
    np.testing.assert_allclose(flat(history, "abcdef")[0], points)


def test_a_file_appears_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced(path) as fresh:
        fresh.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    with replaced(path) as fresh:
        fresh.write_text("new")
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]
    assert path.read_text() == "new"


def test_the_time_of_a_result_that_cannot_be_read_is_unknown(tmp_path) -> None:
    assert former_seconds(tmp_path) is None
    (tmp_path / "result.json").write_text('{"traffic": {"seconds": 2.5, "exchanges": 3}}')
    assert former_seconds(tmp_path) == 2.5
