"""Steps of DP-SGD hold each row to what it is charged for, also where gradients are clipped wrongly."""

import numpy as np
import pytest

from privfed.core.asking.question import ClientData
from privfed.deep.training import dp_sgd
from privfed.deep.training.local import Training
from privfed.deep.training.trainer import SoftmaxRegression, Trainer
from privfed.privacy.sampler import SeededBits
from tests.deep.training.test_local import MODELS_OF_ROWS, PRIVATE, WORDS, rows

LONG = np.array([50.0, -50.0])


def with_a_long_row() -> ClientData:
    """Return rows of which the last one's gradient is far longer than the clipping norm."""
    client = rows(30)
    assert client.labels is not None
    return ClientData(np.vstack([0.05 * client.features, LONG]), np.append(client.labels, 0))


@pytest.fixture
def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_sgd, "shortened", lambda vectors, limit: vectors.copy())


@pytest.mark.usefixtures("unclipped")
@pytest.mark.parametrize("trainer", MODELS_OF_ROWS)
def test_a_row_beyond_what_it_is_charged_for_adds_zero_and_only_that_row(trainer: Trainer) -> None:
    whole = with_a_long_row()
    assert whole.labels is not None
    places, errors = np.arange(31) % dp_sgd.PLACES, list[BaseException]()
    sums = [
        dp_sgd._clipped_sum(
            trainer,
            trainer.initial(0),
            whole.features[:n],
            whole.labels[:n],
            places[:n],
            2.0,
            2.0**-37,
            errors,
        )
        for n in (30, 31)
    ]
    assert sums[0].any()
    assert np.array_equal(*sums)
    assert "1 contributions were beyond their bound" in str(errors[0])


@pytest.mark.usefixtures("unclipped")
def test_the_clients_own_log_tells() -> None:
    training, client = Training(**{**WORDS, **PRIVATE, "sample_rate": 1.0}), with_a_long_row()
    start = SoftmaxRegression(2, 3).initial(0)
    training.update(client, start, np.random.default_rng(0))
    assert len(client.errors) == 1
    assert "beyond their bound" in str(client.errors[0])


def test_rows_that_are_clipped_are_within_what_they_are_charged_for() -> None:
    client, errors = with_a_long_row(), list[BaseException]()
    assert client.labels is not None
    training = Training(**{**WORDS, **PRIVATE, "sample_rate": 1.0})
    bits = SeededBits(np.random.default_rng(0))
    start = SoftmaxRegression(2, 3).initial(0)
    dp_sgd.private_sgd(SoftmaxRegression(2, 3), start, client.features, client.labels, training, bits, errors)
    assert errors == []
