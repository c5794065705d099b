"""A model that no client takes is put beside the one that most take; the others stay."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privfed.deep.algorithms.averaging import divided


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 2**31))
def test_models_that_are_taken_stay_and_empty_ones_lie_a_step_beside_the_fullest(
    weights: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    before, models = rng.normal(size=(2, len(weights), 5))
    found = divided(models, before, np.array(weights, dtype=float), seed)
    taken = np.array(weights) > 0
    np.testing.assert_array_equal(found[taken], models[taken])
    np.testing.assert_array_equal(found, divided(models, before, np.array(weights, dtype=float), seed))
    if max(weights) < 2:
        np.testing.assert_array_equal(found, models)
    elif not taken.all():
        first = int(np.flatnonzero(~taken)[0])
        fullest = int(np.argmax(weights))
        apart = np.linalg.norm(found[first] - models[fullest])
        np.testing.assert_allclose(apart, np.linalg.norm(models[fullest] - before[fullest]))
