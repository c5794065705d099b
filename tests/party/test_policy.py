"""What a policy insists on of a fit as a whole: by the agreement and the journal, one code for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, FederatedScaler, Privacy
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.selection import PrivateSelection
from privfed.algorithms.wf_kmeans import WeightedKMeans
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.agreed.policy import MOST_CENTERS, MOST_LOSSES, MOST_SUMS, Claim, Usage
from privfed.core.agreed.program import AgreedProgram, Of
from privfed.core.stored.encoding import CODE
from privfed.core.values.domain import Ranges
from privfed.core.values.guarantee import SampledSteps
from privfed.errors import REMEDIES, ArgumentError, PolicyError, PrivacyError, RefusedError
from privfed.metrics.asked import AskedMetric
from privfed.metrics.named import ASKS, OF_LABELS, following
from privfed.nodes.identity import OwnIdentity
from privfed.privacy.accounting import gdp_epsilon, gdp_mu
from privfed.privacy.filters import Filter, sampled_divergence
from privfed.privacy.ledger import composed_epsilon, refuses_fit
from privfed.questions.cluster_spread import ClusterProfiles
from privfed.questions.lloyd import Inertia, LloydSums
from tests.core.question_examples import EXAMPLES
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import agreement, new_party
from tests.raised import forbidden_by, refused_with


def plain(**words: Any) -> Configuration:
    known = {"protocol": "plain", "algorithm": "", "clients": ("a", "b"), "n_features": 2}
    return Configuration(**{**known, **words})


def private(epsilon: float = 1.0, **changed: Any) -> Configuration:
    configuration = agreement(OwnIdentity.generate("a"), epsilon=min(epsilon, 1.0)).configuration
    assert configuration.privacy is not None
    terms = msgspec.structs.replace(configuration.privacy, **{"epsilon": epsilon, **changed})
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


def claim(epsilon: float, **changed: Any) -> Claim:
    words = {"delta": 1e-6, "unit": "record", "neighbours": "add-remove", "mechanism": "gaussian"}
    return Claim(epsilon=epsilon, **{**words, **changed})


BEFORE = Usage(fits=2, losses=3, claims=(claim(1.0), claim(0.5)))
STEPS = SampledSteps(noise_multiplier=3.0, sample_rate=0.1, max_grad_norm=1.0, steps=10, trainings=5)


def stepped(**changed: Any) -> Claim:
    return claim(1.0, mechanism="dp-sgd", steps=STEPS, **changed)


STEPPED = Usage(fits=1, claims=(stepped(order=8),))

FIT = WeightedKMeans(n_clusters=2)
OF_A_FIT: dict[str, dict[str, Any]] = {name: {} for name in ASKS if name not in OF_LABELS}
OF_A_FIT["accuracy"] = {"n_labels": 3}
FINER = AskedMetric.of(LloydSums, 9)
AFTER: dict[str, AskedMetric] = {
    "another question": AskedMetric.of(LloydSums, 2),
    "more centers": AskedMetric.of(ClusterProfiles, 9),
    "centers of the server's": AskedMetric.about(ClusterProfiles, np.zeros((2, 2))),
    "agreed centers as an option": AskedMetric.of(ClusterProfiles, centers=np.zeros((9, 2))),
}
"""Metrics after a fit that show more than it does, which an owner who approves the fit approves not."""

EIGHT: dict[str, Any] = {"clients": tuple("abcdefgh"), "terms": Terms(honest=3, colluders=2, max_sums=9)}
DRAWN = plain(**EIGHT, cohorts=CohortRule(kind="sampled", size=5, seed=1))
LISTED = plain(**EIGHT, cohorts=CohortRule(kind="schedule", rounds=((0, 1, 2), (3, 4, 5, 6, 7))))

REFUSED: list[tuple[dict[str, Any], Configuration, Usage, str]] = [
    ({"min_clients": 6}, DRAWN, Usage(), "policy:min_clients"),
    ({"min_clients": 4}, LISTED, Usage(), "policy:min_clients"),
    ({"min_honest": 4}, DRAWN, Usage(), "policy:min_honest"),
    ({"min_colluders": 3}, DRAWN, Usage(), "policy:min_colluders"),
    ({"max_sums": 8}, DRAWN, Usage(), "policy:max_sums"),
    ({"fixed_cohorts": True}, DRAWN, Usage(), "policy:cohorts"),
    ({"max_clusters": 1}, lloyd(), Usage(), "policy:max_clusters"),
    ({"max_clusters": 8}, running(NESTED), Usage(), "policy:max_clusters"),
    ({"algorithms": {"OneShotKMeans"}}, lloyd(), Usage(), "policy:algorithm"),
    ({"algorithms": {"OneShotKMeans"}}, ALONE, Usage(), "policy:algorithm"),
    *(
        ({"algorithms": {"WeightedKMeans"}}, running(FIT, one), Usage(), "policy:algorithm")
        for one in AFTER.values()
    ),
    ({"algorithms": {"Inertia"}}, running(FIT, AskedMetric.of(Inertia, 2)), Usage(), "policy:algorithm"),
    ({"protocols": {"masked", "ckks"}}, plain(), Usage(), "policy:protocol"),
    ({"require_privacy": True, "max_epsilon": 1.0}, plain(), Usage(), "policy:privacy"),
    ({"max_epsilon": 1.0}, plain(), Usage(), "policy:privacy"),
    ({"max_epsilon": 1.0, "max_delta": 1e-5}, plain(), Usage(), "policy:privacy"),
    ({"max_epsilon": 1.0}, private(seeded=True), Usage(), "policy:seeded"),
    ({"max_epsilon": 1.0}, private(), Usage(fits=1, unprotected=1), "policy:unprotected"),
    ({"max_epsilon": 0.5}, private(), Usage(), "policy:max_epsilon"),
    ({"require_privacy": True, "max_epsilon": 1.0}, private(1e9), Usage(), "policy:max_epsilon"),
    ({"max_epsilon": 1e9}, private(1e308), Usage(), "policy:max_epsilon"),
    # 1, .5 and 1 are 2.5 if they are added, 1.560 at a total delta of 1e-6 and 1.371 at 1e-5.
    ({"max_epsilon": 1.55, "max_delta": 1e-6}, private(), BEFORE, "policy:max_epsilon"),
    ({"max_epsilon": 1.36}, private(), BEFORE, "policy:max_epsilon"),
    # Less delta needs more epsilon of the same noise.
    ({"max_epsilon": 1.0, "max_delta": 1e-7}, private(), Usage(), "policy:max_epsilon"),
    # Of DP-SGD epsilon and delta are added: of 1e-5 nothing is left.
    ({"max_epsilon": 9.0}, private(), STEPPED, "policy:filter"),
    ({"max_epsilon": 9.0, "max_delta": 2e-5}, private(), STEPPED, "policy:filter"),
    ({"max_epsilon": 9.0, "max_delta": 2e-5, "order": 9}, private(), STEPPED, "policy:filter"),
    ({"max_epsilon": 9.0, "max_delta": 2e-5}, private(steps=STEPS), Usage(), "policy:filter"),
    ({"max_epsilon": 9.0, "max_delta": 2e-5}, private(mechanism="skellam"), Usage(), "policy:filter"),
    ({"max_epsilon": 1.5, "max_delta": 2e-5, "order": 8}, private(), STEPPED, "policy:max_epsilon"),
    ({"units": {"client"}}, private(), Usage(), "policy:unit"),
    ({"neighbours": {"replace-one"}}, private(), Usage(), "policy:neighbours"),
    ({"noise": {"local"}}, private(), Usage(), "policy:noise"),
    ({"max_fits": 2}, plain(), BEFORE, "policy:max_fits"),
    ({"max_fits": 0}, plain(), Usage(), "policy:max_fits"),
    ({"max_losses": 2}, plain(), BEFORE, "policy:max_losses"),
    # A claim of any epsilon lifts no limit.
    ({"units": {"record"}}, private(), BEFORE, "policy:max_losses"),
]

JOINED: list[tuple[dict[str, Any], Configuration, Usage]] = [
    ({"min_clients": 5, "min_honest": 3, "min_colluders": 2, "max_sums": 9}, DRAWN, Usage()),
    ({"min_clients": 3, "fixed_cohorts": True}, LISTED, Usage()),
    ({"algorithms": {"WeightedKMeans"}}, lloyd(), Usage()),
    ({"algorithms": {"Inertia"}}, ALONE, Usage()),
    ({"algorithms": {"WeightedKMeans"}}, running(FIT, *following(2)), Usage()),
    ({"algorithms": {"WeightedKMeans"}}, running(FIT, *following(2, OF_A_FIT)), Usage()),
    ({"algorithms": {"WeightedKMeans", "LloydSums"}}, running(FIT, FINER), Usage()),
    ({"protocols": ["plain"]}, plain(), Usage()),
    ({"require_privacy": True, "max_epsilon": 2.5, "max_delta": 2e-5}, private(), BEFORE),
    ({"max_epsilon": 1.57, "max_delta": 1e-6}, private(), BEFORE),
    ({"max_epsilon": 1.38}, private(), BEFORE),
    ({"max_epsilon": 9.0, "max_delta": 2e-5, "order": 8}, private(), STEPPED),
    ({"max_epsilon": 9.0, "max_delta": 2e-5, "order": 8}, private(steps=STEPS), STEPPED),
    ({"units": {"record"}, "neighbours": ["add-remove"], "noise": ("distributed",)}, private(), Usage()),
    ({"units": {"client"}, "max_losses": 3}, plain(), BEFORE),
    ({"max_fits": 3, "max_losses": 3}, plain(), BEFORE),
]


@pytest.mark.parametrize(("words", "configuration", "given", "code"), REFUSED)
def test_what_a_policy_refuses(
    words: dict[str, Any], configuration: Configuration, given: Usage, code: str
) -> None:
    assert refuses_fit(ClientPolicy(**words), configuration, given) == code
    assert re.fullmatch(CODE, code)


@pytest.mark.parametrize("unread", ["agreed", "given"])
def test_a_claim_that_accounting_cannot_read_is_none_within_a_bound(unread: str) -> None:
    configuration = private(delta=1e-310) if unread == "agreed" else private()
    given = Usage(claims=(claim(1e-6, mechanism="of a later version" if unread == "given" else "gaussian"),))
    assert refuses_fit(ClientPolicy(max_epsilon=100.0), configuration, given) == "policy:max_epsilon"


def test_a_claim_opens_cohorts_that_differ_where_an_owner_bounds_epsilon_and_nowhere_else() -> None:
    """The refusal once named a claim alone as its remedy."""
    private_one = private()
    two = msgspec.structs.replace(private_one, clients=("a", "b"), cohorts=CohortRule(kind="sampled", size=1))
    open_otherwise: dict[str, Any] = {
        "algorithms": None,
        "protocols": None,
        "group_size": 1,
        "max_sums": None,
    }
    assert refuses_fit(ClientPolicy.closed(**open_otherwise), two) == "policy:cohorts"
    assert refuses_fit(ClientPolicy.closed(**open_otherwise, max_epsilon=1.0, max_delta=1e-3), two) is None
    assert refuses_fit(ClientPolicy.closed(**open_otherwise, fixed_cohorts=False), two) is None
    assert all(name in REMEDIES["policy:cohorts"] for name in ("max_epsilon", "fixed_cohorts = false"))


def test_a_closed_policy_bounds_sums_clusters_and_disjoint_sets_of_clients() -> None:
    """Twenty clients in five fits of four lost five clients' rows, where one fit of twenty loses one."""
    names: dict[str, Any] = {"algorithms": None, "protocols": None, "group_size": 1}
    closed = ClientPolicy.closed(8, **names)
    assert (closed.min_clients, closed.max_sums, closed.max_clusters) == (5, MOST_SUMS, MOST_CENTERS)
    terms = Terms(max_sums=MOST_SUMS)
    most = running(WeightedKMeans(n_clusters=MOST_CENTERS), clients=tuple("abcde"), terms=terms)
    assert refuses_fit(closed, most) is None
    changed = msgspec.structs.replace
    assert refuses_fit(closed, changed(most, clients=tuple("abcd"))) == "policy:min_clients"
    assert refuses_fit(closed, changed(most, terms=Terms(max_sums=MOST_SUMS + 1))) == "policy:max_sums"
    more = AgreedProgram.of(WeightedKMeans(n_clusters=MOST_CENTERS + 1))
    assert refuses_fit(closed, changed(most, program=more)) == "policy:max_clusters"
    halves = CohortRule(kind="schedule", rounds=((0, 1, 2, 3), (4, 5, 6, 7)))
    disjoint = changed(most, clients=tuple("abcdefgh"), cohorts=halves)
    assert refuses_fit(closed, disjoint) == "policy:min_clients"
    # An owner who names another number means it, and noise pays for each total.
    assert ClientPolicy.closed(8, min_clients=3).min_clients == 3
    paid = ClientPolicy.closed(8, max_epsilon=1.0)
    assert (paid.min_clients, paid.max_sums, paid.max_clusters) == (1, None, None)
    assert [ClientPolicy.closed(n).min_clients for n in range(6)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("words", "configuration", "given"), JOINED)
