"""Rows of clients that train a network, from the gradient of its first layer."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

from privfed.attacks import Prior, evaluate  # noqa: E402
from privfed.attacks.base.report import Status  # noqa: E402
from privfed.attacks.base.results import Result, Truth  # noqa: E402
from privfed.core.values.domain import Box  # noqa: E402
from privfed.deep import DCFL, FedAvg  # noqa: E402
from privfed.deep.attacks.inversion import GradientInversion  # noqa: E402

ROWS, LABELS = (one[:25] for one in load_digits(return_X_y=True))
X, Y = np.split(ROWS / 16.0, 5), np.split(LABELS, 5)


def found(
    kind: Any,
    hidden: tuple[int, ...] = (256,),
    active: type = torch.nn.ReLU,
    dtype: Any = torch.float64,
    units: int = 0,
    **words: Any,
) -> Result:
    torch.manual_seed(0)
    wide = (64, *hidden)
    layers = [(torch.nn.Linear(*two), active()) for two in pairwise(wide)]
    model = torch.nn.Sequential(*sum(layers, ()), torch.nn.Linear(wide[-1], 10)).to(dtype)
    words = {"n_classes": 10, "rounds": 10, "domain": Box(0, 1), "model": model, **words}
    view = kind(**words).fit(X, Y).transcript_.view("server")
    result: Result = GradientInversion(units=units).run(view, Prior(), np.random.default_rng(0))
    return result


@pytest.mark.parametrize(
    ("words", "tolerance"),
    [
        ({"kind": FedAvg, "protocol": "plain"}, 1e-9),
        ({"kind": FedAvg, "protocol": "plain", "epochs": 2}, 1e-9),
        ({"kind": DCFL, "compare": False}, 0.01),
        ({"kind": DCFL, "compare": False, "dtype": torch.float32}, 1e-3),
        ({"kind": FedAvg, "protocol": "plain", "hidden": (256, 50), "units": 256}, 1e-9),
    ],
    ids=["by-name", "two-epochs", "slotted", "single-precision", "two-hidden-layers"],
)
def test_rows_that_units_are_active_on_alone_are_found(words: dict[str, Any], tolerance: float) -> None:
    report = evaluate(found(**words), Truth(X, tolerance=tolerance))
    assert report.recovered > 0.9 and report.precision == 1.0
    assert report.linked == (words["kind"] is FedAvg)


@pytest.mark.parametrize(
    "words",
    [
        {"active": torch.nn.Tanh},
        {"optimizer": torch.optim.Adam},
        {"hidden": (256, 50)},
        {"units": 100},
    ],
    ids=["no ReLU", "no gradient", "units not told", "units wrong"],
)
def test_nothing_is_claimed_of_other_networks(words: dict[str, Any]) -> None:
    report = evaluate(found(FedAvg, protocol="plain", **words), Truth(X))
    assert report.claims == 0 and report.status is Status.NOT_READ
