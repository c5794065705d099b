"""The tables of a study: the axes of its grid, read from a TOML file or built in Python, and checked.

A study is the product of its axes: data, partitions, algorithms, sums, guarantees of differential privacy,
defences, and seeds. Attacks run on every cell that they apply to. docs/studies.md explains all keys.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.errors import ArgumentError

Word = bool | int | float | str | list[Any]
Words = dict[str, Word]
MEASURES = ("score_ratio", "ari", "v_measure", "accuracy", "fuzzy_davies_bouldin")
"""Measures of utility that every fit gets; other metrics are measured where a study names them."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a study's tables."""


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


class Data(_Table, frozen=True, kw_only=True):
    """Describes a data set.

    Args:
        source: a set of scikit-learn ("iris", "wine", "breast_cancer", "digits"), a generated one ("blobs",
            "g2", "big", "mixture"), or the path of a table or folder.
        name: name in the report; by default the source.
        group: for a file, the column that names each row's client.
        label: for a file, the column of true labels.
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
    standardise: bool = False
    center: float = 0.0
    unit: float = 1.0
    low: float | None = None
    high: float | None = None
    public: float = 0.0
    rows: int = 1000
    features: int = 2
    components: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.unit < math.inf:
            raise ArgumentError(f"unit must be a positive number, got unit={self.unit}.")
        if (self.low is None) != (self.high is None):
            raise ArgumentError("low and high go together; give both, or none.")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ArgumentError(f"low must be below high, got low={self.low}, high={self.high}.")
        if not 0.0 <= self.public <= 0.9:
            raise ArgumentError(f"public must lie in [0, 0.9], got public={self.public}.")
        for name in ("rows", "features", "components"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, got {name}={getattr(self, name)}.")


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


class Algorithm(_Table, frozen=True, kw_only=True):
    """Describes an estimator and its parameters.

    Args:
        estimator: name of the class, such as "DWFKMeans".
        name: name in the report.
        data: names of the data sets that it is run on; empty for all.
        words: parameters of the estimator; in the file they are beside `estimator`.
        grid: parameter -> values; there is one algorithm for each combination.
    """

    estimator: str
    name: str = ""
    data: list[str] = msgspec.field(default_factory=list)
    words: Words = msgspec.field(default_factory=dict)
    grid: dict[str, list[Word]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for word, values in self.grid.items():
            if not values:
                raise ArgumentError(f"grid needs at least one value of {word}.")


class Sum(_Table, frozen=True, kw_only=True):
    """Describes a secure sum by its name and its parameters (`words`)."""

    protocol: str
    name: str = ""
    words: Words = msgspec.field(default_factory=dict)


class Guarantee(_Table, frozen=True, kw_only=True):
    """Describes a guarantee of differential privacy, or several that differ in epsilon; `inf` means none.

    Args:
        epsilon: one or several values, each above 0.
        delta: in (0, 1); needed for a finite epsilon.
        unit: "record" or "client".
        neighbours: "add-remove" or "replace-one" of that unit.
        noise: "distributed", "local" or, over sums that clients open, "server".
        mechanism: distribution of the noise, "gaussian" or "skellam".
        rehearsal: draw the noise from the cell's seed, so that cells repeat; such noise protects nobody.
        algorithms: names of the algorithms that it is combined with; empty for all.
    """

    epsilon: float | list[float] = math.inf
    delta: float | None = None
    unit: str = Unit.RECORD.value
    neighbours: str = Neighbours.ADD_REMOVE.value
    noise: str = Noise.DISTRIBUTED.value
    mechanism: str = Mechanism.GAUSSIAN.value
    rehearsal: bool = True
    algorithms: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        for epsilon in self.epsilons:
            if not epsilon > 0.0:
                raise ArgumentError(f"epsilon must be above 0 (inf for no privacy), got epsilon={epsilon}.")
            if math.isfinite(epsilon) and (self.delta is None or not 0.0 < self.delta < 1.0):
                raise ArgumentError(f"delta must lie in (0, 1) for epsilon={epsilon:g}, got {self.delta}.")
        if not self.epsilons:
            raise ArgumentError("epsilon needs at least one value.")
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
        words: parameters of the estimator; in the file they are beside `name`.
        algorithms: names of the algorithms that it is combined with; empty for all.
    """

    name: str
    words: Words = msgspec.field(default_factory=dict)
    algorithms: list[str] = msgspec.field(default_factory=list)


