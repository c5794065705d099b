"""Shift audits: how far one record moves all totals of a finished run, in terms of its budget.

A run's questions are fixed by its transcript. They are answered again, without noise, with and without
one record (or with another in its place); the squared shifts over the noise's variance, added up over the
run, must never exceed the budget, and for the worst record come close to it.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from privfed.core.domain import Ball, Box, Domain
from privfed.core.question import ClientData, question_from_bytes
from privfed.core.transcript import Asked, Transcript
from privfed.engines.in_process import Pool
from privfed.face.dp import DPKMeans
from privfed.privacy.accounting import ROUNDING_VARIANCE, gdp_mu
from privfed.privacy.noised import Noised
from privfed.privacy.privacy import Privacy

K = 4
DELTA = 1e-6
BOX = Box(-1.0, 1.0, max_rows=1 << 14)

ESTIMATORS: dict[str, Callable[[Privacy], DPKMeans]] = {
    method: lambda privacy, method=method: DPKMeans(  # type: ignore[misc]
        K, method=method, protocol="plain", privacy=privacy, random_state=3
    )
    for method in ("coreset", "fastlloyd", "lloyd")
}

LEAST = {"coreset": 0.75, "fastlloyd": 0.2, "lloyd": 0.55}
"""Share of the budget that the worst record found must take: one that FastLloyd leaves out takes none."""

# Rows and features: the grid start, and the one by hyperplanes with a wide round.
SHAPES = {"2 features": (900, 2), "8 features": (4000, 8)}


def rows_of(n: int, d: int) -> np.ndarray:
    """Return rows around K centers in the domain."""
    rng = np.random.default_rng(d)
    centers = rng.uniform(-0.6, 0.6, (K, d))
    rows: np.ndarray = centers[rng.integers(K, size=n)] + 0.1 * rng.standard_normal((n, d))
    return rows


def questions(transcript: Transcript) -> list[Noised]:
    """Return what a run asked, in order."""
    found = [question_from_bytes(record.question) for record in transcript.of(Asked)]
    return [question for question in found if isinstance(question, Noised)]


def answers(asked: Sequence[Noised], rows: np.ndarray) -> list[np.ndarray]:
    """Return a client's answers without noise, each in standard deviations of the noise that was counted.

    One client, so that its share alone is counted on. The way is the one that a fit goes: rows are clipped
    to the domain, answers put on the grid.
    """
    answerer = Pool([ClientData(rows)], ["0"], 0).answerer(0)
    found = []
    for index, question in enumerate(asked):
        exact = question.spec.flatten(answerer(question, index)[0])
        std = question._per_value(np.sqrt(question.sigma**2 - ROUNDING_VARIANCE) * question.steps)
        found.append(exact / std)
    return found


def cost(asked: Sequence[Noised], rows: np.ndarray, others: np.ndarray) -> float:
    """Return the squared shift of a whole run between two clients, in standard deviations."""
    pairs = zip(answers(asked, rows), answers(asked, others), strict=True)
    return sum(float(np.square(one - other).sum()) for one, other in pairs)


def worst_records(centers: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of records: far out, outside the domain, and on both sides of each final center."""
    d = centers.shape[1]
    for _ in range(8):
        corner = rng.choice([-1.0, 1.0], d)
        yield corner, -corner
        yield 1e200 * corner, rng.uniform(-1, 1, d)
    for center in centers:
        for length in (0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65, 0.9):
            direction = rng.standard_normal(d)
            direction *= length / np.linalg.norm(direction)
            yield center + direction, center - direction


