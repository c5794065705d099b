"""A server that asks what was not agreed on, or that crafts the agreement itself, gets no row."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import privfed
from privfed import Box, ClientPolicy, DWFKMeans, metrics
from privfed.algorithms.kfed import OneShotKMeans
from privfed.algorithms.wf_kmeans import WeightedKMeans
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import AgreedProgram, Of, from_agreed, own_versions, to_agreed
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.record.records import Asked, Summed
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask
from privfed.core.stored.encoding import decode, encode
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, RefusedError
from privfed.federation.clients import Clients
from privfed.federation.driver import Federation
from privfed.federation.opening import open_federation, open_over
from privfed.federation.request import FederationRequest
from privfed.metrics.asked import AskedMetric
from privfed.metrics.named import following
from privfed.party.program import agreed_program
from privfed.protocols.plain import PlainAnswer, PlainRequest
from privfed.questions.cells import CellSums
from privfed.questions.lloyd import Inertia, LloydSums
from privfed.questions.ranges import FeatureRanges, locate
from privfed.version import __version__
from tests.nodes.journals import agreement, client, new_party
from tests.party.test_program import PRIVATE, WORDS, fitted, private, tables
from tests.raised import refused_with
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore:arrays are grouped anew")

DOMAIN = Box(-5.0, 5.0, max_rows=64)
GUARDED = ClientPolicy(
    min_clients=8,
    fixed_cohorts=True,
    group_size=5,
    max_sums=100,
    algorithms=frozenset({"WeightedKMeans"}),
)


def clients() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(40, 2)).clip(-4.9, 4.9) for _ in range(8)]


def agreed_fit(protocol: str, policy: ClientPolicy | None = None) -> Federation:
    """Return a federation whose clients agreed on a fit that nobody has begun."""
    algorithm = WeightedKMeans(n_clusters=3, local_iter=1, init="random", max_iter=5)
    words: dict[str, Any] = {"protocol": protocol, "domain": DOMAIN, "policy": policy}
    return open_over(clients(), n_clusters=3, algorithm=algorithm, **words)


def ranges() -> Ranges:
    return Ranges(*DOMAIN.bounds(2), 64)


CRAFTED: dict[str, Question] = {
    "cells": CellSums(ranges=ranges(), center=np.zeros(2), normals=np.empty((0, 2)), per_axis=4),
    "centers before the ranges": LloydSums(ranges=ranges(), centers=np.eye(3, 2)),
    "one center less": LloydSums(ranges=ranges(), centers=np.eye(2)),
    "one center more": LloydSums(ranges=ranges(), centers=np.eye(4, 2)),
    "a metric before the end": Inertia(ranges=ranges(), centers=np.eye(3, 2)),
}


NEVER = {
    "cells": ["asks CellSums"],
    "one center less": ["allows LloydSums whose centers is of shape (2, 2)"],
    "one center more": ["allows LloydSums whose centers is of shape (4, 2)"],
}


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize("name", CRAFTED)
def test_a_question_that_is_not_the_programs_next_is_answered_by_nobody(name: str, protocol: str) -> None:
    federation = agreed_fit(protocol)
    if name.startswith("one center"):
        federation.drive(locate(federation.setting, upcoming=(0,)))
    opened = len(federation.transcript.of(Summed))
    with pytest.raises(RefusedError) as refused:
        federation.ask(Ask(CRAFTED[name]))
    assert set(refused.value.codes.values()) == {"program"} and len(refused.value.codes) == 8
    assert len(federation.transcript.of(Summed)) == opened
    # Whoever wrote the algorithm reads what it asks wrongly, if no phase allows that at any time.
    assert getattr(refused.value, "__notes__", []) == [
        f"No phase of what was agreed {one}." for one in NEVER.get(name, [])
    ]


def test_after_a_fit_each_agreed_metric_is_answered_once_and_nothing_else() -> None:
    model = DWFKMeans(3, max_iter=2, tol=0, protocol="plain", domain=DOMAIN).fit(clients())
    federation, centers = model.federation_, model.cluster_centers_
    first = metrics.davies_bouldin(federation, centers)
    assert federation.others == []
    # Asked again it is an agreement of its own.
    assert metrics.davies_bouldin(federation, centers) == first
    (other,) = federation.others
    assert other.configuration.program is not None and other.configuration.program.algorithm is None
    again = LloydSums(ranges=ranges(), centers=centers)
    with refused_with("program"):
        federation.ask(Ask(again))


ARRAY = np.random.default_rng(0).uniform(-5, 5, (64, 2))
PROGRAMS: dict[str, dict[str, Any]] = {
    "centers of the server's": {"n_clusters": 3, "init": ARRAY[:3]},
    "8 n clusters in one round": {"n_clusters": 64, "init": ARRAY, "max_iter": 1},
}


@pytest.mark.parametrize("protocol", ["plain", "masked", "group-masked"])
def test_a_thousand_restarts_are_joined_by_nobody(protocol: str) -> None:
    words: dict[str, Any] = {"tol": 0, "max_iter": 5, "domain": DOMAIN, "policy": GUARDED}
    model = DWFKMeans(3, n_init=1000, protocol=protocol, **words)
    with pytest.raises(RefusedError) as refused:
        model.fit(clients())
    assert set(refused.value.codes.values()) == {"policy:max_sums"}
    assert model.federation_.transcript.of(Summed) == []


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_crafted_program_finds_rows_and_no_row_of_grouped_clients(name: str, protocol: str) -> None:
    words: dict[str, Any] = {"tol": 0, "max_iter": 5, "local_iter": 1, "domain": DOMAIN, **PROGRAMS[name]}
    rows = np.concatenate(clients())

    def found(policy: ClientPolicy | None) -> int:
        model = DWFKMeans(**words, protocol=protocol, policy=policy).fit(clients())
        sums = [one.statistics for _, one in model.transcript_.totals() if "count" in one.statistics]
        means = np.concatenate([one["sum"] / np.maximum(one["count"], 1.0)[:, None] for one in sums])
        return int((np.abs(rows[:, None] - means[None]).max(axis=2) < 1e-6).any(axis=1).sum())

    assert found(GUARDED) == 0
    assert (found(None) > 0) == ("8 n" in name)


@pytest.mark.parametrize("own", [WeightedKMeans(n_clusters=3, n_init=4096), OneShotKMeans(n_clusters=3)])
def test_an_algorithm_that_an_agreement_names_as_a_metric_is_neither_built_nor_joined(
    own: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of algorithms are not those of metrics: one took a client two minutes and 2 GB to build."""
    algorithm = WeightedKMeans(n_clusters=3, init="random", max_iter=5)
    monkeypatch.setattr(FederationRequest, "_program", lambda self: AgreedProgram.of(algorithm, (own,)))
    monkeypatch.setattr(type(own), "phases", lambda *_: pytest.fail("it was built"))
    with pytest.raises(ArgumentError, match="is no metric"):
        open_over(clients(), n_clusters=3, algorithm=algorithm, domain=DOMAIN, policy=GUARDED)


