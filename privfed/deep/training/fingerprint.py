"""What a user's module or loss computes, as bytes: two that compute otherwise must not share a name.

Of classes and functions the source is taken (the compiled code where there is none), and the plain values
and tensors that they hold: attributes, defaults, and variables of the functions around them. What lies
deeper, as in a function that is called by name, is not seen.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from typing import Any

import numpy as np

PLAIN = (bool, int, float, str, bytes, tuple, list, dict, type(None))
"""Values that a text describes."""


def described(thing: Any, kind: type) -> bytes:
    """Return a module's, a function's or another object's code and plain values, as bytes.

    Args:
        thing: to describe.
        kind: class of all modules (torch.nn.Module), which is not imported here.
    """
    if isinstance(thing, kind):
        layers = [_layer(one, kind, type(one).forward) for one in thing.modules()]  # type: ignore[attr-defined]
        return b"".join([repr(thing).encode(), *layers, fixed_numbers(thing)])
    if isinstance(thing, functools.partial):
        texts = [_plain(one, kind) for one in (thing.args, *sorted(thing.keywords.items()))]
        return described(thing.func, kind) + "\n".join(texts).encode()
    if isinstance(thing, type):
        return repr(thing).encode() + _code(thing, thing)
    if inspect.isfunction(thing):
        around = [] if thing.__closure__ is None else [cell.cell_contents for cell in thing.__closure__]
        texts = [_plain(one, kind) for one in (thing.__defaults__, thing.__kwdefaults__, *around)]
        return _code(thing, thing) + "\n".join(texts).encode()
    if inspect.ismethod(thing):
        return described(thing.__func__, kind) + described(thing.__self__, kind)
    if not hasattr(thing, "__dict__"):
        return repr(thing).encode()  # Such as a function of torch's own, or nothing.
    # The text of another object holds its address, which is another one in each process.
    return _layer(thing, kind, type(thing).__call__) if callable(thing) else b"something"


def kept(thing: Any, kind: type) -> str:
    """Return plain values and numbers that a module, a function or another object holds, such as counters.

    Those of objects that it holds, too; variables of a whole Python module are not seen.

    Args:
        thing: whose.
        kind: class of all modules (torch.nn.Module).
    """
    own = list(thing.modules()) if isinstance(thing, kind) else [thing]  # type: ignore[attr-defined]
    return repr([_values(one, frozenset(vars(kind())), set()) for one in own])


def _values(held: Any, usual: frozenset[str], seen: set[int]) -> Any:
    """Return a plain value, or those within another one, without attributes that all modules have."""
    if isinstance(held, PLAIN) and not isinstance(held, dict | tuple | list):
        return held
    if id(held) in seen or isinstance(held, type) or inspect.ismodule(held):
        return None
    seen.add(id(held))
    if hasattr(held, "detach"):
        return bytes_of(held)
    if isinstance(held, np.ndarray):
        return held.tolist()
    within: list[Any] = list(held.values()) if isinstance(held, dict) else []
    within += held if isinstance(held, tuple | list) else []
    if isinstance(held, functools.partial):
        within += [held.func, held.args, held.keywords]
    elif inspect.ismethod(held):
        within += [held.__self__, held.__func__]
    elif inspect.isfunction(held):
        within += [held.__defaults__, held.__kwdefaults__]
        with suppress(ValueError):  # Some variables around a function are not set yet.
            within += [cell.cell_contents for cell in held.__closure__ or ()]
    with suppress(TypeError):  # Some have no attributes, such as functions of torch's own.
        within += [v for k, v in vars(held).items() if k not in usual]
    return [_values(one, usual, seen) for one in within]


def fixed_numbers(module: Any) -> bytes:
    """Return what of a module is never trained: parameters without a gradient, and buffers."""
    held = [*(one for one in module.parameters() if not one.requires_grad), *module.buffers()]
    return b"".join(map(bytes_of, held))


def bytes_of(tensor: Any) -> bytes:
    """Return a tensor's numbers, as float64."""
    return bytes(tensor.detach().cpu().contiguous().double().numpy().tobytes())


def _layer(layer: Any, kind: type, called: Any) -> bytes:
    held = {k: v for k, v in vars(layer).items() if not k.startswith("_") and k != "training"}
    texts = [f"{k} {_plain(v, kind)}" for k, v in sorted(held.items())]
    return _code(type(layer), called) + "\n".join(texts).encode()


def _code(thing: Any, function: Any) -> bytes:
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):
        if not inspect.isfunction(function):
            return b""
        code = function.__code__
        return code.co_code + repr((code.co_names, code.co_varnames)).encode()


def _plain(value: Any, kind: type) -> str:
    """Return a plain value as text, a function as what it computes; of anything else, that there is one."""
    if inspect.isfunction(value) or isinstance(value, kind):
        return described(value, kind).hex()
    if hasattr(value, "detach"):  # A tensor, such as the weights of classes.
        return f"{value.dtype} {tuple(value.shape)} {bytes_of(value).hex()}"
    return repr(value) if isinstance(value, PLAIN) else "something"
