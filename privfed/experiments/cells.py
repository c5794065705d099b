"""Cells of a study: each is one fit, identified by a hash of all that it depends on.

A cell also makes its estimator and its secure sum from their parameters.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import msgspec

import privfed
from privfed.attacks import ActiveAttack
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.names import ATTACKS
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.local_centers import FKM, KFED
from privfed.estimators.registry import ESTIMATORS
from privfed.experiments.datasets import Scene
from privfed.experiments.study import MEASURES, Attack, Data, Parameters, Partition
from privfed.metrics.named import METRICS
from privfed.privacy.claim import Privacy
from privfed.protocols.secure_sums import SECURE_SUMS
from privfed.protocols.slotted import Slotted

FORMAT = 3
"""Part of every hash; raised when the meaning of cells changes."""

USUAL = (Noise.DISTRIBUTED, Mechanism.GAUSSIAN)
"""Default noise, which the report does not name."""

AXES = ("data", "partition", "algorithm", "sum", "privacy", "defence")


class CellPrivacy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds one guarantee: parameters of `Privacy`, and whether the cell's seed draws its noise."""

    epsilon: float
    delta: float
    unit: Unit
    neighbours: Neighbours
    noise: Noise
    seeded: bool
    mechanism: Mechanism = Mechanism.GAUSSIAN


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that a cell depends on except its seed.

    Args:
        labels: axis -> name of this point in the report; not part of the hash.
        data: the data set to load.
        digest: hash of the data.
        source: what the data are read from, however they are scaled then; not part of the hash.
        estimator: name of the class; `parameters` are its own, including those of the defence.
        protocol: name of the secure sum; `protocol_parameters` are its parameters.
        attacks: attacks that are run on each cell; not part of the hash.
        fits: numbers of fits that passive attacks read together; not part of the hash.
        further_n_clusters: those of the fits after the first, in turn; empty for the same.
        joining: number of rows that join, one before each fit after the first.
        audit: number of draws with which the releases are audited; not part of the hash.
        metrics: metrics that the study names beside `MEASURES`; not part of the hash.
    """

    labels: dict[str, str]
    data: Data
    digest: str
    source: str
    partition: Partition
    estimator: str
    parameters: Parameters
    protocol: str
    protocol_parameters: Parameters
    privacy: CellPrivacy | None
    attacks: list[Attack]
    fits: list[int] = msgspec.field(default_factory=list)
    further_n_clusters: list[int] = msgspec.field(default_factory=list)
    joining: int = 0
    audit: int = 0
    metrics: list[str] = msgspec.field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        """The values that the hash is computed from, for JSON."""
        how = msgspec.to_builtins(self.partition)
        later = {"further_n_clusters": self.further_n_clusters, "joining": self.joining}
        return {
            "format": FORMAT,
            "privfed": privfed.__version__,
            "data": self.digest,
            "domain": [self.data.low, self.data.high],
            "public": self.data.public,
            "partition": {name: value for name, value in how.items() if name != "name"},
            "estimator": self.estimator,
            "parameters": self.parameters,
            "protocol": self.protocol,
            "protocol_parameters": self.protocol_parameters,
            "privacy": None if self.privacy is None else msgspec.to_builtins(self.privacy),
        } | {name: value for name, value in later.items() if value}

    def stored(self, seed: int) -> dict[str, Any]:
        """Return what is kept beside one seed's cell, for JSON."""
        return self.content | {"seed": seed, "source": self.source}

    @property
    def id(self) -> str:
        """Id of the configuration, ten hexadecimal digits."""
        return _hash(self.content)

    @property
    def title(self) -> str:
        """Names of its tables in one line."""
        return " / ".join(self.labels.values())

    def cell(self, seed: int) -> str:
        """Return the id of one seed's cell."""
        return _hash(self.content | {"seed": seed})

    def parts(self) -> list[str]:
        """Return the parts of a cell, stored separately: the fit, each attack, on several fits too, ..."""
        audited = self.privacy is not None and self.audit
        return [
            "fit",
            *map(attack_id, self.attacks),
            *map(self.fits_id, self.pooling),
            *map(metric_id, self.metrics),
            *([f"audit:{self.audit}"] if audited else []),
        ]

    @property
    def pooling(self) -> list[Attack]:
        """The attacks that also read several fits together: passive ones, on fits of clusters."""
        if not self.fits or issubclass(estimator_class(self.estimator), FederatedModel):
            return []
        return [one for one in self.attacks if not issubclass(attack_class(one.kind), ActiveAttack)]

    def asked(self, parts: Iterable[str]) -> int:
        """Return how often the same rows are asked under a claim where a cell measures some of its parts.

        These are the fit, the further ones that attacks read together, and active attacks, each of which
        asks what a fit could have spent. An attack that no client would answer counts too.
        """
        measured = set(parts)
        pooled = any(self.fits_id(one) in measured for one in self.pooling)
        active = {attack_id(one) for one in self.attacks if issubclass(attack_class(one.kind), ActiveAttack)}
        return (self.fits[-1] if pooled else 1) + len(active & measured)

    def further(self, number: int) -> Setup:
        """Return what the fit of a number after the first runs."""
        if not self.further_n_clusters:
            return self
        n_clusters = self.further_n_clusters[(number - 1) % len(self.further_n_clusters)]
        return msgspec.structs.replace(self, parameters=self.parameters | {"n_clusters": n_clusters})

    def fits_id(self, attack: Attack) -> str:
        """Return the name under which a cell stores what an attack gets of several fits."""
        return f"fits:{','.join(map(str, self.fits))}:{attack_id(attack)}"


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def attack_id(attack: Attack) -> str:
    """Return the name under which a cell stores the result of an attack."""
    content = msgspec.to_builtins(attack) | {"kind": ATTACKS.canonical(attack.kind)}
    return f"attack:{_hash({k: v for k, v in content.items() if k not in ('name', 'sums', 'algorithms')})}"


