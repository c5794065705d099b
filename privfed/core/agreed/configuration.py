"""The configuration that the parties of a fit agree on and sign before it begins.

Bounds that protect a client are absolute numbers, never fractions of a client list that a server relays.
Cohorts follow from the configuration alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from privfed.core.agreed.program import AgreedProgram
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.stored.encoding import Array, Codec, encode
from privfed.core.values.domain import Box, check_private
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, SampledSteps, Unit
from privfed.core.values.numbers import Count, Integer, Items, Number, check_number, check_whole
from privfed.errors import ArgumentError

SLOTTED = "slotted "
"""Beginning of the name of a secure sum with slots."""

MOST_BYTES = 1 << 26
"""Most bytes of an agreement."""


class CohortRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Determines the clients that are asked in round t >= 1; label 0 stands for all clients.

    Args:
        kind: "all"; "sampled" (`size` clients a round, drawn by hash from `seed` and the names); or
            "schedule" (the lists of `rounds` in order, then again from the first).
        size: clients a round, for "sampled".
        seed: agreed on by the parties, not chosen by the server: a server that chose it could try seeds
            until its colluders fill a cohort.
        rounds: lists of client positions, for "schedule".
    """

    kind: Literal["all", "sampled", "schedule"] = "all"
    size: Number = 0
    seed: Integer = 0
    rounds: Items[Items[Number]] = ()

    def __post_init__(self) -> None:
        check_whole("size", self.size, 1 if self.kind == "sampled" else 0)
        check_whole("n_rounds", len(self.rounds), 1 if self.kind == "schedule" else 0)
        for members in self.rounds:
            if not members or len(set(members)) != len(members) or min(members) < 0:
                raise ArgumentError(f"a round lists client positions, each once; got {members}.")

    def cohort(self, label: int, clients: tuple[str, ...]) -> tuple[int, ...]:
        """Return the positions of the clients in the cohort with this label, ascending."""
        check_whole("label", label, 0)
        if label == 0 or self.kind == "all":
            return tuple(range(len(clients)))
        if self.kind == "schedule":
            return tuple(sorted(self.rounds[(label - 1) % len(self.rounds)]))
        return _drawn(self.seed, self.size, label, clients)

    def fixed(self, n_clients: int) -> bool:
        """Say whether cohorts are fixed groups, so that no combination of totals isolates a smaller group.

        This holds if any two cohorts are equal or disjoint, and if the clients in no cohort are none, or at
        least as many as the smallest cohort. Their total follows from everyone's total by subtraction.
        """
        if self.kind == "sampled":
            return self.size >= n_clients
        groups = {frozenset(members) for members in self.rounds}
        apart = sum(map(len, groups)) == len(frozenset().union(*groups))
        left = n_clients - sum(map(len, groups)) if groups else 0
        return apart and (left == 0 or left >= min(map(len, groups)))

    def smallest(self, n_clients: int) -> int:
        """Return the size of the smallest cohort that the rule names."""
        if self.kind == "sampled":
            return self.size
        return min((len(members) for members in self.rounds), default=n_clients)


