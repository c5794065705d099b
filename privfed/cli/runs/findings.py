"""The reports of attacks on a run, `attacks.json`; stored after each attack, so that none is run twice."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import privfed
from privfed.attacks.base.preparation import Target
from privfed.attacks.registry import ATTACKS
from privfed.core.record.transcript import FILE as TRANSCRIPT
from privfed.core.record.view import View
from privfed.core.stored.files import make_folder, replaced
from privfed.core.stored.formats import Format
from privfed.errors import RunFolderError

REPORT = "attacks.json"
FORMAT = 2
"""Format of the report; format 1 named no format and no claim."""

REPORTS = Format(name=REPORT, version=FORMAT, again="name another folder with --out")


def picture_of(folder: Path, name: str) -> Path:
    """Return the path of an attack's picture."""
    return folder / f"{name.replace(':', '.')}.png"


def keys_of(
    run_folder: Path, view: View, target: Target, kinds: Mapping[str, type], seed: int
) -> dict[str, str]:
    """Return for each attack a hash of all that its report depends on: run, view, target, parameters.

    Args:
        run_folder: folder whose transcript is attacked.
        view: what the party saw.
        target: what is attacked, and what attacks are scored against.
        kinds: attacks by name. For one that is not privfed's own the hash includes its module's source.
        seed: seed of the attacks' random choices.
    """
    digest = hashlib.sha256((run_folder / TRANSCRIPT).read_bytes())
    known = [one for one in (target.public, target.public_labels) if one is not None]
    for rows in (*target.clients, *(target.labels or ()), *known):
        digest.update(f"{rows.shape}".encode() + np.ascontiguousarray(rows).tobytes())
    words = [privfed.__version__, view.party, view.colluding, target.client, seed]
    words += [target.most_rows, *(end.tolist() for end in target.ends or ())]
    digest.update(json.dumps([*words, target.public is None]).encode())
    return {
        name: hashlib.sha256(digest.digest() + name.encode() + _code(name, kind)).hexdigest()[:16]
        for name, kind in kinds.items()
    }


def _code(name: str, kind: type) -> bytes:
    """Return the source of a user's own attack, which may change while privfed's version stays."""
    own = name not in ATTACKS or name in ATTACKS.added()
    return inspect.getsource(sys.modules[kind.__module__]).encode() if own else b""


def stored(folder: Path, keys: dict[str, str], *, pictured: bool) -> dict[str, dict[str, Any]]:
    """Return the reports that a folder already holds under the same keys.

    Args:
        folder: folder of the reports.
        keys: key of each attack.
        pictured: whether only reports with a picture count, as pictures are wanted.

    Raises:
        RunFolderError: the file is damaged, or written by a newer privfed.
    """
    path = folder / REPORT
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        reports: dict[str, dict[str, Any]] = found["attacks"]
        REPORTS.check(found.get("format", 1), path)
        return {
            name: report
            for name, report in reports.items()
            if name in keys
            and report.get("key") == keys[name]
            and "status" in report  # Reports of older versions had none.
            and (picture_of(folder, name).exists() or not pictured)
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunFolderError(
            f"{path} is damaged; remove it to run the attacks again, or name another folder with --out."
        ) from None


def keep(folder: Path, found: dict[str, Any]) -> None:
    """Write all that was found so far, atomically."""
    make_folder(folder)
    with replaced(folder / REPORT) as path:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
