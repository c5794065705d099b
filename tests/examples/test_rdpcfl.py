"""R-DPCFL: clusters by a mixture of the first round's updates, then by choices, under DP-SGD or without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from examples.rdpcfl import RDPCFL, choosing
from examples.rdpcfl.choosing import _right, noised_choice
from examples.rdpcfl.learning import MixedUpdates, MixtureLearning
from examples.rdpcfl.mixture import Mixture, fitted_mixture, overlap, separation, shares
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.values.domain import Box
from privfed.deep.training.local import Training
from privfed.deep.training.trainer import SoftmaxRegression
from privfed.errors import ArgumentError, PrivacyError
from privfed.privacy.dp_sgd import epsilon_of_fit
from privfed.privacy.sampler import SecureBits, SeededBits
from tests.deep.estimators.test_private import CLIENTS, RECORDS, SEEDED
from tests.deep.population import accuracy, clients, kinds, same
from tests.raised import parameter_refused

WORDS: dict[str, Any] = {"n_classes": 3, "n_clusters": 3, "rounds": 8, "epochs": 2, "learning_rate": 0.5}
CLEAR: dict[str, Any] = {**WORDS, "batch_size": 8, "domain": Box(0, 1), "random_state": 1}
GATHERED: dict[str, Any] = {"protocol": "plain", "merge": "gathered"}
DPSGD: dict[str, Any] = {
    **{**WORDS, "learning_rate": 1.0, "rounds": 6},
    **{"rows_per_client": 200, "sample_rate": 0.2, "noise_multiplier": 2.0, "random_state": 1},
}


def updates(n: int = 12, seed: int = 0) -> np.ndarray:
    """Updates of three kinds, far apart in a plane of 20 dimensions."""
    rng = np.random.default_rng(seed)
    centers = np.zeros((3, 20))
    centers[1, 0], centers[2, 1] = 10.0, 10.0
    return centers[np.arange(n) % 3] + 0.1 * rng.normal(size=(n, 20))


@pytest.mark.parametrize("n_clusters", [3, None])
def test_a_mixture_finds_kinds_of_updates_and_how_many_there_are(n_clusters: int | None) -> None:
    found = fitted_mixture(updates(), n_clusters, seed=0)
    chances = found.chances(updates())
    assert len(found.means) == 3 and same(chances.argmax(axis=1), kinds(12))
    assert np.allclose(chances.sum(axis=1), 1.0) and chances.max(axis=1).min() > 0.99
    means = shares(found, updates())
    for kind in range(3):
        own = updates()[kind::3].mean(axis=0)
        assert np.abs(means - own).max(axis=1).min() < 1e-6


def test_separation_and_overlap_are_those_of_the_authors_code() -> None:
    means, variances = np.array([[0.0, 0.0], [3.0, 4.0], [50.0, 0.0]]), np.array([1.0, 4.0, 1.0])
    assert separation(means, variances) == 5.0 / (2.0 * 2.0)
    # 1 - erf(s / sqrt 2) is the chance of a standard normal number beyond s, on both sides.
    assert overlap(means, variances) == pytest.approx(0.2112995473337107)
    assert overlap(means[:1], variances[:1]) == 0.0


def test_chances_are_those_of_gaussians_of_equal_weight() -> None:
    plane = np.eye(2, 5)
    ones: dict[str, Any] = {"axes": plane, "low": np.zeros(2), "width": np.ones(2)}
    mixture = Mixture(**ones, means=np.array([[0.0, 0.0], [1.0, 0.0]]), variances=np.array([1.0, 4.0]))
    point = np.array([[0.5, 1.0, 9.0, 9.0, 9.0]])
    densities = [np.exp(-1.25 / (2.0 * v)) / v for v in (1.0, 4.0)]
    assert np.allclose(mixture.chances(point)[0], np.array(densities) / sum(densities))
    far = mixture.chances(np.full((1, 5), 1e6))
    assert np.isfinite(far).all()


@pytest.mark.parametrize("words", [GATHERED, {}], ids=["gathered", "slotted"])
def test_it_finds_the_kinds_of_clients(words: dict[str, Any]) -> None:
    X, y = clients(9)
    fitted = RDPCFL(**CLEAR, **words).fit(X, y)
    assert same(fitted.labels_, kinds()) and fitted.models_.shape == (3, 15)
    assert accuracy(fitted, X, y) > 0.75
    if not words:
        # Beside the ranges' there is one sum that shows updates, and no total by name.
        purposes = [asked.purpose for asked, _ in fitted.transcript_.totals()]
        assert purposes == ["sketches", *["round"] * 7]


def test_clients_draw_then_choose_then_keep() -> None:
    words = {
        "training": Training(model="softmax", n_classes=3, rounds=8),
        "n_clusters": 3,
        "slotted": False,
    }
    rounds = list(MixtureLearning(**words, choosing_rounds=2)._rounds(3))  # type: ignore[arg-type]
    assert rounds == [
        (2, "drawn"),
        (3, "drawn"),
        *[(t, "most-right") for t in (4, 5)],
        *[(t, "kept") for t in (6, 7, 8)],
    ]
    X, y = clients(9)
    fitted = RDPCFL(**{**CLEAR, "choosing_share": 0.3}, **GATHERED).fit(X, y)
    asked = [question_from_bytes(one.question) for one, _ in fitted.transcript_.totals()]
    assert {one.choice for one in asked[1:] if isinstance(one, MixedUpdates)} == {*MixedUpdates.choices}
    assert [one.changed for one in fitted.regrouped_][-1] is False


def test_a_newcomer_draws_chooses_or_joins() -> None:
    X, y = clients(9)
    cohorts = [list(range(7)), list(range(8)), *[list(range(8))] * 5, list(range(9))]
    fitted = RDPCFL(**{**CLEAR, "choosing_share": 0.3}, **GATHERED, cohorts=cohorts).fit(X, y)
    assert same(fitted.labels_, kinds())
    assert fitted.labels_history_[0, 7] == -1 and fitted.labels_history_[-1, 8] == fitted.labels_[8]


def test_under_dp_sgd_the_claim_covers_the_first_round_and_the_choices(tmp_path: Path) -> None:
    X, y = clients(6, rows=200)
    model = RDPCFL(**DPSGD, **GATHERED, privacy=RECORDS, run_dir=tmp_path / "run").fit(X, y)
    terms = model.federation_.configuration.privacy
    assert terms is not None and terms.steps is not None
    steps = terms.steps
    assert (steps.first_rate, steps.first_steps, steps.steps, steps.trainings) == (1.0, 2, 10, 6)
    assert steps.choice_noise == 20.0 and terms.budget == steps.total == 52
    assert epsilon_of_fit(steps, 1e-6) <= 8.0
    assert model.privacy_spent_ is not None and model.privacy_spent_.epsilon == 8.0
    model.save(tmp_path / "model.npz")
    again = privfed.load(tmp_path / "model.npz", estimators=[RDPCFL])
    assert np.array_equal(again.predict(X[0], 0), model.predict(X[0], 0))


def test_a_run_that_is_resumed_is_the_run(tmp_path: Path) -> None:
    X, y = clients(9)
    words = {**CLEAR, **GATHERED, "choosing_share": 0.5}

    def stop(index: int, ask: Any, total: Any) -> None:
        if index == 4:
            raise KeyboardInterrupt

    broken = RDPCFL(**words, run_dir=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        broken.fit_clients(broken._gather(X, y, None), watch=stop)
    again = RDPCFL(**words, run_dir=tmp_path / "run").resume(X, y)
    assert np.array_equal(again.models_, RDPCFL(**words).fit(X, y).models_)


def test_a_seeded_run_repeats_choices_included() -> None:
    X, y = clients(6, rows=60)
    words = {**DPSGD, "choosing_share": 0.5}
    one, other = (RDPCFL(**words, **GATHERED, privacy=SEEDED).fit(X, y) for _ in range(2))
    assert np.array_equal(one.models_, other.models_) and one.privacy_spent_ is None


def test_one_row_moves_each_count_of_a_choice_by_one_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = clients(1, rows=150)
    model, rng = SoftmaxRegression(4, 3), np.random.default_rng(0)
    models, places = rng.normal(size=(4, 15)), rng.integers(0, 64, 150)
    for n in (1, 7, 64, 150):
        counts = [
            np.array([choosing._right(model, one, X[0][:m], y[0][:m], places[:m]) for one in models])
            for m in (n - 1, n)
        ]
        exact = np.array([(model.predict(one, X[0][:n]) == y[0][:n]).sum() for one in models])
        assert set((counts[1] - counts[0]).tolist()) <= {0, 1} and np.array_equal(counts[1], exact)


def test_a_choice_is_noised_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two models one gets all 40 rows right: it is taken with the chance of a normal number."""
    X, y = clients(1)
    model = SoftmaxRegression(4, 3)
    right, wrong = np.zeros(15), np.zeros(15)
    right[12 + 0], wrong[12 + 1] = 9.0, 9.0
    labels = np.zeros(40, dtype=np.int64)
    bits = SeededBits(np.random.default_rng(0))
    found = [noised_choice(model, np.stack([wrong, right]), X[0], labels, 20.0, bits) for _ in range(800)]
    # Noise of the difference: sqrt(2 (2 * 400 + 9)), so that the chance is that of 40 / 40.2 = .994: .84.
    assert np.mean(found) == pytest.approx(0.84, abs=0.04)
    nothing = {
        noised_choice(model, np.zeros((3, 15)), X[0][:0], y[0][:0], 5.0, SecureBits()) for _ in range(40)
    }
    assert nothing == {0, 1, 2}


