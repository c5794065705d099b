"""Runs one cell: a fit and its measurements. Scoring uses the truth; nothing of it flows back."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.attacks import ActiveAttack
from privfed.attacks.audits import audit_units
from privfed.attacks.base.interface import attack_class
from privfed.core.record.records import Began
from privfed.core.record.transcript import Transcript
from privfed.core.values.domain import FloatArray
from privfed.deep.estimators.base import FederatedModel
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.scaling import Scaling
from privfed.experiments.attacking import attack_clients, attack_fits, attack_run
from privfed.experiments.cells import Fitted, Setup, attack_id, estimator, metric_function, metric_id
from privfed.experiments.datasets import Scene, load_table, public_and_own, split
from privfed.experiments.study import Data
from privfed.federation.clients import gather
from privfed.metrics import fuzzy_davies_bouldin, inertia, labels_agreement

MOST_MARKS = 24
"""Most rounds after which the cost is measured; they are evenly spaced in their logarithm."""

_STARTS = 20

_APART = 1_000_003
"""Difference between the seeds of several fits of one cell, beyond those of its study."""

Measured = tuple[dict[str, Any], dict[str, float]]
"""Values and seconds of a part."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is stored for one part of a cell.

    Args:
        values: results that the cell's parameters and seed determine (except for claimed noise).
        timing: seconds, which differ from run to run.
        error: why there are no values; empty if there are.
    """

    values: dict[str, Any]
    timing: dict[str, float]
    error: str = ""


_table = lru_cache(maxsize=4)(load_table)


@lru_cache(maxsize=64)
def _central(data: Data, folder: Path, seed: int, n_clusters: int, scaling: Scaling | None) -> float:
    """Return the inertia of central k-means, best of twenty starts, on the clients' pooled rows as fitted."""
    table = _table(data, folder)
    rows = table.rows[public_and_own(data, len(table.rows), seed)[1]]
    rows = rows if scaling is None else scaling.scaled(rows)
    return float(KMeans(n_clusters, n_init=_STARTS, random_state=0).fit(rows).inertia_)


def measure(setup: Setup, seed: int, parts: Iterable[str], folder: Path) -> dict[str, Part]:
    """Fit one cell and measure some parts of it. A part that fails gets an error.

    Args:
        setup: what to run.
        seed: seed of the split, the start, the clients' randomness and the attacks.
        parts: which of `setup.parts()` to measure; the fit is always done.
        folder: folder that relative paths of data start from.
    """
    fitted: list[tuple[Scene, Fitted]] = []
    further: list[Transcript] = []

    def trained(number: int) -> tuple[Scene, Fitted, float]:
        """Return the clients, a fit of the same rows by its number, and its seconds; 0 is the cell's own."""
        scene = split(setup.data, _table(setup.data, folder), setup.partition, seed, setup.joining)
        model = estimator(setup.further(number) if number else setup, scene, seed + _APART * number)
        rows = scene.grown(number).tables(labelled=isinstance(model, FederatedModel))
        began = time.process_time()
        with warnings.catch_warnings():
            # The warning is suppressed, as the report shows what a fit finds about itself.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit_clients(gather(rows))
        return scene, model, time.process_time() - began

    def fit() -> Measured:
        scene, model, seconds = trained(0)
        clients = float(model.federation_.traffic.engine_seconds)
        central = 0.0
        if isinstance(model, FederatedClusterer):
            scene = scene if model.scaling_ is None else scene.scaled(model.scaling_)
            split_by = seed if setup.data.public else 0
            central = _central(setup.data, folder, split_by, len(model.cluster_centers_), model.scaling_)
        fitted.append((scene, model))
        timing = {"client_seconds": clients / len(scene.clients), "server_seconds": seconds - clients}
        return _values(setup, scene, model, central), timing

    def transcripts() -> list[Transcript]:
        """Return those of as many fits as attacks read together; the first is the cell's own."""
        if not further:
            further.extend(trained(number)[1].transcript_ for number in range(1, setup.fits[-1]))
        return [fitted[0][1].transcript_, *further]

    wanted, found = list(parts), {"fit": _part(fit)}
    for name in wanted:
        if name != "fit" and fitted:
            found[name] = _part(partial(_measurement, name, setup, *fitted[0], seed, transcripts))
        elif name != "fit":
            found[name] = Part(values={}, timing={}, error=found["fit"].error)
    return {name: part for name, part in found.items() if name in wanted}


def _measurement(
    name: str,
    setup: Setup,
    scene: Scene,
    model: Fitted,
    seed: int,
    transcripts: Callable[[], list[Transcript]],
) -> Measured:
    """Measure one part: the audit, a named metric, or an attack, on several fits too."""
    if name.startswith("audit:"):
        rng = np.random.default_rng([seed, 4])
        return audit_units(model.transcript_, trials=setup.audit, rng=rng).to_dict(), {}
    for metric in setup.metrics:
        if name == metric_id(metric):
            # Models have no centers.
            if isinstance(model, FederatedModel):
                return {}, {}
            return named_metric(metric, scene, model.cluster_centers_), {}
    for attack in setup.pooling:
        if name == setup.fits_id(attack):
            return attack_fits(attack, setup, scene, transcripts(), seed), {}
    attack = next(one for one in setup.attacks if attack_id(one) == name)
    if issubclass(attack_class(attack.kind), ActiveAttack):
        found = attack_clients(attack, setup, scene, seed)
    else:
        found = attack_run(attack, setup, scene, model.transcript_, seed)
    return found, {"seconds": found["report"].pop("seconds") or 0.0}


