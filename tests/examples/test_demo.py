"""The demonstration: the same centers over plain and masked sums, in spite of dropouts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.scripts import loaded


@pytest.fixture(scope="module")
def demo() -> Any:
    return loaded("demo")


@pytest.mark.slow
def test_masked_and_plain_end_with_the_same_centers(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = demo.main(tmp_path)
    plain, masked = models["plain"], models["masked"]
    np.testing.assert_allclose(plain.cluster_centers_, masked.cluster_centers_, rtol=0, atol=1e-7)
    counted = [[len(total.contributors) for _, total in one.transcript_.totals()] for one in models.values()]
    assert counted[0] == counted[1] and min(counted[0]) < demo.N_CLIENTS == counted[0][-1]
    assert {path.name for path in tmp_path.iterdir()} == {"centers.png", "convergence.png"}
    assert "Neither run claims differential privacy" in capsys.readouterr().out


def test_the_losses_follow_from_the_seed(demo: Any) -> None:
    assert demo.losses(1) == demo.losses(1) != demo.losses(2)
    assert {fault.stage for fault in demo.losses(0)} == {"collect", "unmask"}
