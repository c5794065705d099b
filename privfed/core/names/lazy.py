"""Lazy imports: a package's public names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports a name's module when the name is first used.

    A process that runs one command, or serves one message, then loads only what it needs.

    Args:
        package: the package's `__name__`.
        places: public name -> module that defines it; the name of a submodule maps to that submodule.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(places[name])
        found: object = module if places[name] == f"{package}.{name}" else vars(module)[name]
        setattr(sys.modules[package], name, found)
        return found

    return find
