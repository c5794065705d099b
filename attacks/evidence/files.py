"""Writes a party's view to a file that any program reads, and reads such files, whoever wrote them.

The file is a NumPy archive (NPZ, without pickles). Its array `view` is a JSON text:

    {"format": 1, "party": "server", "colluding": [], "clients": ["a", "b"],
     "sums": [{"index": 0, "purpose": "round", "cohort": [0, 1], "contributors": [0, 1], "answers": [0],
               "question": {"name": "LloydSums", "options": {"ranges": "Ranges", ...}},
               "upload_bytes": {"0": 512}}]}

Its other arrays are float64. `0/question/centers` is a field of the question of sum 0, such as centers, a
model's parameters or how noise was added; `0/total/sum` is its opened total, and `0/answers/sum` has a row
for each client in "answers". `result/centers` is what the run ended with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import msgspec
import numpy as np

from privfed.core.asking.declaration import CostError
from privfed.core.asking.question import Option, Position, QuestionMessage, question_of
from privfed.core.asking.statistics import Layout, Statistics
from privfed.core.record.records import SumView, View
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError, DataError


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The question of a sum but for its arrays."""

    name: str
    options: dict[str, Option] = {}
    position: Position | None = None


class _Sum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sum but for its arrays."""

    index: int
    cohort: list[int]
    purpose: str = ""
    contributors: list[int] = []
    answers: list[int] = []
    question: _Asked | None = None
    upload_bytes: dict[int, int] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A view but for its arrays."""

    clients: list[str]
    sums: list[_Sum]
    party: Literal["server", "observer", "clients"] = "server"
    colluding: list[int] = []
    format: Literal[1] = 1


def view_to_file(view: View, path: str | Path) -> None:
    """Write a view to an NPZ file, whose layout `privfed.attacks.evidence.files` describes.

    Args:
        view: what a party saw (`transcript.view`).
        path: name of the file, which is replaced.
    """
    arrays: dict[str, Any] = {f"result/{name}": one for name, one in view.result.items()}
    sums = []
    for place, one in enumerate(view.sums):
        asked, answers = None, list(one.answers.values())
        if one.question is not None:
            message = msgspec.msgpack.decode(one.question.to_bytes(), type=QuestionMessage)
            asked = _Asked(message.name, message.options, message.position)
            arrays |= {f"{place}/question/{name}": array.to_numpy() for name, array in message.arrays.items()}
        arrays |= {f"{place}/total/{name}": found for name, found in (one.total or {}).items()}
        if answers:
            arrays |= {
                f"{place}/answers/{name}": np.stack([own[name] for own in answers]) for name in answers[0]
            }
        told = (
            [*one.cohort],
            one.purpose,
            [*one.contributors],
            [*one.answers],
            asked,
            dict(one.upload_bytes),
        )
        sums.append(_Sum(one.index, *told))
    whole = _File([*view.clients], sums, view.party, [*view.colluding])  # type: ignore[arg-type]
    arrays["view"] = np.array(msgspec.json.encode(whole).decode())
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **arrays)


def view_from_file(path: str | Path) -> View:
    """Return the view that a file holds, for any passive attack.

    Args:
        path: a file that `view_to_file` wrote, or that another program wrote in the same layout.

    Raises:
        DataError: it has another layout, names a question that is not known here, or holds arrays of other
            shapes than its questions ask for.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files if name != "view"}
            whole = msgspec.json.decode(str(file["view"]), type=_File)
        if any(array.dtype != np.float64 for array in arrays.values()):
            raise ValueError("all arrays but the view's text are float64")
        found = [_read(place, one, arrays) for place, one in enumerate(whole.sums)]
        named = [set(one.cohort) | set(one.contributors) | set(one.answers) for one in found]
        if not set(whole.colluding).union(*named) <= set(range(len(whole.clients))):
            raise ValueError("a position that no client has")
    except OSError:
        raise
    except (
        ArgumentError,
        BadZipFile,
        CostError,
        LookupError,
        TypeError,
        ValueError,
        msgspec.MsgspecError,
    ) as error:
        raise DataError(f"this is no view of a run: {type(error).__name__}: {error}") from error
    result = {name.removeprefix("result/"): one for name, one in arrays.items() if name.startswith("result/")}
    return View(whole.party, tuple(whole.colluding), tuple(whole.clients), tuple(found), result)


def _read(place: int, one: _Sum, arrays: dict[str, FloatArray]) -> SumView:
    """Return the view of a sum, whose arrays have the shapes that its question asks for."""
    parts: dict[str, dict[str, FloatArray]] = {"question": {}, "total": {}, "answers": {}}
    for name, array in arrays.items():
        own, _, rest = name.partition("/")
        kind, _, rest = rest.partition("/")
        if own == str(place):
            parts[kind][rest] = array
    question = None
    if one.question is not None:
        fields = {name: Array.from_numpy(array) for name, array in parts["question"].items()}
        question = question_of(
            QuestionMessage(one.question.name, fields, one.question.options, one.question.position)
        )
        layout = question.spec.layout
    else:
        layout = tuple((name, array.shape) for name, array in parts["total"].items())
    total = _statistics(layout, parts["total"]) if parts["total"] else None
    rows = {name: list(array) for name, array in parts["answers"].items()}
    answers = {
        i: _statistics(layout, {name: own[place] for name, own in rows.items()})
        for place, i in enumerate(one.answers)
    }
    if any(len(own) != len(answers) for own in rows.values()):
        raise ValueError("answers have a row for each client that is named once")
    return SumView(
        one.index,
        one.purpose,
        question,
        tuple(one.cohort),
        tuple(one.contributors),
        total,
        answers,
        one.upload_bytes,
    )


def _statistics(layout: Layout, arrays: Mapping[str, FloatArray]) -> Statistics:
    found = Statistics(**{name: arrays[name] for name, _ in layout})
    if found.layout != layout or len(arrays) != len(layout) or not np.isfinite(found.vector).all():
        raise ValueError(f"expected finite arrays of the layout {layout}, got {found.layout}")
    return found
