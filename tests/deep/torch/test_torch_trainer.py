"""Models of torch; skipped without the extra `deep`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deep.population import accuracy, clients, kinds, same

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

from privfed import load  # noqa: E402
from privfed.core.values.domain import Box  # noqa: E402
from privfed.deep import DCFL, FedAvg  # noqa: E402
from privfed.deep.training.dp_sgd import _clipped_sum  # noqa: E402
from privfed.deep.training.torch_trainer import TorchTrainer  # noqa: E402
from privfed.deep.training.trainer import MODELS, SoftmaxRegression, whole  # noqa: E402
from privfed.errors import ArgumentError, PrivacyError  # noqa: E402
from privfed.privacy.claim import Privacy  # noqa: E402
from privfed.privacy.dp_sgd import epsilon_of  # noqa: E402

WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 6,
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.5,
    "domain": Box(0, 1),
    "protocol": "plain",
}
RECORDS = Privacy(
    epsilon=8.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def perceptron(hidden: int = 8, seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 3))


def as_softmax(parameters: np.ndarray) -> np.ndarray:
    """A linear layer's parameters (weights by class, biases) as those of `SoftmaxRegression`."""
    weights = parameters[:-3].reshape(3, -1).T
    return np.concatenate([weights.ravel(), parameters[-3:]])


def test_a_linear_layer_is_softmax_regression() -> None:
    X, y = clients(1)
    one, other = TorchTrainer(torch.nn.Linear(4, 3)), SoftmaxRegression(4, 3)
    at = np.random.default_rng(0).normal(size=15)
    assert np.allclose(one.losses(at, X[0], y[0]), other.losses(as_softmax(at), X[0], y[0]))
    assert np.allclose(as_softmax(one.gradient(at, X[0], y[0])), other.gradient(as_softmax(at), X[0], y[0]))
    assert (one.predict(at, X[0]) == other.predict(as_softmax(at), X[0])).all()
    rows = whole(one.gradients(at, X[0], y[0]))
    assert np.allclose([as_softmax(row) for row in rows], other.gradients(as_softmax(at), X[0], y[0]))


def test_rows_gradients_of_opacus_are_those_of_each_row_alone() -> None:
    X, y = clients(1)
    trainer = TorchTrainer(perceptron())
    at = trainer.initial(3)
    together = whole(trainer.gradients(at, X[0], y[0]))
    alone = [trainer.gradient(at, X[0][i : i + 1], y[0][i : i + 1]) for i in range(len(y[0]))]
    assert np.allclose(together, alone, atol=1e-12)
    assert whole(trainer.gradients(at, X[0][:0], y[0][:0])).shape == (0, trainer.n_parameters)


def test_a_batch_changes_a_rows_gradient_by_less_than_is_assumed() -> None:
    """`privfed.deep.training.dp_sgd` assumes less than C 2^-38 where gradients are computed in float64."""
    X, y = clients(1, rows=64)
    trainer = TorchTrainer(perceptron(32).double())
    at = trainer.initial(1)
    every = whole(trainer.gradients(at, X[0], y[0]))
    for n in (1, 2, 7, 33):
        part = whole(trainer.gradients(at, X[0][:n], y[0][:n]))
        assert np.abs(part - every[:n]).max() < 2.0**-45


def test_a_loss_of_ones_own_is_taken_row_by_row() -> None:
    def squared(scores: Any, labels: Any) -> Any:
        return ((scores - torch.nn.functional.one_hot(labels, 3)) ** 2).mean()

    X, y = clients(1)
    trainer = TorchTrainer(perceptron(), squared)
    at = trainer.initial(0)
    assert np.isclose(trainer.losses(at, X[0], y[0]).mean(), _whole(trainer, squared, at, X[0], y[0]))
    each = whole(trainer.gradients(at, X[0], y[0]))
    assert np.allclose(each.mean(axis=0), trainer.gradient(at, X[0], y[0]), atol=1e-7)


