"""The tables of a study: the axes of its grid, read from a TOML file or built in Python, and checked.

A study is the product of its axes: data, partitions, algorithms, sums, guarantees of differential privacy,
defences, and seeds. Attacks run on every cell that they apply to. docs/studies.md has an example.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from privfed.attacks.base.names import ATTACKS
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.errors import ArgumentError

Value = bool | int | float | str | list[Any]
Parameters = dict[str, Value]
MEASURES = ("score_ratio", "ari", "v_measure", "accuracy", "fuzzy_davies_bouldin")
"""Measures of utility that every fit gets; other metrics are measured where a study names them."""

PARTIES = ("server", "observer", "clients")


Positive = Annotated[int, Meta(ge=1)]
Epsilon = Annotated[float, Meta(gt=0)]
_Item = TypeVar("_Item")
OneOrMore = Annotated[list[_Item], Meta(min_length=1)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a study's tables. msgspec checks the bounds of their fields where it reads them."""


class Data(_Table, frozen=True, kw_only=True):
    """Describes a data set.

    Args:
        source: a set of scikit-learn ("iris", "wine", "breast_cancer", "digits"), a generated one ("blobs",
            "g2", "big", "mixture"), or the path of a table or folder.
        name: name in the report; by default the source.
        group: for a file, the column that names each row's client.
        label: for a file, the column of true labels.
        columns: for a file, the feature columns; by default all but group and label.
        schema: for a file, the path of the schema that says what its columns mean; not with `columns`.
        standardise: scale each feature to mean 0 and variance 1, computed from the pooled rows in clear.
        center: public number that is subtracted from every value.
        unit: public number, above 0, that every value is then divided by.
        low: declared lowest value of every feature, after scaling; lower values are clipped.
        high: declared highest value of every feature, after scaling; higher values are clipped.
        public: share of the rows, in [0, 0.9], that no client has and that attackers know.
        rows: for "mixture", number of rows.
        features: for "mixture", number of columns.
        components: for "mixture", number of Gaussians of standard deviation 1, with means uniform in
            [-10, 10].
        seed: for "mixture", seed of the set.
    """

    source: str
    name: str = ""
    group: str | None = None
    label: str | None = None
    columns: tuple[str, ...] = ()
    schema: str | None = None
    standardise: bool = False
    center: float = 0.0
    unit: Annotated[float, Meta(gt=0, le=1e300)] = 1.0
    low: float | None = None
    high: float | None = None
    public: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    rows: Positive = 1000
    features: Positive = 2
    components: Positive = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.columns and self.schema is not None:
            raise ArgumentError("the schema says what columns would; give one of them.")
        if (self.low is None) != (self.high is None):
            raise ArgumentError("low and high go together; give both, or none.")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ArgumentError(f"low must be below high, got low={self.low}, high={self.high}.")

    @property
    def title(self) -> str:
        """Name in the report."""
        return self.name or Path(self.source).name


class Partition(_Table, frozen=True, kw_only=True):
    """Describes how the rows are split into clients.

    Args:
        clients: number of clients; not with kind "given".
        kind: one of `privfed.data.partition`, or "given" for the file's group column.
        name: name in the report.
        alpha: parameter of "dirichlet".
        beta: parameter of "distance".
    """

    clients: int = 0
    kind: str = "iid"
    name: str = ""
    alpha: float | None = None
    beta: float | None = None

    @property
    def title(self) -> str:
        """Name in the report."""
        return self.name or (self.kind if self.kind == "given" else f"{self.clients} {self.kind}")


class Algorithm(_Table, frozen=True, kw_only=True):
    """Describes an estimator and its parameters.

    Args:
        estimator: name of the class, such as "DWFKMeans".
        name: name in the report.
        data: names of the data sets that it is run on; empty for all.
        parameters: those of the estimator; in the file they are beside `estimator`.
        grid: parameter -> values, at least one; there is one algorithm for each combination.
        further_n_clusters: numbers of clusters of the fits after the first that a study's `fits` read
            together, in turn; empty for that of the first.
        row_joins: whether the first client has one row more in each of these fits than in the one before.
            The rows are taken from the public ones, and attackers do not know them.
    """

    estimator: str
    name: str = ""
    data: list[str] = msgspec.field(default_factory=list)
    further_n_clusters: list[Positive] = msgspec.field(default_factory=list)
    row_joins: bool = False
    parameters: Parameters = msgspec.field(default_factory=dict)
    grid: dict[str, OneOrMore[Value]] = msgspec.field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name in the report."""
        return self.name or self.estimator


class Sum(_Table, frozen=True, kw_only=True):
    """Describes a secure sum by its name and its parameters."""

    protocol: str
    name: str = ""
    parameters: Parameters = msgspec.field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name in the report."""
        return self.name or self.protocol


