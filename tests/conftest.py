"""Settings and fixtures that hold for every test."""

import os

# One thread a process: pytest-xdist already starts one process a core. Read when the libraries load.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

from tests.command_line import copied, failing, fit_once, invoke, iris, words, write_iris  # noqa: F401
from tests.default_run import mark_further_cases

# The same examples in every run, and no deadline: a loaded machine must not turn a test red. By default laws
# have a quarter of the examples; `make test-slow` runs them with all (--hypothesis-profile=thorough).
settings.register_profile("default", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("thorough", derandomize=True, deadline=None)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark further cases slow before slow tests are left out."""
    mark_further_cases(items)


# Contract tests run over each of these secure sums.
PROTOCOLS = [
    "plain",
    "masked",
    "group-masked",
    # Encryption takes time; tests/protocols/ckks/test_estimators.py has a part of these tests by default.
    pytest.param("ckks", marks=pytest.mark.slow),
]

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Return the name of a secure sum; a test that takes it holds for all of them."""
    return str(request.param)


@pytest.fixture
def grid_tolerance(protocol: str) -> float:
    """Return how far a total may lie from the float64 sum, relative to the ranges."""
    return 1e-12 if protocol == "plain" else 1e-6


@pytest.fixture(scope="session")
def blobs() -> list[FloatArray]:
    """Return ten clients of 4 to 40 rows, drawn from four blobs in the plane, each from two or three."""
    rng = np.random.default_rng(2023)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])
    sizes = [40, 4, 12, 33, 25, 8, 19, 28, 15, 37]
    clients = []
    for size in sizes:
        of_client = rng.choice(4, size=rng.integers(2, 4), replace=False)
        rows = means[rng.choice(of_client, size)] + rng.normal(scale=0.7, size=(size, 2))
        rows.setflags(write=False)
        clients.append(rows)
    return clients
