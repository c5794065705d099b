"""Errors about files that are not UTF-8: where the first wrong byte is, and how to convert the file.

Messages contain positions but no bytes, since the content of a file is its clients' data.
"""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path

from privfed.errors import DataError


def not_utf8(path: Path, content: bytes) -> DataError | None:
    """Return the error for a text that is not UTF-8, or None for one that is.

    Args:
        path: path of the file, for the message.
        content: content of the file, decompressed.
    """
    name = _wider(content)
    if name is not None:
        return DataError(f"{path} is {name} text, which must be UTF-8; {_remedy(path, name)}.")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        return DataError(
            f"{path} is not UTF-8 text: byte {column} of line {line} does not fit; if it is Latin-1, as "
            f"spreadsheets write it, {_remedy(path, 'ISO-8859-1')}."
        )
    return None


def _wider(content: bytes) -> str | None:
    """Return the name of the text's UTF-16 encoding, or None if it has none."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    # Without a byte order mark: every other byte of an ASCII header line is zero.
    if b"\0" not in content[:2]:
        return None
    encoding = "UTF-16LE" if content[1:2] == b"\0" else "UTF-16BE"
    try:
        # A file of numbers begins with a zero as well, and is no text at all.
        content[: len(content) // 2 * 2].decode(encoding)
    except UnicodeDecodeError:
        return None
    return encoding


def _remedy(path: Path, encoding: str) -> str:
    packed = path.name.lower().endswith(".gz")
    source = f"gunzip -c {shlex.quote(str(path))} | " if packed else ""
    what = "" if packed else f" {shlex.quote(str(path))}"
    return f"convert it with: {source}iconv -f {encoding} -t UTF-8{what} > utf8.csv"
