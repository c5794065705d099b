"""Output for people, as tables; and the files of results in a run's folder."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from privfed.cli.program import in_options
from privfed.cli.result import (
    ROWS,
    Outcome,
    Result,
    SumRow,
    claim_from,
    claim_of_run,
    in_columns_units,
    server_saw,
    sum_rows,
    to_json,
)
from privfed.cli.run_folder import MODEL, PICTURE, RESULT, TABLE, pretty
from privfed.core.record.records import Began, Ended
from privfed.core.record.transcript import Transcript
from privfed.core.stored.files import replaced, rewrite
from privfed.privacy.claim import PrivacySpent, facts_of, noised_mark, one_line, rows_mark

if TYPE_CHECKING:
    from privfed.estimators.base import FederatedClusterer
    from privfed.estimators.saving import Saved
    from privfed.plot import Display


def write_model(folder: Path, model: Saved, result: msgspec.Struct) -> None:
    """Write the model and the result into the run's folder, each file atomically."""
    with replaced(folder / MODEL) as path:
        model.save(path)
    rewrite(folder / RESULT, pretty(result))


def write_results(folder: Path, result: Result, model: FederatedClusterer) -> None:
    """Write the model, its centroids and the result into the run's folder, each file atomically."""
    names, claim = (np.array(one, dtype=np.str_) for one in (result.columns, one_line(model.privacy_claim_)))
    with replaced(folder / "centroids.npz") as path, path.open("wb") as file:
        np.savez(file, centroids=in_columns_units(model), columns=names, privacy=claim)
    # Imported here, as commands that show what was computed do without tables.
    from privfed.data.table_files import write_table

    columns: dict[str, Any] = dict(zip(result.columns, in_columns_units(model).T, strict=True))
    if marked := {i for one in result.findings for i in one["clusters"]}:
        columns["note"] = np.array(["no rows" * (i in marked) for i in range(result.n_clusters)])
    write_table(folder / TABLE, columns)
    write_model(folder, model, result)


def draw(folder: Path, result: Outcome, *displays: Display) -> None:
    """Draw a run's picture: displays side by side, with its claim below."""
    from privfed.plot import figure_of, save  # matplotlib takes long to load.

    claim, over = claim_from(result.privacy), f"over {len(result.clients)} clients"
    title = f"{result.algorithm} {over}, protocol {result.protocol}{noised_mark(claim)}"
    save(figure_of(*displays, title=title, claim=claim), folder / PICTURE, claim)


_SIZES = 16
"""Most sizes of clusters that are printed in one cell."""

_UNBROKEN = 1_000_000
"""Width, in characters, of what is no terminal: no line of a table is broken, and no number is cut."""