def shifts_of_records(
    asked: Sequence[Noised], rows: np.ndarray, centers: np.ndarray, neighbours: str
) -> Iterator[float]:
    """Yield what each worst-case record, or pair of records, costs over a run."""
    # What a record adds does not depend on the other rows.
    rows = rows[:20]
    for one, other in worst_records(centers, np.random.default_rng(6)):
        others = rows if neighbours == "add-remove" else np.vstack([rows, other])
        yield cost(asked, np.vstack([rows, one]), others)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what switches all noise off."""

    def zeros(self: Noised, n: int, generators: object) -> np.ndarray:
        return np.zeros((n, self.inner.spec.size))

    return lambda: monkeypatch.setattr(Noised, "_noise", zeros)


def finished(
    clients: list[np.ndarray],
    *,
    epsilon: float,
    estimator: str = "coreset",
    unit: str = "record",
    neighbours: str = "add-remove",
    domain: Domain = BOX,
) -> tuple[float, list[Noised], np.ndarray]:
    """Return mu^2 of a run's claim, its questions, and the centers that it found."""
    privacy = Privacy(
        epsilon=epsilon,
        delta=DELTA,
        unit=unit,  # type: ignore[arg-type]
        domain=domain,
        neighbours=neighbours,  # type: ignore[arg-type]
        noise="local",
        noise_seed=5,
    )
    model = ESTIMATORS[estimator](privacy).fit(clients)
    return gdp_mu(epsilon, DELTA) ** 2, questions(model.transcript_), model.cluster_centers_


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_record_moves_a_run_by_more_than_its_budget(
    estimator: str, neighbours: str, shape: str, epsilon: float, silent: Callable[[], None]
) -> None:
    rows = rows_of(*SHAPES[shape])
    budget, asked, centers = finished([rows], epsilon=epsilon, estimator=estimator, neighbours=neighbours)
    silent()
    found = max(shifts_of_records(asked, rows, centers, neighbours))
    assert LEAST[estimator] * budget <= found <= budget


@pytest.mark.parametrize("shape", SHAPES)
def test_no_record_moves_a_run_in_a_ball_by_more_than_its_budget(
    shape: str, silent: Callable[[], None]
) -> None:
    rows = rows_of(*SHAPES[shape])
    budget, asked, centers = finished([rows], epsilon=2.0, domain=Ball(1.5, max_rows=1 << 14))
    silent()
    # A corner of the box around the ball is a row that only the clipping of offsets keeps in bounds.
    assert 0.75 * budget <= max(shifts_of_records(asked, rows, 3.0 * centers, "add-remove")) <= budget


def test_an_offset_that_is_not_clipped_is_found(
    silent: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(*SHAPES["8 features"])
    budget, asked, centers = finished([rows], epsilon=1.0)
    silent()
    monkeypatch.setattr("privfed.algorithms.dp_sums.HAIR", 1e9)
    assert max(shifts_of_records(asked, rows, centers, "add-remove")) > 1.5 * budget


def worst_clients(centers: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield whole clients: single rows, many equal ones, one in each cluster, far outside, too many."""
    d = centers.shape[1]
    for copies in (1, 10, 40, 1 << 14):
        corner = rng.choice([-1.0, 1.0], d)
        yield np.tile(corner, (copies, 1))
        yield np.tile(1e200 * corner, (copies, 1))
        direction = rng.standard_normal(d)
        for length in (0.02, 0.1, 0.4, 0.9):
            yield np.tile(centers[0] + length * direction / np.linalg.norm(direction), (copies, 1))
    yield centers
    yield rng.uniform(-1, 1, (300, d))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_no_client_moves_a_run_by_more_than_its_budget(
    neighbours: str, epsilon: float, silent: Callable[[], None]
) -> None:
    rng = np.random.default_rng(7)
    centers = rng.uniform(-0.7, 0.7, (K, 3))
    clients = [centers[rng.integers(K, size=10)] + 0.05 * rng.standard_normal((10, 3)) for _ in range(300)]
    budget, asked, found_centers = finished(clients, epsilon=epsilon, unit="client", neighbours=neighbours)
    silent()
    shifts = [np.concatenate(answers(asked, rows)) for rows in worst_clients(found_centers, rng)]
    # Without a client, its answers are those of no rows: zeros.
    others = [np.zeros_like(shifts[0])] if neighbours == "add-remove" else shifts
    found = [float(np.square(one - other).sum()) for one in shifts for other in others]
    # Counts and lengths are not negative: replacing one client by another moves them less than is charged.
    least = 0.7 if neighbours == "add-remove" else 0.2
    assert least * budget <= max(found) <= budget
