"""What leaves the process of a fitted estimator: copies without clients, its claim, and its file.

A file has named arrays and plain values, never pickle.
"""

from __future__ import annotations

import inspect
import json
import os
import struct
import warnings
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from zipfile import BadZipFile

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

from privfed.core.record.records import MODEL
from privfed.core.stored.encoding import asdict
from privfed.core.stored.files import Format, open_file, replaced
from privfed.core.values.domain import Ball, Box, Domain
from privfed.core.values.origin import Origin, origin_of, origin_under, released
from privfed.errors import ArgumentError, PrivFedError, RunFolderError
from privfed.estimators.mixins import BaseEstimator
from privfed.estimators.registry import find, stored_name
from privfed.privacy.claim import Privacy, PrivacySpent, unless_seeded

if TYPE_CHECKING:
    from privfed.estimators.mixins import Loaded

_DAMAGE = (
    *(AttributeError, EOFError, IndexError, KeyError, MemoryError, OverflowError),
    *(RuntimeError, TypeError, ValueError),
    *(BadZipFile, struct.error, zlib.error, msgspec.MsgspecError),
)
"""What numpy, zipfile, json and msgspec raise on a file that is not a model."""


def load(
    path: str | Path, kind: type[Loaded] | None = None, *, estimators: Iterable[type[Saved]] = ()
) -> Loaded:
    """Read a model that `save` wrote, or that of a run's folder.

    The model predicts and transforms as before. It states its claim in `privacy_claim_` and
    `privacy_spent_`, and has the `privacy` with which it would be fitted again. Other parameters that are
    objects have their defaults, and `transcript_`, `federation_` and `labels_` are missing.

    Args:
        path: the file; or the folder of a finished run (`run_dir=`, `privfed fit`, `privfed select-k` or
            `privfed flower run`).
        kind: the class that the file must hold, or a base of it, which type checkers then take the model
            for: `load(path, DWFKMeans)`. None takes any class.
        estimators: classes of your own that the file may name, as in `load(path, estimators=[MyKMeans])`.
            Registered classes are known: privfed's, and those of installed packages. No class is ever
            imported because a file names it.

    Returns:
        The estimator, of the class that was saved.

    Raises:
        ArgumentError: `estimators` holds something other than estimator classes.
        RunFolderError: there is no such file, or the run in the folder is not finished. The file is damaged,
            no saved model, or written by a newer privfed. Its class is not known or cannot be constructed
            from the file, or is not `kind`.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be that of a file, got {path!r}.")
    own = tuple(dict.fromkeys(estimators if kind is None else (*estimators, kind)))
    if not all(isinstance(one, type) and issubclass(one, Saved) for one in own):
        raise ArgumentError(f"estimators must be classes of estimators, got {own!r}.")
    path = Path(path)
    if path.is_dir():
        if not (path / MODEL).exists():
            raise RunFolderError(
                f"{path} cannot be read: it holds no {MODEL}, as no run there is finished. Finish it, or "
                "name another folder."
            )
        path = path / MODEL
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            return cast(
                "Loaded", _rebuilt(path, json.loads(stored["facts"].tobytes()), own, stored, kind or Saved)
            )
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be read ({error.strerror or error}); name a file of save, or a run's folder."
        ) from None
    except _DAMAGE:
        raise RunFolderError(f"{path} is damaged, or no model that save wrote; fit and save again.") from None


def _rebuilt(
    path: str | Path, facts: dict[str, Any], own: tuple[type, ...], stored: Arrays, wanted: type
) -> Saved:
    MODELS.check(facts["format"], path)
    claim, privacy = facts["privacy_claim"], privacy_from_dict(facts["privacy"])
    params = facts["params"] | ({} if privacy is None else {"privacy": privacy})
    # Whoever fits again says where the run is kept; a file does not.
    params.pop("run_dir", None)
    kind = find(facts["class"], own, path)
    if not issubclass(kind, Saved):
        raise ValueError("no class of models")
    if not issubclass(kind, wanted):
        raise RunFolderError(f"{path} holds a {kind.__name__}, no {wanted.__name__}; leave the class out.")
    arrays = {name: np.asarray(stored[name]) for name in stored if name != "facts"}
    known = inspect.signature(kind).parameters.values()
    rest = any(one.kind is one.VAR_KEYWORD for one in known)
    named = {one.name for one in known if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    missing = [one.name for one in known if one.name in named - set(params) and one.default is one.empty]
    if missing:
        raise RunFolderError(
            f"{path} holds a {kind.__name__} without {', '.join(missing)}: parameters that are objects are "
            "not stored; give them a default."
        )
    # A parameter that only a newer version has is left out.
    model: Saved = kind(**{name: value for name, value in params.items() if rest or name in named})
    if not all(array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("not finite float64")
    model._restore(arrays, facts)
    if (columns := facts["columns"]) is not None:
        if len(columns) != model.n_features_in_:
            raise ValueError("names that do not fit the columns")
        model.feature_names_in_ = np.array([str(name) for name in columns], dtype=object)
    model.privacy_claim_ = None if claim is None else PrivacySpent.from_dict(claim)
    return model


class NotFittedError(PrivFedError, _SklearnNotFittedError):
    """Signals that an estimator was asked for something that only a fitted one has."""


def check_fitted(estimator: object, attribute: str) -> None:
    """Check that an estimator has an attribute that `fit` sets.

    Raises:
        NotFittedError: it has not.
    """
    if not hasattr(estimator, attribute):
        raise NotFittedError(f"this {type(estimator).__name__} is not fitted yet; call fit first.")


class NoLabels:
    """Raises an error that says why an estimator has no `labels_`; a fitted one has them as an attribute."""

    def __get__(self, estimator: Any, kind: type) -> Any:
        if estimator is None:
            return self
        raise AttributeError(
            f"this {kind.__name__} has no labels_: it is not fitted, or was loaded or copied without them, "
            "or the clients keep their rows and labels elsewhere. predict(X) labels rows that you have."
        )


class Claimed(BaseEstimator):
    """Adds the privacy claim to an estimator, and keeps the clients out of its copies.

    Attributes:
        privacy_spent_: what is claimed, and against whom; None without differential privacy.
        privacy_claim_: the same; for a seeded run it says that the run is not private.
        transcript_: record of the run.
        federation_: the federation, which answers further questions.
        n_features_in_: number of columns.
    """

    privacy_claim_: PrivacySpent | None
    feature_names_in_: Any
    n_features_in_: int

    @property
    def privacy_spent_(self) -> PrivacySpent | None:
        """What is claimed, and against whom; None without differential privacy and for a seeded run."""
        return unless_seeded(self.privacy_claim_)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy: the model and its record, without the federation.

        Under differential privacy it has only what follows from noised totals. Labels are left out, as they
        are computed from rows and no budget covers them.
        """
        state: dict[str, Any] = super().__getstate__()
        left = {"federation_"}
        if state.get("privacy_claim_") is not None or state.get("privacy") is not None:
            left.add("labels_")
        return {name: value for name, value in state.items() if name not in left}


