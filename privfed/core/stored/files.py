"""Files and folders that only their owner may read, whatever the umask is, and the versions of stored forms.

All that privfed writes goes through here. A run's folder holds questions and totals; with plain sums also
every answer; under differential privacy also the clients' ledgers. File modes keep out the other accounts of
the machine, but not root, nor anyone who reads the disk or a copy of it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from privfed.errors import ArgumentError, RunFolderError

OWNERS_FOLDER, OWNERS_FILE = 0o700, 0o600
_OTHERS = 0o077
_LOG = logging.getLogger("privfed")


def make_folder(path: Path, *, ours: bool = False) -> None:
    """Make a folder that only its owner may enter, and its missing parents.

    An existing folder is closed to others if it is empty, or `ours`: known to hold only what privfed wrote.
    Any other keeps its mode, and so does one that is shared on purpose (sticky, as /tmp), since others may be
    using what is in it. New files in it can still be read by their owner only; a warning is logged if others
    may enter the folder.

    Raises:
        RunFolderError: it is a file, or in one, or a link to nothing.
    """
    if _made(path):
        return
    path.mkdir(exist_ok=True)
    found = path.stat()
    if not found.st_mode & _OTHERS:
        return
    own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    if own and (ours or not any(path.iterdir())):
        path.chmod(OWNERS_FOLDER)
        return
    _LOG.warning(
        "others may enter %s (mode %o): the files that are written there are for you alone, but their names "
        "and sizes are not. Name a new folder, or close this one with: chmod 700 %s",
        path,
        stat.S_IMODE(found.st_mode),
        shlex.quote(str(path)),
    )


def _made(path: Path) -> bool:
    """Make a folder and its parents as far as they are missing; say whether the folder itself was."""
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    for one in missing:
        if os.path.lexists(one) and not one.is_dir():
            kind = "a link to nothing" if one.is_symlink() and not one.exists() else "a file"
            raise RunFolderError(f"{one} is {kind}; name a folder.")
    for one in reversed(missing):
        one.mkdir(OWNERS_FOLDER, exist_ok=True)
        # A umask may have taken bits away from the owner too.
        one.chmod(OWNERS_FOLDER)
    return bool(missing)


def open_file(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file for writing that only its owner may read; `mode` and `options` are passed to `open`."""
    return open(path, mode, opener=_owners, **options)


def _owners(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, OWNERS_FILE)
    try:
        found = os.fstat(descriptor).st_mode
        if stat.S_ISREG(found) and stat.S_IMODE(found) != OWNERS_FILE:
            # The file existed with another mode, or the umask took bits away from the owner.
            os.fchmod(descriptor, OWNERS_FILE)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a path to write to; that file replaces `path` atomically once the block ends without error."""
    _made(path.parent)
    fresh = path.with_name(f".new-{path.name}")
    fresh.unlink(missing_ok=True)
    # The file is created before it is written, so that code which opens it by its name keeps its mode.
    open_file(fresh, "xb").close()
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def rewrite(path: Path, content: bytes) -> None:
    """Write a file whole, in place of one that is there: atomically, as `replaced` does."""
    with replaced(path) as fresh:
        fresh.write_bytes(content)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet; return once it is on disk. What cannot be whole is removed.

    Raises:
        ArgumentError: it exists.
    """
    try:
        file = open_file(path, "xb")
    except FileExistsError:
        raise ArgumentError(f"{path} is there already and is never replaced; name another place.") from None
    with file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise
    entry = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file, which is made if it is missing, so that two processes never write to its folder.

    Raises:
        RunFolderError: another process has locked it.
    """
    with open_file(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"{path.parent} is in use by another privfed; wait until it has ended."
            ) from None
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The version of one stored form. Files of any other version are refused by name.

    Args:
        name: of the file.
        version: that is written and read.
        again: how to write the file anew, for messages.
    """

    name: str
    version: int
    again: str

    def check(self, found: object, where: object) -> int:
        """Return the version of a file.

        Args:
            found: as the file has it.
            where: the file.

        Raises:
            RunFolderError: it is of a newer or an older privfed, or no version at all.
        """
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise RunFolderError(f"{where} is damaged: it names no format; {self.again}.")
        if found != self.version:
            other = "a newer" if found > self.version else "an older"
            raise RunFolderError(
                f"{where} has format {found}, of {other} privfed, and this one reads format {self.version}; "
                f"use the privfed that wrote it, or {self.again}."
            )
        return found
