"""A client's own policy: what it answers, whatever the other parties agree on."""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.given import Given
from privfed.core.agreed.insisted import Insisted, check_listed
from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.question import Question, parts_of, wire_name
from privfed.core.values.domain import Ball, Box, Domain
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class ClientPolicy(Insisted):
    """States what a client answers, whatever the others agree on. Refusals never depend on its data.

    The parameters from `fixed_cohorts` to `count_multiple` are defences (`privfed.party.guard`,
    docs/threat-model.md): each counters an attack, none is a guarantee. Those after them are about fits as a
    whole (`privfed.core.agreed.insisted`).

    Args:
        undeclared: take part also where no program is agreed (`Configuration.program`), so that any question
            may be asked, within this policy. Without it such a fit is not joined.
        protocols: names of the secure sums that it takes part in; None for all, `plain` too, over which the
            coordinator reads its answers.
        questions: names of the questions that it answers, nested ones included; None for all that it knows.
        min_clients: fewest clients in the list, and in a cohort, that it joins.
        min_honest: smallest group of honest clients that it agrees to be summed with.
        min_colluders: how many colluding clients its sums must at least withstand.
        verified: whether clients must verify totals that the server opens (True), which shows every client
            every total, or must not (False); None accepts both.
        max_sums: most sums that it answers in a fit; None to accept the configuration's number.
        domain: domain that every question's ranges must equal; None to accept the configuration's.
        fixed_cohorts: join only where cohorts are fixed groups of clients, so that no combination of totals
            isolates a smaller group (against disaggregation).
        max_answers: most questions that it answers in a fit (against differencing and probing).
        max_jumps: most jumps that it answers in a fit: far movements of the centroids from one question to
            the next, as at a restart, and changes of the cells that rows are counted in. It needs a declared
            domain.
        probing_guard: refuse centroids on a line or far outside the domain (against probing). It needs a
            domain that the configuration or this policy declares.
        min_count: groups of fewer of its rows are answered as empty in every question: clusters, cells, the
            rows of its own local centers, rows beyond its range. A client with fewer rows in all answers as
            one without rows. 1 suppresses nothing.
        count_multiple: counts of rows are rounded to multiples of it, and sums are scaled along; 1 changes
            nothing.
        algorithms: algorithms that it takes part in, by their registered names
            (`privfed.core.names.own_programs`), and questions of metrics that are asked alone. None for all.
        inits: initialisations that it takes part in: names, or arrays by
            `privfed.core.agreed.described.named_start`, as whoever chooses the first centers chooses what is
            asked. None for all.
        max_restarts: most restarts (`n_init`) of an algorithm.
        rows_per_cluster: fewest agreed rows (clients times `max_rows`) for each agreed cluster; with it, a
            clustering without declared `max_rows` is refused.
        require_privacy: join only fits under differential privacy, and only with rows of which no other fit
            was, as far as the journal knows.
        max_epsilon: most epsilon of all fits on the same rows together, added up, this one's included; where
            no journal is kept, of this one. It implies `require_privacy`.
        max_delta: most delta of all fits on the same rows together; it implies `require_privacy`.
        units: units of protection that it accepts where privacy is claimed.
        neighbours: meanings of neighbouring that it accepts where privacy is claimed.
        noise: who may add the noise where privacy is claimed.
        max_fits: most fits on the same rows, by the journal.
        max_losses: most losses of clients in all fits on the same rows, by the journal.
        max_starts: in how many different sets of cells the same rows are counted in all fits, by the
            journal. The cells of `init="nested"` are the same in each fit, up to their number and the ranges.
    """

    undeclared: bool = False
    protocols: frozenset[str] | None = None
    questions: frozenset[str] | None = None
    min_clients: int = 1
    min_honest: int = 1
    min_colluders: int = 0
    verified: bool | None = None
    max_sums: int | None = None
    domain: Domain | None = None
    fixed_cohorts: bool = False
    max_answers: int | None = None
    max_jumps: int | None = None
    probing_guard: bool = False
    min_count: int = 1
    count_multiple: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_clients", "min_honest", "min_count", "count_multiple"):
            check_whole(name, getattr(self, name), 1)
        check_whole("min_colluders", self.min_colluders, 0)
        for name in ("max_sums", "max_answers", "max_jumps"):
            check_whole(name, getattr(self, name), 0, or_none=True)
        for name in ("undeclared", "fixed_cohorts", "probing_guard"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name} must be True or False, got {name}={getattr(self, name)!r}.")
        if not (self.verified is None or isinstance(self.verified, bool)):
            raise ArgumentError(f"verified must be None, True or False, got verified={self.verified!r}.")
        if self.domain is not None and not isinstance(self.domain, Box | Ball):
            raise ArgumentError(f"domain must be None or a Box or Ball, got domain={self.domain!r}.")
        for name in ("protocols", "questions"):
            check_listed(name, getattr(self, name))

    @property
    def guards(self) -> bool:
        """Whether each question or answer must be checked by `privfed.party.guard`."""
        return self.max_answers is not None or self.measures or self.coarsens

    @property
    def coarseness(self) -> Coarseness | None:
        """How coarse the answers are; None where they are exact."""
        coarse = self.min_count > 1 or self.count_multiple > 1
        return Coarseness(self.min_count, self.count_multiple) if coarse else None

    @property
    def coarsens(self) -> bool:
        """Whether answers are changed in a way that depends on the data."""
        return self.coarseness is not None

    @property
    def measures(self) -> bool:
        """Whether the positions of centroids are checked against the domain."""
        return self.probing_guard or self.max_jumps is not None

    def refuses_configuration(self, configuration: Configuration, given: Given | None = None) -> str | None:
        """Return the code of the refusal to join, or None.

        Args:
            configuration: what was agreed.
            given: what the same rows have given before; None where no journal is kept.
        """
        return (
            self._refuses_terms(configuration)
            or self.refuses_algorithm(configuration)
            or self.refuses_claim(configuration)
            or self.refuses_after(configuration, given or Given())
        )

    def _refuses_terms(self, configuration: Configuration) -> str | None:
        terms = configuration.terms
        if self.protocols is not None and configuration.protocol not in self.protocols:
            return "policy:protocol"
        smallest = min(len(configuration.clients), configuration.cohorts.smallest(len(configuration.clients)))
        if smallest < self.min_clients:
            return "policy:min_clients"
        if terms.honest < self.min_honest:
            return "policy:min_honest"
        if terms.colluders < self.min_colluders:
            return "policy:min_colluders"
        if self.verified is not None and terms.verified != self.verified:
            return "policy:verified"
        if self.max_sums is not None and terms.max_sums > self.max_sums:
            return "policy:max_sums"
        if self.fixed_cohorts and not configuration.cohorts.fixed(len(configuration.clients)):
            return "policy:cohorts"
        if self.coarsens and configuration.privacy is not None:
            # Coarsening depends on the data outside the noised totals, which would void the guarantee.
            return "policy:coarse"
        if self.measures and self.domain is None and configuration.box is None:
            return "policy:domain"
        if configuration.noised_by_server and self.measures:
            # Refusals by centroids depend on totals, and the server, which knows its noise, would see them.
            return "policy:guards"
        if configuration.privacy is not None and not configuration.bounded:
            return "policy:domain"
        return None

    def refuses_question(self, question: Question, configuration: Configuration) -> str | None:
        """Return the code of the refusal to answer, or None. All nested questions must pass too."""
        for asked in parts_of(question):
            unjustified = configuration.unjustified(asked)
            if unjustified is not None:
                return f"policy:{unjustified}"
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
