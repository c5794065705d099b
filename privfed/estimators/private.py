"""Differential privacy: the estimator DPKMeans, and the noised forms of the other estimators.

Only single steps of sums have a proven bound for one record: Lloyd's, a full batch's, a fuzzy one's. Several
local steps, and means that weight clients equally, are bounded only for a whole client. An estimator whose
parameters have no noised form gets an error with a remedy.

Reveals: what the protocol's totals show, all noised (see "Reveals" of `privfed.algorithms.private.kmeans`),
and to everyone the final centers. `privacy_spent_` says whom the noise protects, and from whom. `labels_` is
computed where the data is and never sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privfed.algorithms.fuzzy import WeightedFuzzyCentroids
from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.algorithms.private.clients import LocalMovements
from privfed.algorithms.private.kmeans import MOST_ROUNDS, FixedKMeans, PrivateKMeans
from privfed.algorithms.private.noised_rounds import FuzzyRelativeSums, Steps
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.algorithms.starts import StartTotal
from privfed.algorithms.weightings import check_weighting
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import SecureSum, SumName
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.guarantee import Noise, Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared, check_init
from privfed.estimators.parameters import PublicStart
from privfed.privacy.claim import Privacy
from privfed.questions.bounded.bounded_sums import SumsInCells


@parameters
class DPKMeans(PublicStart, FederatedClusterer):
    """k-means under differential privacy, over any secure sum.

    A fit spends one budget on at most 21 noised sums, or 23 at unit "client". They find where the rows lie,
    then a weighted coreset, then do two to eight Lloyd rounds, as many as are useful under the noise.

    Attributes:
        n_iter_: number of Lloyd rounds.
        converged_: None, as the noise determines the number of rounds.
        inertia_: None, as no budget is spent on it.

    Raises:
        ArgumentError: a parameter is out of its bounds, or `privacy` is None.
        BudgetError: a sum had to be asked again, and no budget was kept for that (`Privacy(spare=...)`).
    """

    protocol: SumName | SecureSum = parameter(
        default="masked",
        text='the secure sum, a name or a configured object of `privfed.protocols`. Over "plain" each '
        "client adds the whole noise; over the others the honest clients of a sum share it.",
    )
    privacy: Privacy | None = parameter(
        default=None, text="a `privfed.Privacy`, which also declares the domain. It is required."
    )

    # Not a parameter here: the noise determines how many rounds there are.
    max_iter = MOST_ROUNDS

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        if self.privacy is None:
            raise ArgumentError("DPKMeans needs privacy=...; without differential privacy use DWFKMeans.")
        if isinstance(self.init, str) and self.init != "coreset":
            raise ArgumentError(
                f'init must be "coreset" or an array, got init={self.init!r}.', parameters=["init"]
            )
        return PrivateKMeans(
            n_clusters=self.n_clusters, init=check_init(self.init, self.n_clusters, n_features), seed=seed
        )


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
        parameters: parameters of that question, besides ranges and centers.
    """

    kind: Callable[..., Question]
    parameters: tuple[tuple[str, Any], ...]

    def __call__(self, ranges: Ranges, centers: FloatArray, radius: float) -> SumsInCells:
        """Return the question of a round."""
        return LocalMovements(
            ranges=ranges,
            radius=radius,
            steps=self.kind(ranges=ranges, centers=centers, **dict(self.parameters)),
        )


