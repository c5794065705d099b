"""What does not fit is said in one line before anybody trains: modules, losses, labels, rows, saved files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra deep: make install-deep")
pytest.importorskip("opacus", reason="needs the extra deep: make install-deep")

from privfed import load  # noqa: E402
from privfed.deep import IFCA, FedAvg  # noqa: E402
from privfed.deep.training.trainer import MODELS  # noqa: E402
from privfed.errors import ArgumentError, DataError, PrivFedError  # noqa: E402
from tests.deep.population import clients  # noqa: E402
from tests.deep.torch.test_torch_trainer import RECORDS, WORDS  # noqa: E402

DPSGD = {**WORDS, "domain": None, "privacy": RECORDS, "noise_multiplier": 5.0, "rows_per_client": 40}


class Flat(torch.nn.Module):  # type: ignore[misc]
    """One number a row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, rows: Any) -> Any:
        return self.linear(rows)[:, 0]


def doubtful(scores: Any, labels: Any) -> Any:
    raise RuntimeError("first line\nsecond line")


CROSS = torch.nn.CrossEntropyLoss
WRONG: dict[str, tuple[Any, Any, str]] = {
    "features": (torch.nn.Linear(5, 3), None, "cannot take rows of 4 features: "),
    "too few scores": (torch.nn.Linear(4, 2), None, r"output of shape \(2, 2\), not \(2, 3\)"),
    "too many scores": (torch.nn.Linear(4, 5), None, r"\(n_classes=3\): .*shape \(2, 5\), not \(2, 3\)"),
    "one number a row": (Flat(), None, r"output of shape \(2,\), not"),
    "sum": (torch.nn.Linear(4, 3), CROSS(reduction="sum"), 'must be the mean over rows, .*reduction="mean"'),
    "no sum at all": (torch.nn.Linear(4, 3), CROSS(reduction="none"), "cannot be computed on rows of 4"),
    "own error": (torch.nn.Linear(4, 3), doubtful, "features: first line$"),
}


@pytest.mark.parametrize("words", [WORDS, DPSGD], ids=["plain", "dp-sgd"])
@pytest.mark.parametrize("name", WRONG)
def test_modules_and_losses_that_do_not_fit_are_said_before_anybody_trains(
    name: str, words: dict[str, Any]
) -> None:
    module, loss, said = WRONG[name]
    model = FedAvg(module, loss=loss, **words)
    with pytest.raises(PrivFedError, match=said) as raised:
        model.fit(*clients(3))
    assert isinstance(raised.value, ArgumentError) and "\n" not in str(raised.value)
    assert not hasattr(model, "federation_")


def test_a_mean_with_weights_of_classes_is_a_mean() -> None:
    weighted = CROSS(weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert (
        FedAvg(torch.nn.Linear(4, 3), loss=weighted, **{**WORDS, "rounds": 1}).fit(*clients(3)).n_iter_ == 1
    )


def test_labels_beyond_the_classes_are_listed_with_their_client() -> None:
    X, y = clients(3)
    y[1] = y[1] * 4 - 1  # -1, 3 and 7.
    with pytest.raises(DataError, match=r"client 1 has \d+ rows .* 0 to 2, but -1, 3, 7; pass n_classes="):
        FedAvg(**WORDS).fit(X, y)
    with pytest.raises(DataError, match=r"client 0 has \d+ rows .* 0 to 1, but 2; pass n_classes="):
        FedAvg(protocol="plain").fit(*clients(3))
    y[1] = np.arange(40) + 3
    with pytest.raises(DataError, match=r"but 3, 4, 5, 6, 7, 8, 9, 10, \.\.\.;"):
        FedAvg(**WORDS).fit(X, y)


ODD: dict[str, tuple[Any, str]] = {
    "one row": (np.zeros(4), r"shape \(n_rows, 4\).*; got shape \(4,\)"),
    "other features": (np.zeros((2, 3)), r"got shape \(2, 3\)"),
    "three axes": (np.zeros((2, 3, 4)), "several tables"),
    "several tables": ([np.zeros((2, 4)), np.zeros((2, 4))], "several tables"),
    "text": (np.array([["a", "b", "c", "d"]]), "X must be a number, or an array of numbers"),
    "NaN": (np.array([[0.0, np.nan, 0, 0], [0, 0, 0, 0], [0, 0, 0, np.inf]]), "2 rows of X hold NaN or inf"),
}


@pytest.mark.parametrize("model", ["softmax", torch.nn.Linear(4, 3)], ids=["softmax", "torch"])
def test_rows_that_cannot_be_classified_are_said(model: Any) -> None:
    X, y = clients(3)
    fitted = FedAvg(model, **{**WORDS, "rounds": 1}).fit(X, y)
    for rows, said in ODD.values():
        with pytest.raises(PrivFedError, match=said) as raised:
            fitted.predict(rows)
        assert "\n" not in str(raised.value)
    timed = [np.hstack([rows, np.tile([0.0, 9.0], (40, 1))]) for rows in X]
    fitted = FedAvg(model, timed=True, **{**WORDS, "rounds": 1}).fit(timed, y)
    with pytest.raises(ArgumentError, match="trained on, without times; got shape"):
        fitted.predict(timed[0])
    assert fitted.predict(X[0]).shape == fitted.predict(X[0].tolist()).shape == (40,)


def test_of_several_models_one_is_named() -> None:
    X, y = clients(6)
    fitted = IFCA(n_clusters=2, **WORDS).fit(X, y)
    with pytest.raises(ArgumentError, match=r"there are 2 models.*predict\(X, cluster=0\)"):
        fitted.predict(X[0])
    for cluster, model in enumerate(fitted.models_):
        assert np.array_equal(fitted.predict(X[0], cluster), fitted.classify(model, X[0]))


def test_a_saved_model_takes_a_module_of_the_same_layers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(between: Any, first: int = 4) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(first, 8), between, torch.nn.Linear(8, 3))

    X, y = clients(3)
    fitted = FedAvg(made(torch.nn.Tanh()), **{**WORDS, "rounds": 1}).fit(X, y)
    fitted.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert np.array_equal(again.predict(X[0]), fitted.predict(X[0]))
    # In another process nothing is registered.
    monkeypatch.setattr(MODELS, "_things", {})
    for other, said in (
        (made(torch.nn.ReLU()), "another one than was trained: Sequential.*ReLU.*trained one is .*Tanh"),
        (made(torch.nn.Tanh(), first=5), "cannot take rows of 4 features"),
        (torch.nn.Linear(4, 3), r"Linear\(in_features=4, .* of 15 parameters"),
        (3, "model must be a registered name, or a torch module.*; got 3"),
    ):
        again = load(tmp_path / "model.npz").set_params(model=other)
        with pytest.raises(ArgumentError, match=said) as raised:
            again.predict(X[0])
        assert "\n" not in str(raised.value)
    again = load(tmp_path / "model.npz").set_params(model=made(torch.nn.Tanh()))
    again.save(tmp_path / "again.npz")
    assert np.array_equal(
        load(tmp_path / "again.npz").set_params(model=made(torch.nn.Tanh())).predict(X[0]),
        fitted.predict(X[0]),
    )
