"""Declares what an attack reads in a view, so that it does not run on a view that shows none of it.

Otherwise an attack that had nothing to work on would look like one that a defence had stopped.

Records which of the sums that a view shows an attack reads.

An attack runs on a copy of its view whose statistics note that they were read. So what was shown and not read
follows from what the attack did, and not from what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.privacy.noised import Noised
from privfed.questions.slots import Slots


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


def of_single_clients(
    what: str, use: Callable[[Question], bool] = anything, noised: bool | None = None
) -> tuple[Reads, ...]:
    """Return how single clients' contributions are read: by name, or in slots.

    Args:
        what: the contributions in words.
        use: says whether those to a question, without its noise and its slots, are of use.
        noised: as `Reads` has it.
    """

    def in_slots(question: Question) -> bool:
        return isinstance(question, Slots) and use(question.inner)

    return (
        Reads(what=what, shown=Shows.ANSWERS, use=use, noised=noised),
        Reads(what=what, shown=Shows.TOTALS, use=in_slots, noised=noised),
    )


def own_or_total(client: int | None) -> Shows:
    """Return what an attack reads: single answers if it is on one client, totals if `client` is None."""
    return Shows.TOTALS if client is None else Shows.ANSWERS


def missing(reads: Sequence[Reads], view: View) -> str:
    """Say why an attack has nothing to work on; empty if a view shows what it reads.

    Raises:
        ArgumentError: the attack's target is not in the view.
    """
    for one in reads:
        check_whole("client", one.client, 0, len(view.clients) - 1, or_none=True)
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
    # Answers, in slots too, come before totals.
    what = min(one.what for one in Coverage.none_of(view).unread)
    noised = all(isinstance(one.question, Noised) for one in shown)
    return f"{who} saw {what if what is Shows.ANSWERS else 'totals only'}{', all noised' if noised else ''}"


@dataclass(frozen=True)
class Shown:
    """Names one sum that a view shows.

    Args:
        index: index of the sum in the run.
        question: name of the question, without noise and slots.
        purpose: what it was for.
        what: single clients' answers, in slots too; else their total.
    """

    index: int
    question: str
    purpose: str
    what: Shows


@dataclass(frozen=True)
class Coverage:
    """Holds which sums a view shows, and which of them an attack read.

    A sum that shows single answers is read where one of them was; its total alone says less.

    Args:
        read: sums that were read.
        unread: sums that were not.
        links: whether they were read only to tell which contributions are of one client, not what they hold.
    """

    read: tuple[Shown, ...] = ()
    unread: tuple[Shown, ...] = ()
    links: bool = False

    @classmethod
    def none_of(cls, view: View) -> Coverage:
        """Return that nothing which a view shows was read."""
        return cls(unread=tuple(found for one in view.sums if (found := _shown(one)) is not None))

    def to_dict(self) -> dict[str, Any]:
        """Return both for JSON, sums of the same kind in one entry."""
        return {"read": grouped(self.read), "not_read": grouped(self.unread), "links_only": self.links}


def grouped(shown: Iterable[Shown]) -> list[dict[str, Any]]:
    """Return sums for JSON: those of the same question, purpose and kind in one entry, with their indices."""
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for one in shown:
        kinds.setdefault((one.question, one.purpose, one.what.value), []).append(one.index)
    return [
        {"question": question, "purpose": purpose, "shown": what, "sums": indices}
        for (question, purpose, what), indices in kinds.items()
    ]


def read_by(reports: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what reports on one view say that it shows, and who read it.

    Args:
        reports: name of an attack -> its report, from `Report.to_dict`.

    Returns:
        One entry for each kind of sum with the same readers, as of `grouped`, with the attacks as "read_by",
        or as "linked_by" where they only linked it.
    """
    readers: dict[tuple[str, str, str, int], tuple[list[str], list[str]]] = {}
    for name, report in reports.items():
        for done, groups in ((True, report["read"]), (False, report["not_read"])):
            for one in groups:
                for index in one["sums"]:
                    kind = (one["question"], one["purpose"], one["shown"], index)
                    known = readers.setdefault(kind, ([], []))[report["links_only"]]
                    known += [name] * done
    found: dict[tuple[Any, ...], list[int]] = {}
    for (*named, index), (read, linked) in sorted(readers.items(), key=lambda item: item[0][3]):
        found.setdefault((*named, tuple(read), tuple(linked)), []).append(int(index))
    return [
        {"question": question, "purpose": purpose, "shown": what, "sums": sums}
        | {"read_by": list(read), "linked_by": list(linked)}
        for (question, purpose, what, read, linked), sums in found.items()
    ]


