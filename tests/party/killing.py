"""A process that dies by SIGKILL before a given statement to SQLite."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

SURVIVED, KILLED = 0, -signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step: int, answer: Callable[[], bytes]) -> tuple[int, bytes]:
    """Answer in a process that dies before a statement to SQLite; return how it ended, and its reply."""
    down, up = os.pipe()
    child = os.fork()
    if not child:
        counted = itertools.count()
        connect = sqlite3.connect

        def counting(*args: Any, **words: Any) -> sqlite3.Connection:
            database = connect(*args, **words)
            database.set_trace_callback(lambda _: die() if next(counted) == step else None)
            return database

        sqlite3.connect = counting  # type: ignore[assignment]
        os.write(up, answer())
        # A last place to die: after the reply has left.
        os._exit(SURVIVED)
    os.close(up)
    with open(down, "rb") as replies:
        reply = replies.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), reply
