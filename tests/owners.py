"""Whether files and folders are their owner's alone."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Take these bits, and no others, away from new files and folders."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    """Return a file's or folder's permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def assert_the_owners(folder: Path, at_least: set[str]) -> None:
    """Assert that a folder and all in it are their owner's alone, and that it holds these names."""
    found = {path: mode(path) for path in (folder, *folder.rglob("*"))}
    assert {path.name for path in found} >= at_least
    others = {
        str(path): oct(bits) for path, bits in found.items() if bits != (0o700 if path.is_dir() else 0o600)
    }
    assert others == {}
