"""From words to estimators, secure sums and attacks."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import msgspec

import privfed
from privfed import attacks
from privfed.attacks import ActiveAttack, PassiveAttack
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.experiments.study.cells import Setup
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.study import Words
from privfed.privacy.privacy import Privacy
from privfed.protocols import by_name

_OURS = ("protocol", "privacy", "engine", "domain", "run_dir", "random_state", "cohorts")
"""Words of estimators that are axes of the study, or have no place in a file."""


def _classes(module: Any, base: type) -> dict[str, type]:
    return {k: v for k, v in vars(module).items() if inspect.isclass(v) and issubclass(v, base)}


ESTIMATORS: dict[str, type[FederatedClusterer]] = _classes(privfed, FederatedClusterer)
ATTACKS: dict[str, type] = {
    name: kind
    for base in (PassiveAttack, ActiveAttack)
    for name, kind in _classes(attacks, base).items()
    if not inspect.isabstract(kind)
}


def check_words(kind: type, words: Words) -> None:
    """Check that a class takes words.

    Raises:
        ArgumentError: it has no such word.
    """
    known = inspect.signature(kind).parameters
    for word in words:
        if word not in known or word in _OURS:
            listed = ", ".join(name for name in known if name not in _OURS) or "none"
            raise ArgumentError(f"{word} is no word of {kind.__name__}; it has {listed}.")


def make(kind: type, words: Words) -> Any:
    """Construct an object of words.

    Raises:
        ArgumentError: it has no such word, or one is out of its bounds.
    """
    check_words(kind, words)
    try:
        return kind(**words)
    except TypeError as error:
        raise ArgumentError(f"{kind.__name__} cannot be made of these words: {error}.") from None


def secure_sum(setup: Setup) -> SecureSum:
    """Return the configured secure sum of a cell."""
    known = by_name(setup.protocol)
    made: SecureSum = make(type(known), setup.protocol_words) if setup.protocol_words else known
    return made


def estimator(setup: Setup, scene: Scene, seed: int) -> FederatedClusterer:
    """Return the unfitted estimator of a cell."""
    privately = setup.privacy
    privacy = None
    if privately is not None:
        if scene.domain is None:
            raise ArgumentError("epsilon needs a declared domain: give low and high in [[data]].")
        words = {k: v for k, v in msgspec.to_builtins(privately).items() if k != "rehearsal"}
        with warnings.catch_warnings():
            # A study compares loose guarantees with tight ones on purpose.
            warnings.simplefilter("ignore", UserWarning)
            privacy = Privacy(**words, domain=scene.domain, noise_seed=seed if privately.rehearsal else None)
    made: FederatedClusterer = make(ESTIMATORS[setup.estimator], setup.words)
    domain = None if privacy is not None else scene.domain
    made.set_params(protocol=secure_sum(setup), privacy=privacy, domain=domain, random_state=seed)
    return made
