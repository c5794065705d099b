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
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.stored import claim_from, privacy_from_dict
from privfed.estimators.registry import find

_DAMAGE = (
    *(AttributeError, EOFError, IndexError, KeyError, RuntimeError, TypeError, ValueError),
    *(BadZipFile, struct.error, zlib.error, msgspec.MsgspecError),
)
"""What numpy, zipfile, json and msgspec raise on a file that is not a model."""


def load(path: str | Path, *, estimators: Iterable[type[FederatedClusterer]] = ()) -> FederatedClusterer:
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

    Raises:
        ArgumentError: `estimators` holds something other than estimator classes.
        RunFolderError: there is no such file; or it is damaged, not a saved model, or written by a newer
            privfed; or its class is not known or cannot be constructed from the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be that of a file, got {path!r}.")
    own = tuple(estimators)
    for kind in own:
        if not (isinstance(kind, type) and issubclass(kind, FederatedClusterer)):
            raise ArgumentError(f"estimators must be classes of estimators, got {kind!r}.")
    try:
        with Path(path).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            arrays = {name: stored[name] for name in ("centers", "history", "facts")}
        facts = json.loads(arrays.pop("facts").tobytes())
        return _rebuilt(path, facts, own, **arrays)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror or error}).") from None
    except _DAMAGE:
        raise RunFolderError(f"{path} is damaged, or no model that save wrote; fit and save again.") from None


def _rebuilt(
    path: str | Path, facts: dict[str, Any], own: tuple[type, ...], centers: Any, history: Any
) -> FederatedClusterer:
    claim, privacy = claim_from(facts, path), privacy_from_dict(facts.get("privacy"))
    words = facts["params"] | ({} if privacy is None else {"privacy": privacy})
    model: FederatedClusterer = _made(path, find(facts["class"], own, path), words)
    for array in (centers, history):
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError("not finite float64")
    if centers.ndim != 2 or history.shape[1:] != centers.shape or not np.array_equal(history[-1], centers):
        raise ValueError("the history does not end with the centers")
    model.cluster_centers_ = centers
    model.history_ = list(history)
    model.n_iter_ = len(history) - 1
    model.inertia_ = None if facts["inertia"] is None else float(facts["inertia"])
    model.converged_ = None if facts["converged"] is None else bool(facts["converged"])
    model._set_ended(facts)
    model.n_rows_ = None if facts.get("rows") is None else int(facts["rows"])
    model.privacy_claim_ = claim
    model.n_features_in_ = centers.shape[1]
    model._n_features_out = len(centers)
    if facts["columns"] is not None:
        model.feature_names_in_ = np.array([str(name) for name in facts["columns"]], dtype=object)
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
