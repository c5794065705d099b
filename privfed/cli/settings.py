"""Options that follow from declared parameters, of estimators and of attacks.

A parameter is an option where text can stand for its values: numbers, texts, truth values, and choices of
texts. So a new parameter, also of a user's own estimator or attack, needs nothing here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from inspect import Signature, get_annotations, signature
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from privfed.core.names import imported
from privfed.errors import ArgumentError
from privfed.estimators.declaring import Parameter, entries, parameters_of
from privfed.estimators.registry import DECLARED, ESTIMATORS, TRAINED

_PLAIN = (bool, int, float, str)
"""Types for whose values a text can stand."""


class Setting(click.Option):
    """An option that sets a parameter of an estimator or an attack; without it the default there holds."""


def _type_of(kind: type, name: str, declared: Parameter) -> Any:
    """Return the type of a parameter's texts; None where no text can stand for its values."""
    owner = next((base for base in kind.__mro__ if name in get_annotations(base)), _constructed_by(kind))
    annotation: Any = declared.annotation
    if annotation is Signature.empty:
        # The constructor of a user's own attack need have no types.
        return type(declared.default) if type(declared.default) in _PLAIN else None
    if isinstance(annotation, str):
        try:
            written = SimpleNamespace(__annotations__={name: annotation})
            annotation = get_type_hints(written, vars(sys.modules[owner.__module__]))[name]
        except NameError:  # A class that only type checkers import is no type of texts.
            return None
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    for one in members:
        if get_origin(one) is Literal and all(isinstance(word, str) for word in get_args(one)):
            return click.Choice(get_args(one))
        if one in _PLAIN:
            return one
    return None


def _setting(name: str, declared: Parameter, kind: Any, text: str) -> Setting:
    option = f"--{(declared.option or name).replace('_', '-')}"
    both = f"{option}/--no-{option[2:]}" if kind is bool else option
    return Setting([both, name], type=kind, default=None, help=text)


def _constructed_by(kind: type) -> type:
    """Return the class whose constructor makes objects of `kind`."""
    return next(base for base in kind.__mro__ if "__init__" in vars(base))


def _declared_by(kind: type) -> dict[str, Parameter]:
    """Return the parameters of a class: those that an estimator declares, or of an attack's constructor."""
    declared = parameters_of(kind)
    if declared or _constructed_by(kind) is object:
        return declared
    texts = entries(kind.__doc__ or "", "Args:")
    return {
        name: Parameter(one.default, texts.get(name, name), True, annotation=one.annotation)
        for name, one in signature(kind).parameters.items()
        if one.kind is not one.VAR_KEYWORD
    }


def settings_of(kind: type) -> list[Setting]:
    """Return the options of the class of an estimator, or of an attack."""
    # Imported here, as commands without an algorithm have no parameters.
    from privfed.estimators.parameters import Clusters, Measured, Scaled, Surroundings

    # Other options set these: --protocol, --seed, -k, --low, --epsilon, --metrics, --classes.
    others = {"n_classes"}.union(*map(parameters_of, (Surroundings, Clusters, Measured, Scaled)))
    found = ((name, one, _type_of(kind, name, one)) for name, one in _declared_by(kind).items())
    return [
        _setting(name, one, type_, one.summary)
        for name, one, type_ in found
        if type_ is not None and name not in others
    ]


@lru_cache
def own_settings() -> tuple[Setting, ...]:
    """Return the options of all of privfed's own estimators; their help says which of these have it."""
    texts: dict[str, dict[str, list[str]]] = {}
    found: dict[str, Setting] = {}
    for algorithm in DECLARED:
        for one in map(copy, of_algorithm(algorithm)):
            name, summary = str(one.name), str(one.help).rstrip(".")
            texts.setdefault(name, {}).setdefault(summary, []).append(algorithm)
            former = found.setdefault(name, one)
            if isinstance(one.type, click.Choice) and isinstance(former.type, click.Choice):
                former.type = click.Choice(list(dict.fromkeys([*former.type.choices, *one.type.choices])))
    for name, one in found.items():
        one.help = f"{'; '.join(_with_algorithms(*item) for item in texts[name].items())}."
    return tuple(found.values())


def _with_algorithms(summary: str, algorithms: Sequence[str]) -> str:
    """Return a summary with the algorithms that it is about, unless these are all that cluster rows."""
    clustering = [one for one in algorithms if one not in TRAINED]
    models = ["models"] if set(TRAINED) <= set(algorithms) else [one for one in algorithms if one in TRAINED]
    named = re.sub("`([a-z_]+)`", lambda found: f"--{found[1].replace('_', '-')}", summary)
    return f"{named} ({', '.join([*clustering, *models])})"


@lru_cache
def of_algorithm(algorithm: str) -> tuple[Setting, ...]:
    """Return the options of an algorithm; of an unknown one, or of a part that is not there, none."""
    try:
        kind = imported(DECLARED[algorithm]) if algorithm in DECLARED else ESTIMATORS.resolve(algorithm)
    except ArgumentError:  # The option --algorithm says why.
        return ()
    return tuple(settings_of(kind)) if isinstance(kind, type) else ()