def test_what_a_policy_accepts(words: dict[str, Any], configuration: Configuration, given: Usage) -> None:
    assert refuses_fit(ClientPolicy(**words), configuration, given) is None


def test_noise_of_the_server_bounds_nothing_against_the_server() -> None:
    """With a client that tells it totals it takes its noise off; a bound on epsilon had lifted all others."""
    theirs = private(noise="server")
    assert theirs.noised_by_server
    words: dict[str, Any] = {"max_epsilon": 1.0, "max_delta": 1e-3, "algorithms": None, "protocols": None}
    own = ClientPolicy.closed(**words)
    assert refuses_fit(own, theirs) == "policy:noise"
    assert "owners name noise of the server" in str(RefusedError({"a": "policy:noise"}, stage="join"))
    assert refuses_fit(own, private()) is refuses_fit(own, private(noise="local")) is None
    for noise in (["server"], {"server", "local"}, None):
        named = ClientPolicy.closed(**words, noise=noise)
        assert refuses_fit(named, theirs) is None
        assert named.fixed_cohorts and named.most_losses(theirs) == MOST_LOSSES
    assert not own.fixed_cohorts and own.most_losses(private()) is None


def test_a_claim_lifts_no_limit_of_an_owner_who_bounds_no_epsilon() -> None:
    """Of 12 sums with noise of a hundredth row each lost another client, and none was refused."""
    bounded, unbounded = ClientPolicy.closed(max_epsilon=1.0), ClientPolicy.closed(group_size=1)
    for configuration in (private(), private(1e6)):
        assert bounded.most_losses(configuration) is None
        assert unbounded.most_losses(configuration) == MOST_LOSSES
        assert configuration.low is not None and configuration.high is not None
        ends = configuration.low.to_numpy(), configuration.high.to_numpy()
        training = EXAMPLES["SketchedUpdates"](Ranges(*ends, configuration.max_rows or 8), np.stack(ends))
        assert bounded.refuses_question(training, configuration) != "policy:models"
        assert unbounded.refuses_question(training, configuration) == "policy:models"
        allowed = ClientPolicy.closed(group_size=1, models=True)
        assert allowed.refuses_question(training, configuration) != "policy:models"


