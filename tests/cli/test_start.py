"""How the command starts: it loads what it needs and no more."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from privfed.cli.main import main

HEAVY = {
    "sklearn",
    "scipy",
    "tenseal",
    "matplotlib",
    "polars",
    "dp_accounting",
    "cryptography",
    "numpy",
    "msgspec",
}


def loaded(code: str, watched: set[str] = HEAVY) -> set[str]:
    """Return which of some modules, by default heavy packages, a process has loaded after some code."""
    said = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint(*{watched} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


WALK = """
def walk(one, words=()):
    yield words
    if isinstance(one, click.Group):
        for name in one.list_commands(click.Context(one)):
            yield from walk(one.get_command(click.Context(one), name), (*words, name))
for words in walk(main):
    try:
        main([*words, LAST])
    except SystemExit as ended:
        told.append(ended.code)
"""


@pytest.mark.parametrize(("last", "code"), [("--help", 0), ("--no-such-option", 2)])
def test_every_help_page_and_a_refused_option_of_every_command_load_nothing_heavy(
    last: str, code: int
) -> None:
    walk = WALK.replace("LAST", repr(last)).replace("\n", "\n    ")
    counted = "len(told) > 40 and set(told) == {CODE}".replace("CODE", str(code))
    said = f"import click; from privfed.cli.main import main; told = []{walk}\n    assert {counted}, told"
    # Stages of a fit, tables, attacks and nodes: a page of help is about all of them, and needs none.
    ours = {"privfed.federation.driver", "privfed.attacks.base.interface", "privfed.core.asking.question"}
    assert loaded(said, HEAVY | ours) == set()


@pytest.mark.parametrize("words", [["--version"], ["fit"], ["fit", "none.csv"], ["fly"]], ids=str)
def test_errors_of_use_load_nothing_heavy(words: list[str]) -> None:
    assert loaded(f"from privfed.cli.main import main; main({words!r})") == set()


@pytest.mark.parametrize("group", ["", "budget", "flower", "journal", "keys", "schema"])
def test_a_group_of_commands_alone_prints_its_help(group: str) -> None:
    result = CliRunner().invoke(main, group.split())
    assert result.exit_code == 0
    assert result.stdout == CliRunner().invoke(main, [*group.split(), "--help"]).stdout


def test_a_run_is_shown_without_scikit_learn_and_without_what_only_a_fit_needs(fit_once) -> None:
    fits = {"privfed.core.agreed.policy", "privfed.core.asking.phases", "privfed.core.roles.engine"}
    shown = f"from privfed.cli.main import main; main(['show', {str(fit_once())!r}])"
    assert loaded(shown, HEAVY | fits) == {"numpy", "msgspec"}


def test_a_fit_loads_one_algorithm_and_no_picture() -> None:
    others = {
        "dp_accounting",
        "matplotlib",
        "rich.progress",
        "privfed.algorithms.fuzzy",
        "privfed.algorithms.minibatch",
        "privfed.algorithms.private.kmeans",
        "privfed.estimators.moments",
        "privfed.estimators.selection",
        "privfed.protocols.slotted",
    }
    fit = "import privfed.cli.fitting as fit; from privfed import DWFKMeans"
    assert loaded(fit, others | {"privfed.algorithms.wf_kmeans"}) == {"privfed.algorithms.wf_kmeans"}


def test_rows_in_memory_are_fitted_without_the_libraries_of_tables() -> None:
    fit = "import numpy as np; from privfed import DWFKMeans; DWFKMeans(1).fit(np.eye(3), groups=[0, 1, 2])"
    watched = {"polars", "tomllib", "matplotlib", "privfed.protocols.slotted"}
    assert loaded(fit, {"sklearn", *watched}) == {"sklearn"}


def test_core_and_errors_do_without_scikit_learn() -> None:
    assert loaded("import privfed.federation.driver, privfed.errors") <= {"numpy", "msgspec"}


@pytest.mark.slow
def test_tenseal_is_loaded_with_the_first_encrypted_sum() -> None:
    assert "tenseal" not in loaded("from privfed import DWFKMeans, protocols; protocols.Masked()")
    assert "tenseal" in loaded("from privfed.protocols.secure_sums import by_name; by_name('ckks')")