class Attack(_Table, frozen=True, kw_only=True):
    """Describes an attack that is run on every cell that it applies to.

    Args:
        kind: name of the attack, such as "differencing", or "module:Class" for your own.
        name: name in the report.
        party: party whose view it gets: "server", "observer" or "clients".
        colluding: positions of clients that help the attacker.
        rounds: numbers of rounds after which a passive attack is also run, besides on the whole run.
        budget: number of questions that an active attack may ask.
        sums: names of the sums that it is run on; empty for all.
        algorithms: names of the algorithms that it is run on; empty for all.
        words: parameters of the attack; in the file they are beside `kind`.
    """

    kind: str
    name: str = ""
    party: str = "server"
    colluding: list[int] = msgspec.field(default_factory=list)
    rounds: list[int] = msgspec.field(default_factory=list)
    budget: int = 60
    sums: list[str] = msgspec.field(default_factory=list)
    algorithms: list[str] = msgspec.field(default_factory=list)
    words: Words = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("party", self.party, ("server", "observer", "clients"))
        if any(number < 1 for number in self.rounds):
            raise ArgumentError(f"rounds must be at least 1, got rounds={self.rounds}.")
        if self.budget < 1:
            raise ArgumentError(f"budget must be at least 1, got budget={self.budget}.")


class Want(_Table, frozen=True, kw_only=True):
    """Sets bounds within which the report names the cheapest measured configuration.

    Args:
        leakage: most leakage, in [0, 1].
        score_ratio: most cost relative to central k-means, at least 1.
    """

    leakage: float
    score_ratio: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.leakage <= 1.0:
            raise ArgumentError(f"leakage must lie in [0, 1], got leakage={self.leakage}.")
        if not self.score_ratio >= 1.0:
            raise ArgumentError(f"score_ratio must be at least 1, got score_ratio={self.score_ratio}.")


class Study(_Table, frozen=True, kw_only=True):
    """Holds all tables of a study.

    Args:
        name: title of the study.
        about: the question of the study, in a sentence or two.
        seeds: the number of seeds (0, 1, ...), or a list of them.
        metrics: measures of utility that the report shows; the first is the main one. Beside `MEASURES`
            these are registered metrics, and "module:function" for your own.
        audit: number of draws with which the releases of each guarantee are audited; 0 for no audit.
    """

    name: str
    about: str = ""
    seeds: int | list[int] = 5
    metrics: list[str] = msgspec.field(default_factory=lambda: list(MEASURES))
    audit: int = 0
    data: list[Data]
    partition: list[Partition]
    algorithm: list[Algorithm]
    sum: list[Sum]
    privacy: list[Guarantee] = msgspec.field(default_factory=lambda: [Guarantee()])
    defence: list[Defence] = msgspec.field(default_factory=lambda: [Defence(name="none")])
    attack: list[Attack] = msgspec.field(default_factory=list)
    want: Want | None = None

    def __post_init__(self) -> None:
        for name in ("data", "partition", "algorithm", "sum", "privacy", "defence"):
            if not getattr(self, name):
                raise ArgumentError(f"{name} needs at least one table.")
        numbers = self.seed_numbers
        if not numbers or min(numbers) < 0 or len(set(numbers)) != len(numbers):
            raise ArgumentError(f"seeds must be a number above 0 or different numbers, got {self.seeds}.")
        if not self.metrics:
            raise ArgumentError(f"metrics needs at least one name, such as {MEASURES[0]}.")
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
