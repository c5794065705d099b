"""Probing: a server that chooses its centroids takes clients apart, unless policy or protocol refuse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import ClientPolicy
from privfed.attacks import Oracle, Prior, Probing, Report, Truth, evaluate
from privfed.attacks.probing.probed_sums import CumulativeProfile, joined, pairs
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PolicyError, ProtocolError
from privfed.federation.opening import open_over
from privfed.questions.lloyd import LloydSums
from tests.attacks.figures import mixture, probed
from tests.undeclared import ANYTHING


@pytest.mark.parametrize(("n", "k", "d"), [(100, 10, 2), (60, 5, 3)])
def test_every_row_is_found_in_few_questions(n: int, k: int, d: int) -> None:
    clients, _ = mixture(0, n, d, clients=2)
    report = probed(clients, Probing(k, client=0))
    assert (report.recovered, report.precision, report.linked) == (1.0, 1.0, True)
    assert report.queries <= 1.1 * (n - 1) / (k / 2) + 2


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_of_grouped_rows_it_finds_the_means_and_no_row() -> None:
    clients, _ = mixture(0, 100, 2, clients=2)
    report = probed(clients, Probing(10, client=0), policy=ClientPolicy(group_size=5))
    assert report.recovered == 0.0


def test_rows_that_are_alike_are_found_together() -> None:
    rows = np.repeat(np.array([[0.0, 1.0], [2.0, 2.0], [5.0, -1.0]]), 3, axis=0)
    report = probed([rows, rows + 0.5], Probing(4, client=0))
    assert (report.recovered, report.precision) == (1.0, 1.0)


def test_counts_alone_give_every_row_to_any_precision() -> None:
    clients, _ = mixture(1, 20, 2, clients=2)
    report = probed(clients, Probing(10, client=0, counts_only=True, precision=1e-7), tolerance=1e-5)
    assert (report.recovered, report.precision) == (1.0, 1.0)
    assert report.queries <= 0.9 * 3 * 20 * np.log2(1e7) / 5 + 2


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_one_broadcast_opens_all_rows_through_a_secure_sum(protocol: str) -> None:
    clients, _ = mixture(0, 15, 2, clients=3)
    report = probed(clients, Probing(8), protocol=protocol, tolerance=1e-5)
    assert (report.recovered, report.precision, report.linked) == (1.0, 1.0, False)


def test_totals_are_not_taken_for_one_clients_answers() -> None:
    clients, _ = mixture(0, 15, 2, clients=3)
    assert probed(clients, Probing(8, client=0), protocol="masked").claims == 0


def test_inconsistent_broadcasts_open_one_client_unless_masks_are_bound_to_the_question() -> None:
    clients, _ = mixture(0, 15, 2, clients=3)
    attack = Probing(8, client=2, inconsistent=True)
    assert probed(clients, attack, tolerance=1e-5).recovered == 1.0
    assert probed(clients, attack, protocol="masked", tolerance=1e-5).claims == 0


@pytest.mark.parametrize("protocol", ["group-masked", "ckks", "masked-verified"])
def test_a_server_that_reads_no_totals_or_is_verified_gets_nothing(protocol: str) -> None:
    clients, _ = mixture(0, 15, 2, clients=3)
    report = probed(clients, Probing(8), protocol=protocol)
    assert (report.claims, report.queries) == (0, 0)


def crafted(rounds: int, protocol: str = "masked", **laws: Any) -> Report:
    """Probe clients that agreed on the attack's own program of so many rounds, with their laws on."""
    clients, _ = mixture(0, 15, 2, clients=3)
    attack = Probing(8)
    words: dict[str, Any] = {"algorithm": attack.program(rounds), "n_clusters": 8}
    federation = open_over(clients, protocol=protocol, policy=ClientPolicy(**laws), **words)
    found = attack.run(Oracle(federation, 100), Prior(), np.random.default_rng(0))
    return evaluate(found, Truth(clients, tolerance=1e-5))


