"""Saved models are read without pickle, and classify as before."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError, RunFolderError
from tests.deep.estimators.test_private import RECORDS
from tests.deep.estimators.test_private import WORDS as NOISED
from tests.deep.population import clients

WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 3, "learning_rate": 0.5, "domain": Box(0, 1)}
GATHERED: dict[str, Any] = {**WORDS, "protocol": "plain", "merge": "gathered"}


@pytest.mark.parametrize(
    "model",
    [
        FedAvg(**WORDS, protocol="plain"),
        IFCA(n_clusters=2, **WORDS, protocol="plain"),
        CFL(**GATHERED),
        DCFL(**GATHERED, metric="cosine"),
        FedAvg(**NOISED, protocol="plain", privacy=RECORDS),
    ],
    ids=lambda one: f"{type(one).__name__}{'-noised' * (one.privacy is not None)}",
)
def test_a_saved_model_is_the_model(model: Any, tmp_path: Path) -> None:
    X, y = clients(6)
    fitted = model.fit(X, y)
    fitted.save(tmp_path / "model.npz")
    again = privfed.load(tmp_path / "model.npz")
    assert type(again) is type(fitted) and again.n_iter_ == 3 and again.n_features_in_ == 4
    for rows, cluster in zip(X, range(len(fitted.models_)), strict=False):
        assert np.array_equal(again.predict(rows, cluster), fitted.predict(rows, cluster))
    assert all(np.array_equal(*pair) for pair in zip(again.history_, fitted.history_, strict=True))
    assert repr(again.regrouped_) == repr(fitted.regrouped_)
    assert again.privacy_spent_ == fitted.privacy_spent_
    own = {"domain", "privacy", "policy", "engine"}
    plain = [{k: v for k, v in one.get_params().items() if k not in own} for one in (again, fitted)]
    assert plain[0] == plain[1]
    assert not hasattr(again, "labels_") and not hasattr(again, "federation_")


def test_a_model_that_is_not_fitted_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not fitted"):
        FedAvg().save(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sizes", np.array([1.0, 1.0])),
        ("models", np.full((1, 15), np.nan)),
        ("models", np.zeros((1, 15))),
        ("models", np.zeros((1, 15), dtype=np.float32)),
        ("regrouped", np.zeros((2, 2))),
        ("facts", {"class": "builtins.dict"}),
        ("facts", {"model": 3}),
        ("facts", {"n_classes": 9}),
    ],
)
def test_a_damaged_file_is_an_error_and_never_code(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    FedAvg(**WORDS, protocol="plain").fit(*clients(4)).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    if name == "facts":
        value = np.frombuffer(json.dumps(json.loads(arrays[name].tobytes()) | value).encode(), np.uint8)
    np.savez(path, **{**arrays, name: value})
    with pytest.raises((RunFolderError, ArgumentError)):
        privfed.load(path)


class Mine(FedAvg):
    """A class of a user."""


def test_a_class_of_ones_own_is_passed(tmp_path: Path) -> None:
    Mine(**WORDS, protocol="plain").fit(*clients(4)).save(tmp_path / "model.npz")
    with pytest.raises(RunFolderError, match="pass the class itself"):
        privfed.load(tmp_path / "model.npz")
    assert isinstance(privfed.load(tmp_path / "model.npz", estimators=[Mine]), FederatedModel)
