"""A stranger's module, loss, optimizer and metric, beside torch without privfed."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

import privfed  # noqa: E402
from privfed.core.asking.question import ClientData  # noqa: E402
from privfed.core.values.domain import Box  # noqa: E402
from privfed.deep import DCFL, IFCA, MODELS, FedAvg  # noqa: E402
from privfed.deep.training.local import Training  # noqa: E402
from privfed.deep.training.probing import private_trainer_of  # noqa: E402
from privfed.deep.training.torch_trainer import TorchTrainer  # noqa: E402
from privfed.errors import ArgumentError, DataError, PrivacyError  # noqa: E402
from tests.deep.population import clients  # noqa: E402
from tests.deep.torch.test_torch_trainer import RECORDS  # noqa: E402
from tests.raised import parameter_refused  # noqa: E402
from tests.some import some  # noqa: E402

WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 3,
    "epochs": 4,
    "batch_size": None,
    "learning_rate": 0.05,
    "max_update_norm": 1000.0,
    "domain": Box(0, 1),
    "protocol": "plain",
    "weighting": "clients",
}
DPSGD = {**WORDS, "domain": None, "privacy": RECORDS, "rows_per_client": 40, "sample_rate": 0.5}


class Gated(torch.nn.Module):  # type: ignore[misc]
    """A module as a stranger writes it: layers, a constant that is no parameter, and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 16), torch.nn.Linear(16, 3)
        self.norm = torch.nn.LayerNorm(16)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 4))

    def forward(self, rows: Any) -> Any:
        hidden = self.norm(torch.nn.functional.gelu(self.first(rows * self.scale)))
        return self.last(hidden + hidden.sigmoid())


def focal(scores: Any, labels: Any) -> Any:
    losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    return ((1.0 - torch.exp(-losses)) ** 2 * losses).mean()


def bare(start: np.ndarray, trainer: TorchTrainer, optimizer: Any, X: Any, y: Any) -> np.ndarray:
    """What torch alone makes of a round: each client's own optimizer from one start, then the mean."""
    ends = []
    for rows, labels in zip(X, y, strict=True):
        trainer._set(start)
        module = trainer._module
        steps = optimizer(module.parameters(), lr=WORDS["learning_rate"])
        for _ in range(WORDS["epochs"]):
            steps.zero_grad()
            focal(module(torch.tensor(rows, dtype=torch.float32)), torch.tensor(labels)).backward()
            steps.step()
        ends.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    return np.mean(ends, axis=0)


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.SGD, momentum=0.9, weight_decay=0.01), torch.optim.AdamW],
    ids=["m", "a"],
)
def test_rounds_are_those_of_bare_torch_with_an_optimizer_of_each_training(optimizer: Any) -> None:
    X, y = clients(3)
    fitted = FedAvg(Gated(), loss=focal, optimizer=optimizer, **WORDS).fit(X, y)
    trainer, at = TorchTrainer(Gated(), focal), fitted.history_[0][0]
    for after in some(fitted.history_[1:]):
        at = bare(at, trainer, optimizer, X, y)
        assert np.allclose(at, after[0], atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_computes_in_its_own_type_and_messages_are_float64(dtype: Any) -> None:
    seen = set()

    class Watched(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, rows: Any) -> Any:
            seen.add(rows.dtype)
            return super().forward(rows)

    X, y = clients(2)
    fitted = FedAvg(Watched(4, 3, dtype=dtype), **{**WORDS, "rounds": 1}).fit(X, y)
    assert seen == {dtype} and fitted.models_.dtype == np.float64


def test_a_client_without_rows_moves_a_float32_model_by_nothing() -> None:
    start = np.full(15, 0.1)  # No number of float32.
    trainer = TorchTrainer(torch.nn.Linear(4, 3))
    nothing = np.zeros((0, 4)), np.zeros(0, dtype=np.int64)
    assert np.array_equal(trainer.trained(start, *nothing, [], 0.1), start)


def test_dp_sgd_takes_the_steps_of_an_optimizer_on_noised_gradients() -> None:
    X, y = clients(2)
    words = {**DPSGD, "rounds": 1, "noise_multiplier": 3.0, "learning_rate": 0.25}
    signs = partial(torch.optim.Rprop, step_sizes=(0.25, 0.25))  # Each step is of this length.
    fitted = FedAvg(torch.nn.Linear(4, 3), optimizer=signs, **words).fit(X, y)
    moved = 2 * np.abs(fitted.models_[0] - fitted.history_[0][0]) / 0.25
    assert np.allclose(moved, np.round(moved), atol=1e-5) and moved.any()
    with pytest.raises(ArgumentError, match="decay=0"):
        DCFL(torch.nn.Linear(4, 3), optimizer=signs, merge="gathered", **words).fit(X, y)


def test_off_the_processor_dp_sgd_asks_for_deterministic_algorithms() -> None:
    """No other device is here: torch's own name of one stands for it."""
    trainer = TorchTrainer(torch.nn.Linear(4, 3))
    trainer._device = torch.device("meta")
    with pytest.raises(PrivacyError, match=r"on meta torch may add .*use_deterministic_algorithms\(True\)"):
        trainer._of_rows(4)


def needs_more(parameters: Any, lr: float) -> Any:
    return torch.optim.LBFGS(parameters, lr=lr)


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "closure": (torch.nn.Linear(4, 3), {"optimizer": needs_more}, "optimizer cannot take a step: .*closure"),
    "no lr": (torch.nn.Linear(4, 3), {"optimizer": lambda parameters: None}, "optimizer cannot take.*'lr'"),
    "softmax": ("softmax", {"optimizer": torch.optim.SGD}, "optimizer goes with a torch module"),
    "half": (torch.nn.Linear(4, 3).half(), {}, r"got torch.float16 on cpu. Pass module.float\(\)"),
    "mixed": (torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3).double()), {}, "float32 on c"),
}


