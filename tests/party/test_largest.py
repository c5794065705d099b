"""The largest agreement of every algorithm: to join takes little memory and time, or one code refuses it."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Privacy
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.agreed.agreement import MOST_METRICS, Agreement, Registry, check_size
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import AgreedProgram, Of, Value, from_agreed
from privfed.core.asking.question import ClientData
from privfed.core.names import ALGORITHMS
from privfed.core.roles.conversation import Phased, Total
from privfed.core.stored.encoding import Array
from privfed.errors import ArgumentError, BudgetError, PolicyError, PrivacyError
from privfed.metrics.asked import AskedMetric
from privfed.party import replay as replay_module
from privfed.party.program import agreed_program
from privfed.party.replay import own_run
from privfed.party.state import MemoryStore
from privfed.protocols import Masked
from privfed.questions.cluster_spread import ClusterDistances
from privfed.questions.lloyd import Inertia
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import DOMAIN, SERVER
from tests.raised import forbidden_by, parameter_refused
from tests.some import some
from tests.undeclared import ANYTHING

MEMORY = 640 << 20
"""Bytes that joining may take beyond what the process has."""

SECONDS = 60
"""CPU seconds for all agreements of one algorithm on one number of columns."""

CLAIM = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")


def _of(name: str, **fields: Any) -> Any:
    return partial(ALGORITHMS.find(name), **fields)


def _training(n_classes: int = 2, **own: Any) -> Any:
    words = {"model": "softmax", "trainings": 3, "rows_per_client": 5}
    return _of("Training", n_classes=n_classes, **words, **own)()


K = {"n_clusters": 3}
EXAMPLES: dict[str, list[Callable[[], Any]]] = {
    "AskedMetric": [lambda: None],
    "Averaging": [lambda: _of("Averaging", training=_training(), n_clusters=2)()],
    "FeatureMoments": [_of("FeatureMoments")],
    "FeatureProducts": [_of("FeatureProducts")],
    "FeatureSummary": [_of("FeatureSummary", n_bins=4), _of("FeatureSummary", between=True)],
    "FederatedKMeans": [
        _of("FederatedKMeans", **K, merge=merge) for merge in ("summed", "gathered", "slotted")
    ],
    "FederatedMiniBatch": [_of("FederatedMiniBatch", **K, batch_size=5)],
    "FixedKMeans": [lambda: _of("FixedKMeans", **K, rounds=2, steps=_of("Steps")())()],
    "GaussianMixture": [_of("GaussianMixture", **K, covariance_type=one) for one in ("full", "tied", "diag")],
    "FuzzyCMeans": [_of("FuzzyCMeans", **K, averaging=one) for one in ("kmeans", "weighted")],
    "OneShotKMeans": [
        _of("OneShotKMeans", **K, n_local_clusters=3, merge=merge) for merge in ("summed", "slotted")
    ],
    "PrivateKMeans": [
        _of("PrivateKMeans", **K),
        lambda: _of("PrivateKMeans", **K, steps=_of("Steps", asking=_of("FuzzyStep", m=2.0)())())(),
        lambda: _of("PrivateKMeans", **K, steps=_of("Steps", asking=_own_steps())())(),
    ],
    "PrivateMixture": [_of("PrivateMixture", **K, covariance_type=one) for one in ("full", "tied", "diag")],
    "PrivateMoments": [_of("PrivateMoments"), _of("PrivateMoments", products=True)],
    "PrivateQuartiles": [_of("PrivateQuartiles")],
    "PrivateSelection": [
        lambda: _of("PrivateSelection", candidates=(2, 3), algorithm=_of("PrivateKMeans", **K)())()
    ],
    "RegroupedLearning": [
        lambda: _of("RegroupedLearning", training=_training(), rule=_propagation())(),
        lambda: _of("RegroupedLearning", training=_training(), rule=_splits(), sketch_error=0.3)(),
    ],
    "WeightedKMeans": [
        _of("WeightedKMeans", **K, init=init) for init in ("coreset", "nested", "kfed", "random")
    ],
}


def _own_steps() -> Any:
    return _of("OwnSteps", kind=WeightedCentroids, parameters=(("local_iter", 2),))()


def _propagation() -> Any:
    return _of("PropagationRule")()


def _splits() -> Any:
    return _of("BipartitionRule")()


def test_every_registered_algorithm_has_an_example() -> None:
    phased = {
        name for name in {*ALGORITHMS} - {*ALGORITHMS.added()} if hasattr(ALGORITHMS.find(name), "phases")
    }
    assert phased == set(EXAMPLES)
    made = [one() for name, of in EXAMPLES.items() for one in of if name != "AskedMetric"]
    assert all(isinstance(one, Phased) for one in some(made))


def whole(of: Of, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where whole numbers stand in an agreed algorithm."""
    for name, value in of.fields.items():
        if isinstance(value, Of):
            yield from whole(value, (*path, name))
        elif type(value) is int:
            yield (*path, name)


def put(of: Of, path: tuple[str, ...], value: Value) -> Of:
    """Return an agreed algorithm with another value in one place."""
    name, *rest = path
    inner = of.fields[name]
    changed = put(inner, tuple(rest), value) if rest and isinstance(inner, Of) else value
    return msgspec.structs.replace(of, fields={**of.fields, name: changed})


