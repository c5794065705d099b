"""Weightings of users: a name means one function, and what a run is resumed with is what it began with."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import WFKMeans
from privfed.algorithms.weightings import (
    declared_name,
    known_weightings,
    register_weighting,
    weighting,
)
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.errors import ArgumentError, MessageError, ResumeError

SOURCE = """
import numpy as np
from privfed import weighting

@weighting(version={version})
def capped(update):
    return np.minimum(update.counts, {cap})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a function that writes a user's module anew, under a name of this test, and imports it."""
    name = f"users_weights_{abs(hash(request.node.nodeid)):x}"
    monkeypatch.syspath_prepend(tmp_path)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode

    def written(version: int = 1, cap: int = 3) -> Any:
        (tmp_path / f"{name}.py").write_text(SOURCE.format(version=version, cap=cap))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield written
    sys.modules.pop(name, None)
    sys.dont_write_bytecode = before


def fit(blobs: list[np.ndarray], weights: Any, **words: Any) -> WFKMeans:
    model = WFKMeans(3, weights=weights, init=blobs[0][:3], max_iter=2, tol=0, protocol="plain", **words)
    model.fit(blobs)
    return model


def first_round(model: WFKMeans) -> Any:
    asked = [one for one in model.transcript_.of(Asked) if one.purpose == "round"]
    return question_from_bytes(asked[0].question)


def test_a_second_models_function_does_not_change_what_the_first_ones_question_is_answered(
    blobs: list[np.ndarray],
) -> None:
    ones, twos = (fit(blobs, lambda update, to=to: np.full(3, to)) for to in (1.0, 2.0))
    for model, weight in ((ones, 1.0), (twos, 2.0)):
        answer = first_round(model).answer(ClientData(blobs[0]), np.random.default_rng(0))
        np.testing.assert_array_equal(answer["weight"], np.full(3, weight))
    assert first_round(ones).weights != first_round(twos).weights
    assert not any("process" in name for name in known_weightings())


@pytest.mark.parametrize("kind", ["lambda", "nested", "no version"])
def test_a_function_of_one_process_is_not_for_run_folders(
    kind: str, blobs: list[np.ndarray], tmp_path: Path
) -> None:
    def nested(update: Any) -> np.ndarray:
        return np.asarray(update.counts)

    function = {"lambda": lambda update: update.counts, "nested": nested, "no version": at_the_top}[kind]
    fit(blobs, function)
    with pytest.raises(ArgumentError, match=r"in this process only.*@privfed.weighting\(version=1\)"):
        fit(blobs, function, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def at_the_top(update: Any) -> np.ndarray:
    return np.asarray(update.counts)


def test_a_declared_function_goes_by_module_name_and_version(
    blobs: list[np.ndarray], module: Any, tmp_path: Path
) -> None:
    users = module()
    model = fit(blobs, users.capped, run_dir=tmp_path / "run")
    name = f"{users.__name__}:capped@1"
    assert declared_name(users.capped) == name == first_round(model).weights
    assert f'"weights": "{name}"' in model.transcript_.configuration.algorithm
    by_name = fit(blobs, name)
    np.testing.assert_array_equal(by_name.cluster_centers_, model.cluster_centers_)
    model.save(tmp_path / "model.npz")
    assert privfed.load(tmp_path / "model.npz").weights == name


def test_a_run_is_resumed_under_the_version_that_it_began_with(
    blobs: list[np.ndarray], module: Any, tmp_path: Path
) -> None:
    first = fit(blobs, module().capped, run_dir=tmp_path / "run")
    same = module().capped
    resumed = WFKMeans(**{**first.get_params(), "weights": same}).resume(blobs)
    np.testing.assert_array_equal(resumed.cluster_centers_, first.cluster_centers_)
    with pytest.raises(ResumeError):
        WFKMeans(**{**first.get_params(), "weights": module(version=2, cap=5).capped}).resume(blobs)
    with pytest.raises(ResumeError):
        WFKMeans(**{**first.get_params(), "weights": "equal"}).resume(blobs)


def test_other_code_under_the_same_version_is_an_error(module: Any) -> None:
    module(cap=3)
    with pytest.raises(ArgumentError, match=r"another function.*Raise its version"):
        module(cap=4)
    module(version=2, cap=4)


def test_no_name_makes_anybody_import_a_module(blobs: list[np.ndarray], module: Any, tmp_path: Path) -> None:
    users = module()
    question = first_round(fit(blobs, users.capped)).to_bytes()
    unknown = question.replace(b":capped@1", b":capped@7")
    with pytest.raises(MessageError):
        question_from_bytes(unknown)
    (tmp_path / "never_imported.py").write_text("raise SystemError('imported')")
    with pytest.raises(ArgumentError, match="in a module that was imported"):
        fit(blobs, "never_imported:capped@1")


@pytest.mark.parametrize("version", [0, -1, 1.5, "1", True, None])
def test_versions_are_whole_numbers(version: Any) -> None:
    with pytest.raises(ArgumentError, match="version must be a whole number"):
        weighting(version=version)


def test_what_cannot_be_imported_has_no_version() -> None:
    with pytest.raises(ArgumentError, match="cannot be imported elsewhere"):
        weighting(version=1)(lambda update: update.counts)


def test_the_papers_weightings_keep_their_names() -> None:
    with pytest.raises(ArgumentError, match="'dynamic' is known already"):
        register_weighting("dynamic", lambda update: update.counts)