@pytest.mark.parametrize(
    "words",
    [
        {"max_fits": -1},
        {"max_losses": 1.5},
        {"require_privacy": 1},
        {"require_privacy": True},
        {"max_delta": 1e-5},
        {"order": 8},
        {"max_epsilon": 1.0, "order": 1},
        {"max_epsilon": 1.0, "order": 4097},
        {"max_epsilon": 1.0, "order": 2.5},
        {"max_epsilon": 1.0, "max_delta": 1.0},
        {"max_epsilon": 0.0},
        {"max_epsilon": float("nan")},
        {"max_delta": float("inf")},
        {"max_delta": "1e-5"},
        {"algorithms": "DWFKMeans"},
        {"protocols": "masked"},
        {"units": {"row"}},
        {"neighbours": {"add"}},
        {"noise": {"server "}},
    ],
)
def test_a_wrong_bound_is_an_error_that_names_it(words: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=list(words)[-1].removesuffix("s")):
        ClientPolicy(**words)


@pytest.mark.parametrize("order", [None, 4, 17])
def test_the_hundredth_of_a_bound_may_be_spent_a_hundred_times(order: int | None) -> None:
    policy = ClientPolicy(max_epsilon=3.0, max_delta=1e-3, order=order)
    part = Filter(3.0, 1e-3, order).whole / 100
    one = claim(gdp_epsilon(part**0.5, 1e-6), order=order)
    usage = Usage(claims=(one,) * 99)
    assert refuses_fit(policy, private(one.epsilon, delta=1e-6), usage) is None
    assert refuses_fit(policy, private(one.epsilon * 1.001, delta=1e-6), usage) == "policy:max_epsilon"


