import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.question import ClientData
from privfed.deep.training.dp_sgd import CHARGED, PLACES, STEPS, _clipped_sum, n_places, private_sgd
from privfed.deep.training.local import Training
from privfed.deep.training.trainer import Parts, SoftmaxRegression, Trainer
from privfed.errors import ArgumentError, DataError
from privfed.privacy.sampler import SecureBits, SeededBits
from tests.seeded import seeded

WORDS = {
    "model": "softmax",
    "n_classes": 3,
    "timed": False,
    "round": 1,
    "epochs": 2,
    "batch_size": 4,
    "learning_rate": 0.2,
    "max_update_norm": 100.0,
    "seed": 0,
}
PRIVATE = {
    "noise_multiplier": 1.0,
    "sample_rate": 0.5,
    "max_grad_norm": 0.7,
    "rows_per_client": 10,
    "trainings": 3,
}


def rows(n: int, seed: int = 0) -> ClientData:
    rng = np.random.default_rng(seed)
    return ClientData(rng.normal(size=(n, 2)), rng.integers(0, 3, n))


def update(client: ClientData, generator: np.random.Generator | None = None, **words: object) -> np.ndarray:
    training = Training(**{**WORDS, **words})  # type: ignore[arg-type]
    return training.update(client, np.zeros(9), generator or np.random.default_rng(0))


def test_softmax_has_the_gradient_of_its_loss() -> None:
    model, client = SoftmaxRegression(2, 3), rows(5)
    assert client.labels is not None
    at = np.random.default_rng(1).normal(size=9)
    found = model.gradients(at, client.features, client.labels)
    small = 1e-6
    for j, direction in enumerate(np.eye(9)):
        ahead = model.losses(at + small * direction, client.features, client.labels)
        behind = model.losses(at - small * direction, client.features, client.labels)
        assert np.allclose(found[:, j], (ahead - behind) / (2 * small), atol=1e-6)
    assert np.allclose(found.mean(axis=0), model.gradient(at, client.features, client.labels))


def test_training_is_sgd_step_by_step_in_batches_that_are_equally_large() -> None:
    client, model, expected = rows(10), SoftmaxRegression(2, 3), np.zeros(9)
    assert client.labels is not None
    rng = np.random.default_rng([0, 1])
    for _ in range(2):
        order = rng.permutation(10)
        for batch in (order[:4], order[4:7], order[7:]):
            expected = expected - 0.2 * model.gradient(expected, client.features[batch], client.labels[batch])
    assert np.array_equal(update(client), expected)


@pytest.mark.parametrize("n", [1, 4, 5, 23])
def test_a_fifth_of_the_rows_is_held_out_up_to_a_round_and_used_after_it(n: int) -> None:
    client = rows(n)
    training = Training(**WORDS, held_until=3)  # type: ignore[arg-type]
    known, held = (training.at(3).rows_of(client, held=one)[0] for one in (False, True))
    assert len(held) == n // 5 and len(training.at(4).rows_of(client)[0]) == n
    assert np.array_equal(held, training.at(1).rows_of(client, held=True)[0])
    both = np.concatenate([known, held])
    assert np.array_equal(np.sort(both, axis=0), np.sort(client.features, axis=0))


def test_an_update_is_clipped_and_one_that_is_no_number_is_none() -> None:
    assert np.linalg.norm(update(rows(10), max_update_norm=0.01)) <= 0.01
    assert not update(ClientData(np.empty((0, 2)), np.empty(0, dtype=np.int64))).any()
    far = ClientData(np.full((3, 2), 1e300), np.array([0, 1, 2]))
    assert not update(far, learning_rate=1e20).any()


def test_rows_with_times_are_trained_on_in_their_rounds_only() -> None:
    client = rows(10)
    assert client.labels is not None
    times = np.repeat([[1.0, 3.0], [3.0, 9.0]], 5, axis=0)
    timed = ClientData(np.hstack([client.features, times]), client.labels)
    first = ClientData(client.features[:5], client.labels[:5])
    assert np.array_equal(update(timed, timed=True, round=2), update(first, round=2))
    assert not np.array_equal(update(timed, timed=True, round=3), update(first, round=3))
    assert not update(timed, timed=True, round=9).any()


