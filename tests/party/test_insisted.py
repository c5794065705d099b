"""What a policy insists on of a fit as a whole: by the agreement and the journal, one code for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.algorithms.kmeans.wf_kmeans import WeightedKMeans
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.selection import PrivateSelection
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.described import named_start
from privfed.core.agreed.given import Given
from privfed.core.agreed.program import AgreedProgram, Of
from privfed.core.stored.messages import CODE
from privfed.errors import ArgumentError, PolicyError, RefusedError
from privfed.metrics.phases import AskedMetric
from privfed.party.identity import OwnIdentity
from privfed.questions.inertia import Inertia
from tests.party.journals import agreement, new_party


def plain(**words: Any) -> Configuration:
    known = {"protocol": "plain", "algorithm": "", "clients": ("a", "b"), "n_features": 2}
    return Configuration(**{**known, **words})


def private(epsilon: float = 1.0, **changed: Any) -> Configuration:
    configuration = agreement(OwnIdentity.generate("a"), epsilon=epsilon).configuration
    assert configuration.privacy is not None
    terms = msgspec.structs.replace(configuration.privacy, **changed)
    return msgspec.structs.replace(configuration, privacy=terms)


def running(algorithm: Any, *metrics: Any, **words: Any) -> Configuration:
    return plain(program=AgreedProgram.of(algorithm, metrics), **words)


def lloyd(**parameters: Any) -> Configuration:
    return running(WeightedKMeans(n_clusters=2, **parameters))


def tampered(**fields: Any) -> Configuration:
    """Return an agreement on parameters that no estimator writes."""
    agreed = AgreedProgram.of(WeightedKMeans(n_clusters=2))
    assert agreed.algorithm is not None
    algorithm = Of("WeightedKMeans", {**agreed.algorithm.fields, **fields})
    return plain(program=msgspec.structs.replace(agreed, algorithm=algorithm))


ARRAY = np.array([[0.0, 1.0], [2.0, 3.0]])
ALONE = running(None, AskedMetric.of(Inertia, 2))
NESTED = PrivateSelection(candidates=(2, 9), algorithm=PrivateKMeans(n_clusters=9, init=ARRAY))
BEFORE = Given(fits=2, losses=3, epsilon=1.5, delta=1e-5)

REFUSED: list[tuple[dict[str, Any], Configuration, Given, str]] = [
    ({"algorithms": {"OneShotKMeans"}}, lloyd(), Given(), "policy:algorithm"),
    ({"algorithms": {"OneShotKMeans"}}, ALONE, Given(), "policy:algorithm"),
    ({"protocols": {"masked", "ckks"}}, plain(), Given(), "policy:protocol"),
    ({"max_restarts": 5}, plain(), Given(), "policy:algorithm"),
    ({"inits": {"coreset"}}, plain(algorithm='{"init": "coreset"}'), Given(), "policy:algorithm"),
    ({"max_restarts": 5}, lloyd(n_init=1000), Given(), "policy:n_init"),
    ({"max_restarts": 5}, tampered(n_init="1"), Given(), "policy:n_init"),
    ({"inits": {"coreset"}}, lloyd(init="random"), Given(), "policy:init"),
    ({"inits": {"coreset"}}, lloyd(init=ARRAY), Given(), "policy:init"),
    ({"rows_per_cluster": 8}, plain(n_clusters=3, max_rows=11), Given(), "policy:rows_per_cluster"),
    ({"rows_per_cluster": 8}, plain(n_clusters=3), Given(), "policy:rows_per_cluster"),
    ({"rows_per_cluster": 8}, running(NESTED, max_rows=12), Given(), "policy:rows_per_cluster"),
    ({"inits": {"coreset"}}, running(NESTED), Given(), "policy:init"),
    ({"inits": {"coreset"}}, tampered(init=3), Given(), "policy:init"),
    ({"require_privacy": True}, plain(), Given(), "policy:privacy"),
    ({"max_epsilon": 1.0}, plain(), Given(), "policy:privacy"),
    ({"max_delta": 1e-5}, plain(), Given(), "policy:privacy"),
    ({"require_privacy": True}, private(rehearsal=True), Given(), "policy:rehearsal"),
    ({"require_privacy": True}, private(), Given(fits=1, unprotected=1), "policy:unprotected"),
    ({"max_epsilon": 0.5}, private(), Given(), "policy:max_epsilon"),
    ({"max_epsilon": 2.0}, private(), BEFORE, "policy:max_epsilon"),
    ({"max_delta": 1e-7}, private(), Given(), "policy:max_delta"),
    ({"max_delta": 1e-5}, private(), BEFORE, "policy:max_delta"),
    ({"units": {"client"}}, private(), Given(), "policy:unit"),
    ({"neighbours": {"replace-one"}}, private(), Given(), "policy:neighbours"),
    ({"noise": {"local"}}, private(), Given(), "policy:noise"),
    ({"max_fits": 2}, plain(), BEFORE, "policy:max_fits"),
    ({"max_fits": 0}, plain(), Given(), "policy:max_fits"),
    ({"max_losses": 2}, plain(), BEFORE, "policy:max_losses"),
]

JOINED: list[tuple[dict[str, Any], Configuration, Given]] = [
    ({"algorithms": {"WeightedKMeans"}}, lloyd(), Given()),
    ({"algorithms": {"Inertia"}, "max_restarts": 5}, ALONE, Given()),
    ({"protocols": ["plain"]}, plain(), Given()),
    ({"max_restarts": 5}, lloyd(n_init=5), Given()),
    ({"max_restarts": 5}, lloyd(), Given()),
    ({"inits": {"coreset"}}, lloyd(init="coreset"), Given()),
    ({"inits": {named_start(ARRAY)}}, lloyd(init=ARRAY), Given()),
    ({"rows_per_cluster": 8}, plain(n_clusters=3, max_rows=12), Given()),
    ({"rows_per_cluster": 8}, plain(), Given()),
    ({"require_privacy": True}, private(), BEFORE),
    ({"max_epsilon": 2.5, "max_delta": 2e-5}, private(), BEFORE),
    ({"units": {"record"}, "neighbours": ["add-remove"], "noise": ("distributed",)}, private(), BEFORE),
    ({"units": {"client"}}, plain(), BEFORE),
    ({"max_fits": 3, "max_losses": 3}, plain(), BEFORE),
]


@pytest.mark.parametrize(("words", "configuration", "given", "code"), REFUSED)
def test_what_a_policy_refuses(
    words: dict[str, Any], configuration: Configuration, given: Given, code: str
) -> None:
    assert ClientPolicy(**words).refuses_configuration(configuration, given) == code
    assert re.fullmatch(CODE, code)


@pytest.mark.parametrize(("words", "configuration", "given"), JOINED)
def test_what_a_policy_accepts(words: dict[str, Any], configuration: Configuration, given: Given) -> None:
    assert ClientPolicy(**words).refuses_configuration(configuration, given) is None


@pytest.mark.parametrize(
    "words",
    [
        {"max_fits": -1},
        {"max_losses": 1.5},
        {"max_restarts": 0},
        {"rows_per_cluster": 0},
        {"require_privacy": 1},
        {"max_epsilon": 0.0},
        {"max_epsilon": float("nan")},
        {"max_delta": float("inf")},
        {"max_delta": "1e-5"},
        {"algorithms": "DWFKMeans"},
        {"inits": {1}},
        {"protocols": "masked"},
        {"units": {"row"}},
        {"neighbours": {"add"}},
        {"noise": {"server "}},
    ],
)
def test_a_wrong_bound_is_an_error_that_names_it(words: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(words)).removesuffix("s")):
        ClientPolicy(**words)


def test_the_hundredth_of_a_bound_may_be_spent_a_hundred_times() -> None:
    policy, configuration = ClientPolicy(max_epsilon=1.0), private(0.01)
    assert policy.refuses_configuration(configuration, Given(epsilon=sum([0.01] * 99))) is None
    assert policy.refuses_configuration(configuration, Given(epsilon=1.0)) == "policy:max_epsilon"


def test_an_array_is_listed_by_its_hash() -> None:
    assert ClientPolicy(inits={named_start(ARRAY.tolist())}).refuses_configuration(lloyd(init=ARRAY)) is None
    other = ClientPolicy(inits={named_start([[0.0, 1.0], [2.0, 4.0]])})
    assert other.refuses_configuration(lloyd(init=ARRAY)) == "policy:init"


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_simulated_clients_refuse_a_crafted_program(protocol: str) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(12, 2)) for _ in range(4)]
    policy = ClientPolicy(inits={"coreset"}, max_restarts=2)
    crafted = DWFKMeans(2, init=np.zeros((2, 2)), protocol=protocol, policy=policy)
    with pytest.raises(RefusedError, match="policy:init"):
        crafted.fit(clients)


def test_the_journal_counts_over_fits_on_the_same_rows(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    policy = ClientPolicy(max_epsilon=1.0, max_fits=2, max_losses=3)
    first = journal.begin(agreement(own, 0, 0.75), 0, "ward 3", policy)
    with pytest.raises(PolicyError, match="policy:max_epsilon"):
        journal.begin(agreement(own, 1, 0.5), 0, "ward 3", policy)
    journal.begin(agreement(own, 1, 0.5), 0, "ward 4", policy)
    second = journal.begin(agreement(own, 2, 0.25), 0, "ward 3", policy)
    with pytest.raises(PolicyError, match="policy:max_fits"):
        journal.begin(agreement(own, 3, 0.01), 0, "ward 3", policy)
    # One that has begun goes on.
    assert journal.begin(agreement(own, 0, 0.75), 0, "ward 3", policy).number == first.number
    first.lost(2, policy.max_losses)
    second.lost(1, policy.max_losses)
    with pytest.raises(PolicyError, match="policy:max_losses"):
        second.lost(1, policy.max_losses)
    assert journal.given("ward 3").losses == 3
