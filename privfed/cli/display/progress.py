"""Shows progress of a fit on stderr: round, movement, elapsed time, and the most time that is left."""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from privfed.core.asking.question import centers_of
from privfed.core.roles.conversation import ROUND, SCORE, Ask, Total
from privfed.core.values.domain import FloatArray

_RECENT = 20
"""Number of latest rounds that the time of a round is averaged over; replayed ones are soon forgotten."""

SECONDS_BETWEEN_LINES = 10.0


class Rounds:
    """Counts the rounds of a fit from its sums.

    Args:
        max_iter: most rounds of a restart.
        n_init: number of restarts.
    """

    def __init__(self, max_iter: int, n_init: int) -> None:
        self.max_iter, self.n_init = max_iter, n_init
        self.restart, self.round = 1, 0
        self.movement: float | None = None
        self._centers: FloatArray | None = None
        self._ends: deque[float] = deque(maxlen=_RECENT + 1)

    def count(self, ask: Ask, now: float) -> None:
        """Count one opened sum.

        Args:
            ask: what was asked.
            now: the time, in seconds.
        """
        if ask.purpose == SCORE:
            self.restart, self.round, self.movement, self._centers = self.restart + 1, 0, None, None
        if ask.purpose != ROUND:
            return
        # Under differential privacy the question is wrapped in a noised one.
        centers: FloatArray | None = next(iter(centers_of(ask.question)), None)
        if centers is not None and self._centers is not None and centers.shape == self._centers.shape:
            self.movement = float(np.linalg.norm(centers - self._centers))
        self._centers, self.round = centers, self.round + 1
        self._ends.append(now)

    def left(self) -> timedelta | None:
        """Return the time that all rounds up to `max_iter` would take; None before two rounds."""
        if len(self._ends) < 2 or self.restart > self.n_init:
            return None
        each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        rounds = (self.n_init - self.restart + 1) * self.max_iter - self.round
        return timedelta(seconds=round(each * rounds))

    def __str__(self) -> str:
        restart = f"restart {min(self.restart, self.n_init)} of {self.n_init}, " if self.n_init > 1 else ""
        moved = "" if self.movement is None else f", moved {self.movement:.3g}"
        return f"{restart}round {self.round}{moved}" if self.round else f"{restart}starting"


class RoundProgress:
    """Shows the progress of a fit, as a context manager to pass as `watch`.

    In a terminal it updates one line; elsewhere it writes a line every ten seconds.

    Args:
        label: what is running.
        max_iter: most rounds of a restart.
        n_init: number of restarts.
        quiet: show nothing.
    """

    def __init__(self, label: str, max_iter: int, n_init: int = 1, quiet: bool = False) -> None:
        self._label, self._quiet = label, quiet
        self._rounds = Rounds(max_iter, n_init)
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._live = self._console.is_terminal and not quiet
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        columns_left = TextColumn("{task.fields[left]}", markup=False)
        self._bar = Progress(
            *columns, columns_left, console=self._console, transient=True, disable=not self._live
        )
        self._task = self._bar.add_task(f"{label}: starting", total=None, left="")
        self._began = self._last = time.monotonic()

    def __enter__(self) -> RoundProgress:
        self._began = self._last = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, index: int, ask: Ask, total: Total) -> None:
        """Count one opened sum and show the progress."""
        now = time.monotonic()
        self._rounds.count(ask, now)
        left = self._rounds.left()
        text, rest = f"{self._label}: {self._rounds}", "" if left is None else f"at most {left} left"
        if self._live:
            self._bar.update(self._task, description=text, left=rest)
        elif not self._quiet and now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self._console.print(f"{text}, {now - self._began:.0f} s, {rest}", soft_wrap=True)
