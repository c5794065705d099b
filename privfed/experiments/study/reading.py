"""Reads a study from TOML."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from privfed.errors import ArgumentError
from privfed.experiments.study.located import Located, StudyError, Where
from privfed.experiments.study.salvage import salvaged


def read_study(path: Path) -> Located:
    """Read a study from a TOML file; mistakes in it are kept for `plan`, which reports all of them.

    Raises:
        ArgumentError: the file cannot be read, or is not TOML; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ArgumentError(f"{path}, line {line}, is not UTF-8 text; save the study as UTF-8.") from None
    except OSError as error:
        raise ArgumentError(
            f"{path} cannot be read ({error.strerror}); name a study's file, or one of privfed's own."
        ) from None
    return parse_study(text, path.name)


def parse_study(text: str, name: str) -> Located:
    """Read a study from the text of a TOML file called `name`; raises as `read_study`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at (?:line (\d+)|end of document)", str(error))
        line = found.group(1) if found and found.group(1) else len(text.splitlines())
        reason = str(error).split(" (at ")[0]
        raise StudyError([f"{name}, line {line}: this is no TOML: {reason}."]) from None
    return salvaged(raw, Where(name, text))