def test_guards_join_the_fits_that_they_are_made_for() -> None:
    words: dict[str, Any] = {"max_iter": 3, "tol": 0, "domain": DOMAIN, "policy": GUARDED}
    assert DWFKMeans(3, local_iter=1, protocol="masked", **words).fit(clients()).n_iter_ == 3


def test_what_declares_nothing_is_joined_only_by_clients_that_say_so() -> None:
    with pytest.raises(ArgumentError, match=r"policy=ClientPolicy\(undeclared=True\)"):
        open_over(clients(), protocol="plain")
    open_over(clients(), protocol="plain", policy=ClientPolicy(undeclared=True))


# --- what is agreed ---


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("place", "kind", "words"), list(some([(i, *one) for i, one in enumerate(WORDS)])))
@pytest.mark.few(12)
def test_a_client_follows_a_fit_from_the_agreements_bytes_alone(
    place: int, kind: type, words: dict[str, object]
) -> None:
    d = 3 + place % 2
    model = fitted(kind, words, d).fit(tables(d))
    agreed = Configuration.from_bytes(model.transcript_.configuration.to_bytes())
    program = agreed_program(agreed)
    assert program is not None
    asked = model.transcript_.of(Asked)
    assert program.state_after((one.index, one.question) for one in asked).index == len(asked) - 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "words", "unit"), list(some(PRIVATE)))
@pytest.mark.few(4)
def test_so_it_does_under_privacy(kind: type, words: dict[str, object], unit: str) -> None:
    privacy = private(unit, 10.0, ball=True)
    model = fitted(kind, words | {"privacy": privacy}, 2).fit(tables())
    agreed = Configuration.from_bytes(model.transcript_.configuration.to_bytes())
    program = agreed_program(agreed, privacy.domain)
    assert program is not None
    asked = model.transcript_.of(Asked)
    assert program.state_after((one.index, one.question) for one in asked).index == len(asked) - 1


def test_an_agreement_keeps_types_through_bytes_and_a_transcript(tmp_path: Path) -> None:
    model = DWFKMeans(3, init=ARRAY[:3], tol=0, max_iter=1, protocol="plain", run_dir=tmp_path).fit(clients())
    agreed = model.transcript_.configuration
    assert Transcript.load(tmp_path).configuration == agreed
    assert Configuration.from_bytes(agreed.to_bytes()) == agreed
    whole, real = (AgreedProgram.of(WeightedKMeans(n_clusters=2, tol=one)) for one in (1, 1.0))
    assert encode(whole) != encode(real)
    assert agreed.program is not None and agreed.program.algorithm is not None
    np.testing.assert_array_equal(from_agreed(agreed.program.algorithm).init, ARRAY[:3])


def changed(**fields: Any) -> Of:
    agreed = to_agreed(WeightedKMeans(n_clusters=2))
    return Of(agreed.name, {**agreed.fields, **fields})


