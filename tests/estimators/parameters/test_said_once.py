"""Every parameter of every estimator is documented, and said in one place."""

import ast
import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sklearn.utils.estimator_checks import (
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
)

import privfed
from privfed.cli.settings import own_settings
from privfed.core.names import imported
from privfed.estimators import parameters as shared
from privfed.estimators.declaring import Parameter, parameters_of
from privfed.estimators.registry import DECLARED, ESTIMATORS

SOURCES = sorted(Path(inspect.getfile(privfed)).parent.glob("**/estimators/**/*.py"))
CLASSES = sorted(
    {kind for name in ESTIMATORS if isinstance(kind := ESTIMATORS.find(name), type)}
    | {privfed.FederatedImputer, privfed.FederatedPCA, privfed.FederatedScaler, privfed.FederatedSummary},
    key=lambda kind: kind.__name__,
)
SECTION_9 = [
    *("n_clusters", "local_iter", "local_tol", "learning_rate", "momentum", "tol", "max_iter", "min_iter"),
    *("patience", "n_init", "init", "clients_per_round", "cohorts", "protocol", "privacy", "engine"),
    *("policy", "domain", "run_dir", "random_state"),
]


def test_all_estimators_are_looked_at() -> None:
    assert len(CLASSES) >= 9 and len(SOURCES) >= 15


@pytest.mark.parametrize("kind", CLASSES)
def test_every_parameter_stands_once_in_the_docstring_the_signature_and_get_params(kind: Any) -> None:
    declared = parameters_of(kind)
    doc = inspect.cleandoc(kind.__doc__)
    args = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+): \S", args, re.MULTILINE) == list(declared)
    assert list(inspect.signature(kind).parameters) == list(declared)
    assert kind().get_params() == {name: one.default for name, one in declared.items()}
    assert doc.count("\nArgs:\n") == doc.count("\nAttributes:\n") == 1


@pytest.mark.parametrize("name", DECLARED)
def test_a_short_name_declares_what_its_estimator_declares(name: str) -> None:
    kind = type(ESTIMATORS.find(name)())
    group: Any = imported(DECLARED[name])
    assert issubclass(kind, group)
    own = {
        name
        for base in kind.__mro__
        if base in group.__mro__
        for name in vars(base).get("_own_parameters", {})
    }
    surroundings = {*parameters_of(shared.Surroundings), *parameters_of(shared.Clusters), "metrics", "scale"}
    assert set(parameters_of(kind)) - surroundings == own - surroundings


@pytest.mark.parametrize("kind", CLASSES)
def test_scikit_learn_agrees_with_the_constructor(kind: Any) -> None:
    check_parameters_default_constructible(kind.__name__, kind())
    check_no_attributes_set_in_init(kind.__name__, kind())


def test_the_first_estimator_has_the_words_of_the_design_in_their_order() -> None:
    assert [name for name in parameters_of(privfed.DWFKMeans) if name in SECTION_9] == SECTION_9


def test_shared_parameters_are_equal_unless_a_class_declares_its_own() -> None:
    groups = [one for one in vars(shared).values() if isinstance(one, type) and parameters_of(one)]
    looked_at = 0
    for kind in CLASSES:
        for group in groups:
            nearer = kind.__mro__[: kind.__mro__.index(group)] if issubclass(kind, group) else ()
            own = {name for base in nearer for name in vars(base).get("_own_parameters", {})}
            for name in (parameters_of(group).keys() - own) if nearer else ():
                assert parameters_of(kind)[name] is parameters_of(group)[name], (kind, name)
                looked_at += 1
    assert looked_at >= 80


def test_a_declaration_says_something_that_its_bases_do_not() -> None:
    looked_at = 0
    for kind in {base for one in CLASSES for base in one.__mro__}:
        own: dict[str, Parameter] = vars(kind).get("_own_parameters", {})
        inherited = {k: v for base in reversed(kind.__mro__[1:]) for k, v in parameters_of(base).items()}
        for name in own.keys() & inherited.keys():
            former = inherited[name]
            assert (own[name].text, own[name].default) != (former.text, former.default), (kind, name)
            looked_at += 1
    assert looked_at >= 10


def test_no_text_stands_twice_in_the_source_and_none_beside_its_declaration() -> None:
    texts: Counter[str] = Counter()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or "parameters" not in map(
                ast.unparse, node.decorator_list
            ):
                continue
            assert "Args:" not in (ast.get_docstring(node) or ""), node.name
            assert "__init__" not in [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            texts.update(word.value.value for word in _texts(node))
    assert len(texts) >= 40
    assert [text for text, times in texts.items() if times > 1] == []


def _texts(node: ast.ClassDef) -> list[Any]:
    calls = [
        one for one in ast.walk(node) if isinstance(one, ast.Call) and ast.unparse(one.func) == "parameter"
    ]
    return [word for call in calls for word in call.keywords if word.arg == "text"]


def test_the_command_line_says_what_the_docstrings_say() -> None:
    options = {one.name: str(one.help) for one in own_settings()}
    for name in ("tol", "max_iter", "patience", "n_init", "clients_per_round"):
        summary = parameters_of(privfed.DWFKMeans)[name].summary
        assert options[name].startswith(summary.rstrip(".").partition("`")[0]) or name == "n_init"
        short = summary.rstrip(".").lower()
        assert re.sub(r"\s+", " ", str(privfed.DWFKMeans.__doc__)).lower().count(short) == 1, name


@pytest.mark.slow
def test_a_type_checker_reads_the_constructors(tmp_path: Path) -> None:
    from mypy import api

    (tmp_path / "calls.py").write_text(
        "from privfed import DPKMeans, DWFKMeans, FederatedScaler, WFKMeans\n"
        "DWFKMeans(n_clusters=3, tol=0.0, max_iter=4, engine=None)\n"
        "WFKMeans(3, weights='equal', restart_score='pooled')\n"
        "FederatedScaler('range')\n"
        "DWFKMeans(n_cluster=3)\n"
        "DWFKMeans(3, 4)\n"
        "DPKMeans(3, method='best')\n"
        "DWFKMeans(tol='small')\n"
    )
    found = api.run(["--strict", "--config-file", "pyproject.toml", str(tmp_path / "calls.py")])[0]
    assert {int(line) for line in re.findall(r"calls\.py:(\d+): error", found)} == {5, 6, 7, 8}
