"""How runs that did not converge are told of on the command line: in its results, in its own words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click
from sklearn.exceptions import ConvergenceWarning

from privfed.cli.speaking import said


@contextmanager
def in_results() -> Iterator[None]:
    """Keep the library's warning from stderr: tables and files say it, with what helps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def in_its_words(text: str) -> str:
    """Return a text of the library with the options of the command that runs in place of parameters."""
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    program = context.find_root().command
    fit = program.commands["fit"] if isinstance(program, click.Group) else context.command
    return said(text, context.command, fit)
