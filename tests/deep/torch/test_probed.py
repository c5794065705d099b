"""Modules whose gradients depend on draws, other rows or earlier ones are refused before anybody trains."""

import functools
from typing import Any

import numpy as np
import pytest

from tests.deep.population import clients

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

from privfed.core.asking.question import ClientData  # noqa: E402
from privfed.core.values.domain import Box  # noqa: E402
from privfed.deep import FedAvg  # noqa: E402
from privfed.deep.training.local import Training  # noqa: E402
from privfed.deep.training.torch_trainer import TorchTrainer  # noqa: E402
from privfed.deep.training.trainer import MODELS, SoftmaxRegression, whole  # noqa: E402
from privfed.errors import ArgumentError, PrivacyError  # noqa: E402
from privfed.privacy.claim import Privacy  # noqa: E402

WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 1, "protocol": "plain"}
RECORDS = Privacy(
    epsilon=8.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
)
DPSGD: dict[str, Any] = {**WORDS, "privacy": RECORDS, "noise_multiplier": 2.0, "rows_per_client": 40}


class Scaled(torch.nn.Module):
    """A layer with a parameter of its own, and what a test does to rows beside it."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.change = change

    def forward(self, rows: Any) -> Any:
        return self.change(self, rows * self.scale)


class Whole(torch.nn.Module):
    """A module that draws beside its layers, and has no parameter of its own: a usual way to drop out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, rows: Any) -> Any:
        hidden = torch.tanh(self.first(rows))
        return self.last(torch.nn.functional.dropout(hidden, 0.5, training=self.training))


def drawn(layer: Any, rows: Any) -> Any:
    return rows + 1e-6 * torch.rand_like(rows)


def centered(layer: Any, rows: Any) -> Any:
    return rows - rows.mean(dim=0)


def remembered(layer: Any, rows: Any) -> Any:
    before = getattr(layer, "kept", 0.0)
    layer.kept = 0.5 * rows.detach().mean() + 0.5 * before
    return rows - before


def module(change: Any) -> Any:
    return torch.nn.Sequential(Scaled(change), torch.nn.Linear(4, 3))


@pytest.mark.parametrize("change", [drawn, centered, remembered])
def test_dp_sgd_refuses_gradients_that_are_not_a_rows_own(change: Any) -> None:
    X, y = clients(4)
    with pytest.raises(PrivacyError, match="row's gradient"):
        FedAvg(module(change), **DPSGD).fit(X, y)


@pytest.mark.parametrize("change", [drawn, remembered])
def test_training_that_does_not_repeat_is_refused_without_dp_sgd_too(change: Any) -> None:
    X, y = clients(4)
    with pytest.raises(ArgumentError, match="at random"):
        FedAvg(module(change), **WORDS, domain=Box(0, 1)).fit(X, y)


def test_dropout_of_a_module_is_off_as_that_of_a_layer() -> None:
    X, y = clients(4)
    trainer = TorchTrainer(Whole().double())
    at = trainer.initial(0)
    together = whole(trainer.gradients(at, X[0], y[0]))
    alone = [trainer.gradient(at, X[0][i : i + 1], y[0][i : i + 1]) for i in range(len(y[0]))]
    assert np.allclose(together, alone, atol=1e-12)
    assert FedAvg(Whole(), **DPSGD).fit(X, y).privacy_spent_ is not None


class Later:
    """A loss that turns after many calls, as one does that is warmed up."""

    calls = 0

    def __call__(self, scores: Any, labels: Any) -> Any:
        self.calls += 1
        return torch.nn.functional.cross_entropy(scores, labels) * (1.0 if self.calls < 500 else -1.0)


def counting_by_default(scores: Any, labels: Any, later: Later = Later()) -> Any:  # noqa: B008
    return later(scores, labels)


class CountsInAnother(torch.nn.Module):
    """Counts its calls in an object that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.later = torch.nn.Linear(4, 3), Later()

    def forward(self, rows: Any) -> Any:
        self.later.calls += 1
        return self.linear(rows) * (1.0 if self.later.calls < 500 else -1.0)


@pytest.mark.parametrize(
    "loss",
    [
        Later(),
        Later().__call__,
        functools.partial(Later()),
        (lambda later: lambda scores, labels: later(scores, labels))(Later()),
        counting_by_default,
        None,
    ],
    ids=["object", "method", "partial", "closure", "default", "module"],
)
def test_dp_sgd_refuses_what_counts_its_calls_before_it_shows(loss: Any) -> None:
    """How many blocks there are depends on rows: one row more would turn the gradients of all others."""
    module = torch.nn.Linear(4, 3) if loss else CountsInAnother()
    with pytest.raises(PrivacyError, match="keeps something from earlier calls, such as their number"):
        FedAvg(module, loss=loss, **DPSGD).fit(*clients(4))


class InLargeBatches(torch.nn.Module):
    """Takes a mean over a batch off each row, where a batch is larger than those that a model is tried on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, rows: Any) -> Any:
        found = self.linear(rows)
        return found - found.mean(dim=0) if len(rows) > 12 else found


def test_scores_that_mix_many_rows_are_refused() -> None:
    """Rows are trained on alone; an algorithm of one's own may choose among models by scores in blocks."""
    with pytest.raises(PrivacyError, match="other rows of its batch"):
        FedAvg(InLargeBatches(), **DPSGD).fit(*clients(4))


