"""Names are listed as a person would list them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.data.table import natural_key


@pytest.mark.parametrize(
    "ordered",
    [
        pytest.param(["client2", "client10", "client100"], id="digits-inside"),
        pytest.param(["-10", "-1", "0", "2", "2.5", "10"], id="numbers-by-value"),
        pytest.param(["7", "a", "b"], id="numbers-before-texts"),
        pytest.param(["site2-ward10", "site10-ward2"], id="first-run-decides"),
        pytest.param(["a", "a1", "ab"], id="end-before-digits-before-letters"),
        pytest.param(["a" + "9" * 5000, "a1" + "0" * 5000], id="digits-too-long-for-int"),
    ],
)
def test_natural_order(ordered: list[str]) -> None:
    assert sorted(reversed(ordered), key=natural_key) == ordered


@given(st.lists(st.text("a-01.", max_size=6), unique=True), st.randoms(use_true_random=False))
def test_order_does_not_depend_on_arrival(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert sorted(shuffled, key=natural_key) == sorted(names, key=natural_key)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_digits_inside_texts_order_by_value(one: int, other: int) -> None:
    assert (natural_key(f"c{one}") < natural_key(f"c{other}")) == (one < other)
