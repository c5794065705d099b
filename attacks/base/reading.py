"""Declares what an attack reads in a view, so that it does not run on a view that shows none of it.

Otherwise an attack that had nothing to work on would look like one that a defence had stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from privfed.core.asking.question import Question
from privfed.core.record.view import View
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised


class Shows(StrEnum):
    """Names the parts of a run that a view may show."""

    ANSWERS = "single clients' answers"
    TOTALS = "totals"
    MODEL = "the final centers"


def anything(question: Question) -> bool:
    """Say that any question is of use."""
    return True


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Describes one kind of statistics that an attack can work on.

    Args:
        what: the statistics in words, to follow "it reads".
        shown: what a view must show.
        client: position of the client whose answers are read; None for any client's.
        use: says whether the statistics of a question, taken without its noise, are of use.
        noised: whether they must carry noise, or must not; None for either.
        beside: type of question that must be answered as well; None for none.
    """

    what: str
    shown: Shows
    client: int | None = None
    use: Callable[[Question], bool] = anything
    noised: bool | None = None
    beside: type[Question] | None = None

    def hold(self, view: View) -> bool:
        """Say whether a view shows such statistics."""
        if self.shown is Shows.MODEL:
            return "centers" in view.result
        seen = list(self._seen(view))
        if self.beside is not None and not any(isinstance(question, self.beside) for question, _ in seen):
            return False
        return any(self.use(question) and self.noised in (None, noised) for question, noised in seen)

    def _seen(self, view: View) -> Iterator[tuple[Question, bool]]:
        """Yield each question whose statistics the view shows, and whether they are noised."""
        for one in view.sums:
            whose = one.answers if self.client is None else {self.client} & set(one.answers)
            if one.question is None or not (whose if self.shown is Shows.ANSWERS else one.total is not None):
                continue
            noised = isinstance(one.question, Noised)
            yield (one.question.inner if isinstance(one.question, Noised) else one.question), noised


def own_or_total(client: int | None) -> Shows:
    """Return what an attack reads: single answers if it is on one client, totals if `client` is None."""
    return Shows.TOTALS if client is None else Shows.ANSWERS


def missing(reads: Sequence[Reads], view: View) -> str:
    """Say why an attack has nothing to work on; empty if a view shows what it reads.

    Raises:
        ArgumentError: the attack's target is not in the view.
    """
    for one in reads:
        if one.client is not None and one.client not in range(len(view.clients)):
            raise ArgumentError(
                f"client must lie in [0, {len(view.clients) - 1}], got client={one.client}.",
                parameters=["client"],
            )
    if any(one.hold(view) for one in reads):
        return ""
    wanted = " or ".join(dict.fromkeys(one.what for one in reads))
    return f"it reads {wanted}; {shown_by(view)}"


def shown_by(view: View) -> str:
    """Say in words what a view shows."""
    shown = [one for one in view.sums if one.question is not None and (one.answers or one.total is not None)]
    who = f"the {view.party}"
    if not shown:
        model = ", only the final centers" if view.result else ""
        return f"{who} saw no client's answers and no totals{model}"
    what = Shows.ANSWERS if any(one.answers for one in shown) else "totals only"
    noised = [isinstance(one.question, Noised) for one in shown]
    return f"{who} saw {what}{', all noised' if all(noised) else ''}"
