from pathlib import Path

import numpy as np
import pytest

from examples.dcfl.images import Images, digits, from_file
from examples.dcfl.scenario import Absence, Drift, Scenario, curves, dynamic, skewed
from privfed.core.values.domain import Box
from privfed.deep import DCFL
from privfed.errors import ArgumentError, DataError


def test_digits_are_there_and_turn_as_they_should() -> None:
    images = digits()
    assert (len(images.rows), images.side, images.n_classes) == (1797, 8, 10)
    stack = images.rows.reshape(-1, 8, 8)
    quarter = images.turned(90.0).reshape(-1, 8, 8)
    ways = [np.rot90(stack, k, axes=(1, 2)) for k in (1, 3)]
    assert any(np.allclose(quarter, way, atol=1e-6) for way in ways)
    back = images.some(np.arange(50))
    assert np.allclose(Images(back.turned(180.0), back.labels).turned(180.0), back.rows, atol=1e-6)
    assert images.turned(360.0) is images.rows
    assert np.array_equal(images.smaller(2).rows[:, 0], stack[:, :2, :2].mean(axis=(1, 2)))
    with pytest.raises(DataError, match="3 times smaller"):
        images.smaller(3)
    assert images.turned(33.0).min() >= 0.0 and images.turned(33.0).max() <= 1.0


@pytest.mark.parametrize("paper", [0, 255])
def test_images_come_from_files_with_ink_as_one(tmp_path: Path, paper: int) -> None:
    pixels = np.full((20, 4, 4), paper, dtype=np.uint8)
    pixels[:, 1, 1] = 255 - paper
    np.savez(tmp_path / "images.npz", x_train=pixels, y_train=np.arange(20) % 5)
    images = from_file(tmp_path / "images.npz", classes=3)
    assert images.n_classes == 3 and len(images.labels) == 12
    assert images.rows[0].tolist() == np.eye(16)[5].tolist()


def test_what_are_no_images_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", rows=np.zeros(3))
    for name in ("other.npz", "missing.npz"):
        with pytest.raises(DataError, match=r"no \.npz file"):
            from_file(tmp_path / name)
    with pytest.raises(DataError, match="side"):
        Images(np.zeros((2, 3)), np.zeros(2, dtype=np.int64))


def test_the_papers_setting_has_a_newcomer_and_a_drift_every_ten_rounds() -> None:
    scenario = dynamic(8, 60, np.random.default_rng(0))
    assert scenario.joins == (*[1] * 8, 11, 21, 31, 41, 51)
    assert [one.round for one in scenario.drifts] == [5, 15, 25, 35, 45, 55]
    assert [len(cohort) for cohort in scenario.cohorts()[::10]] == [8, 9, 10, 11, 12, 13]
    assert all(scenario.joins[one.client] < one.round for one in scenario.drifts)
    assert len(set(scenario.degrees)) == scenario.n_clients == 13
    static = dynamic(8, 60, np.random.default_rng(0), newcomer_every=None, drift_from=None)
    assert static.n_clients == 8 and not static.drifts


def test_clients_are_away_and_their_angles_change_when_it_is_said() -> None:
    scenario = Scenario(
        rounds=6,
        degrees=(0.0, 10.0),
        joins=(1, 3),
        drifts=(Drift(0, 3, 90.0), Drift(0, 5, 180.0)),
        absences=(Absence(0, 4, 5),),
    )
    assert scenario.cohorts() == [[0], [0], [0, 1], [1], [1], [0, 1]]
    assert [scenario.angle(0, t) for t in (1, 2, 3, 4, 5, 6)] == [0.0, 0.0, 90.0, 90.0, 180.0, 180.0]
    assert scenario.phases(0) == [(0, 3, 0.0), (3, 5, 90.0), (5, 7, 180.0)]
    images = digits().some(np.arange(5))
    tables = scenario.tables([images, images])
    assert tables.X[0].shape == (15, 66) and len(tables.y[0]) == 15
    assert np.array_equal(tables.X[0][5:10, :64], images.turned(90.0))
    assert tables.X[1][:, 64:].tolist() == [[0.0, 7.0]] * 5


@pytest.mark.parametrize(
    "words",
    [
        {"degrees": (0.0,)},
        {"rounds": 0},
        {"joins": (0, 1)},
        {"drifts": (Drift(2, 1, 0.0),)},
        {"joins": (2, 2)},
        {"absences": (Absence(0, 2, 2), Absence(1, 2, 2))},
    ],
)
def test_schedules_that_do_not_fit_are_said(words: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Scenario(**{"rounds": 3, "degrees": (0.0, 1.0), "joins": (1, 1), **words})  # type: ignore[arg-type]


def test_labels_are_skewed_and_each_image_is_somewhere_once() -> None:
    images = digits()
    train, test = skewed(images, 6, 0.5, np.random.default_rng(0))
    assert sum(len(one.labels) for one in (*train, *test)) == 1797
    shares = np.array([np.bincount(one.labels, minlength=10) / len(one.labels) for one in train])
    assert shares.std(axis=0).mean() > 0.03


def test_curves_are_of_each_clients_own_model_in_each_round() -> None:
    rng = np.random.default_rng(0)
    train, test = skewed(digits(), 7, 5.0, rng)
    scenario = Scenario(rounds=4, degrees=(0.0, 90.0, 180.0) * 2 + (0.0,), joins=(1,) * 6 + (3,))
    X, y = scenario.tables(train)
    model = DCFL(
        n_classes=10,
        rounds=4,
        learning_rate=0.3,
        domain=Box(0, 1),
        timed=True,
        cohorts=scenario.cohorts(),
        protocol="plain",
        merge="gathered",
    ).fit(X, y)
    found = curves(model, scenario, test)
    assert np.isnan(found.accuracy[:2, 6]).all() and not np.isnan(found.accuracy[2:, 6]).any()
    own = model.predict(test[1].turned(90.0), int(model.labels_[1]))
    assert found.accuracy[-1, 1] == (own == test[1].labels).mean()
    assert found.final == (found.accuracy[-1].mean(), found.accuracy[-1].std())
    assert found.final[0] > 0.6 and 0 < found.average[0] <= 1 and found.average[1] >= 0
