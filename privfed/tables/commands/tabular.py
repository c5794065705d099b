"""The work of `privfed schema` and `privfed check`: what columns mean, found and checked at home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from privfed.cli.output import answer, echo, table
from privfed.core.stored.files import write_new
from privfed.core.values.origin import Origin
from privfed.data.table import same_but_for_spelling
from privfed.data.table_files import files_of, is_folder, stem
from privfed.errors import ArgumentError
from privfed.tables.checking import HEAD, check_tables, report_flat
from privfed.tables.drafting import draft_schema
from privfed.tables.merging import merge
from privfed.tables.schema import parse, read_schema, to_toml


def draft(data: Path, out: Path | None, **given: Any) -> None:
    """Do the work of `privfed schema draft`."""
    found = draft_schema(data, **given)
    text = found.to_toml()
    parse(text, f"the draft of {data}")
    for guess in found.guesses:
        echo(f"privfed: {data}: {guess}.", err=True)
    echo(
        "privfed: read the draft before you pass it on: its categories and codes are this table's, and say "
        "which values occur. A claim of differential privacy refuses them, unless `privfed schema declare` "
        "says that they were known without these rows. Take what you confirm out of guessed.",
        err=True,
    )
    _write(out, text)


def declare(file: Path, out: Path | None, columns: tuple[str, ...]) -> None:
    """Do the work of `privfed schema declare`.

    Raises:
        ArgumentError: the schema has no such column.
    """
    known = read_schema(file)
    if lacking := [name for name in columns if name not in known.columns]:
        raise ArgumentError(f"{file} has no column {lacking[0]!r}; correct its name.", parameters=["columns"])
    declared = {
        name: msgspec.structs.replace(known.columns[name], provenance=Origin.DECLARED) for name in columns
    }
    _write(out, to_toml(msgspec.structs.replace(known, columns={**known.columns, **declared})))


def merge_schemas(files: tuple[Path, ...], out: Path | None, common: bool) -> None:
    """Do the work of `privfed schema merge`; the exit code is 1 where something is left to settle.

    Raises:
        ArgumentError: there are fewer than two files, or two say another thing of one table.
    """
    whole, said = merge([(one.stem, read_schema(one)) for one in files], common=common)
    for one in said:
        echo(f"privfed: {one}", err=True)
    _write(out, to_toml(whole))
    if any(one.conflicts for one in whole.columns.values()):
        echo(
            "privfed: settle what stands in conflicts of the merged schema, and take these keys out.",
            err=True,
        )
        raise click.exceptions.Exit(1)


def check(
    data: Path, schema: Path | None, allow: tuple[str, ...], as_json: bool, **given: str | None
) -> None:
    """Do the work of `privfed check`; the exit code is 1 where a file cannot be used as it is."""
    if schema is None:
        said = report_flat(data, **given)
        answer(said, as_json, *said)
        return
    found = check_tables(data, read_schema(schema), allow=allow)
    answer(
        found.findings,
        as_json,
        table(HEAD, found.lines)
        if found.findings
        else f"{data}: {found.rows} rows are read, and none is clipped, left out or filled",
    )
    for a, b in same_but_for_spelling([stem(one) for one in (files_of(data) if is_folder(data) else [data])]):
        echo(
            f"privfed: files {a!r} and {b!r} differ in spelling only; is it one client? If not, fit takes "
            "both with --clients.",
            err=True,
        )
    if not found.usable:
        raise click.exceptions.Exit(1)


def _write(out: Path | None, text: str) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    write_new(out, text.encode())