def unread(shown: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return what no attack read, of what `read_by` returns."""
    return [one for one in shown if not one["read_by"]]


def in_words(groups: Sequence[Mapping[str, Any]]) -> str:
    """Say in words which sums groups hold, such as "FuzzySums (round), sums 2 to 9: totals"."""
    return "; ".join(
        f"{one['question']} ({one['purpose']}){_spans(one['sums'])}: {one['shown']}"
        + (f" (only linked, by {', '.join(one['linked_by'])})" if one.get("linked_by") else "")
        for one in groups
    )


def _spans(indices: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for index in sorted(indices):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    named = ", ".join(f"{low} to {high}" if low < high else str(low) for low, high in spans)
    return f", sum{'s' * (len(indices) > 1)} {named}" if spans else ""


def watched(view: View, *, links: bool = False) -> tuple[View, Callable[[], Coverage]]:
    """Return a copy of a view that notes what is read in it, and a function that returns this.

    Args:
        view: what a party saw.
        links: as in `Coverage`.
    """
    used: set[tuple[int, Shows]] = set()

    def coverage() -> Coverage:
        every = Coverage.none_of(view).unread
        read = tuple(one for one in every if (one.index, one.what) in used)
        return Coverage(read, tuple(one for one in every if one not in read), links)

    return replace(view, sums=tuple(_watched(one, used) for one in view.sums)), coverage


def _shown(one: SumView) -> Shown | None:
    """Return what a sum shows; None for nothing."""
    question: Question | None = one.question
    slots = False
    while isinstance(question, Noised | Slots):
        slots, question = slots or isinstance(question, Slots), question.inner
    if question is None or not (one.answers or one.total is not None):
        return None
    what = Shows.ANSWERS if one.answers or slots else Shows.TOTALS
    return Shown(one.index, type(question).__name__, one.purpose, what)


def _watched(one: SumView, used: set[tuple[int, Shows]]) -> SumView:
    shown = _shown(one)
    if shown is None:
        return one
    # Slots hold the answers of single clients, in a total.
    of_total = (one.index, Shows.TOTALS if one.answers else shown.what)
    total = None if one.total is None else _Watched(one.total, lambda: used.add(of_total))
    answers = _Answers(one.answers, lambda: used.add((one.index, Shows.ANSWERS)))
    return replace(one, total=total, answers=answers)


class _Answers(Mapping[int, Statistics]):
    """Clients' statistics that note that they are read."""

    def __init__(self, answers: Mapping[int, Statistics], note: Callable[[], None]) -> None:
        self._answers, self._note = answers, note

    def __getitem__(self, client: int) -> Statistics:
        return _Watched(self._answers[client], self._note)

    def __contains__(self, client: object) -> bool:
        return client in self._answers

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


class _Watched(Statistics):
    """Statistics that note that they are read: their values, not their names and shapes."""

    __slots__ = ("_inner", "_note")

    def __init__(self, inner: Statistics, note: Callable[[], None]) -> None:
        self._inner, self._note = inner, note

    @property
    def vector(self) -> FloatArray:  # type: ignore[override]
        self._note()
        return self._inner.vector

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return self._inner.layout

    def __contains__(self, name: object) -> bool:
        return name in self._inner
