"""What one client answers, whatever the others agree on: its own policy."""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.coarseness import Coarseness
from privfed.core.configuration import Configuration
from privfed.core.domain import Domain
from privfed.core.question import Question, parts_of
from privfed.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class ClientPolicy:
    """What a client answers, whatever the others agree on. Each check depends on messages only.

    The words from `fixed_cohorts` on are defences (`privfed.party.guard`, docs/threat-model.md): each answers
    an attack, none is a guarantee.

    Args:
        questions: names of the questions that it answers, also within others; None for all that it knows.
        min_clients: shortest list of clients and cohort that it joins.
        min_honest: smallest group of honest clients that it agrees to be summed with.
        min_colluders: fewest colluding clients that its sums must withstand.
        max_sums: most sums that it answers in a fit; None to accept the configuration's number.
        domain: domain that every question's ranges must equal; None to accept the configuration's.
        fixed_cohorts: join only where rounds keep to fixed groups of clients, so that no two totals differ
            by a few of them (against disaggregation).
        max_answers: most questions that it answers in a fit (against differencing and probing).
        max_jumps: most far movements of the centroids from one question to the next, and changes of the
            cells that rows are counted in; a restart is one. It needs a declared domain.
        probing_guard: refuse centroids on a line or far outside the domain (against probing). It needs a
            declared domain, of the agreement or of this policy.
        min_count: groups of fewer of its rows are answered as empty, whatever is asked: clusters, cells, the
            rows behind its own local centers, rows beyond its range; with fewer rows in all it answers as a
            client that holds none. 1 answers all.
        count_multiple: counts of rows are rounded to multiples of it, the sums with them; 1 leaves them.
    """

    questions: frozenset[str] | None = None
    min_clients: int = 1
    min_honest: int = 1
    min_colluders: int = 0
    max_sums: int | None = None
    domain: Domain | None = None
    fixed_cohorts: bool = False
    max_answers: int | None = None
    max_jumps: int | None = None
    probing_guard: bool = False
    min_count: int = 1
    count_multiple: int = 1

    def __post_init__(self) -> None:
        for name in ("min_count", "count_multiple"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, got {name}={getattr(self, name)}.")

    @property
    def guards(self) -> bool:
        """Whether answers or questions are looked at one by one."""
        return self.max_answers is not None or self.measures or self.coarsens

    @property
    def coarseness(self) -> Coarseness | None:
        """Which groups of rows answers show, and how exactly; None where they are exact."""
        coarse = self.min_count > 1 or self.count_multiple > 1
        return Coarseness(self.min_count, self.count_multiple) if coarse else None

    @property
    def coarsens(self) -> bool:
        """Whether answers are changed, depending on the data."""
        return self.coarseness is not None

    @property
    def measures(self) -> bool:
        """Whether centroids are measured, against the domain."""
        return self.probing_guard or self.max_jumps is not None

    def refuses_configuration(self, configuration: Configuration) -> str | None:
        """Return the code of the refusal to join, or None."""
        terms = configuration.terms
        smallest = min(len(configuration.clients), configuration.cohorts.smallest(len(configuration.clients)))
        if smallest < self.min_clients:
            return "policy:min_clients"
        if terms.honest < self.min_honest:
            return "policy:min_honest"
        if terms.colluders < self.min_colluders:
            return "policy:min_colluders"
        if self.max_sums is not None and terms.max_sums > self.max_sums:
            return "policy:max_sums"
        if self.fixed_cohorts and not configuration.cohorts.fixed(len(configuration.clients)):
            return "policy:cohorts"
        if self.coarsens and configuration.privacy is not None:
            # What depends on data outside the noised totals would void the guarantee.
            return "policy:coarse"
        if self.measures and self.domain is None and configuration.box is None:
            return "policy:domain"
        if configuration.noised_by_server and self.measures:
            # They refuse by centroids, that is, by totals; the server, which knows its noise, would see it.
            return "policy:guards"
        if configuration.privacy is not None and not configuration.bounded:
            return "policy:domain"
        return None

    def refuses_question(self, question: Question, configuration: Configuration) -> str | None:
        """Return the code of the refusal to answer, or None. All questions within a question must pass."""
        for asked in parts_of(question):
            unjustified = configuration.unjustified(asked)
            if unjustified is not None:
                return f"policy:{unjustified}"
            if not isinstance(asked, Question):
                continue
            if self.questions is not None and type(asked).__name__ not in self.questions:
                return "policy:question"
            if not configuration.allows_ranges(asked):
                return "policy:ranges"
            if self.domain is not None:
                low, high = self.domain.bounds(asked.ranges.n_features)
                if low.tolist() != asked.ranges.low.tolist() or high.tolist() != asked.ranges.high.tolist():
                    return "policy:ranges"
        return None