@pytest.mark.parametrize("ends", [(0.0, 2.0), (-1.0, 1.0)])
def test_ranges_that_differ_from_the_owners_domain_at_one_end_are_refused(ends: tuple[float, float]) -> None:
    policy = ClientPolicy(domain=Box(0.0, 1.0))
    for (low, high), code in ((ends, "policy:ranges"), ((0.0, 1.0), None)):
        question = LloydSums(ranges=Ranges(np.full(2, low), np.full(2, high), 8), centers=np.zeros((1, 2)))
        assert policy.refuses_question(question, plain()) == code


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_simulated_clients_refuse_a_crafted_program(protocol: str) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(12, 2)) for _ in range(4)]
    policy = ClientPolicy(max_sums=100)
    crafted = DWFKMeans(2, n_init=100, protocol=protocol, policy=policy)
    with refused_with("policy:max_sums"):
        crafted.fit(clients)


def test_the_journal_counts_over_fits_on_the_same_rows(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    policy = ClientPolicy(max_epsilon=0.81, max_delta=1e-6, max_fits=2, max_losses=3)
    first = journal.begin(agreement(own, 0, 0.75), 0, "ward 3", policy)
    with forbidden_by("policy:max_epsilon"):
        journal.begin(agreement(own, 1, 0.5), 0, "ward 3", policy)
    journal.begin(agreement(own, 1, 0.5), 0, "ward 4", policy)
    second = journal.begin(agreement(own, 2, 0.25), 0, "ward 3", policy)
    with forbidden_by("policy:max_fits"):
        journal.begin(agreement(own, 3, 0.01), 0, "ward 3", policy)
    # One that has begun goes on.
    assert journal.begin(agreement(own, 0, 0.75), 0, "ward 3", policy).number == first.number
    first.lost(2, policy.max_losses)
    second.lost(1, policy.max_losses)
    with forbidden_by("policy:max_losses"):
        second.lost(1, policy.max_losses)
    assert journal.usage("ward 3").losses == 3


def test_gaussian_fits_compose_exactly_and_a_renyi_filter_takes_all_noises() -> None:
    five = [claim(1.0)] * 5
    assert composed_epsilon(five, 1e-6) == pytest.approx(2.3997, abs=1e-4)
    assert composed_epsilon(five[:1], 1e-6) == pytest.approx(1.0, rel=1e-9)
    of_order = [claim(1.0, order=10) for _ in range(4)] + [claim(1.0, mechanism="skellam", order=10)]
    assert 2.4 < composed_epsilon(of_order, 1e-6) < 2.7
    # The same by hand: costs a c / 2 of Gaussian noise, and the divergence of the steps.
    costs = [10 * gdp_mu(1.0, 1e-6) ** 2 / 2, sampled_divergence(STEPS, 10)]
    excess = np.log1p(-0.1) - (np.log(1e-6) + np.log(10)) / 9
    both = [claim(1.0, order=10), stepped(order=10)]
    assert composed_epsilon(both, 1e-6) == pytest.approx(sum(costs) + excess, rel=1e-9)


@pytest.mark.parametrize("mechanism", ["skellam", "dp-sgd"])
def test_the_gaussian_filter_bounds_gaussian_noise_alone(mechanism: str) -> None:
    for claims in ([stepped()], [claim(1.0), stepped()], [claim(0.1, mechanism="skellam")]):
        with pytest.raises(PrivacyError):
            composed_epsilon(claims, 1e-5)
    with pytest.raises(PrivacyError):
        composed_epsilon([claim(0.1), claim(0.1, mechanism=mechanism, steps=STEPS, order=8)], 1e-5)


@pytest.mark.parametrize("order", [None, 4, 16, 64])
def test_a_filter_never_takes_more_than_the_whole_claim(order: int | None) -> None:
    """The smaller of two bounds, or one that changes with what was run, would be no filter."""
    rng, kinds = np.random.default_rng(0), ("gaussian",) if order is None else ("gaussian", "skellam")
    bound = Filter(8.0, 1e-5, order)
    for _ in range(30):
        drawn = [
            claim(float(rng.uniform(0.1, 2)), mechanism=str(rng.choice(kinds)), order=order) for _ in range(4)
        ]
        whole = composed_epsilon(drawn, 1e-5)
        assert composed_epsilon(drawn[::-1], 1e-5) == pytest.approx(whole)
        assert composed_epsilon(drawn[:3], 1e-5) <= whole
        cost = sum(bound.cost(one.mechanism, one.epsilon, one.delta) for one in drawn)
        assert (whole <= 8.0) == (cost <= bound.whole)


@pytest.mark.parametrize("other", [{"neighbours": "replace-one"}, {"unit": "client"}, {"unit": "user"}])
@pytest.mark.parametrize("mechanism", ["gaussian", "skellam", "dp-sgd"])
def test_claims_of_several_units_or_neighbours_have_no_epsilon_together(
    other: dict[str, str], mechanism: str, tmp_path: Path
) -> None:
    """Where rows are replaced their number is public: the fit after it tells whether a row is there."""
    both = [claim(0.1), claim(0.1, mechanism=mechanism, **other)]
    for claims in (both, both[::-1]):
        with pytest.raises(PrivacyError):
            composed_epsilon(claims, 1e-5)


def test_a_journal_with_a_bound_refuses_a_second_kind_of_claim(tmp_path: Path) -> None:
    rows = [np.random.default_rng(i).uniform(-1.0, 1.0, (30, 2)) for i in range(4)]
    engine = Elsewhere(tmp_path, rows, ClientPolicy(require_privacy=True, max_epsilon=2.0))
    box = Box(-1, 1, max_rows=64)

    def fit(neighbours: str) -> FederatedScaler:
        small = Privacy(epsilon=0.01, delta=1e-7, unit="record", domain=box, neighbours=neighbours)
        return FederatedScaler("range", privacy=small, engine=engine).fit()

    fit("add-remove")
    with forbidden_by("policy:filter"):
        fit("replace-one")


def test_a_journal_keeps_the_filter_of_its_first_fit(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    gaussian, renyi = (ClientPolicy(max_epsilon=8.0, max_delta=1e-5, order=order) for order in (None, 8))
    journal.begin(agreement(own, 0, 0.5), 0, "ward 3", gaussian)
    journal.begin(agreement(own, 1, 0.5), 0, "ward 4", renyi)
    for seed, rows, policy in ((2, "ward 3", renyi), (3, "ward 4", gaussian)):
        with pytest.raises(PolicyError) as refused:
            journal.begin(agreement(own, seed, 0.5), 0, rows, policy)
        assert str(refused.value) == "policy:filter"
    journal.begin(agreement(own, 4, 0.5), 0, "ward 4", renyi)
    assert [one.order for one in journal.usage("ward 4").claims] == [8, 8]


@pytest.mark.slow
def test_five_fits_on_the_same_rows_are_joined_until_their_composition_exceeds_the_policy(
    tmp_path: Path,
) -> None:
    """Over nodes, from raw rows: five fits of epsilon 1 at a total delta of 1e-6 are 2.40 together."""
    rows = [np.random.default_rng(i).uniform(-1.0, 1.0, (30, 2)) for i in range(4)]
    policy = ClientPolicy(require_privacy=True, max_epsilon=2.4, max_delta=1e-6)
    engine = Elsewhere(tmp_path, rows, policy)
    box = Box(-1, 1, max_rows=64)
    promised = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=box, neighbours="add-remove")

    def fit(seed: int) -> None:
        DPKMeans(2, privacy=promised, protocol="masked", engine=engine, random_state=seed).fit()

    for seed in range(5):
        fit(seed)
    with pytest.raises(PolicyError, match="policy:max_epsilon"):
        fit(5)
    given = engine.party(0).journal.usage("rows")
    assert (given.fits, composed_epsilon(given.claims, 1e-6)) == (5, pytest.approx(2.3997, abs=1e-4))
