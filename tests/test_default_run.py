"""Which cases of a test run by default."""

from itertools import product
from types import SimpleNamespace

import pytest

from tests.default_run import spread


def cases(*axes):
    return [
        SimpleNamespace(callspec=SimpleNamespace(indices={str(axis): at for axis, at in enumerate(one)}))
        for one in product(*(range(length) for length in axes))
    ]


def values(chosen):
    return {value for one in chosen for value in one.callspec.indices.items()}


@pytest.mark.parametrize(("axes", "number"), [((4, 3), 4), ((2, 2, 5), 5), ((7,), 7)])
def test_each_value_has_its_turn_where_there_are_as_many_cases(axes, number):
    chosen = spread(cases(*axes), number)
    assert len(chosen) == number
    assert values(chosen) == values(cases(*axes))


def test_fewer_are_spread_over_all_values():
    chosen = spread(cases(12), 3)
    assert [one.callspec.indices["0"] for one in chosen] == [0, 4, 8]


def test_there_may_be_fewer_cases_than_wanted():
    assert len(spread(cases(2), 5)) == 2


@pytest.mark.few(2)
@pytest.mark.parametrize("case", [0, pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_the_others_are_slow(case, request):
    assert (request.node.get_closest_marker("slow") is None) == (case in {0, 3})