def agreed(algorithm: object, columns: int) -> Configuration:
    low, high = (np.full(columns, bound) for bound in DOMAIN.bounds(1))
    private = algorithm is not None and type(algorithm).__module__.startswith("privfed.algorithms.private")
    claimed = {
        "privacy": CLAIM.terms(),
        "low": Array.from_numpy(low),
        "high": Array.from_numpy(high),
        "max_rows": 64,
    }
    return Configuration(
        protocol="masked-verified",
        algorithm="",
        clients=tuple("abcde"),
        n_features=columns,
        n_clusters=3,
        terms=Masked(verified=True).terms(5, 5, 1 << 20),
        program=AgreedProgram.of(algorithm),
        **(claimed if private else {}),
    )


def with_algorithm(configuration: Configuration, algorithm: Of) -> Configuration:
    program = msgspec.structs.replace(configuration.program, algorithm=algorithm)  # type: ignore[type-var]
    return msgspec.structs.replace(configuration, program=program)


def largest(plain: Configuration, of: Of, path: tuple[str, ...]) -> Of:
    """Return an agreed algorithm with the largest power of two in one place not refused by itself."""
    for bits in range(62, -1, -1):
        tried = put(of, path, 1 << bits)
        try:
            check_size(with_algorithm(plain, tried))
            from_agreed(tried)
        except ArgumentError:
            continue
        return tried
    raise AssertionError(path)


def agreements(name: str, columns: int, singly: bool) -> Iterator[tuple[str, Configuration]]:
    """Yield agreements with each whole number at its largest, singly and then all together."""
    for make in EXAMPLES[name]:
        plain = agreed(make(), columns)
        program = plain.program
        assert program is not None
        if program.algorithm is None:
            metrics = [AskedMetric.of(kind, 1 << 14).alone() for kind in (ClusterDistances, Inertia)]
            many = AgreedProgram.of(None, tuple(metrics * (MOST_METRICS // 2)))
            yield "metrics", msgspec.structs.replace(plain, program=many)
            continue
        paths, everything = list(whole(program.algorithm)), program.algorithm
        for path in paths:
            if singly:
                yield ".".join(path), with_algorithm(plain, largest(plain, program.algorithm, path))
            everything = largest(plain, everything, path)
        yield "all", with_algorithm(plain, everything)


def joined(configuration: Configuration) -> str:
    """Join as a client of verified sums does; return what refused it, or an empty text."""
    try:
        agreed_program(configuration)
        if configuration.program is not None and configuration.program.algorithm is not None:
            own_run(configuration, MemoryStore())
    except PolicyError as error:
        assert str(error) == "agreement:size"
        return str(error)
    except (PrivacyError, BudgetError, ArgumentError) as error:
        # Too little of the budget for each of so many: an error before anything is made.
        return type(error).__name__
    return ""


def in_a_child(name: str, columns: int, singly: bool) -> tuple[int, str]:
    """Join agreements of an algorithm with little memory and time; return the exit status and what failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        code, where = 0, ""
        try:
            for where, one in agreements(name, columns, singly):
                os.write(writer, f"{where} ".encode())
                joined(one)
        except BaseException as error:
            code = 1
            os.write(writer, f"{where}: {type(error).__name__} {error}".encode()[:500])
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@pytest.mark.parametrize("columns", [2, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("singly", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.few(2)
def test_to_join_the_largest_agreement_takes_little_or_is_refused(
    name: str, singly: bool, columns: int
) -> None:
    code, said = in_a_child(name, columns, singly)
    assert code == 0, said
    assert {*said.split()} & {"all", "metrics"}


def test_models_times_parameters_are_refused_before_they_are_drawn() -> None:
    training = _training(4096, rounds=4)
    averaging = ALGORITHMS.find("Averaging")
    hostile = agreed(averaging(training=training, n_clusters=4096), 30)
    assert len(hostile.to_bytes()) < 2000 and joined(hostile) == "agreement:size"
    assert joined(agreed(averaging(training=training, n_clusters=4), 30)) == ""
    # Rounds count where a client keeps their totals.
    long = agreed(averaging(training=_training(4096, rounds=9000)), 30)
    assert agreed_program(long) is not None and joined(long) == "agreement:size"


def test_many_metrics_are_refused() -> None:
    def asking(n: int) -> Configuration:
        program = AgreedProgram.of(None, (AskedMetric.of(Inertia, 2),) * n)
        return msgspec.structs.replace(agreed(None, 2), program=program)

    check_size(asking(MOST_METRICS))
    with parameter_refused("metrics"):
        check_size(asking(MOST_METRICS + 1))


def test_a_node_refuses_it_and_begins_no_fit(tmp_path: Path) -> None:
    """Over nodes: nothing of such a fit is in the journal."""
    rows = [np.random.default_rng(i).normal(size=(9, 2)) for i in range(5)]
    engine = Elsewhere(tmp_path, rows)
    training = _training(4096)
    hostile = agreed(_of("Averaging", training=training, n_clusters=9000)(), 2)
    keys = tuple(engine.party(i).own.key.public for i in range(5))
    agreement = Agreement(hostile, Registry(keys, SERVER.public))
    party, own = engine.party(0), ClientData(rows[0])
    with forbidden_by("agreement:size"):
        party.join(agreement, Masked(verified=True), own, data_set="rows", policy=ANYTHING)
    assert party.journal.fits == ()


def test_a_client_keeps_no_more_totals_than_its_journal_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "MOST_KEPT", 20)
    configuration = agreed(_of("WeightedKMeans", **K)(), 2)
    own = own_run(configuration, MemoryStore())
    question = own.asked(0).question
    total = Total(question.spec.unflatten(np.zeros(question.spec.size)), (0, 1, 2, 3, 4))
    assert question.spec.size > 20
    with forbidden_by("agreement:size"):
        own.tell(0, total)
    assert own.told == 0
