"""Constructs estimators and secure sums from their parameters in a study, and finds its metrics."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import msgspec

from privfed.core.roles.secure_sum import SecureSum
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.local_centers import FKM, KFED
from privfed.estimators.registry import ESTIMATORS
from privfed.experiments.study.cells import Setup
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.study import MEASURES, Words
from privfed.metrics.registry import METRICS
from privfed.privacy.privacy import Privacy
from privfed.protocols.registry import SECURE_SUMS
from privfed.protocols.slotted import Slotted

_OURS = ("protocol", "privacy", "engine", "domain", "run_dir", "random_state", "cohorts")
"""Parameters of estimators that are axes of the study, or cannot be written in a file."""


def check_words(kind: Callable[..., Any], words: Words) -> None:
    """Check that a class has parameters.

    Raises:
        ArgumentError: it does not have one of them.
    """
    known = inspect.signature(kind).parameters
    for word in words:
        if word not in known or word in _OURS:
            listed = ", ".join(name for name in known if name not in _OURS) or "none"
            raise ArgumentError(f"{word} is no parameter of {_called(kind)}; it has {listed}.")


def _called(kind: Callable[..., Any]) -> str:
    return kind.__name__ if isinstance(kind, type | FunctionType) else repr(kind)


def make(kind: Callable[..., Any], words: Words) -> Any:
    """Construct an object from its parameters.

    Raises:
        ArgumentError: it does not have one of the parameters, or one is out of its bounds.
    """
    check_words(kind, words)
    try:
        return kind(**words)
    except TypeError as error:
        raise ArgumentError(f"{_called(kind)} cannot be made of these parameters: {error}.") from None


def metric_function(name: str) -> Callable[..., float]:
    """Return the metric that a study's file names, registered or as "module:function".

    Raises:
        ArgumentError: there is no such function.
    """
    if name not in METRICS and ":" not in name:
        known = ", ".join(dict.fromkeys([*MEASURES, *METRICS]))
        raise ArgumentError(f"metrics must be some of {known}, or module:function of your own; got {name!r}.")
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
    kind = ESTIMATORS.resolve(name)
    if isinstance(kind, type) and issubclass(kind, FederatedClusterer | FederatedModel):
        return kind
    raise ArgumentError(f"estimator must be a class of estimators, such as DWFKMeans; got {name!r}.")


def secure_sum(setup: Setup) -> SecureSum:
    """Return the configured secure sum of a cell, with slots where `merge="slotted"` asks for them.

    In Python slots belong to the secure sum. A study, like the command line, names only what they are for.
    """
    kind = SECURE_SUMS.resolve(setup.protocol)
    made: SecureSum = make(kind, setup.protocol_words) if setup.protocol_words else kind()
    wanted = _slotted_sums(make(estimator_class(setup.estimator), setup.words))
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
    return {} if "n_classes" in setup.words else {"n_classes": max(2, known)}


def estimator(setup: Setup, scene: Scene, seed: int) -> Fitted:
    """Return the unfitted estimator of a cell."""
    privately = setup.privacy
    privacy = None
    if privately is not None:
        if scene.domain is None:
            raise ArgumentError("epsilon needs a declared domain: give low and high in [[data]].")
        words = {k: v for k, v in msgspec.to_builtins(privately).items() if k != "rehearsal"}
        with warnings.catch_warnings():
            # Studies compare loose guarantees with tight ones on purpose, so the warning is suppressed.
            warnings.simplefilter("ignore", UserWarning)
            privacy = Privacy(**words, domain=scene.domain, noise_seed=seed if privately.rehearsal else None)
    made: Fitted = make(estimator_class(setup.estimator), setup.words)
    if isinstance(made, FederatedModel):
        made.set_params(**_of_models(made, setup, scene))
    domain = None if privacy is not None else scene.domain
    made.set_params(protocol=secure_sum(setup), privacy=privacy, domain=domain, random_state=seed)
    return made
