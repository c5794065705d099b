import math
from itertools import product

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from privfed.deep.clustering import clusterings
from privfed.deep.clustering.clusterings import (
    QUANTILES,
    Propagation,
    SplitRule,
    bipartition,
    cosine_similarities,
)
from privfed.deep.clustering.distances import distances_to, dunn_index, outdated, update_distances
from privfed.deep.clustering.sketch import sketch_size, sketched
from privfed.errors import ArgumentError
from tests.raised import parameter_refused
from tests.reference import dcfl_reference as reference


def three_groups(seed: int = 0, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    goals = rng.normal(size=(3, size)) * 3.0
    starts = np.zeros((12, size))
    return starts, np.repeat(goals, 4, axis=0) + rng.normal(size=(12, size)) * 0.1


TRUE = np.repeat([0, 1, 2], 4)


def test_the_dunn_index_is_that_of_its_definition() -> None:
    starts, ends = three_groups()
    found = update_distances(starts, ends)
    right, wrong = dunn_index(found, TRUE), dunn_index(found, np.arange(12) % 3)
    assert right == pytest.approx(reference.dunn(found, TRUE.tolist()))
    assert right > 1.0 > wrong
    assert not outdated(found, TRUE, 3) and outdated(found, np.arange(12) % 3, 3)


def test_the_dunn_index_of_what_the_paper_leaves_open() -> None:
    found = update_distances(*three_groups())
    assert dunn_index(found, np.zeros(12, dtype=int)) == 0.0
    assert dunn_index(found, np.arange(12)) == math.inf
    assert dunn_index(np.zeros((2, 2)), np.array([0, 1])) == 0.0
    assert outdated(found, np.zeros(12, dtype=int), 1)
    assert not outdated(found, np.zeros(12, dtype=int), 2)


@pytest.mark.parametrize("similarity", ["negative", "negative-squared"])
def test_affinity_propagation_finds_what_messages_one_by_one_find(similarity: str) -> None:
    starts, ends = three_groups(1)
    distances = update_distances(starts, ends)
    found = Propagation(similarity=similarity, preference_quantile=0.5).cluster(distances)  # type: ignore[arg-type]
    assert found is not None
    expected = reference.affinity(-distances if similarity == "negative" else -(distances**2))
    same = np.equal.outer(found.labels, found.labels)
    assert (same == np.equal.outer(expected, expected)).all()
    assert (same == np.equal.outer(TRUE, TRUE)).all()


@pytest.mark.parametrize("seed", range(4))
def test_of_the_quantiles_that_are_tried_the_clusters_have_the_highest_dunn_index(seed: int) -> None:
    """Pairs of near clusters, which the median of all similarities does not always tell apart."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(6), 4)
    middles = np.repeat(6.0 * rng.normal(size=(3, 4)), 2, axis=0) + rng.normal(size=(6, 4))
    ends = middles[true] + 0.05 * rng.normal(size=(24, 4))
    distances = update_distances(np.zeros_like(ends), ends)
    found = Propagation().cluster(distances)
    assert found is not None and 1 < len(found.exemplars) < 24
    for one in QUANTILES:
        other = Propagation(preference_quantile=one).cluster(distances)
        if other is not None and len(other.exemplars) < 24:
            assert dunn_index(distances, found.labels) >= dunn_index(distances, other.labels)


@pytest.mark.parametrize("seed", range(6))
def test_true_clusters_are_a_candidate_where_pairs_have_the_highest_dunn_index(seed: int) -> None:
    """Clients of four kinds pair up by chance: who holds rows out chooses among all of these."""
    rng = np.random.default_rng(seed)
    pairs = 2.0 * rng.normal(size=(4, 30))[np.arange(12) % 4] + rng.normal(size=(12, 30))
    ends = np.repeat(pairs, 2, axis=0) + 0.3 * rng.normal(size=(24, 30))
    distances, true = update_distances(np.zeros_like(ends), ends), np.repeat(np.arange(12) % 4, 2)
    first, found = Propagation().cluster(distances), Propagation().candidates(distances)
    assert first is not None and len(first.exemplars) == 12
    numbers = [len(one.exemplars) for one in found]
    assert numbers == sorted(numbers)
    assert any(len(np.unique(true * 24 + one.labels)) == len(one.exemplars) == 4 for one in found)


def test_the_nearest_exemplar_tells_each_client_its_cluster() -> None:
    rng = np.random.default_rng(2)
    starts, ends = rng.normal(size=(2, 30, 5))
    found = Propagation(damping=0.9).cluster(update_distances(starts, ends))
    assert found is not None
    chosen = found.exemplars
    for i in range(30):
        apart = distances_to(starts[chosen], ends[chosen], starts[i], ends[i], "complete")
        assert apart.argmin() == found.labels[i]


def test_what_does_not_converge_is_no_clustering_and_what_is_alike_is_one_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n in (1, 2, 5):
        alike = Propagation().cluster(np.ones((n, n)) - np.eye(n))
        assert alike is not None and alike.labels.tolist() == [0] * n
    starts, ends = three_groups()
    monkeypatch.setattr(clusterings, "MOST_STEPS", 2)
    assert Propagation().cluster(update_distances(starts, ends)) is None


@pytest.mark.parametrize("words", [{"damping": 0.4}, {"similarity": "cosine"}, {"preference_quantile": 1.5}])
def test_words_of_affinity_propagation_are_checked(words: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Propagation(**words)  # type: ignore[arg-type]


def crossing(similarities: np.ndarray, halves: np.ndarray) -> float:
    return float(similarities[np.ix_(halves == 0, halves == 1)].max())


def test_single_linkage_makes_the_greatest_similarity_across_as_small_as_any_split() -> None:
    for seed in range(10):
        found = cosine_similarities(np.random.default_rng(seed).normal(size=(7, 3)))
        halves = bipartition(found, "single")
        splits = [np.array((0, *rest)) for rest in product((0, 1), repeat=6) if any(rest)]
        best = min(crossing(found, split) for split in splits)
        assert crossing(found, halves) == pytest.approx(best)


def test_complete_linkage_splits_as_the_reference_does() -> None:
    for seed in range(10):
        found = cosine_similarities(np.random.default_rng(seed).normal(size=(9, 4)))
        oracle = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
        reference_labels = oracle.fit(-found).labels_
        halves = bipartition(found, "complete")
        assert (np.equal.outer(halves, halves) == np.equal.outer(reference_labels, reference_labels)).all()


def test_a_split_has_two_halves_whatever_is_tied() -> None:
    for n in (2, 3, 5):
        assert sorted(set(bipartition(np.ones((n, n))).tolist())) == [0, 1]


def test_a_cluster_is_split_where_it_rests_but_its_members_do_not() -> None:
    rule = SplitRule(split_mean_norm=0.4, split_max_norm=1.6, split_after=20)
    opposed = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    assert rule.halves(opposed, 21) is not None
    for rests in ((opposed, 20), (opposed[:2], 21), (opposed / 4.0, 21), (opposed + 1.0, 21)):
        assert rule.halves(*rests) is None


def test_the_mean_of_a_cluster_that_rests_weighs_members_as_averages_do() -> None:
    rule = SplitRule(split_mean_norm=0.1, split_max_norm=0.5, split_after=0)
    updates = np.diag([1.0, -1.0, 0.0])[:, :2]
    updates[1] = -3.0 * updates[0]  # The mean rests where the first weighs three times as much.
    assert rule.halves(updates, 1) is None
    assert rule.halves(updates, 1, np.array([3.0, 1.0, 5.0])) is not None
    assert rule.halves(updates, 1, np.zeros(3)) is None


def test_a_cluster_is_split_by_no_noise_of_a_known_variance_but_by_more() -> None:
    rng, rule = np.random.default_rng(0), SplitRule(split_mean_norm=0.5, split_max_norm=0.5, split_after=0)
    noise = 0.2 * rng.normal(size=(20, 400))
    apart = np.zeros((20, 400))
    apart[:, 0] = np.where(np.arange(20) < 10, 2.0, -2.0)
    assert rule.halves(noise, 1, variance=0.04) is None
    found = rule.halves(apart + noise, 1, variance=0.04)
    assert found is not None and np.array_equal(found, np.arange(20) >= 10)
    assert rule.halves(apart + noise, 1) is None  # Noise alone is longer than a cluster that rests.


def test_a_cluster_is_split_where_its_halves_are_gamma_max_apart() -> None:
    """Of updates at angles 0, 10, 90 and 100 degrees, the nearest pair across is 80 degrees apart."""
    angles = np.deg2rad([0.0, 10.0, 90.0, 100.0])
    updates = np.column_stack([np.cos(angles), np.sin(angles)])
    apart = math.sin(np.deg2rad(80.0) / 2.0)  # sqrt((1 - cos v) / 2) is sin(v / 2).
    found = [
        SplitRule(split_mean_norm=9.0, split_max_norm=0.0, split_after=0, gamma_max=one).halves(updates, 1)
        for one in (0.0, 0.999 * apart, 1.001 * apart)
    ]
    assert found[0] is not None and found[1] is not None and found[2] is None
    assert found[0].tolist() == found[1].tolist() == [0, 0, 1, 1]


def test_sketches_are_linear_and_keep_distances_within_the_stated_error() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(20, 9000))
    size = sketch_size(20, 0.4, 9000)
    assert size == 205
    short = sketched(vectors, size, 5)
    assert np.allclose(sketched(vectors[:1] + vectors[1:2], size, 5), short[:1] + short[1:2])
    pairs = np.triu_indices(20, 1)
    true = np.linalg.norm(vectors[pairs[0]] - vectors[pairs[1]], axis=1) ** 2
    found = np.linalg.norm(short[pairs[0]] - short[pairs[1]], axis=1) ** 2
    assert (np.abs(found / true - 1.0) < 0.4).all()


def test_a_sketch_is_the_same_whatever_is_sketched_beside_it() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(7, 9000)) * 10.0 ** rng.integers(-250, 250, (7, 1))
    vectors[3], vectors[4, 1:] = 0.0, 0.0
    together = sketched(vectors, 700, 5)
    for n, vector in enumerate(vectors):
        assert np.array_equal(sketched(vector[None], 700, 5)[0], together[n])
    assert np.array_equal(sketched(vectors[::-1], 700, 5), together[::-1])
    signs = sketched(np.eye(20, 9000), 700, 5) * np.sqrt(700)
    assert np.allclose(np.abs(signs), 1.0) and abs(signs.mean()) < 0.05
    assert np.allclose(
        sketched(vectors[:, :20] @ np.eye(20, 9000), 700, 5), vectors[:, :20] @ signs / np.sqrt(700)
    )


@pytest.mark.parametrize(("quantile", "least", "most"), [(0.0, 1, 3), (0.5, 3, 3), (0.99, 5, 12)])
def test_a_higher_preference_makes_more_clusters(quantile: float, least: int, most: int) -> None:
    rng = np.random.default_rng(3)
    points = np.repeat([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], 4, axis=0) + rng.normal(size=(12, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    found = Propagation(preference_quantile=quantile).cluster(distances)
    assert found is not None and least <= len(found.exemplars) <= most
    with parameter_refused("preference_quantile"):
        Propagation(preference_quantile=1.5)


def test_a_sketch_as_long_as_the_update_is_the_update() -> None:
    vectors = np.random.default_rng(4).normal(size=(3, 10))
    assert sketched(vectors, sketch_size(20, 0.1, 10), 0) is vectors
