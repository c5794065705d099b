"""Translates errors from parameters to options: `n_clusters=0` becomes `--n-clusters 0`.

The library's errors name parameters, as it is also called from Python. Click's declarations say which option
sets a parameter: an option has the name of the parameter that it sets, and one that sets only a part of a
parameter declares that (`Part`). Remedies that only Python offers come last in a message, after "in Python".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import click

from privfed.estimators.registry import ESTIMATORS, SHORT, TRAINED

Spellings = Mapping[str, str]
"""Name of a parameter -> the option that sets it, or several."""

_OBJECTS = {"Privacy": ("privacy", "domain"), "Box": ("domain",)}
"""Class -> the parameters whose options describe an object of it."""

_BEFORE, _AFTER = r"(?<![\w.\-/'\"])", r"(?![\w/'\"]|\.\w)"
_VALUE = r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\([^)]*\)|\.\.\.|-?[\w*^]+(?:[.+-]\w+)*"
_QUOTED = re.compile(r"""^(['"])(?P<text>[\w.+-]+)\1$""")
_CALL = re.compile(rf"{_BEFORE}(?:(?P<name>\w+)=)?(?P<kind>[A-Z]\w*)\((?P<words>[^()]*)\)")
_ASSIGNED = re.compile(rf"{_BEFORE}(?P<name>[a-z]\w*)=(?P<value>{_VALUE})?")
_CLASS = re.compile(rf"{_BEFORE}(?P<kind>[A-Z]\w+){_AFTER}")
_SUBJECT = re.compile(
    r"^(?P<one>[a-z]\w*)(?: and (?P<other>[a-z]\w*))?(?= (?:must|needs?|names|takes|goes?)\b)"
)
_IDENTIFIER = re.compile(rf"{_BEFORE}(?<!\()(?P<name>[a-z]+(?:_[a-z]+)+){_AFTER}")
_OR_NONE = re.compile(r",? or None(?: for [\w ]+)?")


class Part(click.Option):
    """Declares an option that sets a part of parameters which are objects in Python.

    Args:
        *declared: as for `click.Option`.
        part_of: names of the parameters.
        **words: as for `click.Option`.
    """

    def __init__(self, *declared: Any, part_of: tuple[str, ...], **words: Any) -> None:
        super().__init__(*declared, **words)
        self.part_of = part_of


def spellings(command: click.Command) -> Spellings:
    """Return for each parameter the options of a command that set it."""
    found: dict[str, list[str]] = {}
    for option in command.params:
        if isinstance(option, click.Option):
            for name in (option.name, *(option.part_of if isinstance(option, Part) else ())):
                found.setdefault(str(name), []).append(max(option.opts, key=len))
    return {name: _listed(options) for name, options in found.items()}


def _listed(options: list[str]) -> str:
    return " and ".join([", ".join(options[:-1]), options[-1]] if options[:-1] else options)


@lru_cache(maxsize=1)
def _algorithms() -> dict[str, str]:
    """Map the class names of estimators to their names on the command line."""
    kinds = {name: ESTIMATORS.find(name) for name in (*SHORT, *TRAINED)}
    return {kind.__name__: name for name, kind in kinds.items() if isinstance(kind, type)}


def spoken(text: str, options: Spellings) -> str:
    """Return a message with parameters replaced by options."""
    text, python, rest = text.partition("in Python")
    text = _CALL.sub(lambda found: _called(found, options), text)
    text = _ASSIGNED.sub(lambda found: _assigned(found, options), text)
    text = _CLASS.sub(lambda found: _class(found["kind"], options) or found[0], text)
    text = _SUBJECT.sub(
        lambda found: " and ".join(options.get(one, one) for one in found.groups() if one), text
    )
    text = _IDENTIFIER.sub(lambda found: options.get(found["name"], found[0]), text)
    return _OR_NONE.sub("", text) + python + rest


def _called(found: re.Match[str], options: Spellings) -> str:
    """Translate the construction of an object."""
    kind, words = found["kind"], found["words"]
    if kind in _algorithms() and "algorithm" in options:
        return f"{_class(kind, options)} {spoken(words, options)}".strip()
    if words == "..." and _object(kind, options):
        return _object(kind, options)
    return spoken(words, options) if _all_known(words, options) else found[0]


def _all_known(words: str, options: Spellings) -> bool:
    names = [one["name"] for one in _ASSIGNED.finditer(words)]
    return bool(names) and all(name in options for name in names)


def _class(kind: str, options: Spellings) -> str | None:
    if kind in _algorithms() and "algorithm" in options:
        return f"{options['algorithm']} {_algorithms()[kind]}"
    whole = _object(kind, options)
    return f"what {whole} say" if whole else None


def _object(kind: str, options: Spellings) -> str:
    return ", ".join(options[name] for name in _OBJECTS.get(kind, ()) if name in options)


def _assigned(found: re.Match[str], options: Spellings) -> str:
    """Translate `name=value`, or `name=` alone."""
    name, value = found["name"], found["value"]
    option = options.get(name)
    if option is None:
        # No option sets it, as with n_samples. A name without "_" or quotes may be part of a file's name.
        return f"{name.replace('_', ' ')} {value}" if value and ("_" in name or value[0] == '"') else found[0]
    if value == "None":
        return f"no {option}"
    if value in (None, "..."):
        return option
    plain = _QUOTED.match(value)
    # A shell needs no quotes around a plain word.
    return f"{option} {plain['text'] if plain else value}"


def said(message: Exception | str, command: click.Command, fit: click.Command) -> str:
    """Return a message as one line, in terms of a command's options.

    Args:
        message: message or error of the library.
        command: the command that runs.
        fit: the command `fit`, which begins the runs that other commands read; its options are used for
            parameters that `command` does not have.
    """
    return spoken(" ".join(str(message).split()), {**spellings(fit), **spellings(command)})
