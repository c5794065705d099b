"""What `result.json` says of a run: from the fitted model, its transcript and its claim of privacy.

Reveals, if a label column was named: one more total, the number of rows of each label in each cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from privfed.cli.run_folder import RESULT, RESULT_FORMAT, RESULTS, read_result
from privfed.core.record.records import LOCAL, SCALING, Asked, Began, Exchanged
from privfed.core.record.transcript import Transcript, has_begun
from privfed.core.roles.secure_sum import SIGHTS, declared
from privfed.errors import PrivFedError
from privfed.privacy.claim import PrivacySpent, claimed, noised_fields, one_line
from privfed.version import __version__

if TYPE_CHECKING:
    from privfed.core.values.domain import FloatArray
    from privfed.deep.estimators.base import FederatedModel
    from privfed.estimators.base import FederatedClusterer
    from privfed.estimators.moments import FederatedSummary
    from privfed.metrics.profiles import Profiles
    from privfed.questions.lloyd import Agreement

ROWS, GROUP_MEANS = "rows", "group means"
EITHER = "rows or group means, as each client has it"
"""What inertia and indices are of: clients elsewhere do not tell."""


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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the results of all runs have.

    `privacy` is the run's claim of differential privacy (`PrivacySpent.to_dict`), None without one; `noised`
    names the fields that then come from noised totals.
    """

    format: int = RESULT_FORMAT
    privfed: str = __version__
    algorithm: str
    protocol: str
    recipient: str
    reveals: str
    server_saw: str
    privacy: dict[str, Any] | None
    noised: tuple[str, ...]
    clients: tuple[str, ...]
    columns: tuple[str, ...]
    n_clusters: int
    n_iter: int
    traffic: Traffic
    sums: list[SumRow]


class Result(Outcome, frozen=True, kw_only=True):
    """Holds the result of a run that clusters rows.

    `score` is inertia / rows, None if no budget was spent on it; `movements` has one Frobenius norm for each
    round. `converged` is None if the number of rounds was fixed, and `stopped_by` names the rule that ended
    the run; `remedy` says why a run did not converge, and what helps; `findings` are what its totals say
    against the result (`privfed.estimators.judging`). `centroids` are in the columns' units;
    with `scaling` all else is of scaled rows. `metrics` holds what `--metrics` named, None where an index is
    not defined. `of` says what inertia, score, agreement and metrics are of (`measured_on`). `intervals` are
    `Intervals` at level .95, where noised totals count the rows of each center. `profile` has `Profiles` in
    the columns' units.
    """

    rows: int | None
    converged: bool | None
    remedy: str
    inertia: float | None
    score: float | None
    agreement: Agreement | None
    metrics: dict[str, float | None]
    movements: list[float]
    centroids: list[list[float]]
    of: str = ROWS
    stopped_by: str | None = None
    findings: list[dict[str, Any]] = []
    intervals: dict[str, Any] | None = None
    scaling: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None


class Decided(msgspec.Struct, frozen=True):
    """Holds what a round decided about clusters; `index` is the Dunn index before, or None."""

    round: int
    n_clusters: int
    index: float | None
    changed: bool


class TrainedResult(Outcome, frozen=True, kw_only=True):
    """Holds the result of a run that trains models; the models themselves are in `model.npz`.

    `clusters` is each client's cluster, -1 for none, and `accuracy` the share of its own rows that its own
    model gets right; both are None under differential privacy, as no budget is spent on them. Where clients
    answer from groups of rows, `accuracy` is None. `compared` has accuracies on
    rows that clients held out, by name, and `found` says which is best; None where no client held any out.
    """

    kind: str = "models"
    classes: tuple[str, ...]
    n_parameters: int
    clusters: dict[str, int] | None
    accuracy: dict[str, float] | None
    decided: list[Decided]
    compared: dict[str, float] | None = None
    found: str | None = None


def holds_models(folder: Path) -> bool:
    """Say whether a finished run trained models.

    Raises:
        RunFolderError: there is no result yet, or it is damaged or written by a newer privfed.
    """
    found = read_result(folder, dict[str, Any])
    RESULTS.check(found.get("format"), folder / RESULT)
    return found.get("kind") == "models"


