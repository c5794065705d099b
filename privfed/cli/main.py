"""The command `privfed`: its subcommands, and one clear line for every error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from typing import Any

import click

from privfed import __version__
from privfed.cli.folder.disk import is_full
from privfed.cli.speaking import said
from privfed.errors import PrivFedError

COMMANDS = {
    "attack": ("attack", "attack", "Attack a run: what could be learned from what was seen."),
    "audit": ("audit", "audit", "Test a privacy claim against what came out."),
    "compare": ("compare", "compare", "Show what changed between two studies."),
    "demo": ("demo", "demo", "Cluster digits over plain and over masked sums."),
    "fit": ("fit", "fit", "Cluster the clients of a table."),
    "flower": ("flower", "flower", "Run over several machines, by Flower."),
    "journal": ("journal", "journal", "Print or export what a party has given, or end a fit."),
    "keys": ("keys", "keys", "Make a party's identity, and the list of all parties."),
    "predict": ("reading", "predict", "Print the cluster of each row of a table."),
    "resume": ("fit", "resume", "Finish a run that was stopped."),
    "select-k": ("select", "select_k", "Choose the number of clusters."),
    "show": ("reading", "show", "Print what ran, and what the server saw."),
    "summary": ("summary", "summary", "Count rows; means, deviations and histograms of the columns."),
    "tradeoff": ("tradeoff", "tradeoff", "Run a study of utility, privacy, leakage and cost."),
}
"""Command -> its module in `privfed.cli.commands`, its name there, and its help."""

_BAD_INPUT, _STOPPED = 2, 130


class _Commands(MutableMapping[str, click.Command]):
    """Maps names to commands; each is imported when it is first used."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, attribute, _ = COMMANDS[name]
            self._loaded[name] = vars(import_module(f"privfed.cli.commands.{module}"))[attribute]
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*COMMANDS, *self._loaded)))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Program(click.Group):
    """Groups the commands; prints errors as one line on stderr, with exit code 2, or 130 if stopped."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self.commands = _Commands()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(COMMANDS.items())])

    def invoke(self, context: click.Context) -> Any:
        """Run a command, and show warnings and errors of the library in terms of the command's options."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: click.echo(
                f"privfed: warning: {self._said(message, context)}", err=True
            )
            try:
                return super().invoke(context)
            except PrivFedError as error:
                # Notes, such as a claim that still holds, belong to the message.
                told = [self._said(error, context), *getattr(error, "__notes__", [])]
                raise click.ClickException(" ".join(told)) from error

    def _said(self, message: Exception | str, context: click.Context) -> str:
        name = context.invoked_subcommand or ""
        # A study's file uses the parameters' own names.
        if name in ("tradeoff", "compare", "demo"):
            return str(message)
        return said(message, self.commands.get(name, self), self.commands["fit"])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            where = f"; see '{error.ctx.command_path} --help'" if error.ctx else ""
            code = _print_error(error.format_message().rstrip(".") + where)
        except click.ClickException as error:
            code = _print_error(error.format_message())
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            full = "; free some space, then give the same command again" if is_full(error) else ""
            code = _print_error(f"{name}{error.strerror or error}{full}")
        except click.Abort:
            click.echo("privfed: stopped", err=True)
            code = _STOPPED
        if standalone_mode:
            sys.exit(code)
        return code


def _print_error(message: str) -> int:
    click.echo(f"privfed: error: {' '.join(message.split())}", err=True)
    return _BAD_INPUT


@click.group("privfed", cls=Program, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="privfed")
@click.pass_context
def main(context: click.Context) -> None:
    """Cluster the data of several clients through sums over the clients.

    Clients are simulated in this process.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
