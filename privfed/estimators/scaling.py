"""Fits on scaled rows: each client maps its own columns by public numbers, which sums have found.

Rows are `(row - shift) / scale`, column by column. What clients know beforehand is not asked: "range" over a
declared `Box` maps it to [0, 1]. Otherwise `FederatedScaler` finds the numbers before the fit, in an
agreement and a transcript of its own (`scaling` in the run's folder). The agreement of the fit names them
(decision 044). Under differential privacy it takes a share of the fit's claim, and both compose to it.

Columns that are one together, as the categories of a ward, are divided by the root of the sum of their
variances; with "robust" also by the interquartile range of a Gaussian. With "range" they keep the schema's
weights. Of two rows that are drawn independently, a category then adds 2 to the mean squared distance, as a
standardised number does.

Reveals: what `FederatedScaler` reveals, then what the fit reveals. Whoever knows shift and scale maps the
totals of the fit back to the columns' units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.record.records import SCALING
from privfed.core.record.transcript import Transcript, has_begun
from privfed.core.values.domain import Box, Domain, FloatArray
from privfed.core.values.origin import Origin, joined, origin_of, released
from privfed.errors import ArgumentError
from privfed.estimators.fitting import check_declared
from privfed.federation.clients import Clients
from privfed.federation.driver import Watcher
from privfed.federation.opening import claim_of
from privfed.federation.request import protocol_of
from privfed.federation.simulation import MappedGroups
from privfed.privacy.claim import Privacy, PrivacySpent
from privfed.privacy.derived import derived
from privfed.privacy.derived import parts as parts_of
from privfed.questions.histograms import GAUSSIAN_IQR

if TYPE_CHECKING:
    from privfed.estimators.moments import FederatedScaler

SHARES = {"standard": 0.3, "robust": 0.25}
"""Kind -> share of a claim's budget for what it learns (docs/algorithms/dp_kmeans.md)."""

LEAST_OF_EVEN = 0.5
"""Least variance of the categories of a column under a claim, as a share of that of equally frequent ones."""

_ALIKE = ("protocol", "engine", "policy", "domain", "random_state")
"""Parameters that scaling and fit have in common."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rows are scaled before they are compared with centers.

    Args:
        kind: "standard", "range" or "robust".
        shift: what is subtracted of each column, in its unit.
        scale: what the rest is divided by; above 0.
        origin: where these numbers come from, and so the domain of scaled rows.
    """

    kind: str
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    origin: Origin = Origin.DECLARED

    def __post_init__(self) -> None:
        shift, scale = np.array(self.shift), np.array(self.scale)
        if shift.shape != scale.shape or not (np.isfinite([shift, scale]).all() and (scale > 0.0).all()):
            raise ArgumentError("a scaling needs a finite shift and a scale above 0 for each column.")

    @classmethod
    def of(cls, kind: str, shift: FloatArray, scale: FloatArray, origin: Origin = Origin.DECLARED) -> Scaling:
        """Return a scaling by arrays of shape (n_features,)."""
        origin = joined(origin, origin_of(shift), origin_of(scale))
        return cls(kind, tuple(shift.tolist()), tuple(scale.tolist()), origin)

    def scaled(self, rows: Any) -> FloatArray:
        """Return scaled rows, float64 of the shape of `rows`, (n, n_features)."""
        found = (np.asarray(rows, dtype=np.float64) - self.shift) / self.scale
        return released(found, Origin.DECLARED, scaled=True)

    def original(self, rows: Any) -> FloatArray:
        """Return rows or centers in the columns' units, as they were before `scaled`."""
        return released(
            np.asarray(rows, dtype=np.float64) * self.scale + self.shift, joined(self.origin, origin_of(rows))
        )

    def domain(self, declared: Domain | None, n_features: int) -> Box | None:
        """Return a declared domain after scaling; None for none.

        Raises:
            ArgumentError: it is a ball, which scaling makes an ellipsoid.
        """
        if declared is None:
            return None
        low, high = _box(declared).bounds(n_features)
        low, high = (
            released(end, joined(self.origin, declared.origin)) for end in self.scaled(np.stack([low, high]))
        )
        return Box(low, high, max_rows=declared.max_rows)

    def clients(self, clients: Clients, policy: Any) -> Clients:
        """Return clients with scaled rows, in the same groups of rows.

        Args:
            clients: with rows in this process.
            policy: of the clients, which says how large groups are.
        """
        groups = None if clients.groups is None else MappedGroups(clients.groups, self.scaled)
        size = 1 if policy is None else policy.group_size
        seen = {}
        if groups is None and size > 1:
            # Arrays keep no groups: those of the first sum stay, since new ones would show other means.
            seen = {size: self._data(clients.answering(policy) or ())}
        return replace(clients, data=self._data(clients.here), groups=groups, seen=seen, scaling=self)

    def _data(self, data: Sequence[ClientData]) -> tuple[ClientData, ...]:
        return tuple(
            ClientData(
                self.scaled(one.features),
                one.labels,
                grouped=one.grouped,
                classes=one.classes,
                times=one.times,
                users=one.users,
            )
            for one in data
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        found: dict[str, Any] = {"kind": self.kind, "shift": list(self.shift), "scale": list(self.scale)}
        return found if self.origin == Origin.DECLARED else found | {"origin": str(self.origin)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any] | None) -> Scaling | None:
        """Read what `to_dict` wrote; None for None."""
        if plain is None:
            return None
        shift, scale = (tuple(map(float, plain[name])) for name in ("shift", "scale"))
        return cls(str(plain["kind"]), shift, scale, Origin(plain.get("origin", Origin.DECLARED)))