def measured_on(model: FederatedClusterer | FederatedSummary) -> str:
    """Say what a model's inertia, and indices of its clusters, are of."""
    if model.engine is not None and model.engine.members is not None:
        return EITHER
    return ROWS if model.policy is None or model.policy.group_size == 1 else GROUP_MEANS


def in_columns_units(model: FederatedClusterer) -> FloatArray:
    """Return a fitted model's centers as they were before rows were scaled, (n_clusters, n_features)."""
    centers = model.cluster_centers_
    return centers if model.scaling_ is None else model.scaling_.original(centers)


def server_saw(began: Began) -> str:
    """Say what the server saw; of a sum that is not privfed's own, as its author says."""
    opens = began.recipient == "server"
    saw = SIGHTS[began.reveals].whole if opens else "no totals; who took part, and lengths of messages"
    return declared(saw) if began.by_author else saw


def movements(history: Sequence[FloatArray]) -> list[float]:
    """Return how far the centroids moved in each round (Frobenius norm)."""
    return [float(np.linalg.norm(after - before)) for before, after in pairwise(history)]


def _traffic(transcript: Transcript, seconds: float) -> Traffic:
    """Add up the traffic that a transcript records."""
    clients = transcript.configuration.clients
    down, up = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
    exchanged: list[Exchanged] = transcript.of(Exchanged)
    for record in exchanged:
        for way, messages in ((down, record.down), (up, record.up)):
            for sent in messages:
                way[clients[sent.client]] += sent.size
    return Traffic(
        exchanges=len(exchanged),
        bytes_down=down,
        bytes_up=up,
        bytes_per_client=(sum(down.values()) + sum(up.values())) / len(clients),
        seconds=seconds,
    )


def sum_rows(transcript: Transcript) -> list[SumRow]:
    """Return one row for each opened sum."""
    clients = transcript.configuration.clients
    down, up = dict[int, int](), dict[int, int]()
    for record in transcript.of(Exchanged):
        for way, messages in ((down, record.down), (up, record.up)):
            way[record.index] = way.get(record.index, 0) + sum(sent.size for sent in messages)
    return [
        SumRow(
            index=asked.index,
            purpose=asked.purpose,
            clients=len(asked.clients),
            contributors=len(total.contributors),
            dropped={clients[client]: stage for client, stage in total.dropped.items()},
            rejected={clients[client]: why for client, why in total.rejected.items()},
            clipped=total.clipped,
            bytes_down=down.get(asked.index, 0),
            bytes_up=up.get(asked.index, 0),
        )
        for asked, total in transcript.totals()
    ]


def facts_of_run(model: FederatedClusterer | FederatedModel, seconds: float, *noised: str) -> dict[str, Any]:
    """Return the fields of a result that all runs have, from the transcript of a fitted model.

    Args:
        model: the fitted model.
        seconds: wall time of the fit.
        *noised: fields that come from noised totals under differential privacy.
    """
    transcript, claim = model.transcript_, model.privacy_claim_
    began = transcript.of(Began)[0]
    return {
        "protocol": began.configuration.protocol,
        "recipient": began.recipient,
        "reveals": began.reveals,
        "server_saw": server_saw(began),
        "privacy": to_json(claim),
        "noised": noised_fields(claim, *noised),
        "clients": began.configuration.clients,
        "traffic": _traffic(transcript, seconds),
        "sums": sum_rows(transcript),
        "n_iter": model.n_iter_,
    }


