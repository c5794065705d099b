"""Carries out a selection of the number of clusters in its folder.

Each fit keeps its transcript in a folder of its own, so the same command continues where it was stopped.
"""

from __future__ import annotations

import fcntl
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table

from privfed import __version__
from privfed.cli.declared import Declared
from privfed.cli.display.picture import save, write_claim
from privfed.cli.display.progress import RoundProgress
from privfed.cli.display.unconverged import in_results
from privfed.cli.folder.claim import claim_from, saying_the_claim
from privfed.cli.folder.disk import telling_when_full, write_new
from privfed.cli.folder.result import began_of, server_saw
from privfed.cli.folder.run_folder import MODEL, RESULT_FORMAT, Source, Word, pretty
from privfed.cli.registered import with_own_sum
from privfed.cli.runs.fitting import check_same_rows
from privfed.core.stored.files import make_folder, replaced
from privfed.data import ClientTables
from privfed.errors import ProtocolError, ResumeError, RunFolderError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.choosing.elbow import Rule
from privfed.estimators.choosing.selection import (
    SelectionResult,
    estimator_of,
    select_n_clusters,
    transcripts,
)
from privfed.experiments.report.svg import COLOURS
from privfed.federation.clients import Clients
from privfed.privacy.claim import noised_mark, rows_mark

ASKED, FOUND = "select.json", "selection.json"


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the contents of `select.json`: the parameters, so that only the same selection is continued."""

    source: Source
    algorithm: str
    index: str
    rule: Rule | None
    min_k: int | None
    max_k: int | None
    words: dict[str, Word]
    declared: Declared


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the contents of `selection.json`; `table` has one row for each number of clusters.

    `privacy` is the claim of differential privacy of the whole selection, None without one; `noised` names
    the fields that come from noised totals.
    """

    format: int = RESULT_FORMAT
    privfed: str
    algorithm: str
    protocol: str
    server_saw: str
    privacy: dict[str, Any] | None
    noised: list[str]
    clients: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int | None
    n_clusters: int
    index: str
    rule: str
    local_clusters: list[int] | None
    table: list[dict[str, Any]]
    centroids: list[list[float]]
    seconds: float


def carry_out(
    out: Path,
    asked: Asked,
    tables: ClientTables,
    clients: Clients,
    numbers: range | None,
    *,
    quiet: bool,
    picture: bool,
) -> Selection:
    """Fit every number of clusters, continuing from what the folder holds, and write the results."""
    model = estimator_of(
        asked.algorithm, with_own_sum({**asked.words, **asked.declared.words(), "run_dir": out})
    )
    fresh = _prepare(out, asked)
    try:
        with _held(out), saying_the_claim(out), _resumable(out), in_results():
            if asked.declared.epsilon is None:
                for transcript in transcripts(out)[:1]:
                    check_same_rows(tables, transcript)
            began = time.monotonic()
            result = select_n_clusters(
                clients,
                numbers,
                estimator=model,
                index=asked.index,
                rule=asked.rule,
                resume=True,
                watch=lambda number: _progress(asked, model, number, quiet),
            )
            if picture:
                draw_selection(out / "picture.png", result)
            return _written(out, _selection(asked, tables, result, time.monotonic() - began), result)
    except BaseException:
        if fresh and not transcripts(out):
            _discard(out)
        raise


def _written(out: Path, found: Selection, result: SelectionResult) -> Selection:
    with replaced(out / MODEL) as path:
        result.estimator.save(path)
    with replaced(out / FOUND) as path:
        path.write_bytes(pretty(found))
    return found


def _prepare(out: Path, asked: Asked) -> bool:
    """Make the folder, or check that it holds the same selection unfinished; return whether it is new.

    Raises:
        RunFolderError: it is a file, or holds something else.
    """
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; name a folder with --out.")
    if (out / FOUND).exists():
        raise RunFolderError(f"{out} already holds a selection; name another folder with --out.")
    if (out / ASKED).exists():
        try:
            begun = msgspec.json.decode((out / ASKED).read_bytes(), type=Asked)
        except msgspec.MsgspecError:
            raise RunFolderError(f"{out / ASKED} is damaged; name another folder with --out.") from None
        if begun != asked:
            raise RunFolderError(
                f"{out} holds an unfinished selection with other parameters; name another folder with --out."
            )
        return False
    make_folder(out)
    write_new(out / ASKED, pretty(asked))
    return True


