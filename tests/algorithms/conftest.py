"""Over which secure sums the tests of this folder run."""

import pytest

from tests.default_run import PLAIN_BY_DEFAULT


@pytest.fixture(params=PLAIN_BY_DEFAULT)
def protocol(request: pytest.FixtureRequest) -> str:
    """Return the name of a secure sum; a test that takes it holds for all of them."""
    return str(request.param)
