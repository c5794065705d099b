"""Prepares an attack for a run: its target, its knowledge besides the view, and the truth for scoring.

The party that prepares an attack has the clients' rows, for scoring, in a `Target`. Of these the attack
itself gets only the rows of its colluders and, for membership inference, candidates that may be members.

The public knowledge that an attacker has before it sees a run.

The view of a server with colluding clients: their own answers are subtracted from every total.

A colluder has its data and every question, so it knows its own answers exactly; what is left is the total
of the other clients. `without_colluders` does this for every passive attack, which then runs on the view
that it returns.

Two things are not subtracted exactly, so the attacker is a little weaker here than it could be: answers that
draw random numbers (a client's mini-batches) are redrawn, and the colluders' own shares of
differential-privacy noise stay in. If the sum shows single answers, those of the run are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar

import numpy as np

from privfed.attacks.base.report import IntArray
from privfed.attacks.base.results import Truth
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import LARGEST, FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Holds the public knowledge of an attacker. It must not be taken from the data that is attacked.

    Args:
        sample: rows of the same kind as the clients' (public data), float64 of shape (n, n_features).
        low: smallest value of each feature, float64 of shape (n_features,).
        high: largest value of each feature, float64 of shape (n_features,).
        n_clients: number of clients.
        step: all values of a feature are whole multiples of it, as .01 of amounts, float64 of shape
            (n_features,); None if that is not known.
        colluders: position of a colluding client -> its rows, float64 of shape (n_rows, n_features).
        known: tables of rows that took part in groups (`ClientPolicy.group_size`), float64 of shape (n_i,
            n_features), each of one group as far as the attacker knows. Without groups see `without_known`.
    """

    sample: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    n_clients: int | None = None
    step: FloatArray | None = None
    colluders: Mapping[int, FloatArray] = field(default_factory=dict)
    known: Sequence[FloatArray] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name, given in (
            ("sample", self.sample),
            ("low", self.low),
            ("high", self.high),
            ("step", self.step),
        ):
            if given is not None:
                object.__setattr__(self, name, frozen_array(as_numbers(f"{name} of the prior", given)))
        known = [frozen_array(as_numbers("known of the prior", own)) for own in self.known]
        object.__setattr__(self, "known", tuple(known))
        if any(own.ndim != 2 or not own.size or not (np.abs(own) <= LARGEST).all() for own in known):
            raise ArgumentError(
                "known must be a list of tables with rows and columns, of finite numbers that reach to "
                f"{LARGEST:.3g} at most.",
                parameters=["known"],
            )
        if self.sample is not None and (self.sample.ndim != 2 or not self.sample.size):
            raise ArgumentError(
                f"sample needs rows and columns, got shape {self.sample.shape}.", parameters=["sample"]
            )
        if self.step is not None and (self.step.ndim != 1 or not (self.step > 0).all()):
            raise ArgumentError(
                f"step needs a number above 0 for each feature, got {self.step}; leave it out where "
                "a feature has no step.",
                parameters=["step"],
            )
        if (self.low is None) != (self.high is None):
            raise ArgumentError("low and high of the prior go together; pass both or none.")

    def guesses(self, n: int, rng: np.random.Generator) -> FloatArray | None:
        """Draw rows from the prior alone: from the sample, else uniformly between `low` and `high`.

        Returns:
            float64 of shape (n, n_features); None if the prior has neither.
        """
        if self.sample is not None:
            return self.sample[rng.integers(len(self.sample), size=n)]
        if self.low is not None and self.high is not None:
            return rng.uniform(self.low, self.high, (n, len(self.low)))
        return None


Made = TypeVar("Made")


