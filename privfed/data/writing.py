"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes the place of `path` once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".new-{path.name}")
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