def metric_id(metric: str) -> str:
    """Return the name under which a cell stores a metric that a study names."""
    return f"metric:{metric}"


def privacy_title(privacy: CellPrivacy | None) -> str:
    """Return the name of a guarantee in the report."""
    if privacy is None:
        return "none"
    named = [privacy.unit, *(one for one in (privacy.noise, privacy.mechanism) if one not in USUAL)]
    return f"epsilon {privacy.epsilon:g}, {' '.join(named)}"


_OURS = ("protocol", "privacy", "engine", "domain", "run_dir", "random_state", "cohorts")
"""Parameters of estimators that are axes of the study, or cannot be written in a file."""

GROUP_SIZE = "group_size"
"""What a study names of the clients' policy."""


def check_parameters(kind: Callable[..., Any], parameters: Iterable[str]) -> None:
    """Check that a class has parameters.

    Raises:
        ArgumentError: it does not have one of them.
    """
    known = [GROUP_SIZE if name == "policy" else name for name in inspect.signature(kind).parameters]
    for name in parameters:
        if name not in known or name in _OURS:
            raise ArgumentError(
                f"{name} is no parameter of {_called(kind)}; it has "
                f"{', '.join(one for one in known if one not in _OURS) or 'none'}."
            )


def _called(kind: Callable[..., Any]) -> str:
    return kind.__name__ if isinstance(kind, type | FunctionType) else repr(kind)


def make(kind: Callable[..., Any], parameters: Parameters) -> Any:
    """Construct an object from its parameters.

    Raises:
        ArgumentError: it does not have one of the parameters, or one is out of its bounds.
    """
    check_parameters(kind, parameters)
    given: dict[str, Any] = dict(parameters)
    if GROUP_SIZE in given:
        given["policy"] = ClientPolicy(group_size=given.pop(GROUP_SIZE))
    try:
        return kind(**given)
    except TypeError as error:
        raise ArgumentError(f"{_called(kind)} cannot be made of these parameters: {error}.") from None


def metric_function(name: str) -> Callable[..., float]:
    """Return the metric that a study's file names, registered or as "module:function".

    Raises:
        ArgumentError: there is no such function.
    """
    if name not in METRICS and ":" not in name:
        raise ArgumentError(
            f"metrics must be some of {', '.join(dict.fromkeys([*MEASURES, *METRICS]))}, or module:function "
            f"of your own; got {name!r}."
        )
    found: object = METRICS.resolve(name)
    if not callable(found):
        raise ArgumentError(f"metrics must be functions of clients and centers; {name!r} is none.")
    return found


