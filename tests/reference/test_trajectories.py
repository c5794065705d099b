"""Runs go where they went: stored trajectories of every algorithm over every sum."""

import numpy as np
import pytest

from tests.reference.trajectories import STORED, cases

CASES = dict(cases())


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(STORED) as file:
        return {name: file[name] for name in file.files}


def test_every_stored_case_is_still_computed(stored: dict[str, np.ndarray]) -> None:
    assert {name.split("|")[0] for name in stored} == set(CASES)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n.endswith("ckks") else ()) for n in CASES]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.few(12)
def test_runs_go_where_they_went(name: str, stored: dict[str, np.ndarray]) -> None:
    """But for the last bits, which differ between machines: the module run as a program compares them."""
    found = CASES[name]()
    assert found
    for key, value in found.items():
        np.testing.assert_allclose(value, stored[f"{name}|{key}"], rtol=1e-9, atol=1e-12)
