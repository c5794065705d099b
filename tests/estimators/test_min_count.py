"""Minimum counts over the whole product: no answer that leaves a client shows a small group of its rows.

Each client holds two groups of 40 rows and one of 3, far from them. Every algorithm, start and metric is
run over plain sums, where each answer is seen, and every answer is looked at.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import Box, ClientPolicy, FederatedScaler, Privacy, metrics, select_n_clusters
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.asking.statistics import Statistics
from privfed.core.record.transcript import Transcript
from privfed.errors import DataError, PrivacyError, PrivFedError, RefusedError
from privfed.estimators.base import FederatedClusterer
from privfed.federation.over import open_over
from privfed.metrics.local_clusters import local_cluster_counts
from privfed.questions.ranges import edges, subdivisions

MIN_COUNT = 10
SMALL = np.array([9.0, 9.0])
DOMAIN = Box(-2.0, 11.0, max_rows=100)


def _rows(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    groups = [([0.0, 0.0], 40), ([4.0, 0.0], 40), (SMALL, 3)]
    return np.concatenate([rng.normal(mean, 0.2, (size, 2)) for mean, size in groups])


CLIENTS = [_rows(seed) for seed in range(3)]
LABELS = [np.repeat([0, 1, 2], [40, 40, 3])] * 3
START = np.array([[0.5, 0.5], [4.0, 1.0], [6.5, 6.5]])
"""The last center is nearest to the small group, and not near to it."""


def shown_means(question: Question, answer: Statistics) -> Iterator[np.ndarray]:
    """Yield the means that whoever sees an answer can form of it: sums by counts, weights or rows."""
    held: dict[str, Any] = dict(answer)
    centers = getattr(question, "centers", np.zeros((1, 2)))
    if "point" in held:
        yield from held["point"][held["weight"] > 0]
    elif "centroid" in held:
        yield from held["centroid"]
    elif "movement" in held:
        kept = held["weight"] > 0
        yield from centers[kept] + held["movement"][kept] / held["weight"][kept, None]
    else:
        pairs = [("count", "sum", 0.0), ("weight", "weighted", 0.0), ("rows", "sum", 0.0)]
        pairs += [("count", "offset", centers), ("rows", "offset", getattr(question, "center", 0.0))]
        for count, total, origin in pairs:
            if count in held and total in held:
                kept = held[count] > 0
                means = held[total].reshape(len(kept), -1)[kept] / held[count][kept, None]
                yield from means + (origin[kept] if np.ndim(origin) == 2 else origin)


def found_in(transcript: Transcript) -> tuple[list[str], set[str]]:
    """Return what answers of a run show of the small group, and the names of the questions."""
    findings, names = [], set()
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        name = type(question).__name__
        names.add(name)
        assert total.contributions is not None and question.declaration is not None
        if 0 < total.clipped < MIN_COUNT * len(CLIENTS):
            findings.append(f"{name}: {total.clipped} rows clipped")
        for answer in total.contributions.values():
            for counts in question.declaration.row_counts:
                few = (answer[counts.entry] > 0) & (answer[counts.entry] < MIN_COUNT)
                findings += [f"{name}: counts {answer[counts.entry]}"] * int(few.any())
            received = getattr(question, "centers", np.empty((0, 2)))
            near = [
                mean
                for mean in shown_means(question, answer)
                # A centroid as it was received tells nothing of rows.
                if np.abs(mean - SMALL).max() < 1.0 and not np.isclose(mean, received).all(axis=1).any()
            ]
            findings += [f"{name}: mean {mean}" for mean in near]
            if "extremes" in answer:
                highest = edges(subdivisions(2))[np.flatnonzero(answer["extremes"].sum(axis=0))[-1]]
                findings += [f"{name}: a value of {highest} or more"] * int(highest > 6.0)
    return findings, names


# --- every algorithm and start ---

STARTS: list[Any] = ["coreset", "kfed", "random", START]
ALGORITHMS: dict[str, list[dict[str, Any]]] = {
    "DWFKMeans": [
        *({"init": init, "local_iter": 3} for init in STARTS),
        {"init": START, "local_iter": 1, "n_init": 2},
        {"init": START, "relocate_empty": True, "restart_score": "client-mean"},
        {"init": "coreset", "clients_per_round": 2, "momentum": 0.3},
    ],
    "EWFKMeans": [{"init": init, "local_iter": 3} for init in STARTS] + [{"init": START, "local_iter": 1}],
    "WFKMeans": [{"init": START, "weights": weights} for weights in ("dynamic", "equal")],
    "FKM": [
        *(
            {"init": init, "merge": merge}
            for init in ["k-means++", *STARTS]
            for merge in ("summed", "gathered")
        ),
        {"init": "k-means++", "min_cluster_size": 1, "merge": "gathered"},
    ],
    "KFED": [
        *({"init": init, "merge": merge} for init in STARTS for merge in ("summed", "gathered")),
        {"local": "kmeans", "n_local_clusters": 4},
    ],
    "FederatedMiniBatchKMeans": [
        {"init": START, "batch_size": 16, "epochs": 2, "client_learning_rate": 0.5},
        *({"init": init} for init in STARTS),
    ],
    "FederatedFuzzyCMeans": [
        *({"init": init, "averaging": average} for init in STARTS for average in ("kmeans", "weighted")),
        {"init": START, "averaging": "weighted", "local_iter": 1},
        {"init": START, "averaging": "weighted", "weight": "u", "m": 1.3},
    ],
}
RUNS = [
    pytest.param(name, words, id=f"{name}-{i}")
    for name, listed in ALGORITHMS.items()
    for i, words in enumerate(listed)
]
SOME_RUNS = [
    pytest.param(name, words, id=f"{name}-{i}", marks=pytest.mark.slow if i else ())
    for name, listed in ALGORITHMS.items()
    for i, words in enumerate(listed)
]
"""By default one run of each algorithm."""


def run(name: str, words: dict[str, Any], policy: ClientPolicy | None, **more: Any) -> Transcript:
    kind = getattr(privfed, name)
    quick = {} if name == "KFED" else {"max_iter": 3, "tol": 0}
    model = kind(3, protocol="plain", policy=policy, random_state=0, **quick, **words, **more)
    try:
        transcript: Transcript = model.fit(CLIENTS).transcript_
    except PrivFedError as error:
        # Without the small clusters there may be too few local centroids: what was said until then counts.
        assert "fewer than n_clusters" in str(error) or "found nothing" in str(error), error
        transcript = model.federation_.transcript
    return transcript


def test_every_algorithm_of_the_product_is_tried() -> None:
    exported = {name: getattr(privfed, name) for name in privfed.__all__}
    kinds = {
        n for n, one in exported.items() if isinstance(one, type) and issubclass(one, FederatedClusterer)
    }
    assert kinds == {*ALGORITHMS, "DPKMeans"}


@pytest.mark.parametrize(("name", "words"), RUNS)
@pytest.mark.few(12)
def test_no_algorithm_and_no_start_shows_a_small_group(name: str, words: Any) -> None:
    findings, names = found_in(run(name, words, ClientPolicy(min_count=MIN_COUNT)))
    assert findings == [] and len(names) > 1


@pytest.mark.parametrize(("name", "words"), SOME_RUNS)
def test_without_the_policy_it_is_found(name: str, words: Any) -> None:
    assert found_in(run(name, words, None))[0]


@pytest.mark.parametrize(("name", "words"), SOME_RUNS)
def test_with_a_domain_and_rounded_counts_neither(name: str, words: Any) -> None:
    policy = ClientPolicy(min_count=MIN_COUNT, count_multiple=7)
    transcript = run(name, words, policy, domain=DOMAIN)
    assert found_in(transcript)[0] == []
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        assert question.declaration is not None and total.contributions
        for answer in total.contributions.values():
            for counts in question.declaration.row_counts:
                shown = answer[counts.entry]
                np.testing.assert_allclose(shown, 7 * np.rint(shown / 7), atol=1e-9)


def test_differential_privacy_and_minimum_counts_exclude_each_other() -> None:
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=DOMAIN, noise_seed=1
    )
    words: dict[str, Any] = {"privacy": privacy, "policy": ClientPolicy(min_count=MIN_COUNT)}
    with pytest.raises(RefusedError, match="policy:coarse"):
        privfed.DPKMeans(3, protocol="plain", **words).fit(CLIENTS)
    for kind in (privfed.FKM, privfed.KFED):
        with pytest.raises(PrivacyError, match="min_count"):
            kind(3, protocol="plain", **words).fit(CLIENTS)


# --- every metric, the scaler, the choice of the number of clusters ---

SILENT = {"knowledge_gap", "silhouette"}
"""They ask no client."""
OF_CENTERS = {"calinski_harabasz", "davies_bouldin", "fuzzy_davies_bouldin", "inertia"}
OF_CENTERS |= {"mean_distance", "score", "simplified_silhouette"}
OF_LABELS = {
    "accuracy",
    "adjusted_rand_index",
    "completeness",
    "homogeneity",
    "labels_agreement",
    "v_measure",
}


def test_every_metric_of_the_product_is_tried() -> None:
    assert set(metrics.__all__) == SILENT | OF_CENTERS | OF_LABELS


@pytest.mark.parametrize("name", sorted(OF_CENTERS | OF_LABELS))
def test_no_metric_shows_a_small_group(name: str) -> None:
    federation = open_over(
        CLIENTS, LABELS, protocol="plain", policy=ClientPolicy(undeclared=True, min_count=MIN_COUNT)
    )
    words = {"n_labels": 3} if name in OF_LABELS else {}
    getattr(metrics, name)(federation, START, **words)
    findings, names = found_in(federation.transcript)
    assert findings == [] and len(names) == 2


@pytest.mark.parametrize("scaling", ["standard", "range"])
def test_no_scaler_shows_a_small_group(scaling: Any) -> None:
    policy = ClientPolicy(min_count=MIN_COUNT)
    scaler = FederatedScaler(scaling, protocol="plain", policy=policy).fit(CLIENTS)
    assert found_in(scaler.transcript_)[0] == []
    assert scaler.data_max_.max() < 6.0


def test_no_choice_of_the_number_of_clusters_shows_a_small_group() -> None:
    words: dict[str, Any] = {"protocol": "plain", "policy": ClientPolicy(min_count=MIN_COUNT)}
    for model in select_n_clusters(CLIENTS, [2, 3], **words).models:
        assert found_in(model.transcript_)[0] == []
    words["policy"] = ClientPolicy(undeclared=True, min_count=MIN_COUNT)
    federation = open_over(CLIENTS, **words)
    local_cluster_counts(federation, most=4)
    assert found_in(federation.transcript)[0] == []


def test_a_start_all_of_whose_cells_are_left_out_says_so() -> None:
    words: dict[str, Any] = {
        "protocol": "plain",
        "policy": ClientPolicy(min_count=80),
        "max_iter": 2,
        "tol": 0,
    }
    with pytest.raises(DataError, match=r"\(min_count\) leaves out cells of few rows; use init=\"random\""):
        privfed.DWFKMeans(2, **words).fit(CLIENTS)
    assert privfed.DWFKMeans(2, init="random", **words).fit(CLIENTS).n_iter_ == 2


def test_a_client_of_few_rows_answers_as_if_it_held_none() -> None:
    clients = [*CLIENTS, CLIENTS[0][: MIN_COUNT - 1]]
    model = privfed.DWFKMeans(2, protocol="plain", policy=ClientPolicy(min_count=MIN_COUNT)).fit(clients)
    for _, total in model.transcript_.totals():
        assert total.contributions is not None
        assert all((array == 0.0).all() for array in total.contributions[3].values())
    assert model.n_rows_ == sum(len(rows) for rows in CLIENTS)
