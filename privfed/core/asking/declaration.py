"""Declarations of questions: of their statistics, their cost, and what they have a client remember.

Clients and verifiers rely on these declarations only, so that nothing has to be guessed from names.

Cost follows from a question's arrays, the layout of its answer and its options, never from rows: a refusal
that depended on them would tell how many there are. So parts that grow with the rows have ceilings for each
row. All are compared before anything is allocated. Questions whose options multiply work say so
(`Question.effort`, `Part.effort`), and a question pays for those nested in it. `tests/core/test_cost.py`
measures memory and work against it.

Memory is what cannot be computed again from rows and questions (the cluster that a client took in the last
round, its last update); the rest may lie in its cache. Where each message is answered by a new process, it
lies on the client's own disk, beside the state of its fit, and is removed when the fit ends. It never leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from typing import Generic, TypeVar, cast

from privfed.core.stored.encoding import StateCodec
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import SampledSteps
from privfed.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Trained:
    """States that an answer depends on rows only through trainings by DP-SGD.

    Args:
        number: of the training that the question makes a client do, from 1 on; 0 where it makes it do none.
        steps: the steps of each training; None where the question makes a client do none.
    """

    number: int = 0
    steps: SampledSteps | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """States what a question, or a part of one, counts and asks about.

    Args:
        row_counts: names of the entries that count a client's rows: in cells, by memberships, or as one
            number. A row adds at most 1 to all values of an entry together.
        centers: points that rows are assigned to, each float64 of shape (n, n_features).
        n_cells: cells that rows or local centers are counted in; 0 where they are assigned to centers.
        movements: whether what is added up are movements from the centers, not positions.
        can_fail: whether some rows may raise an error, as in a user's function. Noised answers do not show
            it: a client that fails answers zeros with noise (`privfed.privacy.noised`).
        classes: classes that rows' labels must tell apart; 0 where no labels are needed.
        times: whether the last two columns are used as times of rows.
        trained: whether rows show only through trainings by DP-SGD, and through which; None otherwise.
        row_sums: names of entries that are sums over rows, where the answer as a whole is not.
        singly: whether it reads what a mean of rows has not, such as a time and whether an event was then:
            clients that answer from groups refuse it.
    """

    row_counts: tuple[str, ...] = ()
    centers: tuple[FloatArray, ...] = ()
    n_cells: int = 0
    movements: bool = False
    can_fail: bool = False
    classes: int = 0
    times: bool = False
    trained: Trained | None = None
    row_sums: tuple[str, ...] = ()
    singly: bool = False


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Remembered(Generic[Value]):
    """Declares what questions have a client remember (`Question.remembers`).

    Property: whatever a question leaves in it, `codec` reads back to the last bit. Questions that share it
    name the same one.

    Args:
        name: under which it is kept.
        empty: returns what a client remembers before the first question.
        codec: how it is stored, with the version of its form.
    """

    name: str
    empty: Callable[[], Value]
    codec: StateCodec

    def of(self, memory: dict[str, object]) -> Value:
        """Return what a client remembers, empty at first; it is changed in place.

        Args:
            memory: the client's (`ClientData.memory`).
        """
        return cast(Value, memory.setdefault(self.name, self.empty()))


TOO_LARGE = "agreement:size"
"""Code of the refusal of an agreement or a question with larger numbers."""

STEP = 1 << 12
"""Multiply-adds that one step of Python takes as long as."""

WORKINGS = 8
"""Arrays as large as an answer that are in memory beside it: its ranges and steps, and the answer encoded."""


class CostError(ArgumentError):
    """A question costs more than any client gives."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What options of a question, or of a part of one, add to what follows from its arrays and its layout.

    Args:
        turns: how often each row meets each array, and each of `vectors`: local steps, epochs, iterations.
        vectors: vectors of n_features that a client makes itself, and that each row meets.
        numbers: numbers in memory, whatever the rows.
        work: multiply-adds whatever the rows.
        row_work: multiply-adds for each row.
    """

    turns: int = 1
    vectors: int = 0
    numbers: int = 0
    work: int = 0
    row_work: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one client's answer takes at most, up to a constant factor.

    Args:
        numbers: numbers of eight bytes in memory, whatever the rows.
        row_numbers: numbers in memory for each row, beside copies of the row.
        work: multiply-adds whatever the rows.
        row_work: multiply-adds for each row.
    """

    numbers: int = 0
    row_numbers: int = 0
    work: int = 0
    row_work: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def check(self) -> None:
        """Compare with `CEILING`; raises `CostError`, also for what is negative or no number."""
        for name, most in asdict(CEILING).items():
            own = getattr(self, name)
            if not 0 <= own <= most:
                raise CostError(
                    f"a question needs {name.replace('_', ' ')} of {own:.3g}, and clients give {most:.3g} "
                    "at most: ask about fewer centers or cells, or take fewer local steps or epochs."
                )


CEILING = Cost(numbers=1 << 29, row_numbers=1 << 16, work=1 << 41, row_work=1 << 33)
"""4 GiB and an hour whatever the rows; half a MiB and some seconds for each row."""
