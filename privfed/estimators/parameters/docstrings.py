"""Completes docstrings of classes with the texts of their parameters, and with sections of their bases.

A docstring in Google's style has sections: a heading in the first column, and entries of the form
"name: text" below it. "Args:" comes from the parameters. Entries of a base's "Attributes:" and "Raises:" are
inherited, unless a class has an entry with the same name.
"""

from __future__ import annotations

import inspect
import textwrap

_INHERITED = ("Attributes:", "Raises:")
_WIDTH = 106


def documented(kind: type, texts: dict[str, str]) -> str | None:
    """Return the whole docstring of a class; None under `python -OO`, which has no docstrings.

    Args:
        kind: the class, whose own docstring has no "Args:".
        texts: descriptions of its parameters, by name.
    """
    own = vars(kind)["__doc__"]
    if own is None:
        return None
    sections = {"Args:": texts} | {heading: _gathered(kind, heading) for heading in _INHERITED}
    parts = [_lead(own), *(_written(heading, entries) for heading, entries in sections.items() if entries)]
    return "\n\n".join(parts) + "\n"


def _gathered(kind: type, heading: str) -> dict[str, str]:
    """Return a section's entries from a class and its bases; of equal names the nearest holds."""
    found: dict[str, str] = {}
    for base in kind.__mro__[:-1]:
        entries = _entries(vars(base)["__doc__"] or "", heading)
        found |= {name: text for name, text in entries.items() if name not in found}
    return found


def _lead(doc: str) -> str:
    """Return the text before the first section that is completed."""
    lines = inspect.cleandoc(doc).splitlines()
    ends = [number for number, line in enumerate(lines) if line in _INHERITED]
    return "\n".join(lines[: min(ends, default=len(lines))]).rstrip()


def _entries(doc: str, heading: str) -> dict[str, str]:
    """Return the entries of one section, the text of each in one line."""
    _, _, rest = f"{inspect.cleandoc(doc)}\n".partition(f"\n{heading}\n")
    entries: dict[str, str] = {}
    for line in rest.partition("\n\n")[0].splitlines():
        if line[4:5] != " ":
            name, _, text = line.strip().partition(": ")
            entries[name] = text
        else:
            entries[name] += f" {line.strip()}"
    return entries


def _written(heading: str, entries: dict[str, str]) -> str:
    """Return a section with its entries wrapped."""
    fill = textwrap.TextWrapper(
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="        ",
        break_on_hyphens=False,
        break_long_words=False,
    ).fill
    return "\n".join([heading, *(fill(f"{name}: {text}") for name, text in entries.items())])
