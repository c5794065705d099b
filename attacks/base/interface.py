"""The interface of attacks: what they declare, what they may know, and how they are run; and their registry.

A passive attack gets a `View` (what a party saw); an active one gets an `Oracle` (the clients, behind
their protocol and policies, and a budget of questions). Both get public knowledge, the `Prior`, and a
generator. No attack gets the truth; only `privfed.attacks.evaluate` does.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from privfed.algorithms.rounds import RoundsAlgorithm
from privfed.attacks.base.names import ATTACKS
from privfed.attacks.base.preparation import Aim, Prepared, Prior, Target, without_colluders
from privfed.attacks.base.reading import Coverage, Reads, missing, watched
from privfed.attacks.base.results import NotRun, Result
from privfed.core.record.records import View
from privfed.errors import ArgumentError

if TYPE_CHECKING:
    from privfed.attacks.base.oracle import Oracle

Found = TypeVar("Found", bound=Result)
Ended = TypeVar("Ended", bound=Result)


def timed(attack: Callable[[], Ended]) -> Ended:
    """Run an attack and record how long it took."""
    began = time.perf_counter()
    found = attack()
    return replace(found, seconds=time.perf_counter() - began)


class Attack(ABC):
    """Describes an attack, for reports and documentation, and sets it up on a run.

    Attributes:
        name: name in files, in reports and on the command line, such as "noisy-differencing".
        paper: source of the idea.
        adversary: who attacks: "passive server", "active server", ...
        view: what the adversary sees.
        prior: what else it must know.
        defence: what stops the attack.
        aim: which clients it targets.
        public_rows: fewest public rows that it needs.
        links: whether it only tells which contributions are of one client, not what they hold.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    adversary: ClassVar[str]
    view: ClassVar[str]
    prior: ClassVar[str]
    defence: ClassVar[str]
    aim: ClassVar[Aim] = Aim.EVERYONE
    public_rows: ClassVar[int] = 0
    links: ClassVar[bool] = False

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Set the attack up on a run.

        Args:
            target: the run, and what else is known.
            parameters: given by the user; they override those that follow from the aim.

        Raises:
            ArgumentError: it cannot be made of these parameters, or lacks public rows.
        """
        return Prepared(cls._made({**target.parameters(cls.aim), **parameters}), target.prior, target.truth)

    @classmethod
    def _made(cls, parameters: Mapping[str, Any]) -> Self:
        try:
            return cls(**parameters)
        except TypeError as error:
            raise ArgumentError(f"{cls.name} cannot be made of these parameters: {error}.") from None


class PassiveAttack(Attack, Generic[Found]):
    """Attacks a party's view of a run."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Reads, ...]:
        """What the attack can work on; any one of these is enough."""

    def run(self, view: View, prior: Prior, rng: np.random.Generator) -> Found | NotRun:
        """Attack a view.

        Args:
            view: what the party saw, `transcript.view(...)`.
            prior: public knowledge, and the rows of the view's colluders, whose answers are subtracted
                from every total first.
            rng: generator of the attack's random choices.

        Returns:
            What the attack claims, and what it would claim from the prior alone (`without_access`);
            `NotRun` if the view shows nothing of what the attack reads.

        Raises:
            ArgumentError: the prior does not hold the rows of exactly the view's colluders, or the target
                is not in the view.
        """
        for value, kind in ((view, View), (prior, Prior), (rng, np.random.Generator)):
            if not isinstance(value, kind):
                raise ArgumentError(
                    "an attack is run on a view (`transcript_.view(...)`), a Prior and a numpy Generator; "
                    f"got {type(value).__name__} in place of the {kind.__name__}."
                )
        left = without_colluders(view, prior.colluders)
        why = missing(self.reads, left)
        if why:
            return NotRun(attack=self.name, why=why, coverage=Coverage.none_of(left))
        seen, coverage = watched(left, links=self.links)
        found = timed(lambda: self._attack(seen, prior, rng))
        return replace(found, coverage=Coverage.none_of(left) if isinstance(found, NotRun) else coverage())

    @abstractmethod
    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Found | NotRun:
        """Carry out the attack on a view that shows what it reads."""


class ActiveAttack(Attack, Generic[Found]):
    """Attacks clients as a server that chooses its questions.

    Attributes:
        client: position of the target; None for all clients together.
        inconsistent: whether the server asks the target another question than the others.
    """

    client: int | None = None
    inconsistent: bool = False

    def program(self, budget: int) -> RoundsAlgorithm | None:
        """Return an algorithm that clients may agree on and whose questions it asks, about places of its own.

        Args:
            budget: most questions.

        Returns:
            The algorithm; None where clients must check no program.
        """
        return None

    def run(self, oracle: Oracle, prior: Prior, rng: np.random.Generator) -> Found | NotRun:
        """Attack clients through an oracle, until the attack is done or refused, or the budget is spent.

        Args:
            oracle: the clients.
            prior: public knowledge.
            rng: generator of the attack's random choices.

        Returns:
            What the attack claims, and what it would claim from the prior alone (`without_access`);
            `NotRun` if a server cannot ask questions of its own.
        """
        why = oracle.closed_to(self.client, inconsistent=self.inconsistent)
        if why:
            return NotRun(attack=self.name, why=why)
        return timed(lambda: self._attack(oracle, prior, rng))

    @abstractmethod
    def _attack(self, oracle: Oracle, prior: Prior, rng: np.random.Generator) -> Found | NotRun:
        """Carry out the attack."""


_DECLARED = ("name", "paper", "adversary", "view", "prior", "defence")


def attack_class(name: str) -> type[Attack]:
    """Return the attack with a name, or "module:Class" for a user's own; only for names that a person typed.

    Raises:
        ArgumentError: there is no such attack, or its class lacks a declaration that every attack needs.
    """
    kind: object = ATTACKS.resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, Attack)):
        raise ArgumentError(f"attack must be a class of attacks, such as differencing; got {name!r}.")
    missing = undeclared(kind)
    if missing:
        raise ArgumentError(f"the attack {name!r} must declare {', '.join(missing)} on its class.")
    return kind


def undeclared(kind: type[Attack]) -> list[str]:
    """Return the names of the declarations that an attack's class lacks."""
    known = {word for base in kind.__mro__ for word in vars(base)}
    return [word for word in _DECLARED if word not in known]