def _whole(trainer: TorchTrainer, loss: Any, at: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    trainer._set(at)
    return float(loss(trainer._module(trainer._rows(X)), torch.tensor(y)).detach())


def test_seeds_give_models_of_their_own_and_nothing_is_drawn_outside() -> None:
    trainer = TorchTrainer(perceptron())
    before = torch.random.get_rng_state()
    assert np.array_equal(trainer.initial(1), trainer.initial(1))
    assert not np.array_equal(trainer.initial(1), trainer.initial(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_module_is_registered_under_what_it_is() -> None:
    assert TorchTrainer(perceptron()).register() == TorchTrainer(perceptron()).register()
    assert TorchTrainer(perceptron()).name != TorchTrainer(perceptron(9)).name


def test_modules_that_averages_do_not_cover_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"layer '1' .* BatchNorm1d.*take GroupNorm\(1, 3.*ModuleValid"):
        TorchTrainer(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
    with pytest.raises(ArgumentError, match="of several rows"):
        TorchTrainer(
            torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, track_running_stats=False))
        )
    with pytest.raises(ArgumentError, match="no parameter"):
        TorchTrainer(torch.nn.ReLU())


def test_modules_without_rows_gradients_are_refused_for_dp_sgd() -> None:
    X, y = clients(4)

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRU(4, 3, batch_first=True)

        def forward(self, rows: Any) -> Any:
            return self.cell(rows[:, None])[0][:, 0]

    mixing = Recurrent()
    words = {**WORDS, "domain": None, "privacy": RECORDS, "noise_multiplier": 5.0, "rows_per_client": 40}
    with pytest.raises(PrivacyError, match="Opacus has none"):
        FedAvg(mixing, **words).fit(X, y)


def test_dcfl_trains_a_torch_module() -> None:
    X, y = clients(6)
    fitted = DCFL(perceptron(), merge="gathered", **WORDS).fit(X, y)
    assert same(fitted.labels_, kinds(6))
    single = FedAvg(perceptron(), **WORDS).fit(X, y)
    assert accuracy(fitted, X, y) > accuracy(single, X, y) + 0.2


def test_opacus_accountants_give_the_ledgers_epsilon() -> None:
    from opacus.accountants import PRVAccountant, RDPAccountant

    for noise, rate, steps in ((1.0, 0.1, 60), (1.5, 0.2, 100)):
        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = rdp.history = [(noise, rate, steps)]
        ours = epsilon_of(noise, rate, steps, 1e-5)
        assert ours == pytest.approx(prv.get_epsilon(1e-5), rel=0.01)
        assert ours <= rdp.get_epsilon(1e-5)


def test_dp_sgd_of_a_torch_module() -> None:
    X, y = clients(2, rows=400)
    y = [(labels - i) % 3 for i, labels in enumerate(y)]
    words = {**WORDS, "rounds": 3, "domain": None, "privacy": RECORDS, "noise_multiplier": 1.5}
    made = FedAvg(perceptron(), **words, sample_rate=0.4, rows_per_client=400)
    fitted = made.fit(X, y).models_[0]
    assert made.privacy_spent_ is not None
    pure = made.fit([one[:0] for one in X], [one[:0] for one in y]).models_[0]
    losses = [np.mean(TorchTrainer(perceptron()).losses(one, X[0], y[0])) for one in (fitted, pure)]
    assert losses[0] < losses[1]


def test_a_saved_model_of_a_torch_module_predicts_where_the_module_is_passed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = clients(4)
    fitted = FedAvg(perceptron(), **WORDS).fit(X, y)
    fitted.save(tmp_path / "model.npz")
    # In another process nothing is registered, and first parameters are others.
    monkeypatch.setattr(MODELS, "_things", {})
    again = load(tmp_path / "model.npz")
    with pytest.raises(ArgumentError, match=r"set_params\(model=module\)"):
        again.predict(X[0])
    with pytest.raises(ArgumentError, match="parameters"):
        again.set_params(model=perceptron(9)).predict(X[0])
    assert np.array_equal(again.set_params(model=perceptron(seed=3)).predict(X[0]), fitted.predict(X[0]))


def convolution() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.GroupNorm(2, 4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 5),
    )


def layers() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))


@pytest.mark.parametrize("network", [convolution, layers])
@pytest.mark.parametrize("n", [1, 7, 33, 150])
def test_one_row_moves_a_sum_of_dp_sgd_by_its_own_gradient_to_the_last_bit(n: int, network: Any) -> None:
    """What else is in a batch changes no bit of a row's gradient, in convolutions as in layers."""
    trainer, rng = TorchTrainer(network()), np.random.default_rng(n)
    rows, labels, places = rng.uniform(size=(n, 64)), rng.integers(0, 5, n), rng.integers(0, 4, n)
    words = trainer.initial(0), 1.0, 2.0**-38

    def total(chosen: slice) -> np.ndarray:
        at, limit, step = words
        return _clipped_sum(trainer, at, rows[chosen], labels[chosen], places[chosen], limit, step)

    moved = total(slice(0, n)) - total(slice(0, n - 1))
    assert np.array_equal(moved, total(slice(n - 1, n))) and moved.any()


class Own(torch.nn.Module):
    """A layer whose weights are used in another way."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.first, self.second = way, torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
        if way == "hook":
            self.first.register_forward_hook(lambda layer, given, found: 2.0 * found)
        if way == "parametrized":
            torch.nn.utils.parametrizations.weight_norm(self.first)

    def forward(self, rows: Any) -> Any:
        found = self.first(input=rows) if self.way == "named" else self.first(rows)
        if self.way == "twice":
            found = self.first(found)
        if self.way == "elsewhere":
            found = found + torch.nn.functional.linear(rows, self.first.weight) ** 2
        if self.way == "sequence":
            found = self.first(found.reshape(-1, 1, 6).expand(-1, 2, 6)).sum(dim=1)
        return self.second(found)


@pytest.mark.parametrize("way", ["plain", "named", "twice", "elsewhere", "sequence", "hook", "parametrized"])
def test_factors_are_of_layers_whose_gradients_are_outer_products(way: str) -> None:
    trainer, rng = TorchTrainer(Own(way).double()), np.random.default_rng(0)
    at, rows, labels = trainer.initial(0), rng.normal(size=(7, 6)), rng.integers(0, 3, 7)
    parts = trainer.gradients(at, rows, labels)
    assert sum(len(part) == 2 for part in parts) == (2 if way in ("plain", "named") else 1)
    alone = [trainer.gradient(at, rows[i : i + 1], labels[i : i + 1]) for i in range(7)]
    assert np.allclose(whole(parts), alone, atol=1e-12)


def test_rows_that_are_a_reversed_view_of_an_array_are_predicted() -> None:
    rng = np.random.default_rng(0)
    X, y = [rng.random((20, 4)) for _ in range(2)], [rng.integers(0, 2, 20) for _ in range(2)]
    model = FedAvg(model=torch.nn.Linear(4, 2), rounds=2, domain=Box(0, 1), protocol="plain").fit(X, y)
    assert np.array_equal(model.predict(X[0][::-1]), model.predict(X[0])[::-1])
    assert model.tuned(X[0][::-1], y[0][::-1]).shape == (10,)