def _discard(out: Path) -> None:
    """Remove the files of a folder in which no fit has begun."""
    (out / ASKED).unlink(missing_ok=True)
    if not any(out.iterdir()):
        out.rmdir()


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two processes never write to one transcript."""
    with (out / ASKED).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(f"{out} is in use by another privfed; wait until it has ended.") from None
        yield


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say how to continue if a selection is stopped."""
    try:
        with telling_when_full(out, "give the same command again; it goes on there."):
            yield
    except KeyboardInterrupt:
        words = f"the same command with --out {shlex.quote(str(out))}"
        click.echo(f"privfed: stopped; finish the selection with {words}", err=True)
        raise click.exceptions.Exit(130) from None
    except ResumeError as error:
        raise ResumeError(f"{error} Name another folder with --out.") from None
    except ProtocolError as error:
        raise ProtocolError(f"{error} What was summed is kept; the same command continues.") from error


def _progress(asked: Asked, model: FederatedClusterer, n_clusters: int, quiet: bool) -> RoundProgress:
    """Return the progress of one fit; an estimator without rounds or restarts has one of each."""
    words = model.get_params(deep=False)
    last = "" if asked.max_k is None else f" of {2 if asked.min_k is None else asked.min_k} to {asked.max_k}"
    label = f"{asked.algorithm}, {n_clusters} clusters{last}"
    return RoundProgress(label, words.get("max_iter", 1), words.get("n_init", 1), quiet)


def _selection(asked: Asked, tables: ClientTables, result: SelectionResult, seconds: float) -> Selection:
    model = result.estimator
    began = began_of(model.transcript_)
    return Selection(
        privfed=__version__,
        algorithm=asked.algorithm,
        protocol=began.configuration.protocol,
        server_saw=server_saw(began.opens_to, began.reveals),
        clients=began.configuration.clients,
        columns=tables.columns,
        rows=model.n_rows_,
        centroids=model.cluster_centers_.tolist(),
        seconds=seconds,
        **result.to_dict(),
    )


def selection_table(found: Selection) -> Table:
    """Return a table with one line for each number of clusters, the chosen one marked."""
    claim = claim_from(found.privacy)
    mark = noised_mark(claim)
    title = (
        f"{found.algorithm} over {len(found.clients)} clients, {found.rows} rows{rows_mark(claim)}, "
        f"protocol {found.protocol}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("K", f"{found.index}{mark}", "inertia", "rounds", "sums", "kB", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in found.table:
        numbers = [f"{row[name]:.6g}" if row[name] is not None else "" for name in ("index", "inertia")]
        chosen = f"< {found.rule}" if row["n_clusters"] == found.n_clusters else ""
        chosen = f"{chosen} not converged".strip() if row["converged"] is False else chosen
        counts = [str(row["rounds"]), str(row["sums"]), f"{row['bytes'] / 1000:,.1f}"]
        table.add_row(str(row["n_clusters"]), *numbers, *counts, chosen)
    return table


def draw_selection(path: Path, result: SelectionResult) -> None:
    """Draw the index over the numbers of clusters, with the chosen one marked, as a PNG file."""
    figure, claim = Figure(figsize=(7, 4.5), layout="constrained"), result.privacy_claim
    write_claim(figure, claim)
    axes = figure.subplots()
    numbers, values = [row.n_clusters for row in result.table], [row.index for row in result.table]
    axes.plot(numbers, values, "-o", color=COLOURS[0], linewidth=2, markersize=5, label=result.index)
    best = next(row for row in result.table if row.n_clusters == result.n_clusters)
    axes.plot(
        best.n_clusters,
        best.index,
        "o",
        color=COLOURS[1],
        markersize=13,
        markerfacecolor="none",
        markeredgewidth=2.5,
        label=f"{result.rule}: {result.n_clusters} clusters",
    )
    name = result.index.replace("_", " ") + noised_mark(claim)
    axes.set(title="Number of clusters", xlabel="clusters", ylabel=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend()
    save(figure, path)
