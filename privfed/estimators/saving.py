"""Reads the models that `save` writes: named arrays and plain values, never pickle."""

from __future__ import annotations

import inspect
import json
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import msgspec
import numpy as np

from privfed.errors import ArgumentError, RunFolderError
from privfed.estimators.common.saved import Arrays, Saved
from privfed.estimators.common.stored import claim_from, privacy_from_dict
from privfed.estimators.registry import find

_DAMAGE = (
    *(AttributeError, EOFError, IndexError, KeyError, MemoryError, OverflowError),
    *(RuntimeError, TypeError, ValueError),
    *(BadZipFile, struct.error, zlib.error, msgspec.MsgspecError),
)
"""What numpy, zipfile, json and msgspec raise on a file that is not a model."""


def load(path: str | Path, *, estimators: Iterable[type[Saved]] = ()) -> Any:
    """Read a model that `save` wrote.

    The model predicts and transforms as before. It states its claim in `privacy_claim_` and
    `privacy_spent_`, and has the `privacy` with which it would be fitted again. Other parameters that are
    objects have their defaults, and `transcript_`, `federation_` and `labels_` are missing. A file of format
    1 holds no claim; if the model may have had one, a warning says so.

    Args:
        path: the file.
        estimators: classes of your own that the file may name, as in `load(path, estimators=[MyKMeans])`.
            Registered classes are known: privfed's, and those of installed packages. No class is ever
            imported because a file names it.

    Returns:
        The estimator, of the class that was saved.

    Raises:
        ArgumentError: `estimators` holds something other than estimator classes.
        RunFolderError: there is no such file; or it is damaged, not a saved model, or written by a newer
            privfed; or its class is not known or cannot be constructed from the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be that of a file, got {path!r}.")
    own = tuple(estimators)
    for kind in own:
        if not (isinstance(kind, type) and issubclass(kind, Saved)):
            raise ArgumentError(f"estimators must be classes of estimators, got {kind!r}.")
    try:
        with Path(path).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            facts = json.loads(stored["facts"].tobytes())
            return _rebuilt(path, facts, own, stored)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror or error}).") from None
    except _DAMAGE:
        raise RunFolderError(f"{path} is damaged, or no model that save wrote; fit and save again.") from None


def _rebuilt(path: str | Path, facts: dict[str, Any], own: tuple[type, ...], stored: Arrays) -> Saved:
    claim, privacy = claim_from(facts, path), privacy_from_dict(facts.get("privacy"))
    words = facts["params"] | ({} if privacy is None else {"privacy": privacy})
    # Where a run is kept is said by whoever fits again, and not by a file.
    words.pop("run_dir", None)
    kind = find(facts["class"], own, path)
    if not issubclass(kind, Saved):
        raise ValueError("no class of models")
    arrays = {name: stored[name] for name in kind.stored_arrays}
    model: Saved = _made(path, kind, words)
    for array in arrays.values():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError("not finite float64")
    model._restore(arrays, facts)
    model.privacy_claim_ = claim
    return model


def _made(path: str | Path, kind: type, words: dict[str, Any]) -> Any:
    """Construct an estimator from the parameters in a file.

    Raises:
        RunFolderError: it has parameters without a default that a file cannot hold.
    """
    known = inspect.signature(kind).parameters.values()
    rest = any(one.kind is one.VAR_KEYWORD for one in known)
    named = {one.name for one in known if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    missing = [one.name for one in known if one.name in named - set(words) and one.default is one.empty]
    if missing:
        raise RunFolderError(
            f"{path} holds a {kind.__name__} without {', '.join(missing)}: parameters that are objects are "
            "not stored; give them a default."
        )
    # A parameter that only a newer version has is left out.
    return kind(**{name: value for name, value in words.items() if rest or name in named})
