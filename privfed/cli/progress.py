"""What commands show on stderr while they run: rounds of a fit, what else is done, and the time left."""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import numpy as np
from rich.console import Console

from privfed.core.asking.question import centers_of
from privfed.core.roles.conversation import ROUND, SCORE, Ask, Total
from privfed.core.values.domain import FloatArray

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_RECENT = 20
"""Number of latest rounds that the time of a round is averaged over; replayed ones are soon forgotten."""

SECONDS_BETWEEN_LINES = (10.0, 0.2)
"""In a file, and in a notebook, where a line takes the place of the one before."""


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
        # A private fit may have a wide round besides.
        return timedelta(
            seconds=round(each * max(0, (self.n_init - self.restart + 1) * self.max_iter - self.round))
        )

    def __str__(self) -> str:
        restart = f"restart {self.restart} of {self.n_init}, " if self.n_init > 1 else ""
        moved = "" if self.movement is None else f", moved {self.movement:.3g}"
        done = f"round {self.round}{moved}" if self.round else "starting"
        return "finishing" if self.restart > self.n_init else f"{restart}{done}"


class Progress:
    """Shows what is done, as a context manager: one line on stderr that is updated in a terminal.

    In a notebook it updates one line below the cell, and elsewhere it writes a line every ten seconds.

    Args:
        label: what is running.
        quiet: show nothing.
    """

    def __init__(self, label: str, quiet: bool = False) -> None:
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._quiet = quiet
        self._bar = self._of_terminal(label) if self._console.is_terminal and not quiet else None
        self._began = self._last = time.monotonic()

    def _of_terminal(self, label: str) -> Bar:
        # Imported here, since output to a file has no bar.
        from rich.progress import Progress as Bar
        from rich.progress import TextColumn, TimeElapsedColumn

        described, left = (
            TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[left]}")
        )
        bar = Bar(described, TimeElapsedColumn(), left, console=self._console, transient=True)
        bar.add_task(f"{label}: starting", total=None, left="")
        return bar

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, text: str, left: str, now: float, last: bool = False) -> None:
        """Show a text and the time that is left; the last one is written in any case."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=text, left=left)
        elif not self._quiet and (
            now - self._last >= SECONDS_BETWEEN_LINES[self._console.is_jupyter] or last
        ):
            said = f"{text}, {now - self._began:.0f} s" + f", {left}" * bool(left)
            if self._console.is_jupyter:
                from IPython.display import display

                display(
                    {"text/plain": said},
                    raw=True,
                    display_id=f"privfed-{self._began}",
                    update=self._last > self._began,
                )
            else:
                self._console.print(said, soft_wrap=True)
            self._last = now

    def count(self, what: str, done: int, of: int) -> None:
        """Show what is done of several alike, and the time that the others would take."""
        now = time.monotonic()
        left = timedelta(seconds=round((now - self._began) / done * (of - done))) if done else None
        self.show(f"{what} {done} of {of}", "" if left is None else f"about {left} left", now, done == of)


class RoundProgress(Progress):
    """Shows the progress of a fit, as its `watch`: the round, how far centers moved, and the time left.

        model = DWFKMeans(n_clusters=5)
        model.fit(clients, watch=RoundProgress("fit", model.max_iter))

    Args:
        label: what is running.
        max_iter: most rounds of a restart.
        n_init: number of restarts.
        quiet: show nothing.
    """

    def __init__(self, label: str, max_iter: int, n_init: int = 1, quiet: bool = False) -> None:
        super().__init__(label, quiet)
        self._label, self._rounds = label, Rounds(max_iter, n_init)

    def __call__(self, index: int, ask: Ask, total: Total) -> None:
        """Count one opened sum and show the progress."""
        now = time.monotonic()
        self._rounds.count(ask, now)
        left = self._rounds.left()
        self.show(f"{self._label}: {self._rounds}", "" if left is None else f"at most {left} left", now)