def private_weighted(
    params: dict[str, Any], weights: str, privacy: Privacy, n_features: int, seed: int
) -> Private:
    """Return WF, DWF or EWF k-means under differential privacy.

    Raises:
        PrivacyError: there are several local steps, or weights other than "dynamic", at unit "record".
        ArgumentError: the weighting fails for every client.
    """
    check_noised(params)
    check_weighting(weights, params["n_clusters"], n_features)
    step = params["local_iter"] == 1 and weights == "dynamic" and not params["relocate_empty"]
    if not step and Unit(privacy.unit).of_rows:
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
    own = (("weights", weights), *_some(params, "local_iter", "local_tol", "relocate_empty"))
    steps = Steps(
        asking=None if step else OwnSteps(WeightedCentroids, own),
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
    check_noised(params)
    full = params["epochs"] == 1 and params["batch_size"] is None
    if not full and Unit(privacy.unit).of_rows:
        raise PrivacyError(
            "several epochs or batches have no useful bound for one record; use epochs=1 and leave out "
            'batch_size=, or use DPKMeans or unit="client".'
        )
    own = OwnSteps(MiniBatchMovements, _some(params, "epochs", "batch_size", "client_learning_rate"))
    # One full batch moves a client's centers by its rate times a Lloyd step; its rate is applied here.
    rate = params["learning_rate"] * (params["client_learning_rate"] if full else 1.0)
    steps = Steps(asking=None if full else own, learning_rate=rate, smoothing=params["momentum"])
    return _algorithm(params, steps, privacy, n_features, seed)


def private_fuzzy(params: dict[str, Any], privacy: Privacy, n_features: int, seed: int) -> Private:
    """Return federated fuzzy c-means under differential privacy.

    Raises:
        PrivacyError: averaging is by k-means; or at unit "record" there are several local steps, or the
            weight is "u".
    """
    check_noised(params)
    if params["averaging"] == "kmeans":
        raise PrivacyError(
            'averaging="kmeans" sums local centers, which have no useful bound; use averaging="weighted" '
            "with local_iter=1."
        )
    step = params["local_iter"] == 1 and params["weight"] == "u^m"
    if not step and Unit(privacy.unit).of_rows:
        raise PrivacyError(
            "several local steps have no useful bound for one record; use local_iter=1 and "
            'weight="u^m", or unit="client".'
        )
    m = float(params["m"])
    own = OwnSteps(WeightedFuzzyCentroids, (("m", m), *_some(params, "local_iter", "local_tol", "weight")))
    return _algorithm(params, Steps(asking=FuzzyStep(m) if step else own), privacy, n_features, seed)


def _some(params: dict[str, Any], *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, params[name]) for name in names)


def _algorithm(params: dict[str, Any], steps: Steps, privacy: Privacy, n_features: int, seed: int) -> Private:
    init = check_init(params["init"], params["n_clusters"], n_features)
    fields: dict[str, Any] = {"n_clusters": params["n_clusters"], "init": init, "steps": steps, "seed": seed}
    if privacy.noise == Noise.SERVER:
        # Totals must not decide the number of rounds, as the server sees that number.
        for name, needed in (("tol", 0), ("patience", None)):
            if params.get(name) not in (needed, None):
                raise PrivacyError(
                    'noise="server" needs a number of rounds that no total decides, got '
                    f"{name}={params[name]}; use {name}={needed} with max_iter as the number of rounds, or "
                    'noise="distributed".',
                    parameters=["max_iter"],
                )
        return FixedKMeans(rounds=params["max_iter"], **fields)
    # Capped, so that larger max_iter, which have no effect under noise, describe the same algorithm.
    return PrivateKMeans(max_iter=min(params["max_iter"], MOST_ROUNDS), **fields)


_REFUSED_STARTS: dict[Any, str] = {
    "kfed": 'init="kfed" sums local centers, which have no useful bound; use init="coreset".',
    "nested": 'init="nested" bounds what exact totals of several fits show together; under differential '
    'privacy the budget does: use init="coreset".',
    StartTotal: "a start total of an earlier fit has no noise, and the guarantee would not cover it: use "
    'init="coreset".',
}
"""Starts that the guarantee would not cover, and what to use in their place."""


def check_noised(params: dict[str, Any]) -> None:
    """Refuse parameters that would cost budget without a gain."""
    if params.get("finish") is not None:
        raise PrivacyError("rounds are noised and none is exact; leave finish out.", parameters=["finish"])
    if params["n_init"] != 1:
        raise PrivacyError(
            f"each restart would cost budget, got n_init={params['n_init']}; use n_init=1: the coreset start "
            "has restarts that cost nothing."
        )
    init = StartTotal if isinstance(params["init"], StartTotal) else params["init"]
    for start, why in _REFUSED_STARTS.items():
        if isinstance(init, str | type) and init == start:
            raise PrivacyError(why)
    if params.get("clients_per_round") is not None or params.get("cohorts") is not None:
        raise PrivacyError(
            "under differential privacy every sum asks all clients: the party that draws a cohort knows it, "
            "so sampling gains nothing; leave out clients_per_round and cohorts.",
            parameters=["clients_per_round"],
        )
