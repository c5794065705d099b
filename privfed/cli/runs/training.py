"""Carries out a run that trains models (FedAvg, IFCA, CFL, DCFL) in its folder, for `fit` and `resume`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from privfed.cli.display.output import kilobytes, one_table
from privfed.cli.display.progress import RoundProgress
from privfed.cli.display.unconverged import in_results
from privfed.cli.folder.claim import claim_from, to_json
from privfed.cli.folder.result import began_of, server_saw, sum_rows, traffic
from privfed.cli.folder.run_folder import Source
from privfed.cli.folder.trained import Decided, TrainedResult
from privfed.core.names.registry import imported
from privfed.core.roles.conversation import ROUND, Ask, Total
from privfed.data import ClientTables
from privfed.deep.attacks.membership import round_of
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.training.trainer import MODELS
from privfed.errors import ArgumentError
from privfed.federation.clients import Clients
from privfed.privacy.claim import noised_fields


def classes_of(source: Source, tables: ClientTables, private: bool) -> tuple[str, ...]:
    """Return the classes that a model tells apart, in the order of their codes.

    Raises:
        ArgumentError: under differential privacy the classes are not declared.
    """
    if source.classes:
        return source.classes
    if private:
        raise ArgumentError(
            "under differential privacy the classes that there are must be known without looking at the "
            "rows: declare them with --classes."
        )
    return tuple(map(str, tables.label_names or ()))


def labels_of(tables: ClientTables, classes: Sequence[str]) -> list[Any]:
    """Return each client's labels as codes of the classes; -1 for a label that is none of them."""
    codes = {name: code for code, name in enumerate(classes)}
    known = [codes.get(str(name), -1) for name in tables.label_names or ()]
    recoded = np.array([*known, -1], dtype=np.int64)
    return [recoded[np.asarray(labels)] for labels in tables.labels or ()]


def model_of(
    kind: type[FederatedModel], words: dict[str, Any], n_clusters: int, classes: Sequence[str]
) -> FederatedModel:
    """Return an estimator of models with its words.

    Args:
        kind: its class.
        words: of the command line; a model of the user's own is named "module:Name", and imported, since a
            person typed it.
        n_clusters: for IFCA, which needs it.
        classes: that the model tells apart, once they are known.

    Raises:
        ArgumentError: it does not have one of the words.
    """
    model = kind()
    unknown = sorted(set(words) - set(model.get_params(deep=False)) | set(words) & {"n_clusters"})
    if unknown:
        listed = ", ".join(f"{name}=" for name in unknown)
        raise ArgumentError(f"{kind.__name__} takes no {listed} here; leave it out.")
    given = words.get("model")
    if given is not None and given not in MODELS:
        words = {**words, "model": imported(str(given))}
    if "n_clusters" in model.get_params(deep=False):
        words = {**words, "n_clusters": n_clusters}
    model.set_params(**words, **({"n_classes": len(classes)} if classes else {}))
    return model


class _Rounds:
    """Counts the rounds of training for the progress shown."""

    def __init__(self, progress: RoundProgress) -> None:
        self._progress, self._number = progress, 0

    def __call__(self, index: int, ask: Ask, total: Total) -> None:
        found = round_of(ask.question)
        number = self._number if found is None else found.training.round
        purpose = ROUND if number > self._number else "again"
        self._number = number
        self._progress(index, replace(ask, purpose=purpose), total)


def trained(model: FederatedModel, label: str, clients: Clients, resume: bool, quiet: bool) -> float:
    """Train, and return the number of seconds that it took."""
    began = time.monotonic()
    with RoundProgress(label, model.rounds, 1, quiet) as progress, in_results():
        model.fit_clients(clients, resume=resume, watch=_Rounds(progress))
    return time.monotonic() - began


def trained_result(
    model: FederatedModel, clients: Clients, *, algorithm: str, source: Source, seconds: float
) -> TrainedResult:
    """Return the result of a run. What is computed from rows is left out under differential privacy."""
    transcript, claim = model.transcript_, model.privacy_claim_
    began, private = began_of(transcript), model.privacy is not None
    decided = [
        Decided(one.round, one.n_clusters, _finite(one.index), one.changed) for one in model.regrouped_
    ]
    return TrainedResult(
        algorithm=algorithm,
        protocol=began.configuration.protocol,
        opens_to=began.opens_to,
        reveals=began.reveals,
        server_saw=server_saw(began.opens_to, began.reveals),
        privacy=to_json(claim),
        noised=noised_fields(claim, "n_clusters", "decided"),
        clients=began.configuration.clients,
        columns=source.columns,
        classes=source.classes,
        n_parameters=model.models_.shape[1],
        n_clusters=len(model.models_),
        n_iter=model.n_iter_,
        clusters=None if private else dict(zip(clients.names, model.labels_.tolist(), strict=True)),
        accuracy=None if private else _accuracy(model, clients),
        decided=decided,
        traffic=traffic(transcript, seconds),
        sums=sum_rows(transcript),
    )


def _finite(index: float) -> float | None:
    return index if np.isfinite(index) else None


def _accuracy(model: FederatedModel, clients: Clients) -> dict[str, float]:
    """Return how many of its own rows each client's own model gets right, by name."""
    found: dict[str, float] = {}
    for name, data, cluster in zip(clients.names, clients.here, model.labels_.tolist(), strict=True):
        if data.labels is not None and cluster >= 0 and data.n_rows:
            found[name] = float((model.predict(data.features, cluster) == data.labels).mean())
    return found


def show_trained(result: TrainedResult, folder: Path) -> Table:
    """Return the result as a table of two columns."""
    sent, claim = result.traffic, claim_from(result.privacy)
    changed = sum(one.changed for one in result.decided)
    scores = [] if result.accuracy is None else list(result.accuracy.values())
    accuracy = "not computed under differential privacy"
    if scores:
        accuracy = f"{np.mean(scores):.4f} on the rows trained on, {min(scores):.4f} to {max(scores):.4f}"
    facts = {
        "algorithm": f"{result.algorithm}, {result.n_parameters} parameters, {len(result.classes)} classes",
        "protocol": result.protocol,
        "the server saw": result.server_saw,
        "clients": str(len(result.clients)),
        "clusters": f"{result.n_clusters}, found anew in {changed} of {result.n_iter} rounds",
        "accuracy": accuracy,
        "sent": f"{kilobytes(sent.bytes_per_client)} a client, {sent.exchanges} exchanges",
        "seconds": f"{sent.seconds:.2f}",
    }
    return one_table(folder, facts, claim, result.noised)
