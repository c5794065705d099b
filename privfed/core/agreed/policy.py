"""A client's own policy: what it answers, whatever the other parties agree on.

Everything here depends on messages, the agreement and the journal only, never on rows: a refusal tells
nothing of them. Absolute bounds, which hold for every client, stand in `privfed.core.agreed.agreement` and
`privfed.core.asking.declaration`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

from privfed.core.agreed.agreement import N_CLUSTERS
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import AgreedProgram, Numbers, Of, values_of
from privfed.core.asking.question import Question, parts_of, wire_name
from privfed.core.values.domain import Ball, Box, Domain
from privfed.core.values.guarantee import MOST_ORDER, Neighbours, Noise, SampledSteps, Unit, Word
from privfed.core.values.numbers import check_flag, check_number, check_whole
from privfed.errors import ArgumentError

HIDING = frozenset({"masked", "masked-verified", "group-masked", "ckks"})
"""Secure sums that show nobody a single answer; proofs of answers are not audited: an owner names them."""

GROUP_SIZE, MOST_FITS, MOST_LOSSES, MOST_SUMS, MOST_CENTERS = 5, 10, 10, 1000, 100
"""Groups of rows; fits and losses over the life of the rows; sums and clusters of a fit: a silent owner's."""

MOST_DELTA = 1e-5
"""Most delta of all fits together, where a policy bounds epsilon and says nothing of delta."""

FOLLOWING = frozenset(
    {
        *("ClusterClients", "ClusterDistances", "ClusterProfiles", "ClusterScatter", "ClusterSilhouettes"),
        *("Contingency", "FuzzySpread", "Inertia"),
    }
)
"""Questions of privfed's metrics, which may follow an approved algorithm about the centers that it finds."""

FEW = 30
"""Fewest clients of which a tenth may be lost, where nothing else is said; of fewer one."""


