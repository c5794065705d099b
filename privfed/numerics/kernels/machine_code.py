"""Where numba keeps the machine code that it compiled, and whether it may be read from there.

numba keeps it in files that are pickles inside: whoever can write to them runs code as whoever reads them. It
keeps them beside the module, in the folder of Python's own `.pyc` files, whose readers already trust whoever
can write there; or else in the user's cache folder, or the one that the user names. Of these, only one is
read that nobody but the user and the system's administrator can write to.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from numba import njit

_LOG = logging.getLogger("privfed")


@njit(cache=True)
def _nothing() -> None:
    """Do nothing: asked where it would be kept, and never compiled."""


FOLDER = Path(_nothing.stats.cache_path or "")
"""The folder: the same for all modules in this one's."""

BESIDE = Path(__file__).parent / "__pycache__"


def may_be_read() -> bool:
    """Say whether machine code may be read from its folder; log why not."""
    if FOLDER == BESIDE or only_ours(FOLDER):
        return True
    _LOG.warning(
        "others may write to %s, or to a folder above it, where numba would read machine code from: it is "
        "not used, which makes large fits slower. Close that folder (chmod 700), or set NUMBA_CACHE_DIR to "
        "one of your own.",
        FOLDER,
    )
    return False


def only_ours(folder: Path) -> bool:
    """Say whether only this user and root can change what a folder holds, by its owners and modes."""
    if os.name != "posix":
        return True
    folder, closed = folder.resolve(), False
    for place in (*reversed(folder.parents), folder):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()):
            return False
        # Below a folder that nobody else may enter, modes do not matter.
        closed = closed or not found.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder, such as /tmp, others cannot replace what is ours.
        if shared and not closed and (place == folder or not found.st_mode & stat.S_ISVTX):
            return False
    return True