def result_of(
    model: FederatedClusterer,
    *,
    algorithm: str,
    columns: Sequence[str],
    seconds: float,
    agreement: Agreement | None = None,
    metrics: Mapping[str, float | None] | None = None,
    profile: Profiles | None = None,
) -> Result:
    """Return the result of a fitted model, for which agreement and metrics were asked already."""
    # Imported here: commands that show what was computed do without its libraries.
    from privfed.estimators.doubts import intervals_of

    inertia, rows = model.inertia_, model.n_rows_
    known = (
        None
        if model.privacy is None
        else intervals_of(model.transcript_, model.cluster_centers_, 0.95, joint=True)
    )
    noised = [*["rows"] * (rows is not None), "movements", "centroids", *["intervals"] * (known is not None)]
    return Result(
        algorithm=algorithm,
        columns=tuple(columns),
        rows=rows,
        n_clusters=len(model.cluster_centers_),
        converged=model.converged_,
        remedy=model.remedy(),
        findings=[
            {"code": one.code, "text": one.text, "clusters": list(one.clusters)}
            for one in vars(model).get("findings_", ())
        ],
        inertia=inertia,
        score=None if inertia is None or rows is None else inertia / rows,
        agreement=agreement,
        metrics=dict(metrics or {}),
        movements=movements(model.history_),
        centroids=in_columns_units(model).tolist(),
        of=measured_on(model),
        stopped_by=model.stopped_by_,
        intervals=None if known is None else known.to_dict(),
        scaling=None if model.scaling_ is None else model.scaling_.to_dict(),
        profile=None if profile is None else profile.to_dict(),
        **facts_of_run(model, seconds, *noised),
    )


def claim_of_run(folder: Path, transcript: Transcript) -> PrivacySpent | None:
    """Return the claim of differential privacy of the run in a folder; None without one.

    If clients added noise on their own before the run, each has a run of its own in the folder.
    """
    if transcript.configuration.privacy is not None:
        before = folder / SCALING
        return _claim_of(transcript, _claim_of(Transcript.load(before)) if has_begun(before) else None)
    own = [_claim_of(Transcript.load(one)) for one in _runs_of_clients(folder) if has_begun(one)]
    return own[-1] if own else None


def _runs_of_clients(folder: Path) -> tuple[Path, ...]:
    if not (folder / LOCAL).exists():
        return ()
    # Imported here since it takes long, and few runs need it.
    from privfed.federation.simulation import folders_of

    return tuple(folders_of(folder))


def _claim_of(transcript: Transcript, before: PrivacySpent | None = None) -> PrivacySpent | None:
    # Imported here since it takes long, and only claims need it.
    from privfed.privacy.dp_sgd import payments_of
    from privfed.protocols.secure_sums import one_key_of

    agreed = transcript.configuration
    by_author = transcript.of(Began)[0].by_author
    # A sum of another author may have the name of one of privfed's.
    one_key = None if by_author else one_key_of(agreed.protocol)
    paid = payments_of(transcript)
    claim = claimed(agreed, paid, one_key=bool(one_key), by_author=by_author, before=before)
    if claim is None or one_key is not None:
        return claim
    unknown = f"unknown here: {agreed.protocol!r} is no protocol of this privfed"
    return replace(claim, against=claim.against | {"the server with clients": unknown})


def claim_from(privacy: Mapping[str, Any] | None) -> PrivacySpent | None:
    """Decode a claim from a result in JSON."""
    return None if privacy is None else PrivacySpent.from_dict(privacy)


def to_json(claim: PrivacySpent | None) -> dict[str, Any] | None:
    """Encode a claim for JSON; None without one."""
    return None if claim is None else claim.to_dict()


@contextmanager
def stating_the_claim(folder: Path) -> Iterator[None]:
    """State the claim of a run that does not finish, if anything was asked in it.

    What was sent was seen, and its budget is spent. An error gets the claim as a note at the end of its line;
    for a run that was stopped, the claim is printed on stderr.
    """
    try:
        yield
    except PrivFedError as error:
        for line in _claim_so_far(folder):
            error.add_note(line)
        raise
    except click.exceptions.Exit:
        for line in _claim_so_far(folder):
            click.echo(f"privfed: {line}", err=True)
        raise


def _claim_so_far(folder: Path) -> list[str]:
    found = [one for one in (folder, *_runs_of_clients(folder)) if has_begun(one)]
    asked = [one for one in map(Transcript.load, found) if one.of(Asked)]
    claims = [claim for claim in map(_claim_of, asked) if claim is not None]
    return [f"What was asked so far is under the claim: {one_line(claims[-1])}."] if claims else []