@pytest.mark.parametrize("training", [WORDS, DPSGD], ids=["plain", "dp-sgd"])
@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_before_anybody_trains(name: str, training: dict[str, Any]) -> None:
    module, words, said = WRONG[name]
    model = FedAvg(module, **words, **training)
    with pytest.raises(ArgumentError, match=said):
        model.fit(*clients(2))
    assert not hasattr(model, "federation_")


def test_optimizers_are_part_of_a_models_name() -> None:
    module = torch.nn.Linear(4, 3)
    optimizers = [None, torch.optim.SGD, torch.optim.Adam]
    optimizers += [partial(torch.optim.SGD, momentum=one) for one in (0.5, 0.9)]
    names = [TorchTrainer(module, None, one).name for one in optimizers]
    assert len(set(names)) == len(names)
    assert TorchTrainer(module, None, partial(torch.optim.SGD, momentum=0.9)).name == names[-1]
    assert TorchTrainer(copy.deepcopy(module).double()).name != names[0]


def test_a_score_is_the_accuracy_or_a_metric_of_ones_own() -> None:
    X, y = clients(2)
    fitted = FedAvg(Gated(), **WORDS).fit(X, y)
    found = fitted.predict(X[0])
    assert fitted.score(X[0], y[0]) == np.mean(found == y[0])
    own = fitted.score(X[0], y[0], metric=balanced_accuracy_score)
    assert own == balanced_accuracy_score(y[0], found)
    with parameter_refused("y"):
        fitted.score(X[0], y[0][:3])


def fixed_and_pretrained() -> Any:
    torch.manual_seed(5)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    module[0].requires_grad_(False)
    return module


def test_layers_that_are_not_trained_stay_as_the_user_made_them() -> None:
    X, y = clients(3)
    module = fixed_and_pretrained()
    trainer = TorchTrainer(module)
    trainer.initial(1)
    assert torch.equal(trainer._module[0].weight, module[0].weight)
    fitted = FedAvg(module, **WORDS).fit(X, y)
    assert torch.equal(fitted._trainer()._module[0].weight, module[0].weight)


def test_a_loaded_model_refuses_a_module_with_other_fixed_numbers(tmp_path: Any) -> None:
    X, y = clients(3)
    fitted = FedAvg(fixed_and_pretrained(), **WORDS).fit(X, y)
    fitted.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    # As in another process, where the module is not registered.
    loaded._training_ = replace(loaded._training_, model="torch-elsewhere")
    other = fixed_and_pretrained()
    torch.nn.init.zeros_(other[0].weight)
    with pytest.raises(ArgumentError, match="another one than was trained"):
        loaded.set_params(model=other).predict(X[0])
    found = loaded.set_params(model=fixed_and_pretrained()).predict(X[0])
    assert np.array_equal(found, fitted.predict(X[0]))


