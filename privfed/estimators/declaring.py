"""Declares parameters in a class's body, where type, default and text are together and written once.

    @parameters
    class Rounds:
        tol: float = parameter(default=1e-6, text="a run stops when the centroids move by less.")

`@parameters` writes the constructor, which only stores its arguments, as scikit-learn requires. It also
completes the docstring (`documented`). A class that redeclares a parameter of a
base changes its default, and its text if it gives one.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, eq=False)
class Parameter:
    """Describes a parameter of an estimator.

    Args:
        default: default value.
        text: description in the docstring; empty if that of a base holds.
        kw_only: whether it is passed by name only.
        bounds: interval of the numbers that are allowed, such as "(0, 1]"; empty if that of a base holds.
        annotation: its type, as written.
        option: its name on the command line; empty for its own.
    """

    default: Any
    text: str
    kw_only: bool
    bounds: str = ""
    annotation: Any = None
    option: str = ""

    @property
    def summary(self) -> str:
        """The text up to its first semicolon or full stop, as a sentence for help on the command line."""
        first = self.text.partition(";")[0].partition(". ")[0].rstrip(".")
        return f"{first[0].upper()}{first[1:]}."


def parameter(
    *, default: Any, text: str = "", kw_only: bool = True, bounds: str = "", option: str = ""
) -> Any:
    """Declare a parameter in the body of a class under `@parameters`.

    Args:
        default: default value; never a list or another mutable value.
        text: description in the docstring; empty to keep that of a base.
        kw_only: whether it is passed by name only.
        bounds: interval of the numbers that are allowed, such as "(0, 1]", which `check_declared` checks
            (`privfed.estimators.fitting`); empty to keep that of a base.
        option: its name on the command line; empty for its own.
    """
    return Parameter(default, text, kw_only, bounds, option=option)


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def parameters(kind: _Class) -> _Class:
    """Give a class a constructor and docstring for the parameters that it and its bases declare."""
    own = {name: one for name, one in vars(kind).items() if isinstance(one, Parameter)}
    if not own and "_own_parameters" in vars(kind):
        return kind
    for name in own:
        # An instance has a value; its class has none.
        delattr(kind, name)
    written, inherited = inspect.get_annotations(kind), parameters_of(kind)
    declared: Any = kind
    declared._own_parameters = {
        name: replace(
            one,
            text=one.text or inherited[name].text,
            bounds=one.bounds or (inherited[name].bounds if name in inherited else ""),
            annotation=written[name],
        )
        for name, one in own.items()
    }
    every = parameters_of(kind)
    declared.__init__ = _constructor(every)
    declared.__doc__ = documented(kind, {name: one.text for name, one in every.items()})
    return kind


def parameters_of(kind: type) -> dict[str, Parameter]:
    """Return the parameters of a class by name: positional ones, its own, then those of its bases.

    A redeclared parameter keeps the place of its first declaration.
    """
    owns: list[dict[str, Parameter]] = [vars(base).get("_own_parameters", {}) for base in kind.__mro__]
    places = {name: place for place, name in enumerate(name for own in owns for name in own)}
    found = {name: one for own in reversed(owns) for name, one in own.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: (found[name].kw_only, places[name]))}


def _constructor(declared: dict[str, Parameter]) -> Callable[..., None]:
    """Return an `__init__` that stores its arguments and has the signature of the parameters."""
    signature = inspect.Signature(
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        + [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY if one.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=one.default,
                annotation=one.annotation,
            )
            for name, one in declared.items()
        ]
    )

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *args, **named)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        for name in declared:
            setattr(self, name, bound.arguments[name])

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


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
        own = entries(vars(base)["__doc__"] or "", heading)
        found |= {name: text for name, text in own.items() if name not in found}
    return found


def _lead(doc: str) -> str:
    """Return the text before the first section that is completed."""
    lines = inspect.cleandoc(doc).splitlines()
    ends = [number for number, line in enumerate(lines) if line in _INHERITED]
    return "\n".join(lines[: min(ends, default=len(lines))]).rstrip()


def entries(doc: str, heading: str) -> dict[str, str]:
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
