"""Reports runs that did not converge in the results, in terms of the command's options."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click
from sklearn.exceptions import ConvergenceWarning

from privfed.cli.speaking import said


@contextmanager
def in_results() -> Iterator[None]:
    """Suppress the library's warning on stderr, as tables and files say it with a remedy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def in_its_words(text: str) -> str:
    """Return a text of the library with parameters replaced by options of the running command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    program = context.find_root().command
    fit = program.commands["fit"] if isinstance(program, click.Group) else context.command
    return said(text, context.command, fit)
