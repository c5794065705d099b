"""Splits by a column: each value its own client."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.data import by_column
from privfed.errors import DataError


@given(st.lists(st.sampled_from(["nurse", "clerk", "", "smith", "ä"]), min_size=1))
def test_every_row_goes_to_the_client_of_its_value(values: list[str]) -> None:
    split = by_column(values)
    assert list(split) == sorted(set(values))
    assert sorted(np.concatenate(list(split.values())).tolist()) == list(range(len(values)))
    for name, rows in split.items():
        assert {values[i] for i in rows} == {name}
        assert rows.dtype == np.intp and (np.diff(rows) > 0).all()


@pytest.mark.parametrize(
    ("values", "names"),
    [
        pytest.param([10, 2, 10, -1], ["-1", "2", "10"], id="integers-by-value"),
        pytest.param([0.5, 0.25], ["0.25", "0.5"], id="floats"),
        pytest.param([True, False, True], ["False", "True"], id="booleans"),
        pytest.param(pl.Series(["b", "a", "b"]), ["a", "b"], id="polars"),
        pytest.param(np.array(["b", "a"], dtype=object), ["a", "b"], id="objects"),
    ],
)
def test_any_sortable_column(values: Any, names: list[str]) -> None:
    assert list(by_column(values)) == names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param([], "needs shape", id="empty"),
        pytest.param([["a"], ["b"]], "needs shape", id="two-axes"),
        pytest.param("abc", "needs shape", id="a-text"),
        pytest.param([1.0, np.nan], "misses values", id="nan"),
        pytest.param(["a", None], "misses values", id="none-among-texts"),
        pytest.param([None, None], "misses values", id="none"),
        pytest.param(np.array([1, "a"], dtype=object), "mixes types", id="mixed"),
        pytest.param(np.array([np.inf, 1.0, np.nan]), "misses values", id="nan-beside-infinity"),
    ],
)
def test_column_that_names_no_client_for_a_row_is_an_error(values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        by_column(values)