Fitted = FederatedClusterer | FederatedModel
"""What a study fits: clusters of rows, or models."""


def estimator_class(name: str) -> type[Fitted]:
    """Return the class of estimators that a study's file names, registered or as "module:Class".

    Raises:
        ArgumentError: there is no such class.
    """
    if name not in ESTIMATORS and ":" not in name:
        raise ArgumentError(
            "estimator must be one of "
            + ", ".join(one for one in ESTIMATORS if isinstance(ESTIMATORS.find(one), type))
            + f", or module:Class of your own; got {name!r}."
        )
    kind = ESTIMATORS.resolve(name)
    if isinstance(kind, type) and issubclass(kind, FederatedClusterer | FederatedModel):
        return kind
    # A function, such as `lloyd`, sets parameters, which the study's table must show.
    raise ArgumentError(
        f"estimator must be a class of estimators, such as DWFKMeans (for lloyd with local_iter = 1); "
        f"got {name!r}."
    )


def secure_sum(setup: Setup) -> SecureSum:
    """Return the configured secure sum of a cell, with slots where `merge="slotted"` asks for them.

    In Python slots belong to the secure sum. A study, like the command line, names only what they are for.
    """
    made: SecureSum = make(SECURE_SUMS.resolve(setup.protocol), setup.protocol_parameters)
    wanted = _slotted_sums(make(estimator_class(setup.estimator), setup.parameters))
    return Slotted(made, sums=wanted) if wanted and not isinstance(made, Slotted) else made


def _slotted_sums(model: Fitted) -> int:
    """Return in how many sums of a fit slots show what clients send."""
    if isinstance(model, FederatedModel):
        return model.slotted_sums
    return model.gathered_sums if isinstance(model, FKM | KFED) and model.merge == "slotted" else 0


def _of_models(model: FederatedModel, setup: Setup, scene: Scene) -> dict[str, Any]:
    """Return what estimators of models take from the data: how many classes there are.

    Raises:
        ArgumentError: the rows have no labels.
    """
    if scene.labels is None:
        raise ArgumentError("training needs labels: take data with labels (label = ... in [[data]]).")
    known = 1 + max((int(own.max()) for own in scene.labels if len(own)), default=1)
    return {} if "n_classes" in setup.parameters else {"n_classes": max(2, known)}


def estimator(setup: Setup, scene: Scene, seed: int) -> Fitted:
    """Return the unfitted estimator of a cell."""
    asked = setup.privacy
    privacy = None
    if asked is not None:
        if scene.domain is None:
            raise ArgumentError("epsilon needs a declared domain: give low and high in [[data]].")
        if setup.data.standardise and not asked.seeded:
            raise ArgumentError(
                "standardise scales by the pooled rows, so that nothing is claimed: give center and unit in "
                "[[data]], or take seeded = true."
            )
        named = {k: v for k, v in msgspec.to_builtins(asked).items() if k != "seeded"}
        with warnings.catch_warnings():
            # Studies compare loose guarantees with tight ones on purpose, so the warning is suppressed.
            warnings.simplefilter("ignore", UserWarning)
            privacy = Privacy(**named, domain=scene.domain, noise_seed=seed if asked.seeded else None)
    made: Fitted = make(estimator_class(setup.estimator), setup.parameters)
    if isinstance(made, FederatedModel):
        if asked is not None and not asked.seeded:
            raise ArgumentError(
                "a study finds the classes of labels in the rows, so that nothing is claimed of models: take "
                "seeded = true."
            )
        made.set_params(**_of_models(made, setup, scene))
    elif made.scale is not None and made.policy is not None and made.policy.group_size > 1:
        # Groups are those of rows before scaling, which attacks and scores here would form anew.
        raise ArgumentError("a study takes scale or group_size; scale rows with standardise in [[data]].")
    domain = None if privacy is not None else scene.domain
    made.set_params(protocol=secure_sum(setup), privacy=privacy, domain=domain, random_state=seed)
    return made