def _box(domain: Domain) -> Box:
    if not isinstance(domain, Box):
        raise ArgumentError(
            f"scale= maps a Box, and the domain is a {domain.kind}; declare a Box, or leave scale out.",
            parameters=["scale", "domain"],
        )
    return domain


def scaling_of_run(transcript: Transcript) -> Scaling | None:
    """Return the scaling that the agreement of a fit names; None without one."""
    try:
        named = json.loads(transcript.configuration.algorithm)
    except ValueError:
        return None  # Another library's or an own description.
    return Scaling.from_dict(named.get("scaled")) if isinstance(named, dict) else None


def scaled_as(transcript: Transcript) -> Callable[[FloatArray], FloatArray]:
    """Return how the rows of a run were mapped before any sum saw them: as its agreement says."""
    found = scaling_of_run(transcript)
    return (lambda rows: rows) if found is None else found.scaled


class Learnt(NamedTuple):
    """What was learnt before a fit.

    Args:
        scaling: how rows are scaled.
        model: an unfitted copy of the model, with the domain, claim and start of scaled rows.
        claim: what learning it took of the model's claim; None where it released nothing of rows under one.
    """

    scaling: Scaling
    model: Any
    claim: PrivacySpent | None


def learnt(model: Any, clients: Clients) -> Learnt:
    """Learn the scaling that a model's parameters ask for, from the clients where they must be asked.

    Under differential privacy it takes a share of the model's claim (`SHARES`), and the copy has the rest.

    Raises:
        ArgumentError: the rows lie elsewhere, or the domain is a ball.
        PrivacyError: the claim is too small for two runs.
    """
    check_declared(model)
    kind, d, privacy = str(model.scale), clients.n_features, model.privacy
    parts = list(map(list, clients.blocks))
    if clients.data is None:
        raise ArgumentError(
            f"scale={kind!r} needs the rows in this process; clients elsewhere scale their own tables.",
            parameters=["scale"],
        )
    declared = model.domain if privacy is None else privacy.domain
    if declared is not None:
        low, high = _box(declared).bounds(d)
        if kind == "range":
            scaling = Scaling.of(kind, *_of_blocks(low, high - low, np.ones(d), parts))
            return Learnt(scaling, _on_scaled(model, scaling, d, privacy), None)
    # Imported here, since most fits ask for no moments.
    from privfed.estimators.moments import FederatedScaler

    folder = None if model.run_dir is None else Path(model.run_dir) / SCALING
    first, rest = (None, None) if privacy is None else parts_of(privacy, SHARES[kind])
    given = {name: model.get_params(deep=False)[name] for name in _ALIKE}
    scaler = FederatedScaler(model.scale, **given, privacy=first, run_dir=folder)
    if folder is not None and has_begun(folder):
        scaler.resume(clients)
    else:
        scaler.fit(clients)
    scaling = of_scaler(scaler, parts)
    return Learnt(scaling, _on_scaled(model, scaling, d, rest), scaler.privacy_claim_)


def of_scaler(scaler: FederatedScaler, blocks: Sequence[list[int]]) -> Scaling:
    """Return the scaling that a fitted scaler has found, in which columns of a block are one together."""
    kind, spread = scaler.scaling, np.ones(scaler.n_features_in_)
    for block in [] if kind == "range" else blocks:
        var, even = (
            scaler.var_[block].sum(),
            np.square(scaler.data_range_[block]).mean() * (1 - 1 / len(block)),
        )
        # Noise may hide all categories but one, which then would outweigh all else.
        var = var if scaler.privacy is None else max(var, LEAST_OF_EVEN * even)
        spread[block] = np.sqrt(var) * (1.0 if kind == "standard" else GAUSSIAN_IQR)
    spread = np.where(spread > 0.0, spread, 1.0)
    return Scaling.of(
        kind,
        *_of_blocks(*scaler.shift_and_scale(), spread, blocks),
        joined(*map(origin_of, scaler.shift_and_scale())),
    )


def _of_blocks(
    shift: FloatArray, scale: FloatArray, spread: FloatArray, blocks: Sequence[list[int]]
) -> tuple[FloatArray, FloatArray]:
    """Return shift and scale, where columns of a block are divided by one number and not shifted."""
    shift, scale = np.array(shift), np.array(scale)
    for own in blocks:
        shift[own], scale[own] = 0.0, spread[own]
    return shift, scale


def _on_scaled(model: Any, scaling: Scaling, n_features: int, privacy: Privacy | None) -> Any:
    parameters = model.get_params(deep=False)
    parameters["domain"] = scaling.domain(model.domain, n_features)
    if privacy is not None:
        parameters["privacy"] = derived(privacy, domain=scaling.domain(privacy.domain, n_features))
    if isinstance(parameters.get("init"), np.ndarray | list | tuple):
        parameters["init"] = scaling.scaled(parameters["init"])
    return type(model)(**parameters)


def as_given(models: Sequence[Any], given: Any) -> None:
    """Give fitted copies that `on_scaled` made the parameters that the user gave, for rows not yet scaled."""
    own = given.get_params(deep=False)
    for model in models:
        model.set_params(**{name: own[name] for name in ("domain", "privacy", "init") if name in own})


def fit_scaled(model: Any, clients: Clients, resume: bool, watch: Watcher | None) -> None:
    """Learn the scaling of a model, fit it on scaled rows, and set what the fit has found."""
    scaling, fitted, spent = learnt(model, clients)
    begun = model.run_dir is not None and has_begun(Path(model.run_dir))
    fitted._fit_clients(scaling.clients(clients, model.policy), resume and begun, watch)
    fitted.privacy_claim_ = claim_of(fitted.federation_, protocol_of(model.protocol), spent)
    parameters = fitted.get_params(deep=False)
    vars(model).update({name: value for name, value in vars(fitted).items() if name not in parameters})
