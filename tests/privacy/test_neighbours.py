"""All neighbours of a small world: a question is asked with the weight of the largest shift, and no other.

Contributions of records add up, so that all users of a few rows are sums of what single rows add. The price
is read from the noise that the product puts on the question, and from the claim's own mu: what
`PrivacyTerms.rows_apart` divides, and what `Bound.stay` and `Bound.move` say, show in it.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from privfed import Box, Privacy
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from privfed.core.values.guarantee import Noise
from privfed.privacy.accounting import gdp_mu
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.pricing import cost, noised
from privfed.questions.bounded.bounded_sums import CenterSum, GridSums, HashSums, RelativeSums, SizeSums

RANGES, MOST = Ranges([-1.0, -1.0], [1.0, 1.0], 100), 2
CENTERS = np.array([[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]])
QUESTIONS: dict[str, RecordBounded] = {
    "relative": RelativeSums(ranges=RANGES, centers=CENTERS, radius=0.3),
    "grid": GridSums(ranges=RANGES, per_axis=2, radius=2**-0.5),
    "hash": HashSums(ranges=RANGES, center=np.zeros(2), radius=0.5, normals=np.eye(2)),
    "center": CenterSum(ranges=RANGES, center=np.zeros(2), radius=0.5),
    "size": SizeSums(ranges=RANGES, center=np.zeros(2), radius=0.5),
}
LEAST = {"hash": 0.49, "size": 0.09}
"""Least part of the price that some neighbours reach, where that is less than .88. Two records between
hyperplanes, here in a quadrant, are never opposite each other. Of a replaced user counts are charged as for
rows that are added, though none of the same number changes them (decision 056)."""

FEW, DISTANCE = 0.05, 0.01
"""Weights of counts and of distances, so small that the vectors' factors show."""


def rows() -> np.ndarray:
    """Return rows on, around and between the centers and cells, in corners and outside."""
    around = 0.3 * np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (0.5, 0.5)])
    near = (CENTERS[:, None] + around).reshape(-1, 2)
    corners = np.array([(a, b) for a in (-1.0, -1e-9, 0.0, 1.0) for b in (-1.0, -1e-9, 0.0, 1.0)])
    return np.concatenate([near, corners, [(9.0, -9.0), (0.5, 0.0)]])


def shifts(question: RecordBounded, configuration: Configuration) -> tuple[np.ndarray, float]:
    """Return what each row adds, in deviations of the noise; and the share that the claim is charged."""
    weights = {name: {"count": FEW, "distance": DISTANCE}.get(name, 0.5) for name in question.bounds}
    asked = noised(question, weights, None, configuration)
    std = asked.noise_std(1)

    def answer(of: np.ndarray) -> np.ndarray:
        found = question.answer(ClientData(of).within(RANGES)[0], np.random.default_rng(0))
        return np.concatenate([np.ravel(found[name]) / std[name] for name in question.bounds])

    return np.stack([answer(one[None]) for one in rows()]), cost(asked, configuration)


def agreed(unit: str, neighbours: str) -> tuple[Configuration, float]:
    """Return what parties agree on, and the mu^2 of its claim."""
    most = MOST if unit == "user" else None
    privacy = Privacy(
        epsilon=1.0,
        delta=1e-6,
        unit=unit,  # type: ignore[arg-type]
        domain=Box(-1, 1),
        neighbours=neighbours,  # type: ignore[arg-type]
        rows_per_user=most,
    )
    configuration = Configuration(
        protocol="masked",
        algorithm="test",
        clients=("a", "b", "c"),
        n_features=2,
        terms=Terms(honest=1),
        privacy=privacy.terms(),
    )
    assert privacy.noise == Noise.DISTRIBUTED
    return configuration, gdp_mu(1.0, 1e-6) ** 2


@pytest.mark.parametrize("name", sorted(QUESTIONS))
@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_neighbours_differ_by_more_than_is_charged_and_some_by_nearly_as_much(
    name: str, unit: str, neighbours: str
) -> None:
    configuration, whole = agreed(unit, neighbours)
    added, charged = shifts(QUESTIONS[name], configuration)
    n = MOST if unit == "user" else 1
    # A user has up to n rows here, a replaced one has some before and after; a record is there or another is.
    numbers = range(1, n + 1)
    units = np.stack(
        [
            added[list(of)].sum(axis=0)
            for m in numbers
            for of in combinations_with_replacement(range(len(added)), m)
        ]
    )
    if neighbours == "add-remove":
        largest = np.square(units).sum(axis=1).max()
    else:
        squares = np.square(units).sum(axis=1)
        largest = (squares[:, None] + squares - 2.0 * units @ units.T).max()
    assert largest / whole <= charged * (1.0 + 1e-9)
    assert largest / whole >= LEAST.get(name, 0.88) * charged
