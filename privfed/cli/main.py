"""The command `privfed`: its commands, and one clear line for everything that goes wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from privfed import __version__
from privfed.cli.commands.attack import attack
from privfed.cli.commands.audit import audit
from privfed.cli.commands.compare import compare
from privfed.cli.commands.demo import demo
from privfed.cli.commands.fit import fit, resume
from privfed.cli.commands.reading import predict, show
from privfed.cli.commands.select import select_k
from privfed.cli.commands.tradeoff import tradeoff
from privfed.cli.folder.disk import is_full
from privfed.cli.speaking import said
from privfed.errors import PrivFedError

_BAD_INPUT, _STOPPED = 2, 130


class Program(click.Group):
    """A group whose errors are one line on stderr: exit code 2 for bad input, 130 when it was stopped."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command; what it warns of, and what the library says is wrong, is said in its words."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: click.echo(
                f"privfed: warning: {self._said(message, context)}", err=True
            )
            try:
                return super().invoke(context)
            except PrivFedError as error:
                # What is noted on it, such as a claim that holds all the same, speaks to both.
                told = [self._said(error, context), *getattr(error, "__notes__", [])]
                raise click.ClickException(" ".join(told)) from error

    def _said(self, message: Exception | str, context: click.Context) -> str:
        command = self.commands.get(context.invoked_subcommand or "", self)
        # A study's file has words of its own.
        return str(message) if command in (tradeoff, compare, demo) else said(message, command, fit)

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
            code = _complain(error.format_message().rstrip(".") + where)
        except click.ClickException as error:
            code = _complain(error.format_message())
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            full = "; free some space, then give the same command again" if is_full(error) else ""
            code = _complain(f"{name}{error.strerror or error}{full}")
        except click.Abort:
            click.echo("privfed: stopped", err=True)
            code = _STOPPED
        if standalone_mode:
            sys.exit(code)
        return code


def _complain(message: str) -> int:
    click.echo(f"privfed: error: {' '.join(message.split())}", err=True)
    return _BAD_INPUT


@click.group("privfed", cls=Program, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="privfed")
@click.pass_context
def main(context: click.Context) -> None:
    """Cluster the data of several clients, who only ever give away sums.

    Clients are simulated in this process.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (fit, resume, predict, show, select_k, demo, tradeoff, compare, attack, audit):
    main.add_command(command)