@lru_cache(maxsize=4)
def _drawn(seed: int, size: int, label: int, clients: tuple[str, ...]) -> tuple[int, ...]:
    # The clients with the smallest hashes of their names, so that the order of the list has no effect.
    start = b"privfed cohort|%d|%d|" % (seed, label)
    ranked = sorted(range(len(clients)), key=lambda i: hashlib.sha256(start + clients[i].encode()).digest())
    return tuple(sorted(ranked[:size]))


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds that a secure sum guarantees to a client (notation of docs/protocols/masked.md).

    Args:
        min_clients: fewest clients in the list, and in a cohort, that a client accepts (n_min).
        colluders: most clients of the smallest cohort that are assumed to collude with the server (c); the
            secure sum states how many more it withstands in a larger cohort.
        honest: smallest group of honest clients that a client agrees to be summed with (m).
        max_sums: most sums that a client answers in a fit (R).
        threshold: fewest clients that must remain to open a sum; 0 for the smallest safe number.
        repeats: how often in a fit a sum may be asked again without the clients that dropped out of it,
            where masks are not recovered. It is bounded since whoever reads two totals that differ by one
            client learns that client's answer.
        slotted: how many sums of a fit may show every contribution, under no name.
        slot_contributors: fewest clients in such a sum.
        losses: in how many sums of a fit other clients may be lost than before, over all its set-ups, counted
            by each client from the messages that it gets. Whoever reads two totals that differ by one client
            learns that client's answer. None for no limit; none holds under noise of clients, where both
            totals are noised and paid for.
        dropouts: share of a large cohort that may drop out of one sum; it determines the degree of sparse
            mask graphs.
        verified: whether, where the server opens totals, every client gets each, checks it and answers
            only what follows from it.
    """

    min_clients: Number = 1
    colluders: Number = 0
    honest: Number = 1
    max_sums: Number = 1 << 20
    threshold: Number = 0
    dropouts: float = 0.1
    repeats: Number = 0
    slotted: Number = 0
    slot_contributors: Number = 0
    verified: bool = False
    losses: Number | None = None

    def __post_init__(self) -> None:
        lows = dict.fromkeys(("colluders", "threshold", "repeats", "slotted", "slot_contributors"), 0)
        lows |= dict.fromkeys(("min_clients", "honest", "max_sums"), 1)
        for name, low in lows.items():
            check_whole(name, getattr(self, name), low)
        check_whole("losses", self.losses, 0, or_none=True)
        check_number("dropouts", self.dropouts, "[0, 1)")


_BOUNDS = {"spare": "[0, 1)", "epsilon": "(0, inf)", "delta": "(0, 1)", "budget": "(0, inf)"}
"""Numbers of a claim -> their bounds."""


class AddedNoise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tells the server what it must know, and no more, to add noise to one sum that it cannot read.

    Each field has one value an entry. Sigma and ranges are in steps of the entry's grid, so that they do not
    reveal a scale that depends on totals.

    Args:
        sizes: number of values of each entry.
        sigma: standard deviation of the noise.
        low: lowest value of a client's answer.
        high: highest value of a client's answer.
    """

    sizes: Items[Count]
    sigma: Items[float]
    low: Items[float]
    high: Items[float]

    @property
    def spec(self) -> StatisticsSpec:
        """Layout and ranges of the sum; its entries are named by their positions."""
        lines = zip(self.sizes, self.low, self.high, strict=True)
        return StatisticsSpec(
            *(Entry(str(i), (size,), low, high, 1.0) for i, (size, low, high) in enumerate(lines))
        )


class PrivacyTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The differential privacy guarantee for which all totals of a fit are noised, or clients train.

    Args:
        epsilon: of the guarantee for all totals of the fit together.
        delta: of the same guarantee.
        unit: what is protected.
        neighbours: which changes of that unit the guarantee compares.
        noise: who adds it.
        budget: what all releases may cost together: mu^2 of the Gaussian-DP curve through (epsilon, delta);
            for Skellam noise the smaller budget of the Renyi bound.
        seeded: whether noise repeats with the configuration's seed; such a run protects nobody.
        schedule: the server's noise for each sum of the fit, fixed before the first; empty for other noise.
        mechanism: distribution of the noise.
        steps: the steps of DP-SGD by which each client trains, where the noise is in these and not in
            totals; the budget is then their number. None otherwise.
        spare: share of the budget that is kept for sums that have to be asked again. It fixes each question's
            noise with the algorithm's weights, so that whoever runs the algorithm prices alike.
        rows_per_user: at unit "user" the most rows of a user that a client answers from; 0 at other units.
    """

    epsilon: float
    delta: float
    unit: Unit
    neighbours: Neighbours
    noise: Noise
    budget: float
    seeded: bool = False
    schedule: Items[AddedNoise] = ()
    mechanism: Mechanism = Mechanism.GAUSSIAN
    steps: SampledSteps | None = None
    spare: float = 0.0
    rows_per_user: Number = 0

    @property
    def rows_apart(self) -> int:
        """In how many rows neighbours differ, each of which is priced as one that is added.

        A replaced user is one that leaves and one that comes. At other units it is 1: `added` says whether
        questions have a price of their own for a replaced unit.
        """
        if self.unit != Unit.USER:
            return 1
        return self.rows_per_user * (1 if self.neighbours == Neighbours.ADD_REMOVE else 2)

    @property
    def added(self) -> bool:
        """Whether a question costs what added rows, or an added client, cost."""
        return self.unit == Unit.USER or self.neighbours == Neighbours.ADD_REMOVE

    @property
    def rows_are_public(self) -> bool:
        """Whether all neighbours have equally many rows, so that their number is asked without a price."""
        return self.unit == Unit.RECORD and self.neighbours == Neighbours.REPLACE_ONE

    def __post_init__(self) -> None:
        if (self.unit == Unit.USER) != (self.rows_per_user > 0):
            raise ArgumentError(
                'unit="user" needs rows_per_user, the most rows of a user that count, at least 1; other '
                f'units have none. Got unit="{self.unit}", rows_per_user={self.rows_per_user}.',
                parameters=["rows_per_user"],
            )
        for name, bounds in _BOUNDS.items():
            check_number(name, getattr(self, name), bounds)


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the parties of a fit agree on, and sign.

    Args:
        protocol: name of the secure sum.
        algorithm: what was asked for, as text for people; no check goes by it.
        clients: names of the clients; a client's position in it is its number on the wire.
        n_features: number of columns.
        columns: their names, in order, by which each party reads its table; None where they have none.
        n_clusters: number of clusters of the fit, or of a client's own clustering where that is larger. None
            for metrics.
        cohorts: the rule that determines each round's clients.
        terms: the bounds that protect a client.
        seed: of the clients' simulation randomness, together with client name and index of the sum.
        low: lowest value of each feature where a domain is declared.
        high: highest value of each feature where a domain is declared.
        max_rows: bound on the rows of a client where one is declared; or one of each client, by position.
        privacy: the differential privacy guarantee of the fit; None where none is claimed.
        numerics: digest of the known answers that every client must compute too
            (`privfed.numerics.kmeans`), where clients run the algorithm themselves; empty elsewhere.
        program: what runs. None where nothing is declared of it: then clients cannot check what they are
            asked, and take part only if their policy says so (`undeclared`).
        nonce: makes fits with equal parameters two agreements, as one agreement runs once; empty in a
            simulation, whose parties are made for it.
    """

    # Owners read it in a journal: no control characters of a terminal.
    protocol: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
    algorithm: str
    clients: Items[str]
    n_features: Count
    columns: Items[str] | None = None
    n_clusters: Count | None = None
    cohorts: CohortRule = CohortRule()
    terms: Terms = Terms()
    seed: Integer = 0
    low: Array | None = None
    high: Array | None = None
    max_rows: Count | Items[Count] | None = None
    privacy: PrivacyTerms | None = None
    numerics: str = ""
    program: AgreedProgram | None = None
    nonce: bytes = b""

    @property
    def noising(self) -> int:
        """How many draws of a question's noise every opened sum is guaranteed to contain."""
        return (
            1 if self.privacy is not None and self.privacy.noise != Noise.DISTRIBUTED else self.terms.honest
        )

    @property
    def noising_terms(self) -> PrivacyTerms | None:
        """The guarantee for which totals are noised; None without, and where clients train by DP-SGD."""
        return None if self.privacy is None or self.privacy.steps is not None else self.privacy

    @property
    def most_losses(self) -> int | None:
        """How often clients may be lost; None for no limit, and under noise that clients add."""
        return None if self.privacy is not None and not self.noised_by_server else self.terms.losses

    @property
    def noised_by_server(self) -> bool:
        """Whether the server adds the noise, and clients answer without."""
        return self.privacy is not None and self.privacy.noise == Noise.SERVER

    @property
    def bounded(self) -> bool:
        """Whether a domain is declared whose numbers keep sensitivity bounds valid (`check_private`)."""
        if self.low is None or self.high is None:
            return False
        try:
            low, high = self.low.to_numpy(), self.high.to_numpy()
            check_private(low, high)
        except (ArgumentError, ValueError):
            return False
        return low.shape == high.shape == (self.n_features,) and bool((low <= high).all())

    def check_clients(self) -> None:
        """Check a configuration that came from elsewhere: its clients, their columns, and cohorts of them.

        Raises:
            ArgumentError: no clients, two of one name, no columns, names of columns that do not fit, or a
                cohort of clients it does not list.
        """
        n_clients = len(self.clients)
        if not n_clients or len(set(self.clients)) < n_clients or self.n_features < 1:
            raise ArgumentError(
                f"a configuration needs columns, and clients of different names; got n_features="
                f"{self.n_features}, {n_clients} clients of {len(set(self.clients))} names."
            )
        if self.columns is not None and (len(set(self.columns)), len(self.columns)) != (self.n_features,) * 2:
            raise ArgumentError(
                f"a configuration names each of its {self.n_features} columns once; got {len(self.columns)} "
                f"names, {len(set(self.columns))} different ones."
            )
        if isinstance(self.max_rows, tuple) and (len(self.max_rows) != n_clients or min(self.max_rows) < 1):
            raise ArgumentError(
                f"a configuration bounds the rows of each of its {n_clients} clients by at least 1; got "
                f"{len(self.max_rows)} bounds."
            )
        highest = max((max(members) for members in self.cohorts.rounds), default=0)
        if highest >= n_clients or self.cohorts.size > n_clients:
            raise ArgumentError(
                f"the cohorts of a configuration go beyond its {n_clients} clients: a schedule up to "
                f"position {highest}, {self.cohorts.size} clients drawn a round."
            )

    def to_bytes(self) -> bytes:
        """Return the configuration as bytes, the same for all who hold it."""
        return _CODEC.to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Configuration:
        """Return the configuration that `to_bytes` wrote.

        Raises:
            ArgumentError: damaged, or clients and cohorts that do not fit together.
            FormatError: of another version.
        """
        read = _CODEC.from_bytes(data)
        read.check_clients()
        return read

    def digest(self) -> bytes:
        """Return SHA-256 of the configuration, 32 bytes."""
        return hashlib.sha256(b"privfed configuration|" + encode(self)).digest()

    def cohort(self, label: int) -> tuple[int, ...]:
        """Return the positions of the clients in the cohort with this label, ascending."""
        return self.cohorts.cohort(label, self.clients)

    def name_of(self, client: int) -> str:
        """Return the name of the client at a position, or a text with the position where there is none."""
        return self.clients[client] if 0 <= client < len(self.clients) else f"client {client}"

    def allows_ranges(self, question: Question) -> bool:
        """Say whether a question's ranges equal the declared ones; without declared ones, any are allowed."""
        ranges = question.ranges
        most = max(self.max_rows) if isinstance(self.max_rows, tuple) else self.max_rows
        ends = (self.low, ranges.low), (self.high, ranges.high)
        same = all(agreed is None or agreed.data == own.tobytes() for agreed, own in ends)
        return same and ranges.n_features == self.n_features and most in (None, ranges.rows)

    @property
    def domain(self) -> Box | None:
        """The declared domain as a box, with bounds on rows by name; None where none is declared."""
        if self.low is None or self.high is None:
            return None
        rows = self.max_rows
        own = dict(zip(self.clients, rows, strict=True)) if isinstance(rows, tuple) else rows
        return Box(self.low.to_numpy(), self.high.to_numpy(), own)

    def rows_of(self, clients: Iterable[int]) -> tuple[int, ...]:
        """Return the bounds on the rows of clients; empty where one number holds for all, or none."""
        return tuple([self.max_rows[i] for i in clients]) if isinstance(self.max_rows, tuple) else ()


_CODEC: Codec[Configuration] = Codec(Configuration, "configuration", 3, most=MOST_BYTES)