class Aim(Enum):
    """Says which clients an attack targets."""

    EVERYONE = "all clients together"
    ONE_CLIENT = "one client"
    SHOWN_CLIENT = "one client where the view shows its answers, else all clients together"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Describes a run for the preparation of attacks.

    Args:
        clients: rows of every client, by position.
        labels: of these rows, where a run trains on them; None for other runs.
        colluding: positions of clients that help the attacker; their rows are no gain.
        helping: those of them whose answers are still in the view's totals, for the attacker to subtract.
        shows_answers: whether the view holds the answers of single clients.
        client: position of the target of attacks on one client; None leaves it to their parameters.
        public: public rows of the same kind, float64 of shape (n, n_features); None without.
        public_labels: theirs, integers of shape (n,); None without.
        candidates: rows of which some took part, as the attacker lists them, (n, n_features); None takes the
            clients' rows and public ones.
        ends: lowest and highest value of each feature, if they are known; None without.
        gdp_mu: mu of the run's differential privacy; None without.
        most_candidates: most candidates of membership inference, half of them members; None for all rows.
        seed: seed of what is drawn to prepare an attack.
        known: tables of rows of groups that the attacker knows, as in `Prior`.
    """

    clients: Sequence[FloatArray]
    labels: Sequence[IntArray] | None = None
    colluding: tuple[int, ...] = ()
    helping: tuple[int, ...] = ()
    shows_answers: bool = False
    client: int | None = None
    public: FloatArray | None = None
    public_labels: IntArray | None = None
    candidates: FloatArray | None = None
    ends: tuple[FloatArray, FloatArray] | None = None
    gdp_mu: float | None = None
    most_candidates: int | None = None
    seed: int = 0
    known: Sequence[FloatArray] = ()

    @property
    def prior(self) -> Prior:
        """Knowledge of the attacker."""
        low, high = self.ends or (None, None)
        rows = {i: self.clients[i] for i in self.helping}
        return Prior(
            sample=self.public,
            low=low,
            high=high,
            n_clients=len(self.clients),
            colluders=rows,
            known=self.known,
        )

    @property
    def truth(self) -> Truth:
        """What attacks are scored against."""
        return Truth(self.clients, colluding=self.colluding)

    def parameters(self, aim: Aim) -> Mapping[str, Any]:
        """Return the attack's parameters that follow from its aim."""
        if self.client is None or aim is Aim.EVERYONE:
            return {}
        return {"client": self.client if aim is Aim.ONE_CLIENT or self.shows_answers else None}


@dataclass(frozen=True)
class Prepared(Generic[Made]):
    """Holds an attack that is ready to run.

    Args:
        attack: the attack with its parameters.
        prior: knowledge that it gets besides the view.
        truth: the truth that it is scored against.
    """

    attack: Made
    prior: Prior
    truth: Truth


def without_colluders(view: View, rows: Mapping[int, FloatArray]) -> View:
    """Return a view in which totals and cohorts are those of the other clients.

    Args:
        view: `transcript.view("server", colluding=[...])`.
        rows: position -> rows of each colluder, (n_rows, n_features): what the attacker brings
            (`Prior.colluders`).

    Raises:
        ArgumentError: `rows` does not name exactly the view's colluders.
    """
    if set(rows) != set(view.colluding):
        raise ArgumentError(
            f"the view is of a server with colluders {list(view.colluding)}, rows were given for "
            f"{sorted(rows)}; pass the rows of each."
        )
    if not rows:
        return view
    data = {client: ClientData(own) for client, own in rows.items()}
    sums = [_others(one, data) for one in view.sums]
    return replace(view, sums=tuple(one for one in sums if one.cohort))


def _others(one: SumView, data: Mapping[int, ClientData]) -> SumView:
    # A party that does not see who contributed assumes that the whole cohort did.
    inside = [i for i in (one.contributors or one.cohort) if i in data]
    total = one.total
    if total is not None and one.question is not None:
        for client in inside:
            own = one.answers.get(client)
            own = _answer(one.question, data[client]) if own is None else own
            total = Statistics(**{name: total[name] - own[name] for name in total})
    return replace(
        one,
        cohort=tuple(i for i in one.cohort if i not in data),
        contributors=tuple(i for i in one.contributors if i not in data),
        total=total,
        answers={i: answer for i, answer in one.answers.items() if i not in data},
    )


def _answer(question: Question, data: ClientData) -> Statistics:
    question = question.inner if isinstance(question, Noised) else question
    return question.answer(data.within(question.ranges)[0], np.random.default_rng(0))
