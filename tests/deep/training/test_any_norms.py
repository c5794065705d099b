"""Whatever numbers are in DP-SGD: nobody can ask it, or a row moves no sum beyond what it is charged."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privfed import Box, ClientPolicy, Privacy
from privfed.core.values.guarantee import SampledSteps
from privfed.core.values.numbers import LEAST_BOUND, MOST_BOUND
from privfed.deep import FedAvg
from privfed.deep.training import dp_sgd
from privfed.deep.training.local import Training
from privfed.deep.training.trainer import SoftmaxRegression
from privfed.errors import ArgumentError, BoundsError
from privfed.privacy.bounds import shortened
from tests.default_run import examples
from tests.raised import parameter_refused
from tests.some import some

ANY = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
SPREAD = st.one_of(ANY, st.integers(-1074, 1023).map(lambda power: 2.0**power))
SIGNED = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.just(0.0))
VALUES = st.one_of(SIGNED, st.floats(-3.0, 3.0), st.tuples(SPREAD, st.sampled_from([-1.0, 1.0])).map(np.prod))


def square(values: Any) -> Fraction:
    """Return the exact sum of squares."""
    return sum((Fraction(one) ** 2 for one in np.ravel(values).tolist()), Fraction(0))


class Places:
    """Bits of which each row draws the same, however many rows there are."""

    def __init__(self, places: list[int]) -> None:
        self._places = np.array(places, dtype=np.uint64)

    def words(self, size: int) -> np.ndarray:
        return self._places[:size]


class Noise:
    """Stands in for the noise of `private_sgd`, and keeps its sigma and what it would be added to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sums, self.sigma = list[np.ndarray](), list[float]()
        clipped = dp_sgd._clipped_sum

        def summed(*words: Any) -> np.ndarray:
            self.sums.append(clipped(*words))
            return self.sums[-1]

        def drawn(sigma: float, size: int, source: object) -> np.ndarray:
            self.sigma.append(sigma)
            return np.zeros(size, dtype=np.int64)

        patch.setattr(dp_sgd, "_clipped_sum", summed)
        patch.setattr(dp_sgd, "discrete_gaussian", drawn)


@settings(max_examples=examples(400))
@given(
    norms=st.tuples(SPREAD, SPREAD, SPREAD),
    multiplier=st.one_of(SPREAD, st.floats(0.01, 2000.0)),
    model=st.lists(VALUES, min_size=9, max_size=9),
    rows=st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2), st.integers(0, 63)), min_size=1, max_size=5),
)
def test_one_row_moves_the_sum_of_a_step_by_what_is_charged_or_nobody_can_ask(
    norms: tuple[float, float, float], multiplier: float, model: list[float], rows: list[Any]
) -> None:
    words: dict[str, Any] = {"n_classes": 3, "timed": False, "round": 1, "epochs": 1, "batch_size": None}
    words |= {"model": "softmax", "seed": 0, "trainings": 1, "sample_rate": 1.0, "rows_per_client": 1}
    names = ("max_grad_norm", "max_update_norm", "learning_rate")
    try:
        training = Training(**words, **dict(zip(names, norms, strict=True)), noise_multiplier=multiplier)
    except ArgumentError:
        return
    features, labels = np.array([one[:2] for one in rows]), np.array([one[2] for one in rows])
    bits, trainer = Places([one[3] for one in rows]), SoftmaxRegression(2, 3)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        noise = Noise(patch)
        for n in (len(rows), len(rows) - 1):
            dp_sgd.private_sgd(trainer, np.array(model), features[:n], labels[:n], training, bits)
    moved = square(noise.sums[0] - noise.sums[1])
    # A Gaussian of this multiplier is what is accounted for, and 9 for rounding (docs/privacy/accounting.md).
    assert moved * Fraction(training.noise_multiplier) ** 2 <= Fraction(noise.sigma[0]) ** 2 - 9


@settings(max_examples=examples(400))
@given(
    table=st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=4),
    limit=st.one_of(st.floats(LEAST_BOUND, MOST_BOUND), st.integers(-450, 450).map(lambda power: 2.0**power)),
)
def test_vectors_are_shortened_to_a_limit_and_shorter_ones_are_as_they_were(
    table: list[list[float]], limit: float
) -> None:
    vectors = np.array(table)
    found = shortened(vectors, limit)
    for before, after in some(list(zip(vectors, found, strict=True))):
        assert square(after) <= Fraction(limit) ** 2
        if square(before) <= (Fraction(limit) * (1 - Fraction(1, 2**38))) ** 2:
            assert np.array_equal(before, after)
        else:
            assert square(after) >= (Fraction(limit) * (1 - Fraction(1, 2**30))) ** 2
        assert np.array_equal(shortened(before[None], limit)[0], after)


@given(st.integers(0, 2**16), st.floats(1e-3, 1e3))
def test_ordinary_vectors_are_shortened_as_before_to_the_last_bit(seed: int, limit: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(5, 40)) * 10.0 ** np.arange(-2, 3)[:, None]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = vectors * np.minimum(1.0, limit * (1.0 - 2.0**-40) / np.maximum(lengths, limit * 2.0**-60))
    assert np.array_equal(shortened(vectors, limit), expected)
    assert not shortened(np.array([[np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]]), limit).any()


@given(SPREAD)
def test_agreed_steps_have_bounds_for_their_norm(norm: float) -> None:
    assume(not LEAST_BOUND <= norm < 2.0**100)
    with parameter_refused("max_grad_norm"):
        SampledSteps(noise_multiplier=1.0, sample_rate=0.5, max_grad_norm=norm, steps=1, trainings=1)


@pytest.mark.parametrize("name", ["max_grad_norm", "max_update_norm"])
def test_norms_whose_squares_vanish_are_refused_before_a_fit(name: str) -> None:
    """With a norm of 1e-190 nothing was clipped: one row of a model of the coordinator's choice was told."""
    claim = Privacy(
        epsilon=0.1, delta=1e-9, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
    )
    words: dict[str, Any] = {"rounds": 2, "sample_rate": 1.0, "rows_per_client": 1, "random_state": 0}
    model = FedAvg(
        **words, **{name: 1e-190}, privacy=claim, policy=ClientPolicy(require_privacy=True, max_epsilon=1)
    )
    empty = np.zeros((0, 2)), np.zeros(0, dtype=np.int64)
    with pytest.raises(BoundsError, match=name):
        model.fit([empty[0]] * 3, [empty[1]] * 3)
