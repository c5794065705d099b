"""What all attacks share: their words, scoring, reports; and that an attack reads nothing but its view."""

import inspect
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import privfed.attacks as package
from privfed import DWFKMeans
from privfed.attacks import Attack, Counts, Differencing, Particles, Points, Prior, Report, Truth, evaluate
from privfed.attacks.base.report import LINEAR, Cells, linear_bound, matched_rmse, matches, wasserstein
from privfed.core.record.transcript import Transcript
from privfed.errors import ArgumentError
from tests.attacks.figures import mixture, real
from tests.raised import parameter_refused

ATTACKS = [one for one in vars(package).values() if inspect.isclass(one) and issubclass(one, Attack)]
CONCRETE = [one for one in ATTACKS if one is not Attack and not inspect.isabstract(one)]
ROWS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])


@pytest.mark.parametrize("attack", CONCRETE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("word", ["name", "paper", "adversary", "view", "prior", "defence"])
def test_every_attack_says_who_it_is(attack: type[Attack], word: str) -> None:
    assert isinstance(getattr(attack, word), str)
    assert getattr(attack, word).strip()


def points(*claims: list[float], **words: object) -> Points:
    return Points(attack="Test", points=np.array(claims).reshape(-1, 2), **words)  # type: ignore[arg-type]


def test_a_claim_is_right_once_however_often_it_is_made() -> None:
    report = evaluate(points([1.0, 0.0], [1.0, 0.0], [9.0, 9.0], client=0), Truth([ROWS]))
    assert (report.recovered, report.precision, report.claims) == (0.25, 1 / 3, 3)
    assert report.linked


def test_repeated_rows_are_as_many_as_they_are() -> None:
    twice = np.vstack([ROWS, ROWS[1]])
    assert evaluate(points([1.0, 0.0], [1.0, 0.0], client=0), Truth([twice])).recovered == 0.4


def test_a_linked_claim_about_the_wrong_client_is_wrong() -> None:
    truth = Truth([ROWS[:2], ROWS[2:]])
    unlinked = evaluate(points([0.0, 2.0]), truth)
    wrong = evaluate(points([0.0, 2.0], owners=np.array([0])), truth)
    assert (unlinked.recovered, unlinked.linked) == (0.25, False)
    assert (wrong.recovered, wrong.precision, wrong.linked) == (0.0, 0.0, True)


def test_rows_of_colluders_are_no_gain() -> None:
    report = evaluate(points([1.0, 0.0]), Truth([ROWS[:2], ROWS[2:]], colluding=(0,)))
    assert (report.recovered, report.details["rows"]) == (0.0, 2.0)


def test_the_baseline_is_scored_like_the_attack() -> None:
    report = evaluate(points(client=0, without_access=ROWS[:1] + 1e-9), Truth([ROWS]))
    assert (report.recovered, report.baseline) == (0.0, 0.25)
    assert np.isnan(report.precision)


def test_a_report_is_json_a_table_and_a_picture(tmp_path: Path) -> None:
    report = evaluate(points([1.0, 0.0], client=0), Truth([ROWS]))
    plain = json.loads(json.dumps(report.to_dict()))
    assert (plain["recovered"], plain["bound"]) == (0.25, None)
    assert "recovered" in str(report)
    assert "bound" not in str(report)
    report.picture(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 1000


def test_a_long_title_and_all_labels_lie_within_the_picture(tmp_path: Path) -> None:
    goal = "contributions linked to an earlier one of their client"
    scenes = {"rows": 1e5 * ROWS, "claims": -1e5 * ROWS}
    Report(attack="linkage", goal=goal, recovered=-0.25, scenes=scenes).picture(tmp_path / "report.png")
    drawn = imread(tmp_path / "report.png")
    rim = np.concatenate([drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]])
    assert (rim == 1.0).all(), "something is cut off"
    assert (drawn < 1.0).any()


def test_a_bound_says_what_it_bounds_and_is_never_passed_in_silence() -> None:
    # Two equal rows of 0 and 1: their sum is their count, so both follow; linear algebra finds neither.
    rows = np.ones((2, 2))
    everything = Cells.around(np.zeros((1, 2)))
    found = Points(attack="Test", points=rows, client=0, evidence=[everything])
    report = evaluate(found, Truth([rows]))
    assert (report.recovered, report.bound) == (1.0, 0.0)
    assert report.to_dict()["bound_of"] == LINEAR
    assert LINEAR in report.to_dict()["remark"]
    assert "the attack used more than" in str(report)
    assert LINEAR in str(report)
    below = evaluate(replace(found, points=rows[:0]), Truth([rows]))
    assert below.to_dict()["remark"] is None
    assert "the attack used more than" not in str(below)


def test_particles_are_scored_by_distance_to_the_rows() -> None:
    exact = Particles(attack="Test", particles=ROWS, weights=np.ones(4), client=0, without_access=ROWS + 3.0)
    report = evaluate(exact, Truth([ROWS]))
    assert report.recovered == pytest.approx(1.0)
    assert report.details["W1 without access"] == pytest.approx(3.0 * np.sqrt(2.0), rel=0.2)


def test_counts_are_right_or_wrong_or_not_claimed() -> None:
    cells = Cells.around(np.array([[0.0, 0.0], [5.0, 5.0]]))
    claimed = Counts(
        attack="Test", counts=np.array([[3.0, np.nan], [2.0, 1.0]]), cells=[cells] * 2, clients=[0, 0]
    )
    report = evaluate(claimed, Truth([ROWS]))
    assert (report.recovered, report.precision, report.claims) == (0.5, 2 / 3, 3)


def test_a_client_that_is_not_there_is_an_error() -> None:
    with parameter_refused("client"):
        evaluate(points(client=3), Truth([ROWS]))


def test_a_prior_guesses_from_its_sample_or_its_box() -> None:
    rng = np.random.default_rng(0)
    sample = Prior(sample=ROWS).guesses(50, rng)
    box = Prior(low=np.zeros(2), high=np.ones(2)).guesses(50, rng)
    assert sample is not None
    assert (matches(sample[:1], ROWS, 0.0) >= 0).all()
    assert box is not None
    assert ((box >= 0) & (box <= 1)).all()
    assert Prior().guesses(5, rng) is None
    with pytest.raises(ArgumentError, match="low and high"):
        Prior(low=np.zeros(2))


def test_distances_of_equal_tables_are_zero() -> None:
    rng = np.random.default_rng(1)
    shuffled = ROWS[rng.permutation(4)]
    assert matched_rmse(shuffled, ROWS) == 0.0
    assert wasserstein(shuffled, np.ones(4), ROWS, rng) == 0.0
    assert wasserstein(ROWS + np.array([3.0, 4.0]), np.ones(4), ROWS, rng) == pytest.approx(5.0)


def test_the_linear_bound_counts_rows_that_assignments_determine() -> None:
    rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    halves, outer = Cells.around(np.array([[0.5], [2.5]])), Cells.around(np.array([[0.2], [3.2]]))
    one_off = Cells.around(np.array([[-0.5], [2.0]]))
    # {0, 1} and {2, 3} single nobody out; {0} against {1, 2, 3} singles out 0, and with that 1.
    assert linear_bound([halves, outer], rows) == 0.0
    assert linear_bound([halves, one_off], rows) == 0.5
    hidden = Cells(one_off.place, np.array([False, False]), one_off.centers)
    assert linear_bound([halves, hidden], rows) == 0.0


READ_ELSEWHERE = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from privfed.attacks import Differencing, Prior
from privfed.core.record.transcript import Transcript
view = Transcript.load(Path(sys.argv[1])).view("server")
print(json.dumps(Differencing(client=0).run(view, Prior(), np.random.default_rng(0)).points.tolist()))
"""


def test_an_attack_needs_nothing_but_a_view_from_disk(tmp_path: Path) -> None:
    clients = real("iris", 0)
    DWFKMeans(6, local_iter=1, n_init=2, protocol="plain", run_dir=tmp_path / "run").fit(clients)
    found = subprocess.run(
        [sys.executable, "-c", READ_ELSEWHERE, str(tmp_path / "run")], capture_output=True, check=True
    )
    here = Differencing(client=0).run(
        Transcript.load(tmp_path / "run").view("server"), Prior(), np.random.default_rng(0)
    )
    assert len(here.points) > 5
    assert json.loads(found.stdout) == here.points.tolist()


def test_mixtures_of_the_figures_repeat() -> None:
    again, _ = mixture(3, 5, 2)
    np.testing.assert_array_equal(again[0], mixture(3, 5, 2)[0][0])


def test_a_truth_with_other_columns_than_the_claims_is_an_error_that_names_both() -> None:
    with pytest.raises(ArgumentError, match=r"the claims have 2 columns, the truth has 1; pass"):
        evaluate(points([1.0, 0.0], client=0), Truth([ROWS[:, :1]]))
