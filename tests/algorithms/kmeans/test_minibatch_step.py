"""The client's step of federated mini-batch k-means, by hand and by its own laws."""

from typing import Any

import numpy as np
import pytest

from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.core.asking.data import Stacked
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from privfed.numerics.kmeans import local_updates
from tests.some import some

Clients = list[np.ndarray]


def ask(clients: Clients, centers: np.ndarray, **words: Any) -> list[Any]:
    rows = np.concatenate(clients)
    ranges = Ranges(rows.min(axis=0), rows.max(axis=0), max(map(len, clients)))
    question = MiniBatchMovements(ranges=ranges, centers=centers, **words)
    generators = [np.random.default_rng(i) for i in range(len(clients))]
    return question.answer_all([ClientData(rows) for rows in clients], generators)


def test_client_step_by_hand() -> None:
    rows, centers = np.array([[0.0], [2.0], [8.0]]), np.array([[1.0], [4.0], [50.0]])
    (once,) = ask([rows], centers, client_learning_rate=0.5)
    assert once["weight"].tolist() == [2.0, 1.0, 0.0]
    assert once["movement"].tolist() == [[0.0], [2.0], [0.0]]
    # The second epoch starts from 1 and 6; its sizes are those that count.
    (twice,) = ask([rows], centers, client_learning_rate=0.5, epochs=2)
    assert twice["movement"].tolist() == [[0.0], [3.0], [0.0]]


def test_weights_are_the_sizes_of_the_last_epoch() -> None:
    # In the first epoch the row 5.6 belongs to the center 7; then the center 3 has come nearer.
    rows, centers = np.array([[4.4], [5.6], [9.0]]), np.array([[3.0], [7.0]])
    answers = [ask([rows], centers, epochs=epochs)[0] for epochs in (1, 2)]
    assert [answer["weight"].tolist() for answer in answers] == [[1.0, 2.0], [2.0, 1.0]]
    # Each movement is the local centroid's, times that size: to 4.4 and 7.3, then to 5 and 9.
    np.testing.assert_allclose(answers[0]["movement"], [[1.4], [0.6]])
    np.testing.assert_allclose(answers[1]["movement"], [[4.0], [2.0]])


def test_batches_move_a_center_to_the_mean_of_all_rows_of_one_epoch() -> None:
    # With one center and full steps, Gamma + Lambda_b / Lambda (mean_b - Gamma) is the running mean.
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(n, 3)) for n in (1, 4, 7, 30)]
    for answer, rows in some(zip(ask(clients, np.zeros((1, 3)), batch_size=4), clients, strict=True)):
        assert answer["weight"].tolist() == [len(rows)]
        np.testing.assert_allclose(answer["movement"][0] / len(rows), rows.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("n_features", [2, 12])
def test_batches_of_all_rows_are_no_batches(epochs: int, n_features: int) -> None:
    rng = np.random.default_rng(1)
    clients = [rng.normal(size=(n, n_features)) for n in (3, 8, 8, 5)]
    centers = rng.normal(size=(4, n_features))
    whole = ask(clients, centers, epochs=epochs)
    for batch_size in (8, 100):
        for one, other in some(
            zip(ask(clients, centers, epochs=epochs, batch_size=batch_size), whole, strict=True)
        ):
            np.testing.assert_array_equal(one["movement"], other["movement"])


def test_every_row_counts_once_an_epoch() -> None:
    rng = np.random.default_rng(2)
    clients = [rng.normal(size=(n, 2)) for n in (1, 5, 6, 23)]
    for answer, rows in some(
        zip(ask(clients, rng.normal(size=(3, 2)), batch_size=5, epochs=3), clients, strict=True)
    ):
        assert answer["weight"].sum() == len(rows)


def test_full_epochs_are_local_k_means_steps() -> None:
    rng = np.random.default_rng(3)
    clients = [rng.normal(size=(n, 2)) for n in (9, 30)]
    centers = rng.normal(size=(4, 2))
    steps = local_updates(Stacked.of(clients), centers, local_iter=4)
    for answer, update in some(zip(ask(clients, centers, epochs=4), steps, strict=True)):
        held = answer["weight"] > 0
        moved = answer["movement"][held] / answer["weight"][held][:, None]
        np.testing.assert_allclose(centers[held] + moved, update.centers[held], atol=1e-12)


def test_answers_far_from_the_origin_keep_to_the_ranges() -> None:
    # Time stamps: rounding in the local centroids is of the size of the ranges' last bits.
    rng = np.random.default_rng(4)
    clients = [1.7e9 + rng.uniform(size=(50, 2)) for _ in range(20)]
    rows = np.concatenate(clients)
    ranges = Ranges(rows.min(axis=0), rows.max(axis=0), 50)
    for center in (rows.min(axis=0), rows.max(axis=0), rows[3]):
        question = MiniBatchMovements(
            ranges=ranges, centers=center[None], epochs=3, batch_size=1, client_learning_rate=0.9
        )
        generators = [np.random.default_rng(i) for i in range(20)]
        for answer in some(question.answer_all([ClientData(own) for own in clients], generators)):
            assert question.spec.clip(question.spec.flatten(answer))[1] == 0
