"""Agreement with labels, from one summed table, is that of the pooled labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as sklearn_metrics

from privfed import DWFKMeans
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, DataError
from privfed.federation.opening import open_over
from privfed.metrics.asked import AskedMetric
from privfed.questions.lloyd import Contingency, agreement
from privfed.questions.ranges import locate
from tests.reference import dwf_reference as oracle
from tests.undeclared import ANYTHING

Clients = list[np.ndarray]


def asked(model: DWFKMeans, n_labels: int) -> np.ndarray:
    centers = model.cluster_centers_
    federation = model.federation_.for_metric(AskedMetric.of(Contingency, len(centers), n_labels=n_labels))
    ranges = federation.drive(locate(federation.setting, upcoming=(0,))).ranges
    total = federation.ask(Ask(Contingency(ranges=ranges, centers=centers, n_labels=n_labels)))
    return np.rint(total.statistics["table"])


def test_agreement_of_a_fit_is_scikit_learns_on_the_pooled_rows(blobs: Clients, protocol: str) -> None:
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 4, size=len(rows)) * (rows[:, 0] > 3) for rows in blobs]
    model = DWFKMeans(3, max_iter=5, tol=0, protocol=protocol).fit(blobs, labels)
    true, found = np.concatenate(labels), np.concatenate(model.labels_)
    table = asked(model, 4)
    np.testing.assert_array_equal(table, sklearn_metrics.cluster.contingency_matrix(true, found))
    ours = agreement(table)
    assert ours.v_measure == pytest.approx(sklearn_metrics.v_measure_score(true, found))
    assert ours.homogeneity == pytest.approx(sklearn_metrics.homogeneity_score(true, found))
    assert ours.completeness == pytest.approx(sklearn_metrics.completeness_score(true, found))
    assert ours.adjusted_rand_index == pytest.approx(sklearn_metrics.adjusted_rand_score(true, found))
    assert ours.accuracy == pytest.approx(oracle.majority_accuracy(true.tolist(), found.tolist()))


def test_labels_of_a_table_go_to_the_clients_of_their_rows(blobs: Clients, protocol: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.concatenate(blobs))
    labels, groups = (rows[:, 0] > 3).astype(int), rng.integers(0, 7, size=len(rows))
    model = DWFKMeans(3, max_iter=5, tol=0, protocol=protocol).fit(rows, labels, groups=groups)
    expected = sklearn_metrics.cluster.contingency_matrix(labels, model.labels_)
    np.testing.assert_array_equal(asked(model, 2), expected)


@given(arrays(np.int64, (3, 4), elements=st.integers(0, 6)).filter(lambda table: table.sum() > 0))
def test_agreement_depends_on_the_table_only(table: np.ndarray) -> None:
    true, found = (np.repeat(index, table.ravel()) for index in np.indices(table.shape).reshape(2, -1))
    ours = agreement(table.astype(np.float64))
    assert ours.accuracy == pytest.approx(oracle.majority_accuracy(true.tolist(), found.tolist()))
    assert ours.v_measure == pytest.approx(sklearn_metrics.v_measure_score(true, found), abs=1e-12)
    assert ours.homogeneity == pytest.approx(sklearn_metrics.homogeneity_score(true, found), abs=1e-12)
    assert ours.completeness == pytest.approx(sklearn_metrics.completeness_score(true, found), abs=1e-12)
    assert ours.adjusted_rand_index == pytest.approx(sklearn_metrics.adjusted_rand_score(true, found))


def test_a_table_of_more_rows_than_memory_holds_has_scores() -> None:
    few, many = (agreement(n * np.array([[3.0, 1.0], [1.0, 4.0]])) for n in (1e6, 1e15))
    assert many.v_measure == pytest.approx(few.v_measure) and few.v_measure > 0.1
    assert many.adjusted_rand_index == pytest.approx(few.adjusted_rand_index, abs=1e-6)


def test_several_clusters_may_share_a_label() -> None:
    assert agreement(np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]])).accuracy == 6 / 7


def test_table_of_no_rows_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="pass labels to fit"):
        agreement(np.zeros((2, 3)))


def test_clients_without_labels_contribute_zeros(blobs: Clients) -> None:
    ranges = Ranges(np.full(2, -20.0), np.full(2, 20.0), 64)
    question = Contingency(ranges=ranges, centers=np.zeros((3, 2)), n_labels=4)
    total = open_over(blobs, protocol="plain", policy=ANYTHING).ask(Ask(question))
    np.testing.assert_array_equal(total.statistics["table"], np.zeros((4, 3)))


def test_labels_unknown_to_the_question_are_left_out() -> None:
    question = Contingency(ranges=Ranges([0.0], [1.0], 4), centers=np.array([[0.0], [1.0]]), n_labels=2)
    data = ClientData(np.array([[0.0], [1.0], [1.0], [0.0]]), np.array([1, 0, 2, -1]))
    np.testing.assert_array_equal(question.answer(data, np.random.default_rng(0))["table"], [[0, 1], [1, 0]])


def test_labels_must_be_integer_codes(blobs: Clients) -> None:
    with pytest.raises(DataError, match="integer codes"):
        DWFKMeans(3, protocol="plain").fit(blobs, [np.full(len(rows), "a") for rows in blobs])
    with pytest.raises(DataError, match="9 lists of labels do not fit 10 clients"):
        DWFKMeans(3, protocol="plain").fit(blobs, [np.zeros(len(rows), int) for rows in blobs[:9]])
    with pytest.raises(DataError, match="labels do not fit"):
        DWFKMeans(3, protocol="plain").fit(blobs, [np.zeros(2, int) for _ in blobs])