def test_a_loaded_model_joins_by_the_loss_and_optimizer_of_its_fit_only(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = clients(6)
    own: dict[str, Any] = {"loss": focal, "optimizer": partial(torch.optim.SGD, momentum=0.9)}
    fitted = DCFL(Gated(), **own, **WORDS, merge="gathered").fit(X, y)
    fitted.save(tmp_path / "model.npz")
    joined, found = [fitted.join(X[i], y[i]) for i in range(6)], fitted.predict(X[0], 0)
    assert len(set(joined)) > 1
    again = privfed.load(tmp_path / "model.npz")
    assert [again.join(X[i], y[i]) for i in range(6)] == joined
    # In another process nothing is registered.
    monkeypatch.setattr(MODELS, "_things", {})
    again = privfed.load(tmp_path / "model.npz").set_params(model=Gated())
    assert np.array_equal(again.predict(X[0], 0), found)
    with pytest.raises(ArgumentError, match=r"by cross-entropy and SGD; the fit was by focal .* and SGD "):
        again.join(X[0], y[0])
    assert [again.set_params(**own).join(X[i], y[i]) for i in range(6)] == joined


class Weighted:
    """A loss that is an object of a user's class."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, scores: Any, labels: Any) -> Any:
        return self.weight * torch.nn.functional.cross_entropy(scores, labels)


def test_losses_that_compute_alike_share_a_name_and_others_do_not() -> None:
    """Also where the text of an object is its address, or tensors are held."""
    module = torch.nn.Linear(4, 3)
    entropy = torch.nn.functional.cross_entropy
    weights = [partial(entropy, weight=torch.tensor([1.0, 1.0, one])) for one in (1.0, 2.0, 1.0)]
    for first, other, same in (weights, [Weighted(1.0), Weighted(2.0), Weighted(1.0)]):
        names = [TorchTrainer(module, one).name for one in (first, other, same)]
        assert names[0] == names[2] != names[1]


def test_training_begins_at_given_parameters_where_it_is_asked_to() -> None:
    X, y = clients(3)
    module = fixed_and_pretrained()
    given = TorchTrainer(module).given
    start = FedAvg(module, **WORDS, start="given").fit(X, y).history_[0]
    assert np.array_equal(start[0], given)
    assert not np.array_equal(FedAvg(module, **WORDS).fit(X, y).history_[0][0], given)
    for model, kind in (("softmax", FedAvg), (module, IFCA)):
        with pytest.raises(ArgumentError, match='start="given" is for one model'):
            kind(model, **WORDS, start="given").fit(X, y)


@pytest.mark.parametrize("weighted", [0, 11])
def test_dp_sgd_refuses_class_weights_that_one_row_does_not_show(weighted: int) -> None:
    X, y = clients(3)
    weight = torch.ones(12)
    weight[weighted] = 50.0
    words = {**DPSGD, "n_classes": 12}
    module = torch.nn.Linear(4, 12)
    with pytest.raises(PrivacyError, match="Multiply each row's loss"):
        FedAvg(module, loss=torch.nn.CrossEntropyLoss(weight=weight), **words).fit(X, y)

    def each(scores: Any, labels: Any) -> Any:
        return (weight[labels] * torch.nn.functional.cross_entropy(scores, labels, reduction="none")).mean()

    assert FedAvg(module, loss=each, **words).fit(X, y).privacy_spent_ is not None


def test_dropout_that_is_off_is_said() -> None:
    X, y = clients(3)
    module = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 3))
    with pytest.warns(UserWarning, match=r"Dropout\(p=0.2.* is off, since training must repeat"):
        FedAvg(module, **WORDS).fit(X, y)


def test_a_model_that_diverges_is_in_the_clients_own_log() -> None:
    X, y = clients(1)
    client = ClientData(X[0], y[0])
    trainer = TorchTrainer(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
    training = Training(model=trainer.register(), n_classes=3, epochs=50, learning_rate=1e30)
    moved = training.update(client, trainer.initial(0), np.random.default_rng(0))
    assert not moved.any()
    assert "lower the learning rate" in str(client.errors[0])


def test_rows_without_clients_and_labels_are_refused_before_anything_is_asked() -> None:
    X, y = clients(3)
    with pytest.raises(ArgumentError, match="pass y and X as lists"):
        FedAvg("softmax", **WORDS).fit(np.vstack(X), np.concatenate(y))
    with pytest.raises(DataError, match=r"got shape \(40, 2, 2\)"):
        FedAvg("softmax", **WORDS).fit([rows.reshape(-1, 2, 2) for rows in X], y)


def test_scores_of_labels_that_are_no_numbers_are_errors() -> None:
    X, y = clients(3)
    fitted = FedAvg("softmax", **WORDS).fit(X, y)
    with parameter_refused("y"):
        fitted.score(X[0], y[0].astype(str))
    with parameter_refused("metric"):
        fitted.score(X[0], y[0], metric="f1")


def test_lazy_layers_and_classes_in_place_of_modules_are_errors() -> None:
    with pytest.raises(ArgumentError, match="lazy layers"):
        TorchTrainer(torch.nn.LazyLinear(3))
    with parameter_refused("model"):
        TorchTrainer(Gated)


@pytest.mark.parametrize("weighted", [0, 150, 300, 599])
def test_dp_sgd_refuses_a_weight_of_any_of_many_classes(weighted: int) -> None:
    module, weight = torch.nn.Linear(4, 600), torch.ones(600)
    assert private_trainer_of(TorchTrainer(module).register(), 4, 600).n_parameters == 3000
    weight[weighted] = 2.0
    name = TorchTrainer(module, torch.nn.CrossEntropyLoss(weight=weight)).register()
    with pytest.raises(PrivacyError, match="class weights"):
        private_trainer_of(name, 4, 600)