def echo(*what: Table | str, err: bool = False) -> None:
    """Print tables and lines for people, unless the command has the option --quiet.

    What a program reads (`--json`) and errors are printed by `click.echo`.

    Args:
        what: printed one below the other; tables to stdout.
        err: whether lines go to stderr.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("quiet"):
        return
    for one in what:
        if isinstance(one, str):
            click.echo(one, err=err)
        else:
            width = None if sys.stdout.isatty() else _UNBROKEN
            # Names of columns and clients are data: brackets and colons in them must not be read as markup.
            console = Console(width=width, markup=False, emoji=False, highlight=False)
            if one.title is not None:
                # A path in it stays whole, however narrow the table is.
                console.print(one.title, style="table.title", soft_wrap=True)
                one.title = None
            console.print(one)


def answer(found: Any, as_json: bool, *what: Table | str) -> None:
    """Print what a command found: for programs as JSON, for people as tables and lines (`echo`)."""
    if as_json:
        click.echo(pretty(found), nl=False)
    else:
        echo(*what)


_NUMBER = re.compile(r"([+-]?[0-9][0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?%?)?")


def table(
    head: Sequence[str], lines: Iterable[Sequence[str]], title: str | None = None, caption: str | None = None
) -> Table:
    """Return a table, whose columns of numbers alone stand at the right; without heads it shows none."""
    rows = [[*line] for line in lines]
    found = Table(title=title, caption=caption, show_header=any(head))
    found.title_justify = found.caption_justify = "left"
    for place, name in enumerate(head):
        numbers = all(_NUMBER.fullmatch(row[place]) for row in rows)
        found.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        found.add_row(*row)
    return found


def kilobytes(n_bytes: float) -> str:
    """Return a number of bytes in kB (1000 bytes)."""
    return f"{n_bytes / 1000:,.1f} kB"


_FILES = (RESULT, TABLE, "centroids.npz", MODEL, PICTURE)


def result_table(result: Result, folder: Path) -> Table:
    """Return the result as a table of two columns."""
    ends = {True: "converged", False: "not converged", None: "as many as were asked for"}
    end = ends[result.converged] + (f", by {result.stopped_by}" if result.converged else "")
    sent, claim = result.traffic, claim_from(result.privacy)
    rows = "not asked" if result.rows is None else f"{result.rows}{rows_mark(claim)}"
    facts = {
        "algorithm": f"{result.algorithm}, {result.n_clusters} clusters",
        "protocol": result.protocol,
        "the server saw": result.server_saw,
        **claim_lines(claim, result.noised),
        **_mu(claim),
        "clients, rows": f"{len(result.clients)}, {rows}",
        **_sizes(result),
        "rounds": f"{result.n_iter} ({end})",
        **{one["code"].replace("-", " "): in_options(one["text"]) for one in result.findings},
        "score": _score(result),
        **_agreement(result),
        **{
            name: "not defined" if one is None else f"{one:.6g}{_rows_meant(result)}"
            for name, one in result.metrics.items()
        },
        "sent": f"{kilobytes(sent.bytes_per_client)} a client, {sent.exchanges} exchanges",
        "dropouts": f"{sum(len(row.dropped) for row in result.sums)} in {len(result.sums)} sums",
        **_rejected(result.sums),
        "seconds": f"{sent.seconds:.2f}",
        "files": ", ".join(name for name in _FILES if (folder / name).exists()),
    }
    return facts_table(folder, facts)


def claim_lines(claim: PrivacySpent | None, noised: Sequence[str] = ()) -> dict[str, str]:
    """Return the facts about a claim, and the names of the noised numbers."""
    return facts_of(claim) | ({"noised numbers": ", ".join(noised)} if noised else {})


def _mu(claim: PrivacySpent | None) -> dict[str, str]:
    """Return the mu of a claim, where it has one."""
    mu = None if claim is None else claim.curve.mu
    return {} if mu is None else {"mu": f"{mu:.4g} (Gaussian differential privacy: the claim at every delta)"}


def sizes_of(intervals: dict[str, Any], rows: str = "sizes") -> str:
    """Return what the sizes in a result's intervals are called: of a fuzzy fit they are no rows."""
    return rows if intervals.get("of_rows", True) else "memberships^m"


def _sizes(result: Result) -> dict[str, str]:
    """Return the noised sizes of the clusters with what the noise leaves open, where they are known."""
    found = result.intervals
    if found is None:
        return {}
    sizes = zip(found["sizes"], found["sizes_low"], found["sizes_high"], found["mostly_noise"], strict=True)
    listed = [f"{one:.0f} ({low:.0f} to {high:.0f}){', mostly noise' * bad}" for one, low, high, bad in sizes]
    if len(listed) > _SIZES:
        listed[_SIZES:] = [f"and {len(listed) - _SIZES} more, which result.json has"]
    longest = max(found["noise"])
    return {
        f"{sizes_of(found)} ({found['level']:.0%} together)": "; ".join(listed),
        "noise of a center": f"up to {longest:.3g} long; result.json has intervals of all coordinates",
    }


