"""Secure sums under test, and what must come of a sum in which clients are lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from privfed.core.agreed.configuration import Terms
from privfed.core.record.records import Summed
from privfed.core.roles.secure_sum import SecureSum
from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain
from privfed.protocols.client_opened.scheme import needed
from privfed.protocols.setup.rules import needed_to_open
from tests.protocols.federations import Sums, names, vectors

QUESTION = vectors()
KINDS = ("drop", "lost-reply")


@dataclass(frozen=True)
class Case:
    """A secure sum under test.

    Args:
        make: returns the configured protocol.
        stages: the stages in which a client can be lost, in order.
        stages_of_fit: those of them that happen once, before the first sum.
        exchanges: of a sum that is under way.
        smallest: fewest clients.
        needed_of: (n, terms) -> how many of a cohort of n must be left.
        leads: whether one exchange is added where the lowest client of the list is lost in the set-up.
    """

    make: Callable[[], SecureSum]
    stages: tuple[str, ...]
    stages_of_fit: tuple[str, ...]
    exchanges: int
    smallest: int
    needed_of: Callable[[int, Terms], int] = needed_to_open
    leads: bool = False

    @property
    def stages_of_sum(self) -> tuple[str, ...]:
        """The stages of every sum."""
        return self.stages[len(self.stages_of_fit) :]

    def needed(self, run: Sums, n: int) -> int:
        """Return how many clients of a cohort must be left."""
        return self.needed_of(n, run.configuration.terms)


def masked(**options: Any) -> Case:
    stages = ("advertise", "agree", "prepare", "collect", "unmask")
    return Case(
        lambda: Masked(losses=1000, **options), stages, stages[:3], 2, 3, leads=options.get("verified", False)
    )


def plain(**options: Any) -> Case:
    return Case(lambda: Plain(**options), ("collect",), (), 1, 1, lambda n, terms: max(1, terms.threshold))


def group_masked(**options: Any) -> Case:
    stages = ("advertise", "prepare", "invite", "collect")
    return Case(lambda: GroupMasked(losses=1000, **options), stages, stages[:3], 1, 3, needed)


CASES = {
    "plain": plain(),
    "plain-threshold": plain(threshold=2),
    "masked": masked(),
    "masked-threshold": masked(threshold=3),
    "masked-colluders": masked(colluders=0, honest=2),
    "masked-verified": masked(verified=True),
}

ASKED_AGAIN = {
    "group-masked": group_masked(),
    "group-masked-colluders": group_masked(colluders=0, honest=2, repeats=1),
}
"""Sums of which a lost client is out of the fit: they are asked again without it."""

ENCRYPTED = {
    "ckks": Case(
        lambda: CKKS(losses=1000),
        ("advertise", "prepare", "invite", "collect"),
        ("advertise", "prepare", "invite"),
        1,
        3,
        needed,
    )
}
"""Sums that hold whoever answered; a client is out of the fit only where it missed its set-up."""


VARIANTS = (
    *("plain-threshold", "masked-threshold", "masked-colluders", "masked-verified"),
    "group-masked-colluders",
)
"""Other terms of a sum: by default these run only where terms decide, in tests of who is lost when."""


def by_default(cases: Mapping[str, Case], *slow: str) -> list[Any]:
    """Return cases as parameters, those named here slow."""
    return [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in slow else ())
        for name, case in cases.items()
    ]


@dataclass(frozen=True)
class Outcome:
    """What must come of a sum in which clients were lost."""

    contributors: tuple[int, ...] = ()
    dropped: Mapping[int, str] | None = None
    failed: str | None = None
    missing: tuple[str, ...] = ()
    left: int = 0


def expected(
    case: Case, run: Sums, members: tuple[int, ...], lost: Mapping[int, str], *, gone: frozenset[int]
) -> Outcome:
    """Say what must come of a sum, from the stage in which each client is lost, stage by stage.

    `gone` are those who missed the first stage of the set-up and are out of the fit.
    """
    dropped = {i: case.stages[0] for i in members if i in gone}
    for stage in case.stages:
        everyone = tuple(range(run.n)) if stage == "advertise" else members
        dropped |= {i: stage for i in members if lost.get(i) == stage and i not in dropped}
        absent = [i for i in everyone if i in dropped or (stage == "advertise" and lost.get(i) == stage)]
        if len(everyone) - len(absent) < case.needed(run, len(everyone)):
            missing = tuple(names(run.n)[i] for i in absent)
            return Outcome(failed=stage, missing=missing, left=len(everyone) - len(absent))
    after = ("unmask",)
    contributors = tuple(i for i in members if dropped.get(i, "unmask") in after)
    return Outcome(contributors, dropped)


def check(
    case: Case,
    run: Sums,
    faults: Mapping[int, tuple[str, str]],
    *,
    gone: frozenset[int] = frozenset(),
    cohort: int = 0,
    upcoming: tuple[int, ...] = (0,),
) -> Outcome:
    """Ask one sum with one fault a client, and assert that what must come of it came."""
    members = run.configuration.cohort(cohort)
    lost = {i: stage for i, (stage, _) in faults.items()}
    outcome = expected(case, run, members, lost, gone=gone)
    struck = [Fault(i, stage, kind) for i, (stage, kind) in faults.items()]  # type: ignore[arg-type]
    opened = len(run.transcript.of(Summed))
    if outcome.failed is None:
        total = run.ask(QUESTION, cohort, upcoming, *struck)
        run.assert_exact(total, QUESTION, cohort)
        assert (total.contributors, total.dropped) == (outcome.contributors, outcome.dropped)
        assert not total.rejected
    else:
        with pytest.raises(NotEnoughClientsError) as error:
            run.ask(QUESTION, cohort, upcoming, *struck)
        assert (error.value.stage, error.value.missing) == (outcome.failed, outcome.missing)
        assert (error.value.left, error.value.needed) == (
            outcome.left,
            case.needed(run, run.n if outcome.failed == "advertise" else len(members)),
        )
        assert all(name in str(error.value) for name in outcome.missing)
    assert len(run.transcript.of(Summed)) == opened + (outcome.failed is None)
    return outcome


def patterns(case: Case, n: int, every: bool) -> Iterator[dict[int, tuple[str, str]]]:
    """Yield in which stage each of n clients is lost, if at all, and how.

    All of them; or all up to the order of the clients, with that order and the kinds drawn.
    """
    stages: list[str | None] = [None, *case.stages]
    if every:
        options = [None, *itertools.product(case.stages, KINDS)]
        for chosen in itertools.product(options, repeat=n):
            yield {i: one for i, one in enumerate(chosen) if one is not None}
        return
    rng = random.Random(n)
    for lost in itertools.combinations_with_replacement(stages, n):
        order = rng.sample(range(n), n)
        yield {i: (stage, rng.choice(KINDS)) for i, stage in zip(order, lost, strict=True) if stage}


def check_pattern(case: Case, n: int, faults: Mapping[int, tuple[str, str]]) -> None:
    """Lose clients in a first sum, and nobody in a second: all are back that can be."""
    run = Sums(case.make(), n)
    first = check(case, run, faults)
    in_first = run.exchanges
    setup = len(case.stages_of_fit)
    joined = [i for i in range(n) if faults.get(i, ("", ""))[0] not in ("advertise", "agree")]
    led = (
        case.leads and first.failed not in case.stages_of_fit and faults.get(joined[0], ("",))[0] == "prepare"
    )
    if first.failed is None:
        assert in_first == setup + case.exchanges + led
    else:
        assert in_first == case.stages.index(first.failed) + 1 + led
    # A fit whose set-up failed begins anew; else those who missed its first stage are out.
    gone = frozenset(i for i, (stage, _) in faults.items() if stage == "advertise")
    anew = first.failed == "advertise"
    second = check(case, run, {}, gone=frozenset() if anew else gone)
    assert second.failed is None
    assert second.contributors == tuple(i for i in range(n) if anew or i not in gone)
    # What failed in the set-up goes on there; and who failed in a sum prepares another.
    extra = 0 if first.failed is None else max(min(1, setup), setup - case.stages.index(first.failed))
    # A leader whose answer was lost may have to seal for those who missed the keys, before others go on.
    late = case.leads and first.failed == "collect" and any(stage == "agree" for stage, _ in faults.values())
    again = late and faults.get(joined[0], ("",))[0] == "collect"
    assert 0 <= run.exchanges - in_first - case.exchanges - extra <= again
