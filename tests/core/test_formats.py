"""Every stored format has a version; another one is read, or refused by name."""

from __future__ import annotations

import gc
import importlib
import json
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import privfed
from privfed import DWFKMeans
from privfed.attacks.commands.attacking import stored
from privfed.cli.run_folder import read_centroids, read_run
from privfed.core.record.records import FILE
from privfed.core.record.transcript import Transcript
from privfed.core.stored.encoding import Codec
from privfed.core.stored.files import Format
from privfed.errors import ArgumentError, FormatError, RunFolderError
from privfed.experiments.running import Store
from tests.modules import importable
from tests.some import some

FORMATS = {"run.json", "result.json", "attacks.json", "cells.sqlite", "model.npz", FILE}


@pytest.fixture(scope="module")
def known() -> dict[type, list[Any]]:
    """Return all formats and codecs of the library, wherever they are defined."""
    for one in importable():
        importlib.import_module(one)
    # By type alone: `isinstance` would ask each object for its class, and some of torch's warn when asked.
    alive = gc.get_objects()
    return {kind: [one for one in alive if issubclass(type(one), kind)] for kind in (Format, Codec)}


def test_all_formats_are_known_here_and_are_tested(known: dict[type, list[Any]]) -> None:
    assert {one.name for one in known[Format]} == FORMATS
    assert len(known[Format]) == len(FORMATS)
    assert FORMATS - {FILE} == set(FILES)


def test_another_version_is_refused_by_name(known: dict[type, list[Any]]) -> None:
    for one in some(known[Format]):
        assert one.check(one.version, "the file") == one.version >= 1
        for other in {one.version + 1, max(one.version - 1, 1)} - {one.version}:
            age = "a newer" if other > one.version else "an older"
            with pytest.raises(RunFolderError, match=f"format {other}, of {age}.*format {one.version}; use"):
                one.check(other, "the file")
        for damaged in (0, -1, "2", None, True, 1.0):
            with pytest.raises(RunFolderError, match="names no format"):
                one.check(damaged, "the file")


def test_states_and_agreements_of_another_version_are_refused_by_name(known: dict[type, list[Any]]) -> None:
    assert known[Codec]
    for codec in known[Codec]:
        for version in (codec._version + 1, codec._version - 1):
            other = msgspec.msgpack.encode((codec._name, version, b""))
            with pytest.raises(
                FormatError, match=f"format {version} is not read.*reads format {codec._version}"
            ):
                codec.from_bytes(other)
        with pytest.raises(ArgumentError):
            codec.from_bytes(b"?")


def a_run(folder: Path, version: int) -> Any:
    run = {"format": version, "privfed": "0", "command": "fit", "source": SOURCE, "parameters": PARAMETERS}
    (folder / "run.json").write_text(json.dumps(run))
    return read_run(folder)


SOURCE = {"path": "a.csv", "group": None, "label": None, "columns": [], "separator": None}
PARAMETERS = {"algorithm": "dwf", "n_clusters": 2, "words": {}, "declared": {}}


def a_result(folder: Path, version: int) -> Any:
    (folder / "result.json").write_text(
        json.dumps({"format": version, "columns": ["a"], "centroids": [[1.0]], "privacy": None})
    )
    return read_centroids(folder)


def a_report(folder: Path, version: int) -> Any:
    (folder / "attacks.json").write_text(json.dumps({"format": version, "attacks": {}}))
    return stored(folder, {}, pictured=False)


def cells(folder: Path, version: int) -> Any:
    store = Store(folder)
    database = sqlite3.connect(store.path)
    database.execute(f"PRAGMA user_version = {version}")
    database.commit()
    database.close()
    return Store(folder)


def a_model(folder: Path, version: int) -> Any:
    path = folder / "model.npz"
    rows = [np.arange(8.0).reshape(4, 2) + i for i in range(2)]
    DWFKMeans(2, protocol="plain", max_iter=2, random_state=0).fit(rows).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    name = next(name for name, array in arrays.items() if array.dtype.kind in "SU" or array.dtype == np.uint8)
    facts = arrays[name]
    text = facts.tobytes().decode() if facts.dtype == np.uint8 else str(facts)
    plain = json.dumps(json.loads(text) | {"format": version})
    arrays[name] = np.frombuffer(plain.encode(), np.uint8) if facts.dtype == np.uint8 else np.array(plain)
    np.savez(path, **arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # An older file says that it has no claim.
        return privfed.load(path)


FILES: dict[str, Callable[[Path, int], Any]] = {
    "run.json": a_run,
    "result.json": a_result,
    "attacks.json": a_report,
    "cells.sqlite": cells,
    "model.npz": a_model,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_version_is_refused_by_name(
    name: str, known: dict[type, list[Any]], tmp_path: Path
) -> None:
    (form,) = [one for one in known[Format] if one.name == name]
    FILES[name](tmp_path, form.version)
    for other in some({99, max(form.version - 1, 1)} - {form.version}):
        with pytest.raises(RunFolderError, match=rf"{name} has format {other}.*reads format {form.version};"):
            (tmp_path / str(other)).mkdir()
            FILES[name](tmp_path / str(other), other)


@pytest.mark.parametrize(
    ("version", "said"), [(6, "format 6, of an older privfed"), (99, "format 99, of a newer privfed")]
)
def test_a_transcript_of_another_version_is_refused_by_name(tmp_path: Path, version: int, said: str) -> None:
    rows = [np.arange(8.0).reshape(4, 2) + i for i in range(2)]
    DWFKMeans(2, protocol="plain", max_iter=2, run_dir=tmp_path / "run").fit(rows)
    path = tmp_path / "run" / FILE
    first, rest = path.read_bytes().split(b"\n", 1)
    other = json.loads(first) | {"version": version, "a_field_of_that_format": 1}
    path.write_bytes(json.dumps(other).encode() + b"\n" + rest)
    with pytest.raises(RunFolderError, match=said):
        Transcript.load(path.parent)