def test_labels_are_needed_and_rows_whose_label_is_no_class_are_left_out() -> None:
    with pytest.raises(DataError, match="needs labels"):
        update(ClientData(np.zeros((2, 2))))
    rows = np.array([[0.5, 1.0], [2.0, -1.0], [3.0, 3.0], [0.1, 0.2]])
    strange = ClientData(rows, np.array([0, 7, -1, 2]))
    known = ClientData(rows[[0, 3]], np.array([0, 2]))
    np.testing.assert_array_equal(update(strange), update(known))
    assert update(strange).any() and update(strange, **PRIVATE).any()


@pytest.mark.parametrize(
    "words",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"max_update_norm": float("inf")},
        {"seed": 2**63},
        {**PRIVATE, "sample_rate": 0.0},
        {**PRIVATE, "noise_multiplier": -1.0},
        {**PRIVATE, "noise_multiplier": 1e4},
        {**PRIVATE, "weighting": "rows"},
        {**PRIVATE, "epochs": 2_000_000},
    ],
)
def test_words_of_training_are_checked(words: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Training(**{**WORDS, **words})  # type: ignore[arg-type]

    def words(self, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.uint64)


def places_of(n_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, PLACES, n_rows)


def clipped_sum(
    client: ClientData, places: np.ndarray | None = None, model: Trainer | None = None
) -> np.ndarray:
    """One step of DP-SGD of every row, without its noise, in steps of the grid."""
    assert client.labels is not None
    trainer = SoftmaxRegression(2, 3) if model is None else model
    drawn = places_of(client.n_rows) if places is None else places
    at = trainer.initial(0)
    return _clipped_sum(trainer, at, client.features, client.labels, drawn, 0.7, 2.0**-40)


class InFactors(SoftmaxRegression):
    """The same model, whose gradients are outer products."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Parts:  # type: ignore[override]
        """Return the two factors."""
        errors = self._errors(parameters, features, labels)
        return [(np.column_stack([features, np.ones(len(features))]), errors)]


MODELS_OF_ROWS = [SoftmaxRegression(2, 3), InFactors(2, 3)]


@given(
    st.integers(0, 2**16),
    st.sampled_from([0.0, 1e-200, 1.0, 1e6, 1e200, np.inf]),
    st.integers(0, 60),
    st.sampled_from(MODELS_OF_ROWS),
)
def test_one_row_moves_a_sum_by_its_own_clipped_gradient_to_the_last_bit(
    seed: int, scale: float, n: int, model: Trainer
) -> None:
    rng = np.random.default_rng(seed)
    features, labels, places = rng.normal(size=(n + 1, 2)), rng.integers(0, 3, n + 1), places_of(n + 1, seed)
    with np.errstate(all="ignore"):
        features[-1] = np.nan_to_num(features[-1] * scale, posinf=1e308, neginf=-1e308)
    whole, without = ClientData(features, labels), ClientData(features[:-1], labels[:-1])
    alone = clipped_sum(ClientData(features[-1:], labels[-1:]), places[-1:], model)
    moved = clipped_sum(whole, places, model) - clipped_sum(without, places[:-1], model)
    assert np.array_equal(moved, alone)
    assert np.linalg.norm(alone * 2.0**-40) <= 0.7


@given(st.integers(0, 2**16), st.floats(1e-3, 1e3))
def test_of_factors_a_sum_is_that_of_whole_gradients_up_to_truncation(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    client = ClientData(scale * rng.normal(size=(50, 2)), rng.integers(0, 3, 50))
    sums = [clipped_sum(client, places_of(50), model) * 2.0**-40 for model in MODELS_OF_ROWS]
    # Each factor of a row is truncated by at most 2^-19 of the clipping norm, or of its own length, a number.
    assert np.abs(sums[0] - sums[1]).max() <= 50 * 0.7 * 2.0**-17


@pytest.mark.parametrize("model", MODELS_OF_ROWS)
@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_a_row_of_no_numbers_adds_nothing(model: Trainer, strange: float) -> None:
    """Layers before it may make such inputs of ordinary rows."""
    client, places = rows(20), places_of(21)
    assert client.labels is not None
    features, labels = np.vstack([client.features, [[strange, 1.0]]]), np.append(client.labels, 1)
    found = _clipped_sum(model, model.initial(0), features, labels, places, 0.7, 2.0**-40)
    assert np.array_equal(found, clipped_sum(client, places[:-1], model)) and found.any()


def test_the_order_of_rows_changes_no_sum() -> None:
    client, places = rows(200), places_of(200)
    assert client.labels is not None
    order = np.random.default_rng(1).permutation(200)
    turned = ClientData(client.features[order], client.labels[order])
    assert np.array_equal(clipped_sum(client, places), clipped_sum(turned, places[order]))


def test_no_row_pushes_another_one_out_of_a_batch_however_large() -> None:
    many = ClientData(np.tile([[0.5, -0.5]], (19_200, 1)), np.zeros(19_200, dtype=np.int64))
    places = np.arange(19_200) % PLACES
    one = ClientData(many.features[:1], np.zeros(1, dtype=np.int64))
    each = [clipped_sum(one, places[i : i + 1]) for i in range(PLACES)]
    assert np.array_equal(clipped_sum(many, places), 19_200 // PLACES * np.sum(each, axis=0))


@pytest.mark.parametrize(
    ("n_features", "n_classes", "size"),
    [(2, 3, 64), ((1 << 16) - 1, 2, 16), ((1 << 17) - 1, 3, 4), (1 << 29, 2, 1)],
)
def test_blocks_of_large_models_have_fewer_rows(n_features: int, n_classes: int, size: int) -> None:
    assert n_places(SoftmaxRegression(n_features, n_classes), n_features) == size


@pytest.mark.parametrize("factors", [False, True])
def test_a_row_that_makes_an_error_adds_nothing_and_leaves_the_others(factors: bool) -> None:
    of = type(MODELS_OF_ROWS[factors])

    class Failing(of):  # type: ignore[misc, valid-type]
        def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> object:
            if (features[:, 0] > 100).any():
                raise ValueError("one row is strange")
            return super().gradients(parameters, features, labels)

    client = rows(40)
    assert client.labels is not None
    strange = ClientData(np.vstack([client.features, [[1000.0, 0.0]]]), np.append(client.labels, 0))
    places, model = places_of(41), Failing(2, 3)
    assert np.array_equal(clipped_sum(strange, places, model), clipped_sum(client, places[:-1], model))


@pytest.mark.parametrize("steps", [1, 100])
def test_noise_of_dp_sgd_has_the_stated_standard_deviation_anew_in_each_step(steps: int) -> None:
    words = Training(**{**WORDS, **PRIVATE, "epochs": steps, "sample_rate": 1.0})  # type: ignore[arg-type]
    model = SoftmaxRegression(200, 5)
    nobody, labels = np.empty((0, 200)), np.empty(0, dtype=np.int64)
    bits = SeededBits(np.random.default_rng(3))
    moved = private_sgd(model, np.zeros(model.n_parameters), nobody, labels, words, bits)
    # Steps without rows: minus learning rate times noise over the public number of rows.
    noise = moved / 0.2 * words.rows_per_client
    expected = words.noise_multiplier * words.max_grad_norm * CHARGED
    # Noise of another step would add up to more. Of so large a model 65 steps are drawn at once.
    assert np.std(noise) == pytest.approx(expected * steps**0.5, rel=0.06)
    assert expected / (words.max_grad_norm / STEPS) > 5


def test_batches_and_noise_of_a_claim_never_repeat_and_those_of_a_seeded_run_do() -> None:
    client = rows(10)
    assert not np.array_equal(update(client, **PRIVATE), update(client, **PRIVATE))
    assert np.array_equal(update(client, seeded(0), **PRIVATE), update(client, seeded(0), **PRIVATE))
    assert SecureBits().words(2).tolist() != SecureBits().words(2).tolist()
