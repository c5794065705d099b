"""Maps an estimator's parameters to its algorithm under differential privacy, or to an error with a remedy.

Only single steps of sums have a proven bound for one record: Lloyd's, a full batch's, a fuzzy one's. Several
local steps, and means that weight clients equally, are bounded only for a whole client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privfed.algorithms.fuzzy.fuzzy_sums import WeightedFuzzyCentroids
from privfed.algorithms.kmeans.minibatch import MiniBatchMovements
from privfed.algorithms.kmeans.weighted import WeightedCentroids
from privfed.algorithms.kmeans.weightings import check_weighting
from privfed.algorithms.private.fixed import FixedKMeans
from privfed.algorithms.private.kmeans import MOST_ROUNDS, PrivateKMeans, Steps
from privfed.algorithms.private.steps import FuzzyRelativeSums, LocalMovements
from privfed.algorithms.starts.kept import StartTotal
from privfed.core.asking.question import Question
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.guarantee import Noise, Unit
from privfed.errors import PrivacyError
from privfed.estimators.common.checks import check_init
from privfed.privacy.privacy import Privacy
from privfed.questions.bounded.bounded_sums import SumsInCells

Private = PrivateKMeans | FixedKMeans


@dataclass(frozen=True)
class FuzzyStep:
    """Asks for one fuzzy step over all rows, clipped row by row."""

    m: float

    def __call__(self, ranges: Ranges, centers: FloatArray, radius: float) -> SumsInCells:
        """Return the question of a round."""
        return FuzzyRelativeSums(ranges=ranges, centers=centers, radius=radius, m=self.m)


@dataclass(frozen=True)
class OwnSteps:
    """Asks how far clients' own steps move the centers, clipped client by client.

    Args:
        kind: type of the question that makes the steps.
        words: parameters of that question, besides ranges and centers.
    """

    kind: Callable[..., Question]
    words: tuple[tuple[str, Any], ...]

    def __call__(self, ranges: Ranges, centers: FloatArray, radius: float) -> SumsInCells:
        """Return the question of a round."""
        steps = self.kind(ranges=ranges, centers=centers, **dict(self.words))
        return LocalMovements(ranges=ranges, radius=radius, steps=steps)


def private_weighted(
    params: dict[str, Any], weights: str, privacy: Privacy, n_features: int, seed: int
) -> Private:
    """Return WF, DWF or EWF k-means under differential privacy.

    Raises:
        PrivacyError: there are several local steps, or weights other than "dynamic", at unit "record".
        ArgumentError: the weighting fails for every client.
    """
    _check_common(params)
    check_weighting(weights, params["n_clusters"], n_features)
    step = params["local_iter"] == 1 and weights == "dynamic" and not params["relocate_empty"]
    if not step and privacy.unit == Unit.RECORD:
        what = (
            f"weights {weights!r} have"
            if weights != "dynamic"
            else "relocate_empty has"
            if params["local_iter"] == 1
            else f"{params['local_iter']} local steps have"
        )
        raise PrivacyError(
            f'{what} no useful bound for one record; use DWFKMeans(local_iter=1), DPKMeans, or unit="client".'
        )

    words = {name: params[name] for name in ("local_iter", "local_tol", "relocate_empty")}
    steps = Steps(
        asking=None if step else OwnSteps(WeightedCentroids, (("weights", weights), *words.items())),
        learning_rate=params["learning_rate"],
        momentum=params["momentum"],
        equal=weights == "equal",
    )
    return _algorithm(params, steps, privacy, n_features, seed)


def private_minibatch(params: dict[str, Any], privacy: Privacy, n_features: int, seed: int) -> Private:
    """Return federated mini-batch k-means under differential privacy, without redrawing small clusters.

    Raises:
        PrivacyError: there are several epochs or batches at unit "record".
    """
    _check_common(params)
    full = params["epochs"] == 1 and params["batch_size"] is None
    if not full and privacy.unit == Unit.RECORD:
        raise PrivacyError(
            "several epochs or batches have no useful bound for one record; use epochs=1 and "
            'batch_size=None, DPKMeans, or unit="client".'
        )

    words = {name: params[name] for name in ("epochs", "batch_size", "client_learning_rate")}
    own = None if full else OwnSteps(MiniBatchMovements, tuple(words.items()))
    # One full batch moves a client's centers by its rate times a Lloyd step; its rate is applied here.
    rate = params["learning_rate"] * (params["client_learning_rate"] if full else 1.0)
    steps = Steps(asking=own, learning_rate=rate, smoothing=params["momentum"])
    return _algorithm(params, steps, privacy, n_features, seed)


def private_fuzzy(params: dict[str, Any], privacy: Privacy, n_features: int, seed: int) -> Private:
    """Return federated fuzzy c-means under differential privacy.

    Raises:
        PrivacyError: averaging is by k-means; or at unit "record" there are several local steps, or the
            weight is "u".
    """
    _check_common(params)
    if params["averaging"] == "kmeans":
        raise PrivacyError(
            'averaging="kmeans" sums local centers, which have no useful bound; use averaging="weighted" '
            "with local_iter=1."
        )
    step = params["local_iter"] == 1 and params["weight"] == "u^m"
    if not step and privacy.unit == Unit.RECORD:
        raise PrivacyError(
            "several local steps have no useful bound for one record; use local_iter=1 and "
            'weight="u^m", or unit="client".'
        )
    m = float(params["m"])
    words = {name: params[name] for name in ("local_iter", "local_tol", "weight")}
    asking = FuzzyStep(m) if step else OwnSteps(WeightedFuzzyCentroids, (("m", m), *words.items()))
    return _algorithm(params, Steps(asking=asking), privacy, n_features, seed)


def _algorithm(params: dict[str, Any], steps: Steps, privacy: Privacy, n_features: int, seed: int) -> Private:
    init = check_init(params["init"], params["n_clusters"], n_features)
    words: dict[str, Any] = {"n_clusters": params["n_clusters"], "init": init, "steps": steps, "seed": seed}
    if privacy.noise == Noise.SERVER:
        _check_fixed(params)
        return FixedKMeans(rounds=params["max_iter"], **words)
    # Capped, so that larger max_iter, which have no effect under noise, describe the same algorithm.
    return PrivateKMeans(max_iter=min(params["max_iter"], MOST_ROUNDS), **words)


def _check_fixed(params: dict[str, Any]) -> None:
    """Refuse parameters with which totals decide the number of rounds, as the server sees that number."""
    for name, needed in (("tol", 0), ("patience", None)):
        if params.get(name, needed) != needed:
            raise PrivacyError(
                f'noise="server" needs a number of rounds that no total decides, got {name}={params[name]}; '
                f'use {name}={needed} with max_iter as the number of rounds, or noise="distributed".'
            )


def _check_common(params: dict[str, Any]) -> None:
    """Refuse parameters that would cost budget without a gain."""
    if params["n_init"] != 1:
        raise PrivacyError(
            f"each restart would cost budget, got n_init={params['n_init']}; use n_init=1: the coreset start "
            "has restarts that cost nothing."
        )
    if isinstance(params["init"], str) and params["init"] == "kfed":
        raise PrivacyError('init="kfed" sums local centers, which have no useful bound; use init="coreset".')
    if isinstance(params["init"], str) and params["init"] == "nested":
        raise PrivacyError(
            'init="nested" bounds what exact totals of several fits show together; under differential '
            'privacy the budget does: use init="coreset".'
        )
    if isinstance(params["init"], StartTotal):
        raise PrivacyError(
            "a start total of an earlier fit has no noise, and the guarantee would not cover it: use "
            'init="coreset".'
        )
    if params["clients_per_round"] is not None or params["cohorts"] is not None:
        raise PrivacyError(
            "under differential privacy every sum asks all clients: the party that draws a cohort knows it, "
            "so sampling gains nothing; leave out clients_per_round and cohorts."
        )
