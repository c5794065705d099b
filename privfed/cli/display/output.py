"""Output for people and programs: files in a run's folder, and tables on stdout."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from privfed.cli.display.unconverged import in_its_words
from privfed.cli.folder.claim import claim_from
from privfed.cli.folder.result import Result, SumRow
from privfed.cli.folder.run_folder import MODEL, RESULT, pretty
from privfed.core.stored.files import replaced
from privfed.core.values.domain import FloatArray
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.saved import Saved
from privfed.privacy.claim import PrivacySpent, facts_of, one_line, rows_mark


def write_model(folder: Path, model: Saved, result: Struct) -> None:
    """Write the model and the result into the run's folder, each file atomically."""
    with replaced(folder / MODEL) as path:
        model.save(path)
    with replaced(folder / RESULT) as path:
        path.write_bytes(pretty(result))


def write_results(folder: Path, result: Result, model: FederatedClusterer) -> None:
    """Write the model, its centroids and the result into the run's folder, each file atomically."""
    names, said = (np.array(one, dtype=np.str_) for one in (result.columns, one_line(model.privacy_claim_)))
    with replaced(folder / "centroids.npz") as path, path.open("wb") as file:
        np.savez(file, centroids=model.cluster_centers_, columns=names, privacy=said)
    with replaced(folder / "centroids.csv") as path:
        _write_csv(path, result.columns, model.cluster_centers_)
    write_model(folder, model, result)


def _write_csv(path: Path, header: Sequence[str], rows: FloatArray) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows.tolist())


def printed(table: Table) -> None:
    """Print a table to stdout."""
    _console().print(table)


def _console() -> Console:
    # Names of columns and clients are data, so brackets and colons in them must not be read as markup.
    return Console(markup=False, emoji=False, highlight=False)


def kilobytes(n_bytes: float) -> str:
    """Return a number of bytes in kB (1000 bytes)."""
    return f"{n_bytes / 1000:,.1f} kB"


_FILES = (RESULT, "centroids.csv", "centroids.npz", MODEL, "picture.png")


def result_table(result: Result, folder: Path) -> Table:
    """Return the result as a table of two columns."""
    end = {True: "converged", False: "not converged", None: "as many as were asked for"}[result.converged]
    sent, claim = result.traffic, claim_from(result.privacy)
    rows = "not asked" if result.rows is None else f"{result.rows}{rows_mark(claim)}"
    lost = sum(len(row.dropped) for row in result.sums)
    facts = {
        "algorithm": f"{result.algorithm}, {result.n_clusters} clusters",
        "protocol": result.protocol,
        "the server saw": result.server_saw,
        **claim_lines(claim, result.noised),
        "clients, rows": f"{len(result.clients)}, {rows}",
        "rounds": f"{result.n_iter} ({end})",
        **({"not converged": in_its_words(result.remedy)} if result.remedy else {}),
        "score": _score(result),
        **_agreement(result),
        **{name: "not defined" if one is None else f"{one:.6g}" for name, one in result.metrics.items()},
        "sent": f"{kilobytes(sent.bytes_per_client)} a client, {sent.exchanges} exchanges",
        "dropouts": f"{lost} in {len(result.sums)} sums",
        "seconds": f"{sent.seconds:.2f}",
        "files": ", ".join(name for name in _FILES if (folder / name).exists()),
    }
    return facts_table(folder, facts)


def claim_lines(claim: PrivacySpent | None, noised: Sequence[str] = ()) -> dict[str, str]:
    """Return the facts about a claim, and the names of the noised numbers."""
    return facts_of(claim) | ({"noised numbers": ", ".join(noised)} if noised else {})


def _score(result: Result) -> str:
    if result.score is None:
        return "not asked: nothing of the privacy budget was spent on it"
    return f"{result.score:.6g} (inertia {result.inertia:.6g} / rows)"


def facts_table(folder: Path, facts: Mapping[str, str]) -> Table:
    """Return names and values as a table of two columns."""
    table = Table(title=f"Run in {folder}", show_header=False, title_justify="left")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def one_table(
    folder: Path, facts: Mapping[str, str], claim: PrivacySpent | None, noised: Sequence[str]
) -> Table:
    """Return names and values, the claim and the files as a table of two columns."""
    files = {"files": ", ".join(name for name in _FILES if (folder / name).exists())}
    return facts_table(folder, {**facts, **claim_lines(claim, noised), **files})


def _agreement(result: Result) -> dict[str, str]:
    found = result.agreement
    if found is None:
        return {}
    return {
        "agreement": f"accuracy {found.accuracy:.4f}, v-measure {found.v_measure:.4f}, "
        f"ARI {found.adjusted_rand_index:.4f}"
    }


def sums_table(rows: Sequence[SumRow]) -> Table:
    """Return one line for each opened sum."""
    table = Table("sum", "purpose", "clients", "in the total", "dropped", "bytes down", "bytes up")
    for column in table.columns[:1] + table.columns[2:4] + table.columns[5:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            str(row.index),
            row.purpose,
            str(row.clients),
            str(row.contributors),
            ", ".join(f"{name} ({stage})" for name, stage in row.dropped.items()),
            f"{row.bytes_down:,}",
            f"{row.bytes_up:,}",
        )
    return table