def test_a_program_that_the_server_crafts_lets_it_ask_for_every_row_through_a_secure_sum() -> None:
    free, agreed = probed(mixture(0, 15, 2, clients=3)[0], Probing(8), protocol="masked"), crafted(40)
    assert (agreed.recovered, agreed.precision, agreed.queries) == (1.0, 1.0, free.queries)
    # Its rounds bound the questions: the one that is refused is asked in vain.
    few = crafted(4)
    assert few.recovered < 1.0 and few.queries < free.queries


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
@pytest.mark.parametrize(
    ("protocol", "laws"),
    [
        ("masked", {"group_size": 5}),
        ("masked", {"max_sums": 100}),
        ("masked", {"algorithms": frozenset({"MiniBatchKMeans"})}),
        ("masked", {"questions": frozenset({"FeatureRanges"})}),
        ("masked", {"min_clients": 4}),
        ("group-masked", {}),
        ("masked-verified", {}),
    ],
    ids=["groups", "sums", "algorithms", "questions", "clients", "opened", "verified"],
)
def test_the_clients_laws_bound_a_crafted_program(protocol: str, laws: dict[str, Any]) -> None:
    report = crafted(40, protocol, **laws)
    # Of groups means come out; everywhere else nothing is claimed.
    assert np.nan_to_num(report.recovered) == 0.0
    assert (report.claims > 0) == ("group_size" in laws)


SQUARE = Ranges(np.full(2, -20.0), np.full(2, 20.0), 64)


def test_a_budget_is_a_budget() -> None:
    clients, _ = mixture(0, 30, 2, clients=2)
    oracle = Oracle(open_over(clients, protocol="plain", policy=ANYTHING), 2)
    question = LloydSums(ranges=SQUARE, centers=np.eye(2))
    assert oracle.ask(question).answers.keys() == {0, 1}
    assert (oracle.ask(question).index, oracle.left, oracle.asked) == (2, 0, 2)
    with pytest.raises(PolicyError, match="budget of 2"):
        oracle.ask(question)
    assert probed(clients, Probing(4, client=0), budget=7).queries == 7
    with pytest.raises(ArgumentError, match="budget"):
        Oracle(open_over(clients, protocol="plain", policy=ANYTHING), 0)


def test_only_the_target_is_told_the_question() -> None:
    clients, _ = mixture(0, 12, 2, clients=3)
    near, far = np.zeros(2), np.full(2, 90.0)
    question = LloydSums(ranges=SQUARE, centers=np.stack([far, near]))
    decoy = LloydSums(ranges=SQUARE, centers=np.stack([near, far]))
    seen = Oracle(open_over(clients, protocol="plain", policy=ANYTHING), 1).ask(question, decoy, target=1)
    assert {i: own["count"].tolist() for i, own in seen.answers.items()} == {
        0: [12, 0],
        1: [0, 12],
        2: [12, 0],
    }
    with pytest.raises(ProtocolError):
        Oracle(open_over(clients, protocol="masked", policy=ANYTHING), 1).ask(question, decoy, target=1)


@pytest.mark.parametrize("words", [{"n_clusters": 1}, {"inconsistent": True}])
def test_words_out_of_bounds_are_errors(words: dict[str, int]) -> None:
    with pytest.raises(ArgumentError):
        Probing(**words)  # type: ignore[arg-type]


@given(seed=st.integers(0, 2**32 - 1), n_centers=st.integers(2, 9))
def test_pairs_put_borders_where_they_are_wanted(seed: int, n_centers: int) -> None:
    rng = np.random.default_rng(seed)
    targets = np.sort(rng.uniform(-1, 1, rng.integers(1, (n_centers + 1) // 2 + 1)))
    places = pairs(targets, 2.0, n_centers)
    assert len(places) <= n_centers
    assert (np.diff(places) > 0).all()
    borders = (places[:-1] + places[1:]) / 2
    assert np.abs(borders[:, None] - targets).min(axis=0).max() < 1e-12


@given(seed=st.integers(0, 2**32 - 1))
def test_a_staircase_never_says_what_is_not_so(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(-1, 1, 12))
    profile = CumulativeProfile(-1.0, 1.0, 12.0, np.array([values.sum()]))
    for _ in range(4):
        places = pairs(np.sort(rng.uniform(-1, 1, 2)), 2.0, 4)
        cell = np.abs(values[:, None] - places).argmin(axis=1)
        n = len(places)
        counts = np.bincount(cell, minlength=n).astype(float)
        sums = np.array([values[cell == j].sum() for j in range(n)])[:, None]
        profile.learn(places, counts, sums)
    slabs = profile.slabs()
    true = np.histogram(values, slabs.borders)[0]
    np.testing.assert_array_equal(slabs.counts, true)
    np.testing.assert_allclose(slabs.sums.sum(), values.sum())


def test_axes_are_joined_by_mixtures() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 4))
    axes = [np.sort(column) for column in rows.T]
    mixtures = [np.sort(rows[:, 0] + 0.618 * rows[:, j]) for j in range(1, 4)]
    found = joined(axes, mixtures, 0.618, 1e-9)
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], rows[np.argsort(rows[:, 0])])
