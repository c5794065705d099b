"""Known rows are taken out of totals; what is left is of the others."""

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks import Differencing, Prior, Truth, evaluate, without_known
from privfed.core.asking.question import ClientData
from privfed.errors import ArgumentError
from tests.attacks.figures import real


def seen(clients, **words):
    model = DWFKMeans(10, **{"protocol": "masked", "local_iter": 1, "random_state": 0, **words})
    return model.fit(clients).transcript_.view("server")


def test_totals_are_those_of_the_rows_that_are_not_known():
    rows = np.concatenate(real("wine", 0))
    view = seen(np.array_split(rows, 5))
    left = without_known(view, rows[:100])
    assert any(one.total is not None for one in left.sums)
    for one in left.sums:
        if one.total is not None:
            data = ClientData(rows[100:]).within(one.question.ranges)[0]
            others = one.question.answer(data, np.random.default_rng(0))
            for name, values in one.total.items():
                np.testing.assert_allclose(values, others[name], atol=1e-4)


def test_who_knows_most_rows_finds_most_of_the_others():
    rows = np.concatenate(real("wine", 0))
    view, known, others = seen(np.array_split(rows, 5)), rows[:160], [rows[160:]]
    alone, helped = (
        evaluate(Differencing().run(one, Prior(), np.random.default_rng(0)), Truth(others, tolerance=1e-4))
        for one in (view, without_known(view, known))
    )
    assert helped.precision >= 0.98
    assert helped.recovered >= 0.5 > alone.recovered


def test_local_steps_are_left_out_and_single_answers_too():
    rows = np.concatenate(real("iris", 0))
    left = without_known(seen(np.array_split(rows, 5), protocol="plain", local_iter=3), rows[:50])
    assert not any(one.answers for one in left.sums)
    rounds = [one for one in left.sums if type(one.question).__name__ == "WeightedCentroids"]
    assert rounds and all(one.total is None for one in rounds)


def test_rows_that_did_not_take_part_and_other_columns_are_errors():
    rows = np.concatenate(real("iris", 0))
    view = seen(np.array_split(rows, 5))
    with pytest.raises(ArgumentError, match="did not take part"):
        without_known(view, np.repeat(rows[:1], 160, axis=0))
    with pytest.raises(ArgumentError, match="3 columns"):
        without_known(view, rows[:, :3])
