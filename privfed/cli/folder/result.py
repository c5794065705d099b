"""The machine-readable result of a run, `result.json`, from the fitted model and its transcript.

Reveals, if a label column was named: one more total, the number of rows of each label in each cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from privfed import __version__
from privfed.cli.folder.claim import to_json
from privfed.cli.folder.run_folder import RESULT_FORMAT
from privfed.cli.measuring import measured
from privfed.core.agreed.assumptions import SIGHTS
from privfed.core.record.transcript import Began, Exchanged, Transcript
from privfed.core.values.domain import FloatArray
from privfed.estimators.base import FederatedClusterer
from privfed.metrics.functions import labels_agreement
from privfed.privacy.claim import noised_fields
from privfed.questions.contingency import Agreement


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what was sent in a run, including set-up and repeated sums.

    Args:
        exchanges: number of exchanges.
        bytes_down: bytes to each client, by name.
        bytes_up: bytes from each client, by name.
        bytes_per_client: bytes in both directions, mean over the clients.
        seconds: wall time of the fit; for a resumed run, of its last part.
    """

    exchanges: int
    bytes_down: dict[str, int]
    bytes_up: dict[str, int]
    bytes_per_client: float
    seconds: float


class SumRow(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the facts about one opened sum.

    Args:
        index: its index in the run.
        purpose: what it was for.
        clients: number of clients that were asked.
        contributors: number of clients in the total.
        dropped: name of each lost client -> stage in which it was lost.
        rejected: name of each client with a message that was thrown away -> reason.
        clipped: number of entries that clients clipped to the ranges.
        bytes_down: bytes to all clients together.
        bytes_up: bytes from all clients together.
    """

    index: int
    purpose: str
    clients: int
    contributors: int
    dropped: dict[str, str]
    rejected: dict[str, str]
    clipped: int
    bytes_down: int
    bytes_up: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the result of a run.

    `score` is inertia / rows, None if no budget was spent on it; `movements` has one Frobenius norm for each
    round. `privacy` is the run's claim of differential privacy (`PrivacySpent.to_dict`), None without one;
    `noised` names the fields that then come from noised totals. `converged` is None if the number of rounds
    was fixed; `remedy` says why a run did not converge, and what helps. `metrics` holds what
    `--metrics` named, None where an index is not defined.
    """

    format: int = RESULT_FORMAT
    privfed: str
    algorithm: str
    protocol: str
    opens_to: str
    reveals: str
    server_saw: str
    privacy: dict[str, Any] | None
    noised: tuple[str, ...]
    clients: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int | None
    n_clusters: int
    n_iter: int
    converged: bool | None
    remedy: str
    inertia: float | None
    score: float | None
    agreement: Agreement | None
    metrics: dict[str, float | None]
    movements: list[float]
    centroids: list[list[float]]
    traffic: Traffic
    sums: list[SumRow]


def began_of(transcript: Transcript) -> Began:
    """Return the record that begins a transcript and says what was agreed on."""
    return next(record for record in transcript.records if isinstance(record, Began))


def server_saw(opens_to: str, reveals: str) -> str:
    """Say in words what the server saw."""
    return (
        SIGHTS[reveals].whole if opens_to == "server" else "no totals; who took part, and lengths of messages"
    )


def ask_agreement(model: FederatedClusterer, n_labels: int) -> Agreement:
    """Ask the model's federation how its clusters agree with the clients' labels."""
    return labels_agreement(model.federation_, model.cluster_centers_, n_labels=n_labels)


def movements(history: Sequence[FloatArray]) -> list[float]:
    """Return how far the centroids moved in each round (Frobenius norm)."""
    return [float(np.linalg.norm(after - before)) for before, after in pairwise(history)]


def traffic(transcript: Transcript, seconds: float) -> Traffic:
    """Add up the traffic that a transcript records."""
    names = transcript.configuration.clients
    down, up = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    exchanged: list[Exchanged] = transcript.of(Exchanged)
    for record in exchanged:
        for way, messages in ((down, record.down), (up, record.up)):
            for sent in messages:
                way[names[sent.client]] += sent.size
    return Traffic(
        exchanges=len(exchanged),
        bytes_down=down,
        bytes_up=up,
        bytes_per_client=(sum(down.values()) + sum(up.values())) / len(names),
        seconds=seconds,
    )


def sum_rows(transcript: Transcript) -> list[SumRow]:
    """Return one row for each opened sum."""
    names = transcript.configuration.clients
    down, up = _bytes(transcript)
    return [
        SumRow(
            index=asked.index,
            purpose=asked.purpose,
            clients=len(asked.clients),
            contributors=len(total.contributors),
            dropped={names[client]: stage for client, stage in total.dropped.items()},
            rejected={names[client]: why for client, why in total.rejected.items()},
            clipped=total.clipped,
            bytes_down=down.get(asked.index, 0),
            bytes_up=up.get(asked.index, 0),
        )
        for asked, total in transcript.totals()
    ]


def _bytes(transcript: Transcript) -> tuple[dict[int, int], dict[int, int]]:
    down, up = dict[int, int](), dict[int, int]()
    for record in transcript.of(Exchanged):
        for way, messages in ((down, record.down), (up, record.up)):
            way[record.index] = way.get(record.index, 0) + sum(sent.size for sent in messages)
    return down, up


def result_of(
    model: FederatedClusterer,
    *,
    algorithm: str,
    columns: Sequence[str],
    n_labels: int | None,
    seconds: float,
    metrics: Sequence[str] = (),
) -> Result:
    """Return the result of a fitted model; with labels, ask for the agreement first, then for metrics."""
    found = None if n_labels is None else ask_agreement(model, n_labels)
    values = measured(model, metrics)
    transcript: Transcript = model.transcript_
    inertia, rows = model.inertia_, model.n_rows_
    began, claim = began_of(transcript), model.privacy_claim_
    names = ("movements", "centroids") if rows is None else ("rows", "movements", "centroids")
    return Result(
        privfed=__version__,
        algorithm=algorithm,
        protocol=began.configuration.protocol,
        opens_to=began.opens_to,
        reveals=began.reveals,
        server_saw=server_saw(began.opens_to, began.reveals),
        privacy=to_json(claim),
        noised=noised_fields(claim, *names),
        clients=began.configuration.clients,
        columns=tuple(columns),
        rows=rows,
        n_clusters=len(model.cluster_centers_),
        n_iter=model.n_iter_,
        converged=model.converged_,
        remedy=model.remedy(),
        inertia=inertia,
        score=None if inertia is None or rows is None else inertia / rows,
        agreement=found,
        metrics=values,
        movements=movements(model.history_),
        centroids=model.cluster_centers_.tolist(),
        traffic=traffic(transcript, seconds),
        sums=sum_rows(transcript),
    )
