"""The public knowledge that an attacker has before it sees a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Holds the public knowledge of an attacker. It must not be taken from the data that is attacked.

    Args:
        sample: rows of the same kind as the clients' (public data), float64 of shape (n, n_features).
        low: smallest value of each feature, float64 of shape (n_features,).
        high: largest value of each feature, float64 of shape (n_features,).
        n_clients: number of clients.
        colluders: position of a colluding client -> its rows, float64 of shape (n_rows, n_features).
    """

    sample: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    n_clients: int | None = None
    colluders: Mapping[int, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, given in (("sample", self.sample), ("low", self.low), ("high", self.high)):
            if given is not None:
                object.__setattr__(self, name, frozen_array(as_numbers(f"{name} of the prior", given)))
        if self.sample is not None and (self.sample.ndim != 2 or not self.sample.size):
            raise ArgumentError(
                f"sample needs rows and columns, got shape {self.sample.shape}.", parameters=["sample"]
            )
        if (self.low is None) != (self.high is None):
            raise ArgumentError("low and high of the prior go together; pass both or none.")

    def guesses(self, n: int, rng: np.random.Generator) -> FloatArray | None:
        """Draw rows from the prior alone: from the sample, else uniformly between `low` and `high`.

        Returns:
            float64 of shape (n, n_features); None if the prior has neither.
        """
        if self.sample is not None:
            return self.sample[rng.integers(len(self.sample), size=n)]
        if self.low is not None and self.high is not None:
            return rng.uniform(self.low, self.high, (n, len(self.low)))
        return None
