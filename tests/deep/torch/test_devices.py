"""A module on an accelerator trains as it does on the processor. Run where torch finds one."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

import privfed  # noqa: E402
from privfed.deep import CFL, DCFL, IFCA, FedAvg  # noqa: E402
from privfed.deep.training.torch_trainer import TorchTrainer  # noqa: E402
from privfed.deep.training.trainer import whole  # noqa: E402
from privfed.errors import PrivacyError  # noqa: E402
from tests.deep.population import clients  # noqa: E402
from tests.deep.torch.test_own import DPSGD, WORDS, Gated, focal  # noqa: E402
from tests.some import some  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator that torch finds")


@pytest.fixture
def repeating() -> Any:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Images(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, 2, 2)),
            torch.nn.Conv2d(1, 4, 2, padding=1),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(36, 3),
        )

    def forward(self, rows: Any) -> Any:
        return self.layers(rows)


@pytest.mark.parametrize(
    "estimator",
    [
        partial(FedAvg, protocol="masked"),
        partial(IFCA, n_clusters=2, protocol="masked"),
        partial(CFL, merge="gathered"),
        partial(DCFL, merge="gathered"),
    ],
    ids=["fedavg", "ifca", "cfl", "dcfl"],
)
@pytest.mark.parametrize("optimizer", [None, torch.optim.AdamW], ids=["sgd", "adamw"])
def test_a_fit_is_the_one_of_the_processor(estimator: Any, optimizer: Any) -> None:
    X, y = clients(4)
    module, words = (
        Gated(),
        {**WORDS, "loss": focal, "optimizer": optimizer, "random_state": 0},
    )
    fits = [
        estimator(copy.deepcopy(module).to(place), **{**words, **estimator.keywords}).fit(X, y)
        for place in ("cpu", "cuda")
    ]
    assert np.allclose(fits[0].models_, fits[1].models_, atol=1e-4)
    assert np.array_equal(fits[0].predict(X[0], cluster=0), fits[1].predict(X[0], cluster=0))


@pytest.mark.parametrize("module", [Gated, Images])
def test_each_rows_gradient_is_the_one_of_the_processor_and_repeats(module: Any, repeating: None) -> None:
    X, y = clients(1)
    there, here = module().cuda(), None
    here = copy.deepcopy(there).cpu()
    on, off = TorchTrainer(there, focal), TorchTrainer(here, focal)
    start = off.given
    found = whole(on.gradients(start, X[0], y[0]))
    assert np.allclose(found, whole(off.gradients(start, X[0], y[0])), atol=1e-5)
    assert all(np.array_equal(found, whole(on.gradients(start, X[0], y[0]))) for _ in range(20))
    # What DP-SGD's claim assumes: to the last bit the same beside rows of zeros.
    for at in (0, 7, 39):
        alone = np.zeros_like(X[0])
        alone[at] = X[0][at]
        assert np.array_equal(found[at], whole(on.gradients(start, alone, y[0]))[at])


def test_dp_sgd_trains_where_torch_repeats(repeating: None) -> None:
    X, y = clients(4)
    fitted = DCFL(torch.nn.Linear(4, 3).cuda(), merge="gathered", **DPSGD).fit(X, y)
    assert np.isfinite(fitted.models_).all()


def test_dp_sgd_is_refused_where_torch_may_not_repeat() -> None:
    with pytest.raises(PrivacyError, match=r"on cuda.*use_deterministic_algorithms\(True\)"):
        FedAvg(torch.nn.Linear(4, 3).cuda(), **DPSGD).fit(*clients(2))


def test_a_model_of_the_accelerator_is_saved_and_predicts_anywhere(tmp_path: Any) -> None:
    X, y = clients(3)
    module = Gated().cuda()
    fitted = FedAvg(module, **WORDS).fit(X, y)
    fitted.save(tmp_path / "model")
    for place in ("cpu", "cuda"):
        loaded = privfed.load(tmp_path / "model").set_params(model=copy.deepcopy(module).to(place))
        assert np.array_equal(loaded.predict(X[0]), fitted.predict(X[0]))
    assert all(len(one) for one in some(fitted.history_))