@pytest.mark.parametrize(
    "agreed",
    [
        changed(n_clusters="3"),
        changed(n_clusters=True),
        changed(max_iter=2.0),
        changed(init=None),
        changed(init="k-means++"),
        changed(seed=Of("WeightedKMeans", {})),
        changed(more=1),
        Of("WeightedKMeans", {}),
        Of("tests.party.never_imported:Anything", {}),
        Of("", {}),
    ],
)
def test_what_no_algorithm_has_is_not_built(agreed: Of) -> None:
    with pytest.raises(ArgumentError):
        from_agreed(agreed)
    assert "tests.party.never_imported" not in sys.modules


def agreed_for(**versions: str | None) -> Configuration:
    agreed = agreed_fit("plain").configuration
    assert agreed.program is not None
    given = {name: one for name, one in (own_versions() | versions).items() if one is not None}
    return msgspec.structs.replace(agreed, program=msgspec.structs.replace(agreed.program, versions=given))


@pytest.mark.parametrize("name", ["wire", "algorithms", "numpy"])
@pytest.mark.parametrize("version", ["0.0", None])
def test_what_must_be_equal_is(name: str, version: str | None) -> None:
    with pytest.raises(ArgumentError, match=rf"{name} {version or 'none'} \(privfed 9.9.1\)") as refused:
        agreed_program(agreed_for(**{name: version, "privfed": "9.9.1"}))
    assert __version__ in str(refused.value) and own_versions()[name] in str(refused.value)


@pytest.mark.parametrize("version", ["0.5.99", None])
def test_versions_of_privfed_with_the_same_numbers_work_together(version: str | None) -> None:
    assert agreed_program(agreed_for(privfed=version)) is not None


class Elsewhere(Engine):
    """An engine that keeps what was agreed, and connects nobody."""

    record = "digests"

    members = Members(("a", "b", "c"), 2)

    def __init__(self) -> None:
        self.agreed: list[Configuration] = []

    def connect(self, opening: Opening) -> Connection:
        self.agreed.append(opening.configuration)
        return Connection(session=None, carrier=None)  # type: ignore[arg-type]


def test_equal_fits_of_clients_elsewhere_are_two_agreements() -> None:
    engine = Elsewhere()
    for _ in range(2):
        algorithm = WeightedKMeans(n_clusters=2)
        open_federation(
            FederationRequest(
                clients=Clients.elsewhere(engine.members),
                description="",
                max_sums=algorithm.max_sums,
                algorithm=algorithm,
                engine=engine,
            )
        )
    one, other = engine.agreed
    assert one.digest() != other.digest()
    assert msgspec.structs.replace(one, nonce=other.nonce) == other and len(one.nonce) == 16


@dataclass(frozen=True)
class Unregistered:
    """A class of a user's own; a simulation has it, and no other machine does."""

    n_clusters: int = 2
    max_sums: int = 3
    fixed: bool = False

    def phases(self, setting: Any) -> Any:
        return WeightedKMeans(n_clusters=self.n_clusters, init="random", max_iter=1).phases(setting)

    def run(self, setting: Any) -> Any:
        return WeightedKMeans(n_clusters=self.n_clusters, init="random", max_iter=1).run(setting)


def test_an_algorithm_of_ones_own_is_checked_in_a_simulation_and_must_be_registered_elsewhere() -> None:
    federation = open_over(clients(), protocol="plain", n_clusters=2, algorithm=Unregistered())
    agreed = federation.configuration
    assert federation.run(Unregistered()).n_rows == 320
    with refused_with("program"):
        federation.ask(Ask(CRAFTED["cells"]))
    with pytest.raises(ArgumentError, match="algorithm must be one of"):
        agreed_program(agreed)


# --- with a journal ---


def test_where_a_party_stands_is_in_its_journal(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    program = AgreedProgram.of(WeightedKMeans(n_clusters=2, init="random"), following(2))
    agreed = agreement(own, n_clusters=2, program=program)

    def answered(number: int, question: Question) -> bool:
        """Ask as sum `number`, of a process that knows nothing but the folder."""
        request = encode(PlainRequest(number, number - 1, question.to_bytes()))
        reply = client(journal, agreed, ClientPolicy()).handle(request)
        return b"program" not in reply and isinstance(
            decode(reply, PlainAnswer, sender="", stage=""), PlainAnswer
        )

    universal = agreed_program(agreed.configuration)
    assert universal is not None
    asked = DWFKMeans(2, local_iter=1, init="random", max_iter=1, tol=0, protocol="plain").fit(tables())
    honest = [question_from_bytes(one.question) for one in asked.transcript_.of(Asked)]
    assert isinstance(honest[0], FeatureRanges)
    assert answered(1, honest[0])
    assert not answered(2, honest[0])
    assert journal.fits[0].answered == 1


def test_every_metric_is_agreed_on_by_its_question() -> None:
    assert [one.name for one in following(3)] == [
        "Inertia",
        "ClusterScatter",
        "ClusterSilhouettes",
        "ClusterDistances",
        "FuzzySpread",
    ]
    with pytest.raises(ArgumentError, match="no question is called 'inertia'"):
        AskedMetric(name="inertia")
    assert privfed.metrics.inertia(clients(), np.eye(2), protocol="plain") > 0
