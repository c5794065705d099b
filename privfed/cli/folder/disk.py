"""Errors of a full disk: what was written is kept, and the command can continue once there is space."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privfed.core.stored.files import open_file
from privfed.errors import RunFolderError


class DiskFullError(RunFolderError):
    """Signals that the disk is full; what was written is kept."""


def is_full(error: OSError) -> bool:
    """Say whether an error means a full disk or an exhausted quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def telling_when_full(folder: Path, remedy: str) -> Iterator[None]:
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
            f"the disk of {folder} is full; what was done so far is kept there. Free some space, then "
            f"{remedy}"
        ) from error


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet; if it cannot be written whole, it is removed."""
    # If two commands get here at the same time, mode "x" lets only one of them create the file.
    with open_file(path, "xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            path.unlink()
            raise
