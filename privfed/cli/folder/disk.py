"""A full disk: what was written stays, and goes on once there is space."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privfed.core.files import open_file
from privfed.errors import RunFolderError


class DiskFullError(RunFolderError):
    """What is written to has no space left; what was written stays."""


def is_full(error: OSError) -> bool:
    """Say whether an error is that of a full disk, or of a quota that is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def telling_when_full(folder: Path, remedy: str) -> Iterator[None]:
    """Say of a full disk what to do.

    Args:
        folder: that is written to.
        remedy: what goes on once there is space.

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
    """Write a file that must not exist yet; where it cannot be written whole, nothing of it stays."""
    # Where two commands come here at once, "x" lets one of them through.
    with open_file(path, "xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            path.unlink()
            raise
