"""Declares parameters in a class's body, where type, default and text are together and written once.

    @parameters
    class Rounds:
        tol: float = parameter(default=1e-6, text="a run stops when the centroids move by less.")

`@parameters` writes the constructor, which only stores its arguments, as scikit-learn requires. It also
completes the docstring (`privfed.estimators.parameters.docstrings`). A class that redeclares a parameter of a
base changes its default, and its text if it gives one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, dataclass_transform

from privfed.estimators.parameters.docstrings import documented

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, eq=False)
class Parameter:
    """Describes a parameter of an estimator.

    Args:
        default: default value.
        text: description in the docstring; empty if that of a base holds.
        kw_only: whether it is given by name only.
        annotation: its type, as written.
    """

    default: Any
    text: str
    kw_only: bool
    annotation: Any = None

    @property
    def summary(self) -> str:
        """The text up to its first semicolon or full stop, as a sentence for help on the command line."""
        first = self.text.partition(";")[0].partition(". ")[0].rstrip(".")
        return f"{first[0].upper()}{first[1:]}."


def parameter(*, default: Any, text: str = "", kw_only: bool = True) -> Any:
    """Declare a parameter in the body of a class under `@parameters`.

    Args:
        default: default value; never a list or another mutable value.
        text: description in the docstring; empty to keep that of a base.
        kw_only: whether it is given by name only.
    """
    return Parameter(default, text, kw_only)


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def parameters(kind: _Class) -> _Class:
    """Give a class a constructor and docstring for the parameters that it and its bases declare."""
    own = {name: one for name, one in vars(kind).items() if isinstance(one, Parameter)}
    for name in own:
        # An instance has a value; its class has none.
        delattr(kind, name)
    written, inherited = inspect.get_annotations(kind), parameters_of(kind)
    declared: Any = kind
    declared._own_parameters = {
        name: replace(one, text=one.text or inherited[name].text, annotation=written[name])
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

    def __init__(self: Any, *args: Any, **words: Any) -> None:
        try:
            given = signature.bind(self, *args, **words)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        given.apply_defaults()
        for name in declared:
            setattr(self, name, given.arguments[name])

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__