def test_a_row_that_makes_an_error_counts_for_nothing_and_for_no_other() -> None:
    class Failing(SoftmaxRegression):
        def predict(self, parameters: np.ndarray, features: np.ndarray) -> np.ndarray:
            if (features > 5.0).any():
                raise RuntimeError("a row that this model cannot take")
            return super().predict(parameters, features)

    X, y = clients(1)
    rows, places = X[0].copy(), np.arange(40)
    at = np.random.default_rng(1).normal(size=15)
    whole = (SoftmaxRegression(4, 3).predict(at, rows) == y[0]).astype(int)
    rows[3] = 9.0
    assert _right(Failing(4, 3), at, rows, y[0], places) == whole.sum() - whole[3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RDPCFL(**{**CLEAR, "rounds": 1}), "at least 2 rounds"),
        (lambda: RDPCFL(**CLEAR, choice_noise=0.0), "choice_noise"),
        (lambda: RDPCFL(**CLEAR, choosing_share=2.0), "choosing_share"),
        (lambda: RDPCFL(**CLEAR, first_rate=0.0), "first_rate"),
        (lambda: RDPCFL(**CLEAR, merge="summed"), "merge must be"),
        (lambda: RDPCFL(**CLEAR, merge="gathered"), "does not show them"),
        (lambda: RDPCFL(**{**WORDS, "privacy": CLIENTS}), 'unit="record"'),
    ],
)
def test_words_out_of_bounds_are_said(make: Any, message: str) -> None:
    X, y = clients(6)
    with pytest.raises((ArgumentError, PrivacyError), match=message):
        make().fit(X, y)


def test_a_mixture_that_does_not_fit_is_refused_by_clients() -> None:
    X, y = clients(9)
    fitted = RDPCFL(**CLEAR, **GATHERED).fit(X, y)
    asked = question_from_bytes(fitted.transcript_.totals()[1][0].question)
    assert isinstance(asked, MixedUpdates)
    from dataclasses import replace

    with pytest.raises(ArgumentError, match="does not fit"):
        replace(asked, models=asked.models[:2])
    with pytest.raises(ArgumentError, match="positive"):
        replace(asked.mixture, variances=np.zeros(3))
    with parameter_refused("choice_noise"):
        replace(
            asked,
            choice="most-right",
            training=replace(asked.training, noise_multiplier=1.0, trainings=8, choice_noise=0.0),
        )
    assert asked.answer(ClientData(X[0], y[0]), np.random.default_rng(0))["origin"].sum() == 1.0
