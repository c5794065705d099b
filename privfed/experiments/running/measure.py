"""Runs one cell: a fit and its measurements. Scoring uses the truth; nothing of it flows back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.attacks import ActiveAttack
from privfed.attacks.audits import audit_units
from privfed.attacks.registry import attack_class
from privfed.core.record.transcript import Began
from privfed.core.values.domain import FloatArray
from privfed.deep.estimators.base import FederatedModel
from privfed.estimators.base import FederatedClusterer
from privfed.experiments.running.attacking import attack_clients, attack_run
from privfed.experiments.running.models import values_of_models
from privfed.experiments.running.scoring import named_metric
from privfed.experiments.study.cells import Setup, attack_id, metric_id
from privfed.experiments.study.datasets import Scene, Table, held_rows, load_table, split
from privfed.experiments.study.factories import Fitted, estimator
from privfed.experiments.study.study import Data
from privfed.federation.clients import gather
from privfed.metrics import fuzzy_davies_bouldin, inertia, labels_agreement

MOST_MARKS = 24
"""Most rounds after which the cost is measured; they are evenly spaced in their logarithm."""

_STARTS = 20


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


@lru_cache(maxsize=4)
def _table(data: bytes, folder: Path) -> Table:
    return load_table(msgspec.json.decode(data, type=Data), folder)


@lru_cache(maxsize=64)
def _central(data: bytes, folder: Path, seed: int, n_clusters: int) -> float:
    """Return the inertia of central k-means, best of twenty starts, on the clients' pooled rows."""
    words = msgspec.json.decode(data, type=Data)
    table = _table(data, folder)
    rows = table.rows[held_rows(words, len(table.rows), seed)[1]]
    return float(KMeans(n_clusters, n_init=_STARTS, random_state=0).fit(rows).inertia_)


def measure(setup: Setup, seed: int, parts: Iterable[str], folder: Path) -> dict[str, Part]:
    """Fit one cell and measure some parts of it. A part that fails gets an error.

    Args:
        setup: what to run.
        seed: seed of the split, the start, the clients' randomness and the attacks.
        parts: which of `setup.parts()` to measure; the fit is always done.
        folder: folder that relative paths of data start from.
    """
    data = msgspec.json.encode(setup.data)
    wanted, found = list(parts), dict[str, Part]()
    fitted: tuple[Scene, Fitted] | None = None

    def fit() -> tuple[dict[str, Any], dict[str, float]]:
        nonlocal fitted
        scene = split(setup.data, _table(data, folder), setup.partition, seed)
        model = estimator(setup, scene, seed)
        began = time.process_time()
        with warnings.catch_warnings():
            # The warning is suppressed, as the report shows which fits did not converge and what helps.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit_clients(gather(scene.clients, y=scene.labels))
        seconds = time.process_time() - began
        fitted = scene, model
        central = 0.0
        if isinstance(model, FederatedClusterer):
            central = _central(data, folder, seed if setup.data.public else 0, len(model.cluster_centers_))
        clients = float(model.federation_.traffic.engine_seconds)
        return _values(setup, scene, model, central), {
            "client_seconds": clients / len(scene.clients),
            "server_seconds": seconds - clients,
        }

    found["fit"] = _measured_part(fit)
    for name in wanted:
        if name == "fit":
            continue
        if fitted is None:
            found[name] = Part(values={}, timing={}, error=found["fit"].error)
        else:
            scene, model = fitted
            found[name] = _measured_part(_measurement(name, setup, scene, model, seed))
    return {name: part for name, part in found.items() if name in wanted}


def _measurement(
    name: str, setup: Setup, scene: Scene, model: Fitted, seed: int
) -> Callable[[], tuple[dict[str, Any], dict[str, float]]]:
    """Return the function that measures one part: the audit, a named metric, or an attack."""

    def audited() -> tuple[dict[str, Any], dict[str, float]]:
        rng = np.random.default_rng([seed, 4])
        return audit_units(model.transcript_, trials=setup.audit, rng=rng).to_dict(), {}

    def attacked() -> tuple[dict[str, Any], dict[str, float]]:
        attack = next(one for one in setup.attacks if attack_id(one) == name)
        if issubclass(attack_class(attack.kind), ActiveAttack):
            made = attack_clients(attack, setup, scene, seed)
        else:
            made = attack_run(attack, setup, scene, model.transcript_, seed)
        found = msgspec.to_builtins(made)
        return found, {"seconds": found["report"].pop("seconds") or 0.0}

    for metric in setup.metrics:
        if name == metric_id(metric):
            return lambda: (_metric(metric, scene, model), {})
    return audited if name.startswith("audit:") else attacked


def _metric(metric: str, scene: Scene, model: Fitted) -> dict[str, float]:
    """Return a named metric; none of models, which have no centers."""
    return {} if isinstance(model, FederatedModel) else named_metric(metric, scene, model.cluster_centers_)


def _measured_part(measured: Callable[[], tuple[dict[str, Any], dict[str, float]]]) -> Part:
    """Measure; an error is stored in the part, and warnings as its notes."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values, timing = measured()
        notes = sorted({" ".join(str(one.message).split()) for one in caught})
        return Part(values={**values, "notes": notes} if notes else values, timing=timing)
    except Exception as error:  # Whatever fails in a cell must not end the study.
        return Part(values={}, timing={}, error=f"{type(error).__name__}: {' '.join(str(error).split())}")


def _values(setup: Setup, scene: Scene, model: Fitted, central: float) -> dict[str, Any]:
    transcript, traffic, n = model.transcript_, model.federation_.traffic, len(scene.clients)
    began = next(iter(transcript.of(Began)))
    spent, claim = model.privacy_spent_, model.privacy_claim_
    own = (
        values_of_models(scene, model)
        if isinstance(model, FederatedModel)
        else _of_clusters(scene, model, central)
    )
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
        "opens_to": began.opens_to,
        "reveals": began.reveals,
        "rehearsal": setup.privacy is not None and setup.privacy.rehearsal,
        "against": {} if spent is None else spent.against,
        # A fit has many payments, and they follow from its totals.
        "claim": None if claim is None else {**claim.to_dict(), "payments": []},
    }
    if setup.privacy is not None:
        values |= {"epsilon": setup.privacy.epsilon, "delta": setup.privacy.delta}
    return values


def _of_clusters(scene: Scene, model: FederatedClusterer, central: float) -> dict[str, Any]:
    return {
        **_utility(scene, model.cluster_centers_, central),
        "centers": sha256(model.cluster_centers_.tobytes()).hexdigest()[:16],
        "converged": model.converged_,
        "remedy": model.remedy(),
        **_convergence(scene, model.history_, central),
    }


def _utility(scene: Scene, centers: FloatArray, central: float) -> dict[str, float]:
    rows = [scene.pooled]
    # If the central inertia is zero (a row for each cluster), there is no ratio.
    ratio = inertia(rows, centers, protocol="plain") / central if central > 0 else float("nan")
    found = {"score_ratio": ratio}
    if len(centers) > 1:
        index = fuzzy_davies_bouldin(rows, centers, protocol="plain")
        if np.isfinite(index):
            found["fuzzy_davies_bouldin"] = index
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