def default_losses(clients: int) -> int:
    """Return in how many sums other clients may be lost than before, where nothing else is said.

    Two totals over sets of clients that differ by one show its answer, and a server can invent losses.
    """
    return 1 if clients < FEW else ceil(clients / 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One fit's guarantee, as a journal keeps it.

    Args:
        epsilon: agreed.
        delta: of the same guarantee.
        unit: what it protects.
        neighbours: which data sets it compares.
        mechanism: "gaussian" or "skellam" noise of totals, or "dp-sgd" (noise in the clients' training).
        steps: of DP-SGD; None for other noise.
        order: of the Renyi filter of the policy under which the fit began; None for the Gaussian one.
    """

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    mechanism: str
    steps: SampledSteps | None = None
    order: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts what one data set has given, from a party's journal.

    Args:
        fits: fits that began.
        sums: sums that were answered.
        starts: in how many different sets of cells rows were counted.
        losses: how often clients were lost in those fits; and one for each set of clients and rule of cohorts
            beyond the first, since totals over two sets show the difference. Fits that ended without an
            answer count nowhere.
        claims: the fits' agreed guarantees; `privfed.privacy.ledger` composes them. Nothing bounds what fits
            that claimed none gave.
        unprotected: fits that claimed no guarantee.
    """

    fits: int = 0
    sums: int = 0
    starts: int = 0
    losses: int = 0
    claims: tuple[Claim, ...] = ()
    unprotected: int = 0


@dataclass(frozen=True, kw_only=True)
class ClientPolicy:
    """States what a client answers, whatever the others agree on: to whom, what, and how much.

    Where a parameter is None, everything is accepted. What a journal counts (*) is counted over all fits on
    the same rows; where none is kept, nothing is.

    | parameter | a client takes part only |
    |---|---|
    | **who** | |
    | `protocols` | over these secure sums, by name; `plain` shows the coordinator its answers |
    | `min_clients` | with at least so many clients in the list and in each cohort |
    | `min_honest` | summed with at least so many honest clients |
    | `min_colluders` | in sums that withstand at least so many colluding clients |
    | `fixed_cohorts` | where cohorts are fixed groups of clients: no combination of totals isolates fewer |
    | `verified` | where clients verify totals (True), which shows every client every total, or not (False) |
    | `max_losses` | while sums with other clients lost than before, or asked again, and fits of other \
clients or cohorts are at most so many *; by default 1 (of a node 10), or a tenth of 30 clients or more; any \
within `max_epsilon` |
    | **what** | |
    | `algorithms` | in these algorithms, by registered name, and privfed's metrics about what they find; in \
metrics asked alone, and others after a fit, by the name of their question |
    | `questions` | in these questions, by name, nested ones included |
    | `models` | True: in trainings of models, too, that no `max_epsilon` bounds; else in none of these |
    | `undeclared` | in an agreed program; True: also where none is agreed and any question may be asked |
    | `domain` | with ranges that equal this domain |
    | `group_size` | with groups of at least so many ids (without ids, rows), whose means stand for rows \
(`privfed.party.groups`), and not under differential privacy, as a row moves a group; 1: rows as they are |
    | `require_privacy` | under differential privacy, with rows of no fit without *; needs `max_epsilon` |
    | `units` | with these units of protection, where privacy is claimed |
    | `neighbours` | with these meanings of neighbouring, likewise |
    | `noise` | with noise by these, likewise |
    | **how much** | |
    | `max_sums` | in fits of at most so many sums |
    | `max_clusters` | in algorithms of at most so many clusters: questions about many small ones show rows |
    | `max_fits` | in so many fits * |
    | `max_starts` | while rows are counted in at most so many sets of cells *; those of `init="nested"` are \
the same in each fit, up to their number and the ranges |
    | `max_epsilon` | while all fits together, of one unit and neighbours, spend at most this *; it implies \
`require_privacy` |
    | `max_delta` | at this delta of all fits together (1e-5 by default); needs `max_epsilon` |
    | `order` | by this rule of composition: None for fits under Gaussian noise alone; an integer from 2 to \
4,096 is the order of a Renyi filter, which Skellam noise and DP-SGD need. It is fixed before the first fit; \
needs `max_epsilon` |
    """

    protocols: frozenset[str] | None = None
    min_clients: int = 1
    min_honest: int = 1
    min_colluders: int = 0
    fixed_cohorts: bool = False
    verified: bool | None = None
    max_losses: int | None = None

    algorithms: frozenset[str] | None = None
    questions: frozenset[str] | None = None
    models: bool = True
    undeclared: bool = False
    domain: Domain | None = None
    group_size: int = 1
    require_privacy: bool = False
    units: frozenset[str] | None = None
    neighbours: frozenset[str] | None = None
    noise: frozenset[str] | None = None

    max_sums: int | None = None
    max_clusters: int | None = None
    max_fits: int | None = None
    max_starts: int | None = None
    max_epsilon: float | None = None
    max_delta: float | None = None
    order: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_clients", "min_honest", "group_size"):
            check_whole(name, getattr(self, name), 1)
        check_whole("min_colluders", self.min_colluders, 0)
        for name in ("max_losses", "max_sums", "max_clusters", "max_fits", "max_starts"):
            check_whole(name, getattr(self, name), 0, or_none=True)
        check_whole("order", self.order, 2, MOST_ORDER, or_none=True)
        for name in ("models", "undeclared", "fixed_cohorts", "require_privacy"):
            check_flag(name, getattr(self, name))
        check_flag("verified", self.verified, or_none=True)
        if self.domain is not None and not isinstance(self.domain, Box | Ball):
            raise ArgumentError(
                f"domain must be None or a Box or Ball, got domain={self.domain!r}.", parameters=["domain"]
            )
        for name in ("protocols", "algorithms", "questions"):
            _check_listed(name, getattr(self, name))
        enumerations: dict[str, type[Word]] = {"units": Unit, "neighbours": Neighbours, "noise": Noise}
        for name, kind in enumerations.items():
            _check_listed(name, getattr(self, name))
            for word in getattr(self, name) or ():
                kind.read(name, word)
        self._check_spending()

    def _check_spending(self) -> None:
        check_number("max_epsilon", self.max_epsilon, "(0, inf)", or_none=True)
        check_number("max_delta", self.max_delta, "[1e-300, 1)", or_none=True)
        if self.claims and self.max_epsilon is None:
            insists = next(one for one in ("require_privacy", "max_delta", "order") if getattr(self, one))
            raise ArgumentError(
                f"{insists} needs max_epsilon: a guarantee of any epsilon protects nobody. Say how much all "
                "fits on the same rows may spend together, such as max_epsilon=1."
            )

    @classmethod
    def closed(cls, parties: int = 0, **approved: Any) -> Self:
        """Return the policy of a node: it refuses what its owner does not name.

        Without a word it answers no algorithm. It answers over sums that hide answers, in ten fits of at most
        1,000 sums and 100 clusters, from groups of 5, and in cohorts that are fixed. Ten times in the life of
        the rows others may be lost, or the list of clients be another: each time may show one client's
        answers, which are of groups. More than half of the clients that its owner lists take part, so that no
        two fits are over disjoint sets. Where privacy is
        required it answers from rows as they are, since groups would void the noise, and in any cohorts and
        sums, since each total is noised and paid for.
        That noise is the clients'. Noise of the server, which can take it off again, is for owners who name
        it in `noise`; cohorts are fixed then. It trains models under differential privacy only.

        Args:
            parties: how many clients the owner's list has; 0 where there is none yet.
            **approved: what the owner approves, as parameters of a policy.
        """
        private = approved.get("require_privacy") or approved.get("max_epsilon") is not None
        noise = approved.get("noise", frozenset({Noise.DISTRIBUTED, Noise.LOCAL}))
        closed: dict[str, Any] = {
            "protocols": HIDING,
            "algorithms": frozenset(),
            "group_size": 1 if private else GROUP_SIZE,
            "min_clients": 1 if private else parties // 2 + 1,
            "max_sums": None if private else MOST_SUMS,
            "max_clusters": None if private else MOST_CENTERS,
            "fixed_cohorts": not private or Noise.SERVER in (noise or Noise),
            "noise": noise,
            "models": False,
            "max_losses": None if private and Noise.SERVER not in (noise or Noise) else MOST_LOSSES,
            "max_fits": MOST_FITS,
        }
        return cls(**closed | approved)

    @property
    def claims(self) -> bool:
        """Whether only fits under differential privacy are joined."""
        return self.require_privacy or any(
            one is not None for one in (self.max_epsilon, self.max_delta, self.order)
        )

    @property
    def epsilon_bound(self) -> tuple[float, float] | None:
        """Most epsilon of all fits on the same rows together, and the delta at which; None for no bound."""
        if self.max_epsilon is None:
            return None
        return self.max_epsilon, MOST_DELTA if self.max_delta is None else self.max_delta

    def most_losses(self, configuration: Configuration) -> int | None:
        """Return the most losses in all fits on the same rows; None for no limit.

        Where nothing is said they are as many as those of one fit. They are any number where `max_epsilon`
        bounds what both totals tell, which are noised and paid for.
        """
        if self.max_losses is not None:
            return self.max_losses
        return None if self._bounds(configuration) else default_losses(len(configuration.clients))

    def _bounds(self, configuration: Configuration) -> bool:
        """Say whether differential privacy bounds a fit against all: a claim of any epsilon protects nobody.

        Noise of the server bounds nothing against the server with a client that tells it totals.
        """
        claimed = configuration.privacy is not None and not configuration.noised_by_server
        return claimed and self.max_epsilon is not None

    def refuses_configuration(self, configuration: Configuration, usage: Usage | None = None) -> str | None:
        """Return the code of the refusal to join, or None. See `privfed.privacy.ledger.refuses_fit`.

        Args:
            configuration: what was agreed.
            usage: what the same rows have given before; None where no journal is kept.
        """
        return (
            self._refuses_parties(configuration)
            or self._refuses_program(configuration)
            or self._refuses_after(configuration, usage or Usage())
        )

    def _refuses_parties(self, configuration: Configuration) -> str | None:
        """Return the code of the refusal of who takes part, how they are summed and how often, or None."""
        terms, n_clients = configuration.terms, len(configuration.clients)
        return _first(
            protocol=self.protocols is not None and configuration.protocol not in self.protocols,
            min_clients=min(n_clients, configuration.cohorts.smallest(n_clients)) < self.min_clients,
            min_honest=terms.honest < self.min_honest,
            min_colluders=terms.colluders < self.min_colluders,
            verified=self.verified is not None and terms.verified != self.verified,
            max_sums=self.max_sums is not None and terms.max_sums > self.max_sums,
            cohorts=self.fixed_cohorts and not configuration.cohorts.fixed(n_clients),
        )

    def _refuses_program(self, configuration: Configuration) -> str | None:
        """Return the code of the refusal of what runs and of its guarantee, or of their absence, or None."""
        terms, low, high = configuration.privacy, configuration.low, configuration.high
        if self.domain is not None and low is not None and high is not None:
            own = [ends.tolist() for ends in self.domain.bounds(configuration.n_features)]
            if own != [low.to_numpy().tolist(), high.to_numpy().tolist()]:
                return "policy:ranges"
        if self.algorithms is not None and not _runs_only(self.algorithms, configuration.program):
            return "policy:algorithm"
        agreed = None if configuration.program is None else configuration.program.algorithm
        numbers = [one for one in values_of(agreed, *N_CLUSTERS) if type(one) is int]
        if self.max_clusters is not None and max(numbers, default=0) > self.max_clusters:
            return "policy:max_clusters"
        if terms is None:
            return "policy:privacy" if self.claims else None
        if self.group_size > 1:
            return "policy:groups"
        if not configuration.bounded:
            return "policy:domain"
        if self.claims and terms.seeded:
            return "policy:seeded"
        for code, listed, word in (
            ("policy:unit", self.units, terms.unit),
            ("policy:neighbours", self.neighbours, terms.neighbours),
            ("policy:noise", self.noise, terms.noise),
        ):
            if listed is not None and word not in listed:
                return code
        return None

    def _refuses_after(self, configuration: Configuration, usage: Usage) -> str | None:
        """Return the code of the refusal of one more fit after what was given, or None.

        What fits spend together is compared by `privfed.privacy.ledger.refuses_fit`.
        """
        most = self.most_losses(configuration)
        return _first(
            max_fits=self.max_fits is not None and usage.fits >= self.max_fits,
            max_losses=most is not None and usage.losses > most,
            unprotected=self.claims and usage.unprotected > 0,
        )

    def refuses_question(self, question: Question, configuration: Configuration) -> str | None:
        """Return the code of the refusal to answer, or None. All nested questions must pass too."""
        for asked in parts_of(question):
            if asked.trains and not self.models and not self._bounds(configuration):
                return "policy:models"
            if not isinstance(asked, Question):
                continue
            if self.questions is not None and wire_name(type(asked)) not in self.questions:
                return "policy:question"
            if not configuration.allows_ranges(asked):
                return "policy:ranges"
            if self.domain is not None:
                low, high = self.domain.bounds(asked.ranges.n_features)
                if low.tolist() != asked.ranges.low.tolist() or high.tolist() != asked.ranges.high.tolist():
                    return "policy:ranges"
        return None


def _first(**refuses: bool) -> str | None:
    """Return the code of the first reason that holds to refuse, or None."""
    return next((f"policy:{reason}" for reason, holds in refuses.items() if holds), None)


def _runs_only(names: Collection[str], program: AgreedProgram | None) -> bool:
    """Say whether an algorithm of these names runs, and no metrics but its own and those of these names."""
    if program is None:
        return False
    first = program.algorithm
    if first is not None and first.name not in names:
        return False
    others = [one for one in program.metrics if str(one.fields.get("name", one.name)) not in names]
    return first is not None and all(_of_fit(one, first) for one in others) if others else True


def _of_fit(metric: Of, algorithm: Of) -> bool:
    """Say whether a metric is one of privfed's, about the centers of the fit before it."""
    options = metric.fields.get("options")
    # An agreed array could be centers of another number, whatever `n_clusters` says.
    plain = isinstance(options, Of) and not any(
        isinstance(one, Of | Numbers) for one in options.fields.values()
    )
    about = (None, *values_of(algorithm, *N_CLUSTERS))
    own = plain and metric.fields.get("centers") is None and metric.fields.get("n_clusters") in about
    return own and str(metric.fields.get("name")) in FOLLOWING


def _check_listed(name: str, value: object) -> None:
    """Check that a setting of a policy is None or a set of names; raises `ArgumentError`."""
    listed = isinstance(value, frozenset | set | list | tuple) and all(isinstance(one, str) for one in value)
    if value is not None and not listed:
        raise ArgumentError(
            f"{name} must be None or a set of names, got {name}={value!r}.", parameters=[name]
        )
