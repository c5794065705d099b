"""Reads the models that `save` writes: named arrays and plain values, never pickle."""

from __future__ import annotations

import inspect
import json
import struct
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from privfed.errors import RunFolderError
from privfed.face.base import FederatedClusterer
from privfed.face.dp import DPKMeans
from privfed.face.estimators import DWFKMeans, EWFKMeans, WFKMeans
from privfed.face.fkm import FKM, KFED
from privfed.face.fuzzy import FederatedFuzzyCMeans
from privfed.face.minibatch import FederatedMiniBatchKMeans

_ESTIMATORS: tuple[type[FederatedClusterer], ...] = (
    *(DWFKMeans, EWFKMeans, WFKMeans, FKM, KFED),
    *(FederatedFuzzyCMeans, FederatedMiniBatchKMeans, DPKMeans),
)
_KNOWN = {one.__name__: one for one in _ESTIMATORS}


_DAMAGE = (
    *(AttributeError, EOFError, IndexError, KeyError, RuntimeError, TypeError, ValueError),
    *(BadZipFile, struct.error, zlib.error),
)
"""What numpy, zipfile and json raise on a file that is no model."""


def load(path: str | Path) -> FederatedClusterer:
    """Read a model that `save` wrote.

    The model predicts and transforms as before. What JSON cannot hold is not in the file: objects among
    the constructor's words have their defaults again, and `transcript_`, `federation_` and `labels_` are
    missing.

    Raises:
        RunFolderError: there is no such file, or it is damaged or no saved model.
    """
    try:
        with Path(path).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            arrays = {name: stored[name] for name in ("centers", "history", "facts")}
        facts = json.loads(arrays.pop("facts").tobytes())
        return _rebuilt(facts, **arrays)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror or error}).") from None
    except _DAMAGE:
        raise RunFolderError(f"{path} is damaged, or no model that save wrote; fit and save again.") from None


def _rebuilt(facts: dict[str, Any], centers: Any, history: Any) -> FederatedClusterer:
    kind, known = _KNOWN[facts["class"]], inspect.signature(_KNOWN[facts["class"]]).parameters
    model = kind(**{name: value for name, value in facts["params"].items() if name in known})
    for array in (centers, history):
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError("not finite float64")
    if centers.ndim != 2 or history.shape[1:] != centers.shape or not np.array_equal(history[-1], centers):
        raise ValueError("the history does not end with the centers")
    model.cluster_centers_ = centers
    model.history_ = list(history)
    model.n_iter_ = len(history) - 1
    model.inertia_ = None if facts["inertia"] is None else float(facts["inertia"])
    model.converged_ = bool(facts["converged"])
    model.privacy_spent_ = None
    model.n_features_in_ = centers.shape[1]
    model._n_features_out = len(centers)
    if facts["columns"] is not None:
        model.feature_names_in_ = np.array([str(name) for name in facts["columns"]], dtype=object)
    return model
