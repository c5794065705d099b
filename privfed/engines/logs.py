"""Logs of simulated clients' own errors, which a real client would keep on its own machine.

An error in a client's own code (a question, a user's weighting, its disk) leaves the client only as the code
of a refusal. These logs show developers which error it was.
"""

from __future__ import annotations

import logging
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from privfed.core.stored.files import make_folder, open_file

MOST_BYTES = 1 << 20
"""Length above which a log takes no more errors, so that a coordinator cannot fill a client's disk."""

_LOG = logging.getLogger("privfed")


class ClientLogs:
    """The error logs of one federation's clients; files are made at the first error.

    Args:
        folder: folder with a file for each client; None for a new temporary folder.
        silent: do not mention errors in the process's log, since under differential privacy whether there
            was one depends on rows.
    """

    def __init__(self, folder: Path | None, *, silent: bool = False) -> None:
        self._folder, self._silent = folder, silent
        self._written: list[Path] = []

    def of(self, client: int) -> FileLog:
        """Return the log of the client at a position."""
        return FileLog(self, client)

    @property
    def where(self) -> str:
        """The first file that was written, and how many more there are; empty if there is none.

        It is also empty for silent logs, since the coordinator's errors must not depend on rows.
        """
        if self._silent:
            return ""
        more = f" and {len(self._written) - 1} beside it" if len(self._written) > 1 else ""
        return f"{self._written[0]}{more}" if self._written else ""

    def path(self, client: int) -> Path:
        """Return a client's file, after making its folder where it is missing."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="privfed-clients-"))
        make_folder(self._folder)
        return self._folder / f"{client}.log"

    def wrote(self, path: Path) -> None:
        """Record that a file was written; the first time, mention it in the process's log."""
        if path in self._written:
            return
        if not self._written and not self._silent:
            _LOG.warning("an error in a client's own code; it is in that client's own log, %s", path)
        self._written.append(path)


class FileLog:
    """One client's error log, with times and tracebacks, in a file that only its owner may read.

    Args:
        logs: the federation's logs.
        client: position of the client.
    """

    def __init__(self, logs: ClientLogs, client: int) -> None:
        self._logs, self._client = logs, client

    def note(self, error: BaseException) -> None:
        """Record an error with its traceback."""
        path = self._logs.path(self._client)
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n", *traceback.format_exception(error), "\n"]
        with open_file(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < MOST_BYTES:
                file.writelines(lines)
        self._logs.wrote(path)
