"""Logs of simulated clients' own errors: what would lie on each client's machine, and goes to nobody else.

An error in a client's own code (a question, a user's weighting, its disk) leaves as a code that tells no
more. Who extends the product finds here which error it was.
"""

from __future__ import annotations

import logging
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from privfed.core.files import make_folder, open_file

MOST_BYTES = 1 << 20
"""A log takes no more once it is so long: who asks could fill a client's disk with errors."""

_LOG = logging.getLogger("privfed")


class ClientLogs:
    """The logs of the clients of one federation; nothing is there before the first error.

    Args:
        folder: where they lie, a file for each client; None for a fresh folder of the system's own for
            temporary files.
        silent: say nothing of them in the process's log: under differential privacy that there was an
            error depends on rows.
    """

    def __init__(self, folder: Path | None, *, silent: bool = False) -> None:
        self._folder, self._silent = folder, silent
        self._written: list[Path] = []

    def of(self, client: int) -> FileLog:
        """Return the log of the client at a position."""
        return FileLog(self, client)

    @property
    def where(self) -> str:
        """What was written to: a file, and how many more there are in its folder; empty for nothing.

        Empty where the logs are silent, too: an error that the coordinator reads must not depend on rows.
        """
        if self._silent:
            return ""
        more = f" and {len(self._written) - 1} beside it" if len(self._written) > 1 else ""
        return f"{self._written[0]}{more}" if self._written else ""

    def path(self, client: int) -> Path:
        """Return a client's file, in a folder that is there."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="privfed-clients-"))
        make_folder(self._folder)
        return self._folder / f"{client}.log"

    def wrote(self, path: Path) -> None:
        """Take note that a file was written to, and say so once."""
        if path in self._written:
            return
        if not self._written and not self._silent:
            _LOG.warning("an error in a client's own code; it is in that client's own log, %s", path)
        self._written.append(path)


class FileLog:
    """One client's log: times and tracebacks, in a file that only its owner may read.

    Args:
        logs: of the federation.
        client: position of the client.
    """

    def __init__(self, logs: ClientLogs, client: int) -> None:
        self._logs, self._client = logs, client

    def note(self, error: BaseException) -> None:
        """Keep an error, with its traceback."""
        path = self._logs.path(self._client)
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n", *traceback.format_exception(error), "\n"]
        with open_file(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < MOST_BYTES:
                file.writelines(lines)
        self._logs.wrote(path)