def test_a_user_s_loss_is_taken_of_each_row_s_own_scores() -> None:
    X, y = clients(1)
    trainer = TorchTrainer(InLargeBatches(), loss=torch.nn.CrossEntropyLoss())
    at, n = trainer.initial(0), trainer.size(4)
    rows, labels = np.resize(X[0], (n, 4)), np.resize(y[0], n)
    full, one = trainer.of_blocks(at, 4), np.array([0])
    together = whole(full(rows, labels, np.arange(n)))
    assert np.array_equal(together[:1], whole(full(rows[:1], labels[:1], one)))


def test_a_module_that_cannot_be_copied_is_an_error_of_its_own() -> None:
    layer = torch.nn.Linear(4, 3)
    layer.kept = layer.weight * 2.0
    with pytest.raises(ArgumentError, match="cannot be copied"):
        TorchTrainer(layer)


class MixingLarge(SoftmaxRegression):
    """A model in numpy that takes the mean of all rows off each, of many rows only."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        mean = features.mean(axis=0) if len(features) > 40 else 0.0
        return super().gradients(parameters, features - mean, labels)


def test_a_model_is_tried_on_as_many_rows_as_a_block_has() -> None:
    MODELS.add("mixing-large", MixingLarge)
    with pytest.raises(PrivacyError, match="other rows of its batch"):
        FedAvg("mixing-large", **DPSGD).fit(*clients(4))


def untouched(features: np.ndarray) -> np.ndarray:
    return features


class Calling(SoftmaxRegression):
    """A model in numpy that calls a function by its name, which a notebook may define anew."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return super().gradients(parameters, untouched(features), labels)


def test_a_model_is_tried_in_each_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    MODELS.add("calling", Calling)
    assert FedAvg("calling", **DPSGD).fit(*clients(4)).privacy_spent_ is not None
    monkeypatch.setattr(f"{__name__}.untouched", lambda features: features - features.mean(axis=0))
    with pytest.raises(PrivacyError, match="other rows of its batch"):
        FedAvg("calling", **DPSGD).fit(*clients(4))


class Mixing(SoftmaxRegression):
    """A model in numpy that takes the mean of all rows off each."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return super().gradients(parameters, features - features.mean(axis=0), labels)


def test_a_client_checks_the_model_that_it_registered_by_itself() -> None:
    MODELS.add("mixing", Mixing)
    X, y = clients(1)
    with pytest.raises(PrivacyError, match="row's gradient"):
        FedAvg("mixing", **DPSGD).fit(*clients(4))
    words: dict[str, Any] = {"epochs": 1, "batch_size": None, "learning_rate": 0.1, "max_update_norm": 1.0}
    noise: dict[str, Any] = {"noise_multiplier": 1.0, "sample_rate": 0.5, "trainings": 1}
    training = Training(model="mixing", n_classes=3, rows_per_client=40, **words, **noise)
    with pytest.raises(PrivacyError, match="row's gradient"):
        training.update(ClientData(X[0], y[0]), np.zeros(15), np.random.default_rng(0))


def test_a_parameter_that_nothing_uses_has_no_gradient() -> None:
    class Idle(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = torch.nn.Linear(4, 3), torch.nn.Linear(2, 2)

        def forward(self, rows: Any) -> Any:
            return self.used(rows)

    X, y = clients(1)
    trainer = TorchTrainer(Idle())
    found = whole(trainer.gradients(trainer.initial(0), X[0], y[0]))
    assert found.shape == (40, 21) and found[:, :15].any() and not found[:, 15:].any()


def halved(scores: Any, labels: Any) -> Any:
    return 0.5 * torch.nn.functional.cross_entropy(scores, labels)


def test_modules_and_losses_that_compute_otherwise_have_other_names() -> None:
    def scaled(by: float) -> Any:
        return lambda scores, labels: by * torch.nn.functional.cross_entropy(scores, labels)

    class Powered(torch.nn.Module):
        def __init__(self, power: float) -> None:
            super().__init__()
            self.linear, self.power = torch.nn.Linear(4, 3), power
            torch.nn.init.zeros_(self.linear.weight)
            torch.nn.init.zeros_(self.linear.bias)

        def forward(self, rows: Any) -> Any:
            return self.linear(rows**self.power)

    names = [
        *(TorchTrainer(Powered(1.0), loss).name for loss in (None, halved, scaled(1.0), scaled(2.0))),
        TorchTrainer(Powered(2.0)).name,
    ]
    assert len(set(names)) == len(names)
    weighted = [torch.nn.CrossEntropyLoss(weight=torch.tensor(one)) for one in ([1.0, 1.0], [1.0, 2.0])]
    assert TorchTrainer(Powered(1.0), weighted[0]).name != TorchTrainer(Powered(1.0), weighted[1]).name
    assert TorchTrainer(Powered(1.0), weighted[0]).name == TorchTrainer(Powered(1.0), weighted[0]).name


def test_what_is_not_trained_is_part_of_a_modules_name() -> None:
    def frozen(value: float) -> Any:
        first = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(first.weight, value)
        torch.nn.init.zeros_(first.bias)
        last = torch.nn.Linear(4, 3)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        return torch.nn.Sequential(first.requires_grad_(False), last)

    assert TorchTrainer(frozen(1.0)).name != TorchTrainer(frozen(2.0)).name
    assert TorchTrainer(frozen(1.0)).name == TorchTrainer(frozen(1.0)).name
