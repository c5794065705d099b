"""What runs that train models have of their own (FedAvg, IFCA, CFL, DCFL): classes, training, results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from privfed.cli.output import draw, in_results, kilobytes, one_table, write_model
from privfed.cli.progress import RoundProgress
from privfed.cli.result import Decided, TrainedResult, claim_from, facts_of_run
from privfed.cli.run_folder import Run
from privfed.core.asking.question import question_from_bytes
from privfed.core.names import imported
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import ROUND, Ask, Total
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.estimators.training_plan import model_name
from privfed.deep.training.rounds import round_of
from privfed.deep.training.trainer import MODELS
from privfed.errors import ArgumentError
from privfed.federation.clients import Clients


def classes_trained(transcript: Transcript) -> tuple[str, ...]:
    """Return the classes that a run trained on, as nodes name them: whole numbers; () of other runs."""
    questions = (question_from_bytes(asked.question) for asked, _ in transcript.totals())
    found = next(filter(None, map(round_of, questions)), None)
    return () if found is None else tuple(map(str, range(found.training.n_classes)))


def model_named(name: str) -> Any:
    """Return what an estimator takes for --model: a registered name, or what "module:Name" stands for.

    It is imported since a person typed it. Of what its module registers the registered name is returned.

    Raises:
        ArgumentError: it is neither.
    """
    if name not in MODELS and ":" not in name:
        raise ArgumentError(f"--model: {name!r} is none of {', '.join(MODELS.names())}, nor MODULE:NAME.")
    if name in MODELS:
        return name
    found: Any = imported(name)
    return next((one for one in MODELS.added() if MODELS.find(one) is found), found)


def registered(name: str) -> str:
    """Return the name under which the model of --model is registered here, as questions have it.

    Raises:
        ArgumentError: it is no model.
    """
    return model_name(model_named(name), None, None)


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


def train(model: FederatedModel, label: str, clients: Clients, resume: bool, quiet: bool) -> None:
    """Train, and show the progress."""
    with RoundProgress(label, model.rounds, 1, quiet) as progress, in_results():
        model.fit_clients(clients, resume=resume, watch=_Rounds(progress))


def write_trained(
    folder: Path, run: Run, model: FederatedModel, clients: Clients, seconds: float, picture: bool
) -> TrainedResult:
    """Write model, result and picture. What is computed from rows is left out under differential privacy."""
    private = model.privacy is not None
    grouped = model.policy is not None and model.policy.group_size > 1
    decided = [
        Decided(one.round, one.n_clusters, one.index if np.isfinite(one.index) else None, one.changed)
        for one in model.regrouped_
    ]
    comparison = model.comparison_
    result = TrainedResult(
        algorithm=run.parameters.algorithm,
        columns=run.source.columns,
        classes=run.source.classes,
        n_parameters=model.models_.shape[1],
        n_clusters=len(model.models_),
        clusters=None if private else dict(zip(clients.names, model.labels_.tolist(), strict=True)),
        accuracy=None if private or grouped else _accuracy(model, clients),
        decided=decided,
        compared=None if comparison is None else comparison.summary,
        found=None if comparison is None else comparison.found,
        **facts_of_run(model, seconds, "n_clusters", "decided"),
    )
    write_model(folder, model, result)
    if picture:
        # Imported here, as matplotlib takes long to load.
        from privfed.deep.plot import ClustersDisplay
        from privfed.plot import ConvergenceDisplay

        draw(folder, result, ConvergenceDisplay.of(model), ClustersDisplay.of(model))
    return result


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
    accuracy = "not computed: it would tell of rows that nothing else tells of"
    if scores:
        accuracy = f"{np.mean(scores):.4f} on the rows trained on, {min(scores):.4f} to {max(scores):.4f}"
    facts = {
        "algorithm": f"{result.algorithm}, {result.n_parameters} parameters, {len(result.classes)} classes",
        "protocol": result.protocol,
        "the server saw": result.server_saw,
        "clients": str(len(result.clients)),
        "clusters": f"{result.n_clusters}, found anew in {changed} of {result.n_iter} rounds",
        "accuracy": accuracy,
        "held-out rows": result.found or "no client held any out",
        "sent": f"{kilobytes(sent.bytes_per_client)} a client, {sent.exchanges} exchanges",
        "seconds": f"{sent.seconds:.2f}",
    }
    return one_table(folder, facts, claim, result.noised)