def _part(measured: Callable[[], Measured]) -> Part:
    """Measure; an error is stored in the part, and warnings that are no finding as its notes."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values, timing = measured()
        told = {str(one.message) for one in caught} - {*values.get("findings", {}).values()}
        notes = sorted({" ".join(one.split()) for one in told})
        return Part(values={**values, "notes": notes} if notes else values, timing=timing)
    except Exception as error:  # Whatever fails in a cell must not end the study.
        return Part(values={}, timing={}, error=f"{type(error).__name__}: {' '.join(str(error).split())}")


def _values(setup: Setup, scene: Scene, model: Fitted, central: float) -> dict[str, Any]:
    transcript, traffic, n = model.transcript_, model.federation_.traffic, len(scene.clients)
    began = next(iter(transcript.of(Began)))
    spent, claim = model.privacy_spent_, model.privacy_claim_
    if isinstance(model, FederatedModel):
        own = values_of_models(scene, model)
    else:
        own = {
            **_utility(scene, model.cluster_centers_, central),
            "centers": sha256(model.cluster_centers_.tobytes()).hexdigest()[:16],
            "converged": model.converged_,
            "findings": {one.code: one.text for one in model.findings_},
            **_convergence(scene, model.history_, central),
        }
    values = {
        **own,
        "clients": n,
        "rows": len(scene.pooled),
        "features": scene.pooled.shape[1],
        "rounds": model.n_iter_,
        "sums": len(transcript.totals()),
        "exchanges": traffic.exchanges,
        "bytes_up": sum(traffic.up.values()) / n,
        "bytes_down": sum(traffic.down.values()) / n,
        "ran": model.resolved(),
        "recipient": began.recipient,
        "reveals": began.reveals,
        "against": {} if spent is None else spent.against,
        # A fit has many payments, and they follow from its totals.
        "claim": None if claim is None else {**claim.to_dict(), "payments": []},
    }
    if setup.privacy is not None:
        values |= {"epsilon": setup.privacy.epsilon, "delta": setup.privacy.delta}
    return values


def _utility(scene: Scene, centers: FloatArray, central: float) -> dict[str, float]:
    rows = [scene.pooled]
    # If the central inertia is zero (a row for each cluster), there is no ratio.
    found = {"score_ratio": inertia(rows, centers, protocol="plain") / central if central > 0 else math.nan}
    if len(centers) > 1:
        found["fuzzy_davies_bouldin"] = fuzzy_davies_bouldin(rows, centers, protocol="plain")
    if scene.labels is not None:
        agreed = labels_agreement(rows, centers, [np.concatenate(scene.labels)], protocol="plain")
        found |= {
            "ari": agreed.adjusted_rand_index,
            "v_measure": agreed.v_measure,
            "accuracy": agreed.accuracy,
        }
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def _convergence(scene: Scene, history: list[FloatArray], central: float) -> dict[str, Any]:
    """Return the cost after some rounds, relative to central k-means; round 0 is the start."""
    last = len(history) - 1
    marks = np.unique(np.rint(np.geomspace(1, max(last, 1), MOST_MARKS)).astype(int))
    marks = np.unique([0, *marks[marks <= last]])
    costs = [inertia([scene.pooled], history[mark], protocol="plain") / central for mark in marks]
    return {"marks": marks.tolist(), "score_ratio_after": costs if central > 0 else []}


def values_of_models(scene: Scene, model: FederatedModel) -> dict[str, Any]:
    """Return utility and size of a fitted model, for scoring only.

    `accuracy` is the mean over the clients of the share of its own rows that a client's own model gets
    right, and `accuracy_spread` their standard deviation.
    """
    labelled = zip(scene.clients, scene.labels or (), model.labels_.tolist(), strict=True)
    own = [
        float((model.predict(rows, cluster) == labels).mean())
        for rows, labels, cluster in labelled
        if cluster >= 0 and len(rows)
    ]
    return {
        **({"accuracy": float(np.mean(own)), "accuracy_spread": float(np.std(own))} if own else {}),
        "clusters": len(model.models_),
        "parameters": model.models_.shape[1],
        "centers": sha256(model.models_.tobytes()).hexdigest()[:16],
        "converged": None,
        "findings": {},
        "marks": [],
        "score_ratio_after": [],
    }


def named_metric(name: str, scene: Scene, centers: FloatArray) -> dict[str, float]:
    """Return the value of a metric; none if it compares with labels and there are none, or if not finite.

    It gets the clients' tables and the centers. It gets `protocol="plain"` if it takes options, as its sums
    protect nobody here. It gets `labels`, one array for each client, if it has a parameter of this name.

    Args:
        name: a registered name, or "module:function".
        scene: the clients.
        centers: those of the fit.

    Raises:
        ArgumentError: there is no such function.
    """
    function = metric_function(name)
    parameters = inspect.signature(function).parameters
    if "labels" in parameters and scene.labels is None:
        return {}
    options: dict[str, Any] = {"labels": scene.labels} if "labels" in parameters else {}
    if "protocol" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        options["protocol"] = "plain"
    value = float(function(scene.clients, centers, **options))
    return {"value": value} if math.isfinite(value) else {}
