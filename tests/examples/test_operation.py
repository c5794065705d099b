"""The units and the compose file start commands that there are, each as a user of its own."""

from __future__ import annotations

import shlex
from configparser import ConfigParser
from pathlib import Path

import click
import pytest

from privfed.cli.main import main
from tests.command_line import subcommands
from tests.test_documents import ROOT

FOLDER = ROOT / "examples" / "operation"
yaml = pytest.importorskip("yaml")


def command_of(words: list[str]) -> None:
    """Parse a command's words, as the command line does."""
    found: click.Command = main
    context = click.Context(main)
    assert Path(words[0]).name == "privfed"
    for place, word in enumerate(words[1:3]):
        assert isinstance(found, click.Group), words
        found = subcommands(found)[word]
        context = click.Context(found, parent=context, info_name=word)
        rest = words[place + 2 :]
    found.make_context(words[2], list(rest))


@pytest.mark.parametrize("unit", ["privfed-node@.service", "privfed-superlink.service"])
def test_a_unit_runs_a_command_as_a_user_that_may_write_its_folder_only(unit: str) -> None:
    parsed = ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string((FOLDER / unit).read_text())
    service = parsed["Service"]
    words = shlex.split(service["ExecStart"])
    command_of(words)
    assert service["ReadWritePaths"] == words[-1] and service["User"].startswith("privfed-")
    assert service["ProtectSystem"] == "strict" and service["NoNewPrivileges"] == "yes"


def test_each_service_has_a_user_and_a_folder_of_its_own() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert len(services) == 4
    for service in services.values():
        command_of(shlex.split(service["command"]))
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
    for name in ("user", "volumes"):
        assert len({str(one[name]) for one in services.values()}) == 4