class Guarantee(_Table, frozen=True, kw_only=True):
    """Describes a guarantee of differential privacy, or several that differ in epsilon; `inf` means none.

    Args:
        epsilon: one or several values, each above 0.
        delta: in (0, 1); needed for a finite epsilon.
        unit: "record" or "client".
        neighbours: "add-remove" or "replace-one" of that unit.
        noise: "distributed", "local" or, over sums that clients open, "server".
        mechanism: distribution of the noise, "gaussian" or "skellam".
        seeded: draw the noise from the cell's seed. Such cells repeat, and protect nobody.
        algorithms: names of the algorithms that it is combined with; empty for all.
    """

    epsilon: Epsilon | list[Epsilon] = math.inf
    delta: Annotated[float, Meta(gt=0, lt=1)] | None = None
    unit: str = Unit.RECORD.value
    neighbours: str = Neighbours.ADD_REMOVE.value
    noise: str = Noise.DISTRIBUTED.value
    mechanism: str = Mechanism.GAUSSIAN.value
    seeded: bool = True
    algorithms: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.epsilons:
            raise ArgumentError("epsilon needs at least one value.")
        if self.delta is None and math.isfinite(min(self.epsilons)):
            raise ArgumentError(f"epsilon={min(self.epsilons):g} needs a delta in (0, 1); give one.")
        Unit.read("unit", self.unit)
        Neighbours.read("neighbours", self.neighbours)
        Noise.read("noise", self.noise)
        Mechanism.read("mechanism", self.mechanism)

    @property
    def epsilons(self) -> list[float]:
        """All values of epsilon."""
        return self.epsilon if isinstance(self.epsilon, list) else [self.epsilon]


class Defence(_Table, frozen=True, kw_only=True):
    """Describes a defence by parameters of the estimator, which replace those of the algorithm.

    Args:
        name: name in the report.
        parameters: those of the estimator; in the file they are beside `name`.
        algorithms: names of the algorithms that it is combined with; empty for all.
    """

    name: str
    parameters: Parameters = msgspec.field(default_factory=dict)
    algorithms: list[str] = msgspec.field(default_factory=list)


class Attack(_Table, frozen=True, kw_only=True):
    """Describes an attack that is run on every cell that it applies to.

    Args:
        kind: name of the attack, such as "differencing", or "module:Class" for your own.
        name: name in the report.
        party: party whose view it gets: "server", "observer" or "clients".
        colluding: positions of clients that help the attacker.
        rounds: numbers of rounds, each at least 1; a passive attack is also run after each of these.
        budget: number of questions that an active attack may ask.
        sums: names of the sums that it is run on; empty for all.
        algorithms: names of the algorithms that it is run on; empty for all.
        parameters: those of the attack; in the file they are beside `kind`.
    """

    kind: str
    name: str = ""
    party: str = "server"
    colluding: list[int] = msgspec.field(default_factory=list)
    rounds: list[Positive] = msgspec.field(default_factory=list)
    budget: Positive = 60
    sums: list[str] = msgspec.field(default_factory=list)
    algorithms: list[str] = msgspec.field(default_factory=list)
    parameters: Parameters = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.party not in PARTIES:
            raise ArgumentError(f"party must be one of {', '.join(PARTIES)}; got {self.party!r}.")

    @property
    def title(self) -> str:
        """Name in the report."""
        helped = f", {len(self.colluding)} colluding" if self.colluding else ""
        party = "" if self.party == "server" else f" ({self.party})"
        return self.name or f"{ATTACKS.canonical(self.kind)}{party}{helped}"


class Want(_Table, frozen=True, kw_only=True):
    """Sets bounds within which the report names the cheapest measured configuration.

    Args:
        leakage: most leakage, in [0, 1].
        score_ratio: most cost relative to central k-means, at least 1.
    """

    leakage: Annotated[float, Meta(ge=0, le=1)]
    score_ratio: Annotated[float, Meta(ge=1)]


class Study(_Table, frozen=True, kw_only=True):
    """Holds all tables of a study.

    Args:
        name: title of the study.
        about: the question of the study, in a sentence or two.
        seeds: the number of seeds (0, 1, ...), or a list of them.
        metrics: measures of utility that the report shows; the first is the main one. Beside `MEASURES`
            these are registered metrics, and "module:function" for your own.
        fits: numbers of fits of the same rows, each with its own seed, that passive attacks read together.
            Leakage and advice rest on one fit.
        audit: number of draws with which the releases of each guarantee are audited; 0 for no audit.
    """

    name: str
    about: str = ""
    seeds: int | list[int] = 5
    metrics: OneOrMore[str] = msgspec.field(default_factory=lambda: list(MEASURES))
    fits: list[Positive] = msgspec.field(default_factory=list)
    audit: int = 0
    data: OneOrMore[Data]
    partition: OneOrMore[Partition]
    algorithm: OneOrMore[Algorithm]
    sum: OneOrMore[Sum]
    privacy: OneOrMore[Guarantee] = msgspec.field(default_factory=lambda: [Guarantee()])
    defence: OneOrMore[Defence] = msgspec.field(default_factory=lambda: [Defence(name="none")])
    attack: list[Attack] = msgspec.field(default_factory=list)
    want: Want | None = None

    def __post_init__(self) -> None:
        numbers = self.seed_numbers
        if not numbers or min(numbers) < 0 or len(set(numbers)) != len(numbers):
            raise ArgumentError(f"seeds must be a number above 0 or different numbers, got {self.seeds}.")
        if self.fits != sorted(set(self.fits)):
            raise ArgumentError(f"fits must be different numbers that increase, got {self.fits}.")
        if self.audit and self.audit < 1000:
            raise ArgumentError(f"audit must be 0 or at least 1000 draws, got audit={self.audit}.")

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def named_metrics(self) -> list[str]:
        """The metrics that are not measured anyway, each once."""
        return [name for name in dict.fromkeys(self.metrics) if name not in MEASURES]
