"""Telling whether two functions or classes are one definition that was run again (notebook cell, reload).

A name on the wire must keep its meaning: a different definition registered under a known name would change
how questions of that name are answered.
"""

from __future__ import annotations

from functools import cached_property
from types import CodeType, FunctionType
from typing import Any


def same_definition(known: Any, new: Any) -> bool:
    """Say whether two functions, or two classes, have the same module, the same name and the same code.

    A closure (a function that reads variables of an enclosing function) equals only itself. Module globals
    that a definition reads when it runs are not compared.
    """
    if known is new:
        return True
    if (known.__module__, known.__qualname__) != (new.__module__, new.__qualname__):
        return False
    if isinstance(known, type) and isinstance(new, type):
        return _body(known) == _body(new)
    if isinstance(known, FunctionType) and isinstance(new, FunctionType):
        return known.__closure__ is new.__closure__ is None and _of_function(known) == _of_function(new)
    return False


def _body(kind: type) -> dict[str, Any]:
    """Return the bases and attributes of a class as values that can be compared."""
    bases = [(base.__module__, base.__qualname__) for base in kind.__bases__]
    skipped = {"__dict__", "__weakref__", "__doc__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
    parts = {name: _plain(value) for name, value in vars(kind).items() if name not in skipped}
    return {"": bases, **parts}


def _plain(value: Any) -> Any:
    """Return an attribute of a class in comparable form: the code of a callable, the repr of other values."""
    if isinstance(value, property):
        return [_plain(one) for one in (value.fget, value.fset, value.fdel)]
    if isinstance(value, cached_property):
        return _plain(value.func)
    if isinstance(value, staticmethod | classmethod):
        return _plain(value.__func__)
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return repr(value)


def _of_function(function: FunctionType) -> list[Any]:
    return [_of_code(function.__code__), repr(function.__defaults__), repr(function.__kwdefaults__)]


def _of_code(code: CodeType) -> list[Any]:
    """Return what determines the behaviour of code, without file name and line numbers."""
    constants = [_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, constants]
