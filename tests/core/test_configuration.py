"""What the parties agree on: cohorts follow from names, and a policy is kept through a fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, ClientPolicy, DWFKMeans, Privacy
from privfed.algorithms.private.clients import ClientLengths, ClientShares, LocalMovements
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, BoundsError, RefusedError
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.lloyd import Inertia, LloydSums
from tests.raised import refused_with

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=12, unique=True)


def members(rule: CohortRule, label: int, names: tuple[str, ...]) -> set[str]:
    return {names[i] for i in rule.cohort(label, names)}


# --- cohorts ---


@given(NAMES, st.integers(0, 2**63 - 1), st.integers(1, 1000), st.data())
def test_drawn_cohort_depends_on_names_and_not_on_positions(
    names: list[str], seed: int, label: int, data: st.DataObject
) -> None:
    rule = CohortRule(kind="sampled", size=data.draw(st.integers(1, len(names))), seed=seed)
    shuffled = tuple(data.draw(st.permutations(names)))
    assert members(rule, label, tuple(names)) == members(rule, label, shuffled)


@given(NAMES, st.integers(0, 2**63 - 1), st.integers(1, 1000), st.data())
def test_drawn_cohort_is_repeatable_ascending_and_of_the_wanted_size(
    names: list[str], seed: int, label: int, data: st.DataObject
) -> None:
    rule = CohortRule(kind="sampled", size=data.draw(st.integers(1, len(names))), seed=seed)
    cohort = rule.cohort(label, tuple(names))
    assert cohort == CohortRule(kind="sampled", size=rule.size, seed=seed).cohort(label, tuple(names))
    assert len(cohort) == rule.size == rule.smallest(len(names))
    assert list(cohort) == sorted(set(cohort))


def test_draws_differ_between_rounds_and_seeds_and_reach_every_client() -> None:
    names = tuple(f"client {i}" for i in range(10))
    drawn = [CohortRule(kind="sampled", size=3, seed=7).cohort(label, names) for label in range(1, 41)]
    assert len(set(drawn)) > 20
    assert set().union(*drawn) == set(range(10))
    assert drawn != [
        CohortRule(kind="sampled", size=3, seed=8).cohort(label, names) for label in range(1, 41)
    ]


def test_every_client_is_drawn_about_equally_often() -> None:
    names = tuple(f"client {i}" for i in range(10))
    rule = CohortRule(kind="sampled", size=3, seed=1)
    counts = np.bincount(np.concatenate([rule.cohort(t, names) for t in range(1, 1001)]), minlength=10)
    # Each count is about Binomial(1000, 0.3): standard deviation 14.5; five of them.
    assert np.abs(counts - 300).max() < 73


def test_label_0_is_everyone_under_every_rule() -> None:
    names = ("a", "b", "c")
    for rule in (
        CohortRule(),
        CohortRule(kind="sampled", size=1),
        CohortRule(kind="schedule", rounds=((2,), (0, 1))),
    ):
        assert rule.cohort(0, names) == (0, 1, 2)
        with pytest.raises(BoundsError) as found:
            rule.cohort(-1, names)
        assert (found.value.parameter, found.value.value) == ("label", -1)


def test_schedule_begins_again_when_it_is_used_up() -> None:
    rule = CohortRule(kind="schedule", rounds=((2,), (0, 1)))
    assert [rule.cohort(label, ("a", "b", "c")) for label in range(1, 6)] == [
        (2,),
        (0, 1),
        (2,),
        (0, 1),
        (2,),
    ]
    assert rule.smallest(3) == 1


# --- what is agreed on ---


def configuration(**changes: object) -> Configuration:
    words: dict[str, object] = {
        "protocol": "plain",
        "algorithm": "{}",
        "clients": ("a", "b"),
        "n_features": 2,
    }
    return Configuration(**{**words, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["\x1b[2J", "masked\n", "a\x9bb", "\x00", "\x7f"])
def test_a_sum_whose_name_steers_a_terminal_is_damage(name: str) -> None:
    assert Configuration.from_bytes(configuration(protocol="módulo:Clase").to_bytes()).protocol[0] == "m"
    with pytest.raises(ArgumentError):
        Configuration.from_bytes(configuration(protocol=name).to_bytes())


def test_digest_changes_with_every_field() -> None:
    low = Array.from_numpy(np.zeros(2))
    changes: list[dict[str, object]] = [
        {},
        {"protocol": "masked"},
        {"algorithm": "[]"},
        {"clients": ("b", "a")},
        {"n_features": 3},
        {"n_clusters": 4},
        {"cohorts": CohortRule(kind="sampled", size=1)},
        {"terms": Terms(threshold=2)},
        {"seed": 1},
        {"low": low},
        {"high": low},
        {"max_rows": 5},
    ]
    digests = {configuration(**change).digest() for change in changes}
    assert len(digests) == len(changes)
    assert configuration().digest() == configuration().digest()


@pytest.mark.parametrize(
    ("low", "high", "bounded"),
    [
        pytest.param([-1.0, 0.0], [1.0, 0.0], True, id="declared"),
        pytest.param(None, [1.0, 1.0], False, id="no-low"),
        pytest.param([-1.0, -1.0], None, False, id="no-high"),
        pytest.param([-1.0], [1.0], False, id="one-feature"),
        pytest.param([-1.0, -1.0], [1.0], False, id="of-different-features"),
        pytest.param([-1.0, 1.0], [1.0, -1.0], False, id="upside-down"),
        pytest.param([-1.0, -1.0], [1.0, np.nan], False, id="nan"),
        pytest.param([-1e160, -1.0], [1e160, 1.0], False, id="absurd"),
        pytest.param([-1e-200, 0.0], [1e-200, 0.0], False, id="next-to-nothing"),
    ],
)
def test_a_client_joins_no_private_fit_without_a_domain_that_bounds_hold_in(
    low: list[float] | None, high: list[float] | None, bounded: bool
) -> None:
    ends = {
        name: None if end is None else Array.from_numpy(np.array(end))
        for name, end in (("low", low), ("high", high))
    }
    terms = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(-1, 1), neighbours="add-remove"
    ).terms()
    private, public = configuration(**ends, privacy=terms), configuration(**ends)
    assert ClientPolicy().refuses_configuration(public) is None
    assert ClientPolicy().refuses_configuration(private) == (None if bounded else "policy:domain")


def test_a_domain_whose_bytes_do_not_fit_is_none() -> None:
    assert not configuration(low=Array((2,), b"123"), high=Array((2,), b"")).bounded


# --- a client's own policy ---


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        pytest.param(ClientPolicy(min_clients=11), "policy:min_clients", id="too-few-clients"),
        pytest.param(ClientPolicy(min_honest=99), "policy:min_honest", id="too-few-honest"),
        pytest.param(ClientPolicy(max_sums=3), "policy:max_sums", id="too-many-sums"),
    ],
)
def test_clients_refuse_a_configuration_that_their_policy_forbids(
    policy: ClientPolicy, code: str, blobs: list[np.ndarray], protocol: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        DWFKMeans(3, protocol=protocol, policy=policy).fit(blobs)
    assert caught.value.codes == {str(i): code for i in range(10)}


@pytest.mark.parametrize(
    ("policy", "code", "answered"),
    [
        pytest.param(
            ClientPolicy(questions=frozenset({"FeatureRanges"})), "policy:question", 1, id="question"
        ),
        pytest.param(ClientPolicy(domain=Box(-9, 19)), "policy:ranges", 0, id="other-domain"),
    ],
)
def test_clients_refuse_a_question_that_their_policy_forbids(
    policy: ClientPolicy, code: str, answered: int, blobs: list[np.ndarray], protocol: str
) -> None:
    model = DWFKMeans(3, protocol=protocol, policy=policy, domain=Box(-10, 20))
    with pytest.raises(RefusedError) as caught:
        model.fit(blobs)
    assert set(caught.value.codes.values()) == {code}
    assert len(model.federation_.transcript.totals()) == answered


def test_a_policy_that_fits_lets_the_fit_through(blobs: list[np.ndarray], protocol: str) -> None:
    domain = Box(-10, 20, max_rows=64)
    policy = ClientPolicy(
        questions=frozenset(
            {"FeatureRanges", "CellSums", "WeightedCentroids", "FallbackCentroids", "Inertia"}
        ),
        min_clients=10,
        domain=domain,
    )
    model = DWFKMeans(3, protocol=protocol, policy=policy, domain=domain).fit(blobs)
    assert model.cluster_centers_.shape == (3, 2)


def test_cohorts_smaller_than_the_policy_allows_are_refused(blobs: list[np.ndarray]) -> None:
    policy = ClientPolicy(min_clients=6)
    DWFKMeans(3, protocol="plain", policy=policy, clients_per_round=6, max_iter=2, tol=0).fit(blobs)
    with refused_with("policy:min_clients"):
        DWFKMeans(3, protocol="plain", policy=policy, clients_per_round=5, max_iter=2, tol=0).fit(blobs)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"low": Array.from_numpy(np.full(2, -1.0))}, id="low"),
        pytest.param({"high": Array.from_numpy(np.full(2, 2.0))}, id="high"),
        pytest.param({"max_rows": 9}, id="rows"),
        pytest.param({"n_features": 3}, id="features"),
    ],
)
def test_ranges_other_than_those_declared_are_not_allowed(change: dict[str, object]) -> None:
    question = LloydSums(ranges=Ranges([0.0, 0.0], [1.0, 1.0], 8), centers=np.zeros((1, 2)))
    assert configuration().allows_ranges(question)
    assert not configuration(**change).allows_ranges(question)


AGREED = Configuration(protocol="plain", algorithm="", clients=("a", "b"), n_features=2)


def test_every_question_within_a_question_must_be_allowed() -> None:
    ranges = Ranges([-1.0, -1.0], [1.0, 1.0], 30)
    steps = WeightedCentroids(ranges=ranges, centers=np.zeros((2, 2)), local_iter=3)
    moved = LocalMovements(ranges=ranges, radius=1.0, steps=steps)
    paid = Noised(
        ranges=ranges,
        inner=ClientShares(ranges=ranges, inner=moved, rows=1.0),
        sigma=np.full(3, 9.0),
        limits=np.ones(3),
    )
    names = frozenset({"Noised", "ClientShares", "LocalMovements", "WeightedCentroids"})
    assert ClientPolicy(questions=names).refuses_question(paid, AGREED) is None
    for name in names:
        assert ClientPolicy(questions=names - {name}).refuses_question(paid, AGREED) == "policy:question"


def test_every_question_within_a_question_must_have_the_ranges_of_the_policy() -> None:
    ranges, wide = Ranges([-1.0, -1.0], [1.0, 1.0], 30), Ranges([-9.0, -9.0], [9.0, 9.0], 10**6)
    inner = RelativeSums(ranges=wide, centers=np.zeros((2, 2)), radius=1.0)
    asked = ClientLengths(ranges=ranges, inner=inner, rows=2.0)
    assert ClientPolicy().refuses_question(asked, AGREED) is None
    assert ClientPolicy(domain=Box(-1, 1)).refuses_question(asked, AGREED) == "policy:ranges"


@pytest.mark.parametrize(
    "other",
    [
        Ranges([-9.0, -1.0], [1.0, 1.0], 30),
        Ranges([-1.0, -1.0], [1.0, 9.0], 30),
        Ranges([-1.0, -1.0], [1.0, 1.0], 10**6),
    ],
)
def test_local_steps_have_the_ranges_of_their_movements(other: Ranges) -> None:
    steps = WeightedCentroids(ranges=other, centers=np.zeros((2, 2)), local_iter=3)
    with pytest.raises(ArgumentError, match="ranges of their local steps"):
        LocalMovements(ranges=Ranges([-1.0, -1.0], [1.0, 1.0], 30), radius=1.0, steps=steps)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.5), (-1.5, 1.0), (-1.0, 0.5), (-0.5, 1.0)])
def test_ranges_have_both_ends_of_the_policy(low: float, high: float) -> None:
    asked = Inertia(ranges=Ranges([low, low], [high, high], 30), centers=np.zeros((2, 2)))
    assert ClientPolicy(domain=Box(-1, 1)).refuses_question(asked, AGREED) == "policy:ranges"
    same = Inertia(ranges=Ranges([-1.0, -1.0], [1.0, 1.0], 30), centers=np.zeros((2, 2)))
    assert ClientPolicy(domain=Box(-1, 1)).refuses_question(same, AGREED) is None