def _rows_meant(result: Result) -> str:
    return "" if result.of == ROWS else f" of {result.of}"


def _score(result: Result) -> str:
    if result.score is None:
        return "not asked" + ": nothing of the privacy budget was spent on it" * (result.privacy is not None)
    return f"{result.score:.6g}{_rows_meant(result)} (inertia {result.inertia:.6g} / rows)"


def facts_table(folder: Path, facts: Mapping[str, str]) -> Table:
    """Return names and values as a table of two columns."""
    return table(("", ""), facts.items(), title=f"Run in {folder}")


def one_table(
    folder: Path, facts: Mapping[str, str], claim: PrivacySpent | None, noised: Sequence[str]
) -> Table:
    """Return names and values, the claim and the files as a table of two columns."""
    files = ", ".join(name for name in _FILES if (folder / name).exists())
    return facts_table(folder, {**facts, **claim_lines(claim, noised), "files": files})


def _agreement(result: Result) -> dict[str, str]:
    found = result.agreement
    if found is None:
        return {}
    return {
        "agreement": f"accuracy {found.accuracy:.4f}, v-measure {found.v_measure:.4f}, "
        f"ARI {found.adjusted_rand_index:.4f}{_rows_meant(result)}"
    }


_COLUMNS: dict[str, Callable[[SumRow], str]] = {
    "sum": lambda row: str(row.index),
    "purpose": lambda row: row.purpose,
    "clients": lambda row: str(row.clients),
    "in the total": lambda row: str(row.contributors),
    "dropped": lambda row: ", ".join(f"{name} ({stage})" for name, stage in row.dropped.items()),
    "bytes down": lambda row: f"{row.bytes_down:,}",
    "bytes up": lambda row: f"{row.bytes_up:,}",
}
"""Columns of the sums of a run, by their heads."""


def _rejected(rows: Sequence[SumRow]) -> dict[str, str]:
    """Return the fact whose messages were thrown away, or who was left out, and why; nothing for nobody."""
    found = {f"{name}: {why}": None for row in rows for name, why in row.rejected.items()}
    return {"rejected": "; ".join(found)} if found else {}


@contextmanager
def in_results() -> Iterator[None]:
    """Suppress the library's warning on stderr, as tables and files say it with a remedy."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def show(run_folder: Path, as_json: bool) -> None:
    """Do the work of `privfed show`."""
    transcript = Transcript.load(run_folder)
    claim, agreed = claim_of_run(run_folder, transcript), transcript.configuration
    try:
        parameters = dict(json.loads(agreed.algorithm))
    except (ValueError, TypeError):
        parameters = {"algorithm": agreed.algorithm}
    parameters.pop("n_features", None)
    name, finished = parameters.pop("algorithm", "unknown"), bool(transcript.of(Ended))
    sums, saw = sum_rows(transcript), server_saw(transcript.of(Began)[0])
    shown = {
        "algorithm": name,
        "parameters": parameters,
        "protocol": agreed.protocol,
        "server_saw": saw,
        "privacy": to_json(claim),
        "clients": agreed.clients,
        "columns": agreed.n_features,
        "finished": finished,
        "sums": sums,
    }
    facts = {
        "algorithm": name,
        "parameters": ", ".join(
            # Of a scale its kind; the transcript in the folder "scaling" has the numbers.
            f"{one} {value.get('kind') if isinstance(value, dict) else value}"
            for one, value in parameters.items()
            if value is not None
        ),
        "protocol": agreed.protocol,
        "the server saw": saw,
        **claim_lines(claim),
        "clients, columns": f"{len(agreed.clients)}, {agreed.n_features}",
        "state": "finished" if finished else f"not finished after {len(sums)} sums",
        **_rejected(sums),
    }
    lines = ([cell(row) for cell in _COLUMNS.values()] for row in sums)
    answer(shown, as_json, facts_table(run_folder, facts), table(tuple(_COLUMNS), lines))
