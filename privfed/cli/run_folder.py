"""A run's folder: its parameters (`run.json`), and careful reading and writing of its files.

Trust: with the protocol "plain" the transcript holds every client's statistics; protect it like the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from privfed.cli.declared import Declared, taken
from privfed.cli.program import is_full
from privfed.core.names import PARTS
from privfed.core.record.records import FILE as TRANSCRIPT
from privfed.core.record.records import MODEL as MODEL
from privfed.core.stored.files import Format, make_folder, write_new
from privfed.errors import RunFolderError
from privfed.privacy.claim import PrivacySpent

RUN, RESULT, SELECTION, ASKED = "run.json", "result.json", "selection.json", "select.json"
PICTURE, TABLE, IN_UNITS = "picture.png", "centroids.csv", "centroids-in-units.csv"
SCHEMA, MERGED = "schema.toml", "merged.json"
"""Centroids, those that people read, and the schema of a run of nodes; otherwise `run.json` has it."""

CLASSES = "classes.json"
"""What models of nodes tell apart; otherwise `result.json` has it."""

FORMAT = 1
RESULT_FORMAT = 2
"""Format of `result.json` and similar files; format 1 named no format, no claim and no noised numbers."""

RUN_FORMAT = Format(name="run.json", version=FORMAT, again="fit again in another folder")
RESULTS = Format(
    name="result.json", version=RESULT_FORMAT, again="run 'privfed resume', which writes it anew"
)

Known = TypeVar("Known")
Value = int | float | str | bool
"""A parameter's value as it is stored."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says where the clients' rows come from.

    Args:
        path: absolute path of the table or folder.
        group: column that says which client a row belongs to.
        label: column of true labels, which is not a feature.
        columns: the feature columns, in order.
        separator: character between the fields of a CSV file; None to detect it.
        clients: names of all clients, if they were declared.
        classes: names of the classes, in the order of their codes, for a run that trains models.
        missing: what becomes of rows without a number in some column; None for an error.
        id: column with whose each row is, which is not a feature.
        schema: text of the schema that describes the columns; None without one.
        drop: columns that are no features.
    """

    path: str
    group: str | None
    label: str | None
    columns: tuple[str, ...]
    separator: str | None
    clients: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    missing: float | str | None = None
    id: str | None = None
    schema: str | None = None
    drop: tuple[str, ...] = ()

    @property
    def undeclared(self) -> list[str]:
        """Options that differential privacy needs for these rows, and that are missing."""
        return ["--clients"] if self.group is not None and not self.clients else []


def source_of(data: Path, given: dict[str, Any]) -> Source:
    """Remove the options of the source from those given, and return the source; a schema's file is read."""
    if given.get("schema") is not None:
        given["schema"] = PARTS.find("schemas").schema_text(given["schema"])
    return taken(Source, {**given, "path": str(data.absolute())}, given)


