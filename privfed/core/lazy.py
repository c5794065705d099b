"""Packages whose public names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: it imports a name's module when the name is first used.

    A process that runs one command, or that serves one message, then loads what that needs and no more.

    Args:
        package: its `__name__`.
        places: public name -> module that defines it; a name that is a module itself stands for that module.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(places[name])
        found: object = module if places[name] == f"{package}.{name}" else vars(module)[name]
        setattr(sys.modules[package], name, found)
        return found

    return find
