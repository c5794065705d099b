"""What a fitted estimator stores of itself in a file: named arrays and plain facts, never pickle."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privfed.core.stored.files import open_file
from privfed.errors import ArgumentError
from privfed.estimators.common.claimed import Claimed
from privfed.estimators.common.not_fitted import NotFittedError
from privfed.estimators.common.plain import plain_params
from privfed.estimators.common.stored import FORMAT, claim_to_dict, privacy_to_dict
from privfed.estimators.registry import stored_name

Arrays = Mapping[str, npt.NDArray[np.float64]]


class Saved(Claimed):
    """An estimator that `save` writes and `privfed.load` reads."""

    stored_arrays: tuple[str, ...] = ()
    """Names of the arrays in the file."""

    @abstractmethod
    def _stored(self) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, Any]] | None:
        """Return the arrays and further facts of a fitted estimator, as JSON has them; None before a fit."""

    @abstractmethod
    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Take the fitted attributes from a file; class, parameters and claim are set already.

        Raises:
            ValueError: arrays or facts do not fit together.
        """

    def _named(self) -> dict[str, Any]:
        """Return names for parameters that JSON cannot hold, for the agreement and for `save`."""
        return {}

    def save(self, path: str | Path) -> None:
        """Write the fitted model with its claim to one `.npz` file (no pickle); `privfed.load` reads it.

        For a class of your own the file holds what every model has, and the parameters; other fitted
        attributes are not stored, and `load` must be given the class. Only its owner may read the file.
        """
        stored = self._stored()
        if stored is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")
        if not isinstance(path, str | Path):
            raise ArgumentError(f"path must be that of a file, got {path!r}.")
        arrays, more = stored
        facts = {
            "format": FORMAT,
            "class": stored_name(type(self)),
            "params": plain_params(self) | self._named(),
            "privacy": privacy_to_dict(self.get_params(deep=False)["privacy"]),
            "privacy_claim": claim_to_dict(self.privacy_claim_),
            **more,
        }
        with open_file(Path(path), "wb") as file:
            np.savez(file, **arrays, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8))  # type: ignore[arg-type]
