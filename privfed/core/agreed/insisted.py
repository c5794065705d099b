"""What a client's policy says of a fit as a whole: its algorithm, its guarantee, and what was given before.

Everything here depends on the agreement and the journal only, never on rows: a refusal tells nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.described import N_CLUSTERS, names_of, start_named, values_of
from privfed.core.agreed.given import Given
from privfed.core.values.guarantee import Neighbours, Noise, Unit, Word
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError

SLACK = 1e-9
"""Relative room for rounding where epsilons of several fits are added."""


@dataclass(frozen=True, kw_only=True)
class Insisted:
    """Holds the part of a client's policy that is about fits as a whole; see `ClientPolicy`.

    It bounds what the agreement says. That the sums asked are those of the agreed algorithm is another check.
    """

    algorithms: frozenset[str] | None = None
    inits: frozenset[str] | None = None
    max_restarts: int | None = None
    rows_per_cluster: int | None = None
    require_privacy: bool = False
    max_epsilon: float | None = None
    max_delta: float | None = None
    units: frozenset[str] | None = None
    neighbours: frozenset[str] | None = None
    noise: frozenset[str] | None = None
    max_fits: int | None = None
    max_losses: int | None = None
    max_starts: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_restarts", "rows_per_cluster"):
            check_whole(name, getattr(self, name), 1, or_none=True)
        for name in ("max_fits", "max_losses", "max_starts"):
            check_whole(name, getattr(self, name), 0, or_none=True)
        if not isinstance(self.require_privacy, bool):
            raise ArgumentError(f"require_privacy must be True or False, got {self.require_privacy!r}.")
        for name in ("max_epsilon", "max_delta"):
            _check_bound(name, getattr(self, name))
        for name in ("algorithms", "inits"):
            check_listed(name, getattr(self, name))
        words: dict[str, type[Word]] = {"units": Unit, "neighbours": Neighbours, "noise": Noise}
        for name, kind in words.items():
            check_listed(name, getattr(self, name))
            for word in getattr(self, name) or ():
                kind.read(name, word)

    @property
    def claims(self) -> bool:
        """Whether only fits under differential privacy are joined."""
        return self.require_privacy or self.max_epsilon is not None or self.max_delta is not None

    def refuses_algorithm(self, configuration: Configuration) -> str | None:
        """Return the code of the refusal of what runs, or None."""
        program = configuration.program
        if self._crowded(configuration):
            return "policy:rows_per_cluster"
        if (self.algorithms, self.inits, self.max_restarts) == (None, None, None):
            return None
        if program is None:
            # Of what declares nothing, nothing is known.
            return "policy:algorithm"
        if self.algorithms is not None and not set(names_of(program)) <= set(self.algorithms):
            return "policy:algorithm"
        starts = map(start_named, values_of(program.algorithm, "init"))
        if self.inits is not None and any(one not in self.inits for one in starts):
            return "policy:init"
        restarts = values_of(program.algorithm, "n_init")
        if self.max_restarts is not None and not all(_at_most(one, self.max_restarts) for one in restarts):
            return "policy:n_init"
        return None

    def _crowded(self, configuration: Configuration) -> bool:
        """Say whether there are more clusters than the agreed most rows of all clients justify."""
        agreed = None if configuration.program is None else configuration.program.algorithm
        found = [configuration.n_clusters, *values_of(agreed, *N_CLUSTERS)]
        clusters = [one for one in found if one is not None]
        if self.rows_per_cluster is None or not clusters:
            return False
        most = len(configuration.clients) * (configuration.max_rows or 0) // self.rows_per_cluster
        return not all(_at_most(one, most) for one in clusters)

    def refuses_claim(self, configuration: Configuration) -> str | None:
        """Return the code of the refusal of the agreed guarantee, or of its absence, or None."""
        terms = configuration.privacy
        if terms is None:
            return "policy:privacy" if self.claims else None
        if self.claims and terms.rehearsal:
            return "policy:rehearsal"
        for name, word in (("unit", terms.unit), ("neighbours", terms.neighbours), ("noise", terms.noise)):
            listed = getattr(self, "units" if name == "unit" else name)
            if listed is not None and word not in listed:
                return f"policy:{name}"
        return None

    def refuses_after(self, configuration: Configuration, given: Given) -> str | None:
        """Return the code of the refusal of one more fit after what was given, or None.

        Epsilons and deltas are added (basic composition), of whatever unit and neighbours they are, the whole
        agreed ones of each fit that began.

        Args:
            configuration: of the fit that would begin.
            given: what the same rows have given before; nothing where no journal is kept.
        """
        terms = configuration.privacy
        epsilon, delta = (inf, 1.0) if terms is None else (terms.epsilon, terms.delta)
        if self.max_fits is not None and given.fits >= self.max_fits:
            return "policy:max_fits"
        if self.max_losses is not None and given.losses > self.max_losses:
            return "policy:max_losses"
        if self.max_epsilon is not None and given.epsilon + epsilon > self.max_epsilon * (1 + SLACK):
            return "policy:max_epsilon"
        if self.max_delta is not None and given.delta + delta > self.max_delta * (1 + SLACK):
            return "policy:max_delta"
        if self.claims and given.unprotected:
            return "policy:unprotected"
        return None


def _at_most(value: object, most: int) -> bool:
    return type(value) is int and value <= most


def _check_bound(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 < float(value) < inf):  # type: ignore[arg-type]
        raise ArgumentError(f"{name} must be None or a number above 0 and finite, got {name}={value!r}.")


def check_listed(name: str, value: object) -> None:
    """Check that a setting of a policy is None or a set of names; raises `ArgumentError`."""
    listed = isinstance(value, frozenset | set | list | tuple) and all(isinstance(one, str) for one in value)
    if value is not None and not listed:
        raise ArgumentError(f"{name} must be None or a set of names, got {name}={value!r}.")