def values_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given; for the others an estimator has defaults."""
    return {name: value for name, value in given.items() if value is not None}


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the parameters of `privfed fit`.

    Args:
        algorithm: name of the algorithm.
        n_clusters: number of clusters.
        values: the estimator's parameters that were given; the others have the estimator's defaults.
        declared: the domain and the privacy that were declared.
        metrics: names of the metrics that are asked after the fit.
        profile: whether the clusters' profiles are asked after it.
    """

    algorithm: str
    n_clusters: int
    values: dict[str, Value] = msgspec.field(name="words")
    declared: Declared
    metrics: tuple[str, ...] = ()
    profile: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the contents of `run.json`: what `privfed resume` needs besides the transcript."""

    format: int
    privfed: str
    command: str
    source: Source
    parameters: Parameters


def pretty(value: Any) -> bytes:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def create(folder: Path, run: Run) -> None:
    """Make a run's folder and write its `run.json`.

    Raises:
        RunFolderError: the folder already holds a run, or the path is a file.
    """
    if (folder / RUN).exists() or (folder / TRANSCRIPT).exists():
        raise RunFolderError(
            f"{folder} already holds a run; name another folder with --out, or go on with that run: "
            f"privfed resume {folder}"
        )
    make_folder(folder)
    write_new(folder / RUN, pretty(run))


def discard(folder: Path, *names: str) -> None:
    """Remove files of a folder in which no run has begun, and the folder where nothing else is in it."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def read_run(folder: Path) -> Run:
    """Read `run.json`.

    Raises:
        RunFolderError: the file is missing, damaged, or written by a newer privfed.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is no folder; name the folder of a run.")
    run = _read(folder / RUN, Run, f"{folder} holds no {RUN}; name a folder that 'privfed fit' wrote.")
    RUN_FORMAT.check(run.format, folder / RUN)
    return run


class Centroids(msgspec.Struct, frozen=True):
    """Holds the part of `result.json` that later commands need; format 1 named no format."""

    columns: tuple[str, ...]
    centroids: list[list[float]]
    privacy: PrivacySpent | None = None
    format: int = 1
    scaling: dict[str, Any] | None = None
    intervals: dict[str, Any] | None = None

    @property
    def radius(self) -> float | None:
        """Length to which offsets from the centers were clipped; None where they were not."""
        return None if self.intervals is None else self.intervals.get("radius")


def read_centroids(folder: Path, file: str = RESULT) -> Centroids:
    """Read the columns and centroids of a finished run, or with its file of a selection.

    Raises:
        RunFolderError: there is no result yet, or it is damaged or written by a newer privfed.
    """
    found = read_result(folder, Centroids, file)
    RESULTS.check(found.format, folder / file)
    return found


def read_result(folder: Path, kind: type[Known], file: str = RESULT, remedy: str = "") -> Known:
    """Read `result.json`, or a file like it; `remedy` is a command that writes it.

    Raises:
        RunFolderError: there is no folder or no result yet, or it is damaged.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is no folder; name the folder of a run.")
    command, why = remedy or "resume", "" if remedy else ": the run is not finished"
    return _read(
        folder / file, kind, f"{folder} holds no {file}{why}; write it with 'privfed {command} {folder}'."
    )


class Classes(msgspec.Struct, frozen=True):
    """Holds what models tell apart: their columns, and the classes in the order of their codes."""

    columns: tuple[str, ...]
    classes: tuple[str, ...]


class _OfModels(msgspec.Struct, frozen=True):
    n_parameters: int
    classes: tuple[str, ...]


def former_seconds(folder: Path) -> float | None:
    """Return how many seconds a run took, from its `result.json`; None if that cannot be read."""
    try:
        return float(_read(folder / RESULT, dict[str, Any], "")["traffic"]["seconds"])
    except (RunFolderError, KeyError, TypeError, ValueError):
        return None


def _read(path: Path, kind: type[Known], missing: str) -> Known:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunFolderError(missing) from None
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError):
        with suppress(msgspec.MsgspecError, ValueError):
            msgspec.json.decode(content, type=_OfModels)
            raise RunFolderError(
                f"{path.parent} trained models of labels, and has no clusters of rows: 'privfed show' prints "
                "what ran, 'privfed predict' the classes of rows."
            ) from None
        raise RunFolderError(f"{path} is damaged; restore it, or start anew in another folder.") from None


class DiskFullError(RunFolderError):
    """Signals that the disk is full; what was written is kept."""


@contextmanager
def reporting_a_full_disk(folder: Path, remedy: str) -> Iterator[None]:
    """Turn the error of a full disk into one that says what to do.

    Args:
        folder: the folder that is written to.
        remedy: how to continue once there is space.

    Raises:
        DiskFullError: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFullError(
            f"the disk of {folder} is full, or a file there is as large as the system allows (ulimit -f); "
            "what was done so far is kept there. Free some space, then "
            f"{remedy}"
        ) from error