NOT_PART_OF_THE_AGREEMENT = (
    *("run_dir", "random_state", "protocol", "engine", "policy", "domain", "metrics", "scale"),
)
"""Parameters that the agreement holds elsewhere, or that are a party's own."""


def plain_params(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters that JSON can hold; objects are left out."""
    kept: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, np.integer | np.floating):
            value = value.item()
        if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
            value = json.loads(json.dumps(value, default=lambda one: np.asarray(one).tolist()))
        if value is None or isinstance(value, bool | int | float | str | list | dict):
            kept[name] = value
    return kept


FORMAT = 4
"""Format of saved models: version 0.4.0 wrote 3, which has centers alone. No release wrote 1 or 2."""

MODELS = Format(name="model.npz", version=FORMAT, again="fit and save again")

_FIELDS = tuple(one.name for one in fields(Privacy) if one.name not in ("domain", "paid_by"))
"""Parameters of a claim that a file holds as they are; who paid for a fit is not told on."""

_DOMAINS: dict[str, type[Box] | type[Ball]] = {"box": Box, "ball": Ball}


def privacy_to_dict(privacy: Privacy | None) -> dict[str, Any] | None:
    """Encode a model's `privacy` with its domain for JSON; None without it."""
    if privacy is None:
        return None
    domain = {"kind": privacy.domain.kind.lower(), **plain_bounds(privacy.domain)}
    return {**{name: getattr(privacy, name) for name in _FIELDS}, "domain": domain}


def privacy_from_dict(plain: Mapping[str, Any] | None) -> Privacy | None:
    """Decode what `privacy_to_dict` encoded."""
    if plain is None:
        return None
    bounds = dict(plain["domain"])
    domain = _DOMAINS[bounds.pop("kind")](**bounds)
    with warnings.catch_warnings():
        # A loose guarantee gave a warning when it was declared; reading it again needs none.
        warnings.simplefilter("ignore", UserWarning)
        return Privacy(domain=domain, **{name: plain[name] for name in _FIELDS if name in plain})


def plain_bounds(domain: Domain) -> dict[str, Any]:
    """Return the fields of a domain as values that JSON can hold."""
    return {name: np.asarray(value).tolist() for name, value in asdict(domain).items()}


Arrays = Mapping[str, npt.NDArray[np.float64]]


class Saved(Claimed):
    """An estimator that `save` writes and `privfed.load` reads."""

    @abstractmethod
    def _stored(self) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, Any]] | None:
        """Return the arrays and further facts of a fitted estimator, as JSON has them; None before a fit."""

    @abstractmethod
    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Take the fitted attributes from a file, besides the claim and the columns' names.

        Raises:
            ValueError: arrays or facts do not fit together.
        """

    def _named(self) -> dict[str, Any]:
        """Return names for parameters that JSON cannot hold, for the agreement and for `save`."""
        return {}

    def _save_in(self, folder: str | Path | None) -> None:
        """Write the model into a run's folder: what is asked after the fit may fail."""
        if folder is not None:
            with replaced(Path(folder) / MODEL) as path:
                self.save(path)

    def save(self, path: str | Path) -> None:
        """Write the fitted model with its claim to one `.npz` file (no pickle); `privfed.load` reads it.

        For a class of your own the file holds what every model has, and the parameters; other fitted
        attributes are not stored, and `load` needs the class. Only its owner may read the file.
        """
        stored = self._stored()
        if stored is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")
        if not isinstance(path, str | Path):
            raise ArgumentError(f"path must be that of a file, got {path!r}.")
        (arrays, more), names = stored, vars(self).get("feature_names_in_")
        facts = {
            "format": FORMAT,
            "class": stored_name(type(self)),
            "params": plain_params(self) | self._named(),
            "privacy": privacy_to_dict(self.get_params(deep=False)["privacy"]),
            "privacy_claim": None if self.privacy_claim_ is None else self.privacy_claim_.to_dict(),
            "columns": None if names is None else list(map(str, names)),
            **more,
        }
        with open_file(Path(path), "wb") as file:
            np.savez(file, **arrays, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8))  # type: ignore[arg-type]


class SavedNumbers(Saved):
    """A transformer whose fitted attributes are numbers: `save` writes those that `fitted_numbers` names."""

    fitted_numbers: ClassVar[tuple[str, ...]]
    """Names of the attributes; which of them a fit sets depends on its parameters."""

    def _stored(self) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, Any]] | None:
        own = vars(self)
        numbers = {name: np.asarray(own[name]).tolist() for name in self.fitted_numbers if name in own}
        origins = {name: str(origin_of(own[name])) for name in numbers}
        facts = {"numbers": numbers, "origins": origins, "n_features": own.get("n_features_in_")}
        return ({}, facts) if numbers else None

    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        if not set(facts["numbers"]) <= set(self.fitted_numbers):
            raise ValueError("facts that no fit has")
        for name, value in facts["numbers"].items():
            table = np.asarray(value, dtype=np.float64)
            if not np.isfinite(table).all():
                raise ValueError("numbers that are not finite")
            # Version 0.4.0 wrote no origins: what it found is exact, unless a claim is beside it.
            origin = Origin(facts.get("origins", {}).get(name, origin_under(facts["privacy_claim"])))
            setattr(self, name, released(table, origin) if table.ndim else value)
        self.n_features_in_ = int(facts["n_features"])
