"""The work of `privfed select-k`: fits of several numbers of clusters in one folder, and a choice among them.

Each fit keeps its transcript in a folder of its own, so the same command continues where it was stopped.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from privfed.cli import run_folder
from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import (
    check_several,
    clipped,
    declared_with,
    estimator,
    labelled,
    load,
    write_in_units,
)
from privfed.cli.fitting import check_same_rows, resumable
from privfed.cli.output import answer, in_results, table
from privfed.cli.program import in_options
from privfed.cli.progress import RoundProgress
from privfed.cli.result import ROWS, claim_from, in_columns_units, measured_on, server_saw, stating_the_claim
from privfed.core.record.records import SCALING, Began
from privfed.core.record.transcript import has_begun
from privfed.core.stored.files import locked, make_folder, replaced, rewrite, write_new
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, ResumeError, RunFolderError
from privfed.estimators.base import FederatedClusterer, estimator_of
from privfed.estimators.choosing import NO_INTERVAL, SHARED, Rule
from privfed.estimators.selection import select_n_clusters, transcripts
from privfed.federation.clients import Clients, gather
from privfed.privacy.claim import noised_mark, one_line, rows_mark
from privfed.version import __version__


def select_k(
    data: Path, out: Path, algorithm: str, quiet: bool, picture: bool, as_json: bool, **given: Any
) -> None:
    """Do the work of `privfed select-k`."""
    source = run_folder.source_of(data, given)
    declared = declared_with(source, declared_of(given))
    own = {name: given.pop(name) for name in ("index", "rule", "min_k", "max_k")}
    given |= declared.scaling(given.pop("scale"))
    asked = Asked(
        source=source, algorithm=algorithm, values=run_folder.values_of(given), declared=declared, **own
    )
    declared.check_claim(*source.undeclared)
    tables = load(source, private=declared.epsilon is not None)
    check_several(tables, source.path, asked.values["protocol"])
    private = declared.epsilon is not None
    rows = clipped(labelled(tables, tables.labels), declared)
    clients = gather(rows, domain=declared.domain(), private=private)
    numbers = _range(asked, sum(len(rows) for rows in tables.arrays))
    found = carry_out(out, asked, tables, clients, numbers, quiet=quiet, picture=picture)
    claim = claim_from(found.privacy)
    said = [one_line(None) if claim is None else f"{SHARED}\n{NO_INTERVAL}\n{claim}"]
    said += [
        f"{row['n_clusters']} clusters did not converge: {in_options(row['remedy'])}"
        for row in found.table
        if row["remedy"]
    ]
    drawn = f"{out / run_folder.PICTURE}, " * picture
    said += [
        f"{found.n_clusters} clusters: {found.rule} of {found.index}.",
        f"Written: {out / run_folder.SELECTION}, {drawn}{out / run_folder.MODEL}",
    ]
    answer(found, as_json, selection_table(found), *said)


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the contents of `select.json`: the parameters, so that only the same selection is continued."""

    source: run_folder.Source
    algorithm: str
    index: str
    rule: Rule | None
    min_k: int | None
    max_k: int | None
    values: dict[str, run_folder.Value] = msgspec.field(name="words")
    declared: Declared


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the contents of `selection.json`; `table` has one row for each number of clusters.

    `privacy` is the claim of differential privacy of the whole selection, None without one; `noised` names
    the fields that come from noised totals, `no_interval` says why the index has none; `of` names what index
    and inertia were computed on: rows or group means.
    """

    format: int = run_folder.RESULT_FORMAT
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
    of: str = ROWS
    scaling: dict[str, Any] | None = None
    no_interval: str | None = None


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
    described = run_folder.Parameters(
        algorithm=asked.algorithm, n_clusters=2, values=asked.values, declared=asked.declared
    )
    model = estimator(described, out)
    if not isinstance(model, FederatedClusterer):
        model = estimator_of(asked.algorithm, {})
    fresh = _prepare(out, asked)
    try:
        again = f"the same command with --out {shlex.quote(str(out))}"
        with locked(out / run_folder.ASKED), stating_the_claim(out), resumable(out, again), in_results():
            if asked.declared.epsilon is None:
                for transcript in transcripts(out)[:1]:
                    check_same_rows(clients, model.policy, transcript)
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
                from privfed.plot import ValidityDisplay, figure_of, save

                drawn, claim = ValidityDisplay.of(result), result.privacy_claim
                save(figure_of(drawn, claim=claim), out / run_folder.PICTURE, claim)
            chosen = result.estimator
            first = chosen.transcript_.of(Began)[0]
            found = Selection(
                privfed=__version__,
                algorithm=asked.algorithm,
                protocol=first.configuration.protocol,
                server_saw=server_saw(first),
                clients=first.configuration.clients,
                columns=tables.columns,
                rows=chosen.n_rows_,
                centroids=in_columns_units(chosen).tolist(),
                scaling=None if chosen.scaling_ is None else chosen.scaling_.to_dict(),
                seconds=time.monotonic() - began,
                of=measured_on(chosen),
                **result.to_dict(),
            )
            with replaced(out / run_folder.MODEL) as path:
                chosen.save(path)
            rewrite(out / run_folder.SELECTION, run_folder.pretty(found))
            write_in_units(out, asked.source, np.array(found.centroids))
            return found
    except ResumeError as error:
        raise ResumeError(f"{error} Name another folder with --out.") from None
    except BaseException:
        if fresh and not transcripts(out) and not has_begun(out / SCALING):
            run_folder.discard(out, run_folder.ASKED)
        raise


def _prepare(out: Path, asked: Asked) -> bool:
    """Make the folder, or check that it holds the same selection unfinished; return whether it is new.

    Raises:
        RunFolderError: it is a file, or holds something else.
    """
    if (out / run_folder.SELECTION).exists():
        raise RunFolderError(f"{out} already holds a selection; name another folder with --out.")
    if (out / run_folder.ASKED).exists():
        if run_folder.read_result(out, Asked, run_folder.ASKED) != asked:
            raise RunFolderError(
                f"{out} holds an unfinished selection with other parameters; name another folder with --out."
            )
        return False
    make_folder(out)
    write_new(out / run_folder.ASKED, run_folder.pretty(asked))
    return True


def _progress(asked: Asked, model: FederatedClusterer, n_clusters: int, quiet: bool) -> RoundProgress:
    """Return the progress of one fit; an estimator without rounds or restarts has one of each."""
    taken = model.get_params(deep=False)
    last = "" if asked.max_k is None else f" of {2 if asked.min_k is None else asked.min_k} to {asked.max_k}"
    label = f"{asked.algorithm}, {n_clusters} clusters{last}"
    return RoundProgress(label, taken.get("max_iter", 1), taken.get("n_init", 1), quiet)


def selection_table(found: Selection) -> Table:
    """Return a table with one line for each number of clusters, the chosen one marked."""
    claim = claim_from(found.privacy)
    title = (
        f"{found.algorithm} over {len(found.clients)} clients, {found.rows} rows{rows_mark(claim)}, "
        f"protocol {found.protocol}{'' if found.of == ROWS else f', of {found.of}'}"
    )
    lines = []
    for row in found.table:
        numbers = [f"{row[name]:.6g}" if row[name] is not None else "" for name in ("index", "inertia")]
        chosen = f"< {found.rule}" if row["n_clusters"] == found.n_clusters else ""
        chosen = f"{chosen} not converged".strip() if row["converged"] is False else chosen
        counts = [str(row["rounds"]), str(row["sums"]), f"{row['bytes'] / 1000:,.1f}"]
        lines.append([str(row["n_clusters"]), *numbers, *counts, chosen])
    return table(
        ("K", f"{found.index}{noised_mark(claim)}", "inertia", "rounds", "sums", "kB", ""), lines, title
    )


def _range(asked: Asked, n_rows: int) -> range | None:
    """Return the numbers of clusters that were asked for; None to ask clients for a rule of thumb."""
    if asked.max_k is None:
        if asked.min_k is not None:
            raise ArgumentError("--min-k goes with --max-k; give both, or none.")
        return None
    low = 2 if asked.min_k is None else asked.min_k
    # Under differential privacy an error must not depend on the number of rows.
    most = asked.max_k if asked.declared.epsilon is not None else n_rows
    if not 2 <= low <= asked.max_k <= most:
        rows = "" if asked.declared.epsilon is not None else f" <= {n_rows}, the rows"
        raise ArgumentError(
            f"--min-k and --max-k must satisfy 2 <= min <= max{rows}, got {low} and {asked.max_k}."
        )
    return range(low, asked.max_k + 1)
