"""How the command starts: it loads what it needs and no more."""

import subprocess
import sys

import pytest

from privfed.cli.main import COMMANDS, main

HEAVY = {"sklearn", "scipy", "tenseal", "matplotlib", "polars", "dp_accounting", "cryptography"}


def loaded(code: str) -> set[str]:
    """Return which heavy packages a process has loaded after some code."""
    said = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint(*{HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


def test_version_and_help_load_nothing_heavy() -> None:
    for option in ("--version", "--help"):
        assert loaded(f"from privfed.cli.main import main; main([{option!r}])") == set()


def test_core_and_errors_do_without_scikit_learn() -> None:
    assert loaded("import privfed.core.federation, privfed.errors") == set()


@pytest.mark.slow
def test_tenseal_is_loaded_with_the_first_encrypted_sum() -> None:
    assert "tenseal" not in loaded("from privfed import DWFKMeans, protocols; protocols.Masked()")
    assert "tenseal" in loaded("from privfed.protocols.registry import by_name; by_name('ckks')")


def test_what_help_says_of_a_command_is_what_the_command_says() -> None:
    assert main.commands
    for name, command in main.commands.items():
        assert (command.name, command.short_help) == (name, COMMANDS[name][2])
