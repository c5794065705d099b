"""Errors speak the command line's words: parameters of the library by the options that set them."""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import privfed
from privfed import DPKMeans, attacks, protocols
from privfed.cli.main import main
from privfed.cli.options import word_options
from privfed.cli.speaking import Part, said, spellings, spoken
from privfed.estimators.registry import ESTIMATORS, SHORT, TRAINED
from tests.cli.conftest import PYTHON
from tests.some import some

FIT = main.commands["fit"]
NOT_ON_RUNS = ("tradeoff", "compare", "demo", "keys", "journal", "flower")
ON_RUNS = [name for name in main.commands if name not in NOT_ON_RUNS]


def options_of(name: str) -> Iterator[tuple[str, str]]:
    for option in main.commands[name].params:
        if isinstance(option, click.Option):
            for parameter in (option.name, *(option.part_of if isinstance(option, Part) else ())):
                yield str(parameter), max(option.opts, key=len)


@pytest.mark.parametrize("command", ON_RUNS)
def test_an_error_that_names_a_parameter_names_the_option_that_sets_it(command: str) -> None:
    for parameter, option in some(options_of(command)):
        for text in (f"{parameter} must be 1, got {parameter}=2.", f"take another one ({parameter}=3)."):
            found = said(text, main.commands[command], FIT)
            assert option in found and not re.search(rf"(?<!-)\b{parameter}\b[= ]", found), found


def test_options_of_an_estimator_are_called_like_its_parameters() -> None:
    words = {name for one in (*SHORT, *TRAINED) for name in ESTIMATORS.find(one)().get_params(deep=False)}

    @word_options
    def command() -> None: ...

    declared = {option.name for option in click.command()(command).params}
    assert len(declared) > 15 and declared <= words
    composite = {name for option in FIT.params if isinstance(option, Part) for name in option.part_of}
    assert composite == {"domain", "privacy", "client_names", "n_classes"}
    assert {"domain", "privacy", "n_classes"} <= words and "client_names" in inspect.signature(
        DPKMeans.fit
    ).parameters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "n_clusters must be at least 1, got n_clusters=0.",
            "--n-clusters must be at least 1, got --n-clusters 0.",
        ),
        (
            "m must lie in (1, 9], got m=1.0; the papers take m=2.",
            "--fuzzifier must lie in (1, 9], got --fuzzifier 1.0; the papers take --fuzzifier 2.",
        ),
        ('init="kfed" found nothing; use init="coreset".', "--init kfed found nothing; use --init coreset."),
        ("got separator=';;'; leave it out", "got --separator ';;'; leave it out"),
        (
            "group and label must be two columns, got 'g' for both.",
            "--group and --label must be two columns, got 'g' for both.",
        ),
        ("one a client (columns=).", "one a client (--columns)."),
        (
            'use epochs=1 and batch_size=None, DPKMeans, or unit="client".',
            "use --epochs 1 and no --batch-size, --algorithm dp, or --unit client.",
        ),
        ("use DWFKMeans(local_iter=1).", "use --algorithm dwf --local-iter 1."),
        (
            "it needs privacy=Privacy(...).",
            "it needs --epsilon, --delta, --unit and --neighbours, --low and --high.",
        ),
        ("keep a share with Privacy(spare=...).", "keep a share with --spare."),
        (
            "low must be below high in each feature, got low=8.0, high=-1.5.",
            "--low must be below high in each feature, got --low 8.0, --high -1.5.",
        ),
        (
            "batch_size must be at least 1 or None, got batch_size=0.",
            "--batch-size must be at least 1, got --batch-size 0.",
        ),
        ("more than the rows, n_samples=3.", "more than the rows, n samples 3."),
        # What is no parameter stays what it is: files, columns, other words.
        (
            "/data/tol=0.1/n_init.csv has no column 'max_iter'.",
            "/data/tol=0.1/n_init.csv has no column 'max_iter'.",
        ),
        ("n_init.csv has two columns called 'a'.", "n_init.csv has two columns called 'a'."),
        ("hospital=1.csv does not exist.", "hospital=1.csv does not exist."),
        (
            "the group column has noise; the unit is a record.",
            "the group column has noise; the unit is a record.",
        ),
        (
            'use merge="summed", or (in Python) protocol=Slotted(Masked(), sums=3).',
            "use --merge summed, or (in Python) protocol=Slotted(Masked(), sums=3).",
        ),
    ],
)
def test_words_of_fit(text: str, expected: str) -> None:
    assert said(text, FIT, FIT) == expected


def test_a_prior_is_what_the_attack_command_calls_public() -> None:
    text = "pass rows, Prior(sample=...), or their ends, Prior(low=..., high=...)."
    assert said(text, main.commands["attack"], FIT) == "pass rows, --public, or their ends, --low, --high."
    # A command that has none of it leaves it to Python.
    assert spoken(text, spellings(main.commands["show"])) == text


def messages() -> Iterator[str]:
    """Yield every message that the library raises; what is filled in is 7."""
    for package in (privfed, attacks, protocols):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                    yield from _text(node.exc.args[0])


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)


def test_no_message_of_the_library_names_a_parameter_of_a_command_in_python() -> None:
    found, spelled = list(messages()), spellings(FIT)
    assert len(found) > 300
    left = rf"(?<![-\w])({'|'.join(map(re.escape, spelled))})="
    spoken_of = 0
    for text in found:
        now = said(text, FIT, FIT).partition("in Python")[0]
        spoken_of += now != text
        assert not re.search(left, now), now
        for name in spelled:
            assert "_" not in name or not re.search(rf"(?<![\w('-]){name}\b(?![.'])", now), now
    assert spoken_of > 80


def test_the_pattern_of_python_finds_it() -> None:
    for text in ("got n_init=0", "pass Prior(sample=...)", "take fewer n_clusters", "(client=)"):
        assert re.search(PYTHON, text), text
    for text in ("--n-init 0", "/tmp/a=b/n_init", "no column 'max_iter'", "select_k.csv", "0 <= 5"):
        assert not re.search(PYTHON, text), text


def test_warnings_are_one_line_each_in_the_same_words(invoke, iris, tmp_path) -> None:
    claim = [
        "--epsilon",
        "20",
        "--delta",
        "1e-6",
        "--unit",
        "record",
        "--neighbours",
        "add-remove",
        "--low",
        "0",
        "--high",
        "8",
    ]
    words = ["fit", iris, "--group", "hospital", "--clients", "h1,h2,h3,h4,h5,h6", *claim]
    words += ["--columns", "petal length", "--algorithm", "dp"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = invoke(*words, "--quiet", "--out", tmp_path / "run").stderr
    assert shown == "privfed: warning: --epsilon 20.0 promises very little; usual are 0.1 to 10.\n"
