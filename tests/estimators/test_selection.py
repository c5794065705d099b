"""select_n_clusters: any algorithm, any index, any rule, over one query path."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import davies_bouldin_score

import privfed
from privfed import Box, DWFKMeans, Simulation, metrics, select_n_clusters
from privfed.core.record.records import FILE, Asked, Ended, Exchanged, Summed
from privfed.core.record.transcript import Transcript
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, DataError, NotEnoughClientsError, ResumeError, RunFolderError
from privfed.estimators.choosing import INDICES, chosen, elbow_heights
from privfed.estimators.registry import SHORT
from privfed.federation.clients import gather
from tests.default_run import covering, slow, slow_but
from tests.some import some

Clients = list[np.ndarray]
SUMS = pytest.mark.parametrize("over", ["plain", "masked"])


@pytest.fixture(scope="module")
def five() -> Clients:
    """Return six clients, each with rows of three of five tight blobs."""
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0], [30.0, 5.0]])
    return [
        np.concatenate([rng.normal(means[j], 0.5, size=(20, 2)) for j in rng.choice(5, 3, replace=False)])
        for _ in range(6)
    ]


# --- what is chosen ---


@pytest.mark.parametrize(
    ("index", "over"),
    covering(["davies_bouldin", "simplified_silhouette", "calinski_harabasz"], ["plain", "masked"]),
)
@pytest.mark.few(1)
def test_the_number_of_blobs_is_found(five: Clients, index: str, over: str) -> None:
    found = select_n_clusters(five, range(2, 8), index=index, protocol=over)
    assert found.n_clusters == 5
    assert found.rule == INDICES.find(index).rule
    assert [row.n_clusters for row in found.table] == list(range(2, 8))


@pytest.mark.parametrize(
    "name", slow_but(sorted(set(SHORT) - {"dp"}), "ewf")
)  # tests/estimators/test_private.py has "dp"
def test_every_named_algorithm_can_be_judged_by_every_index(five: Clients, name: str) -> None:
    words = {"protocol": "plain", "domain": Box(-5, 40), "max_iter": 15}
    # A mixture asks for its likelihood, and not for distances.
    for index in some(set(INDICES) - {"inertia" if name == "mixture" else "bic"}):
        found = select_n_clusters(five, [2, 3, 5], estimator=name, index=index, **words)
        assert all(np.isfinite(row.index) for row in found.table), (name, index)
        assert found.estimator.cluster_centers_.shape == (found.n_clusters, 2)


def test_the_index_of_the_table_is_that_of_the_pooled_rows(five: Clients) -> None:
    found = select_n_clusters(five, [2, 4, 5])
    for row, model in zip(found.table, found.models, strict=True):
        labels = np.concatenate(model.labels_)
        if row.n_clusters != 5:
            continue
        # At convergence the centers are the means, so that it is scikit-learn's.
        assert row.index == pytest.approx(davies_bouldin_score(np.concatenate(five), labels), rel=1e-9)
    assert found.table[0].index == pytest.approx(
        metrics.davies_bouldin(five, found.models[0].cluster_centers_, protocol="plain"), rel=1e-9
    )


def test_models_are_those_of_the_estimator_itself(five: Clients) -> None:
    found = select_n_clusters(
        five, [5, 3, 3], estimator=DWFKMeans(9, local_iter=2), protocol="plain", n_init=2
    )
    assert [model.n_clusters for model in found.models] == [3, 5]
    for model in found.models:
        assert (model.local_iter, model.n_init, model.protocol) == (2, 2, "plain")
        alone = DWFKMeans(model.n_clusters, local_iter=2, n_init=2, protocol="plain").fit(five)
        np.testing.assert_array_equal(model.cluster_centers_, alone.cluster_centers_)
    assert found.estimator is found.models[1]


def test_lloyd_is_dwf_with_one_local_step(five: Clients) -> None:
    found = select_n_clusters(five, [3], estimator="lloyd", protocol="plain")
    assert found.estimator.local_iter == 1
    assert select_n_clusters(five, [3], estimator="dwf", protocol="plain").estimator.local_iter == 5


@pytest.mark.parametrize("over", ["plain", slow("masked")])
def test_a_function_can_be_the_index(five: Clients, over: str) -> None:
    def spread(federation: Any, centers: np.ndarray) -> float:
        return metrics.inertia(federation, centers) * len(centers) ** 2

    found = select_n_clusters(five, range(2, 8), index=spread, rule="minimum", protocol=over)
    assert (found.index, found.n_clusters) == ("spread", 5)
    assert found.table[0].index == pytest.approx(4 * found.table[0].inertia, rel=1e-6)


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_an_index_without_a_value_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two rows in all but one place: from three clusters on, some centers have no rows of their own.
    clients = [np.array([[0.0], [0.0], [9.0]]) for _ in range(3)]
    found = select_n_clusters(clients, [2, 3], index="calinski_harabasz", protocol="plain")
    assert found.table[0].index == 1.0
    same = [np.zeros((3, 1)) for _ in range(3)]
    with pytest.raises(ArgumentError, match="the index has a value for 0 of 2 numbers"):
        select_n_clusters(same, [2, 3], protocol="plain")


def test_a_table_with_groups(five: Clients) -> None:
    rows, groups = np.concatenate(five), np.repeat(list("abcdef"), [len(one) for one in five])
    found = select_n_clusters(rows, [4, 5], groups=groups)
    assert found.estimator.transcript_.configuration.clients == tuple("abcdef")
    assert found.estimator.labels_.shape == (len(rows),)
    named = select_n_clusters(gather(five, names=list("abcdef")), [4, 5])
    assert named.to_dict() == found.to_dict()


# --- the range ---


@pytest.mark.parametrize("over", ["plain", slow("masked")])
def test_without_a_range_clients_are_asked_how_many_they_find(five: Clients, over: str) -> None:
    found = select_n_clusters(five, protocol=over)
    assert found.local is not None and found.local.clients[2] == 6
    assert [row.n_clusters for row in found.table] == [3, 4, 5, 6]
    assert found.n_clusters == 5
    assert found.to_dict()["local_clusters"] == [0, 0, 6, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("numbers", "words", "message"),
    [
        (5, {}, "range must hold numbers of clusters"),
        ("2345", {}, "range must hold numbers of clusters"),
        ([], {}, "range must hold 1 or more"),
        ([1, 2], {}, r"range must hold integers of at least 2, got \[1, 2\]"),
        ([2, 2.5], {}, "range must hold integers"),
        ([2, 3], {"rule": "elbow"}, "range must hold 3 or more"),
        ([2, 3], {"index": "inertia"}, "range must hold 3 or more"),
        ([2, 400], {}, "range goes up to 400 clusters, more than the 360 rows"),
        ([400], {}, "n_clusters=400 is more than"),
        ([2, 3], {"rule": "best"}, "rule must be"),
        ([2, 3], {"rule": "maximum"}, "davies_bouldin is chosen by its minimum, or by its elbow"),
        ([2, 3, 4], {"rule": "minimum", "index": "inertia"}, "inertia is chosen by its elbow"),
        ([2, 3], {"index": "dunn"}, "index must be one of davies_bouldin"),
        ([2, 3], {"index": lambda federation, centers: 0.0}, "needs a rule"),
        ([2, 3], {"estimator": "kmeans"}, "estimator must be one of DPKMeans, DWFKMeans"),
        ([2, 3], {"estimator": DWFKMeans}, "estimator must be one that clusters rows"),
        ([2, 3], {"n_clusters": 3}, "DWFKMeans takes no n_clusters= here; leave it out"),
        ([2, 3], {"speed": 3, "n_int": 2}, "takes no n_int=, speed= here"),
        ([2, 3], {"privacy": 1.0}, "privacy must be None"),
        ([2, 3], {"tol": -1.0}, "tol must be"),
        ([2, 3], {"resume": True}, "resume needs run_dir"),
    ],
)
def test_bad_words_are_an_error(five: Clients, numbers: Any, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        select_n_clusters(five, numbers, **{"protocol": "plain", **words})


def test_clients_of_few_rows_need_a_range() -> None:
    with pytest.raises(DataError, match="pass the range"):
        select_n_clusters([np.zeros((3, 2)), np.ones((3, 2))], protocol="plain")


# --- rules ---


def test_an_elbow_is_where_the_curve_bends_most() -> None:
    assert chosen([2, 3, 4, 5, 6], [100.0, 40.0, 10.0, 9.0, 8.0], "elbow") == 4
    assert chosen([2, 3, 4, 5, 6], [0.1, 0.5, 0.9, 0.91, 0.92], "elbow", rising=True) == 4
    # Figure 2 of Satopaa et al.: y = -1 / (x + 0.1) + 5, whose knee they give as 0.22.
    x = np.linspace(0.0, 1.0, 10)
    tenths = [round(1000 * value) for value in x]
    assert chosen(tenths, (-1 / (x + 0.1) + 5).tolist(), "elbow", rising=True) == 222


def test_numbers_need_not_be_in_even_steps() -> None:
    assert chosen([2, 3, 4, 16], [16.0, 9.0, 6.0, 2.0], "elbow") == 4
    assert chosen([2, 3, 4, 5], [16.0, 9.0, 6.0, 2.0], "elbow") == 3


def test_a_straight_or_flat_curve_has_its_elbow_at_the_first_number() -> None:
    assert chosen([2, 3, 4], [3.0, 2.0, 1.0], "elbow") == 2
    assert chosen([2, 3, 4], [1.0, 1.0, 1.0], "elbow") == 2


def test_of_equal_values_the_smallest_number_is_chosen_and_missing_ones_are_passed_over() -> None:
    nan = float("nan")
    assert chosen([2, 3, 4, 5], [nan, 1.0, 0.5, 0.5], "minimum") == 4
    assert chosen([2, 3, 4, 5], [nan, 1.0, 1.0, 0.5], "maximum") == 3
    assert chosen([2, 3, 4, 5, 6], [nan, 9.0, 2.0, 1.0, 0.5], "elbow") == 4
    with pytest.raises(ArgumentError, match="a value for 2 of 3 numbers"):
        chosen([2, 3, 4], [nan, 1.0, 0.5], "elbow")


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=9),
    st.sampled_from([0.5, 2.0, 1024.0]),
    st.booleans(),
)
def test_the_elbow_does_not_depend_on_the_unit_of_the_index(
    values: list[float], unit: float, rising: bool
) -> None:
    numbers = list(range(2, 2 + len(values)))
    scaled = elbow_heights(numbers, [unit * value for value in values], rising=rising)
    np.testing.assert_allclose(scaled, elbow_heights(numbers, values, rising=rising), atol=1e-9)


# --- the result ---


def test_the_result_can_be_printed_and_written_down(five: Clients) -> None:
    found = select_n_clusters(five, [2, 5, 6], protocol="plain")
    lines = str(found).splitlines()
    assert lines[0].split() == ["K", "davies_bouldin", "inertia", "rounds", "sums", "bytes"]
    assert [line.split()[0] for line in lines[1:4]] == ["2", "5", "6"]
    assert lines[2].endswith("<") and not lines[1].endswith("<")
    assert lines[-1] == "5 clusters: minimum of davies_bouldin"
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert written["n_clusters"] == 5 and written["rule"] == "minimum" and written["local_clusters"] is None
    assert written["table"][1] == dataclasses.asdict(found.table[1])
    missing = dataclasses.replace(found, table=(dataclasses.replace(found.table[0], index=np.nan),))
    assert missing.to_dict()["table"][0]["index"] is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.n_clusters = 3  # type: ignore[misc]


def test_rows_count_what_was_sent_for_the_fit_and_the_index(five: Clients) -> None:
    found = select_n_clusters(five, [2, 5])
    for row, model in some(zip(found.table, found.models, strict=True)):
        traffic = model.federation_.traffic
        assert row.bytes == sum(traffic.down.values()) + sum(traffic.up.values())
        asked = model.transcript_.of(Asked)
        assert row.sums == len(asked) and asked[-1].purpose == "index"
        assert (row.rounds, row.inertia) == (model.n_iter_, model.inertia_)


def test_plain_and_masked_give_the_same_table(five: Clients) -> None:
    plain, masked = (select_n_clusters(five, range(4, 6), protocol=over) for over in ("plain", "masked"))
    for one, other in some(zip(plain.table, masked.table, strict=True)):
        assert one.index == pytest.approx(other.index, rel=1e-6)
        assert one.rounds == other.rounds


# --- a federation ---


@pytest.mark.parametrize("over", ["plain", slow("masked")])
def test_a_fitted_federation_can_be_asked(five: Clients, over: str) -> None:
    model = DWFKMeans(4, protocol=over).fit(five)
    found = select_n_clusters(model.federation_, range(2, 7))
    fresh = select_n_clusters(five, range(2, 7), protocol=over)
    assert found.n_clusters == fresh.n_clusters == 5
    for one, other in zip(found.models, fresh.models, strict=True):
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
        # Each fit is an agreement of its own, with the same clients.
        assert one.federation_ in model.federation_.others and not hasattr(one, "labels_")
        np.testing.assert_array_equal(one.predict(five[0]), other.predict(five[0]))
    assert sum(row.sums for row in found.table) == sum(row.sums for row in fresh.table)
    # The federation's own result stays: that of the fit that it was opened for.
    (ended,) = model.transcript_.of(Ended)
    np.testing.assert_array_equal(ended.result["centers"].to_numpy(), model.cluster_centers_)


def test_a_federation_without_a_range(five: Clients) -> None:
    model = DWFKMeans(4, protocol="plain").fit(five)
    found = select_n_clusters(model.federation_)
    assert [row.n_clusters for row in found.table] == [3, 4, 5, 6] and found.n_clusters == 5


def test_a_federation_keeps_its_own_words(five: Clients) -> None:
    model = DWFKMeans(4, protocol="plain").fit(five)
    with pytest.raises(ArgumentError, match="a federation keeps its own domain, protocol"):
        select_n_clusters(model.federation_, [2, 3], protocol="masked", domain=Box(-5, 40))


# --- a folder ---


@pytest.mark.slow
def test_each_number_has_its_own_folder_and_a_stopped_selection_goes_on(
    five: Clients, tmp_path: Path
) -> None:
    words: dict[str, Any] = {"run_dir": tmp_path / "s", "random_state": 3}
    stops = Simulation(faults=[Fault(i, "collect", sums=frozenset({7})) for i in range(6)])
    whole = select_n_clusters(five, range(2, 7), random_state=3)
    with pytest.raises(NotEnoughClientsError):
        select_n_clusters(five, range(2, 7), engine=stops, **words)
    begun = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert begun == ["k002", "k003", "k004", "k005", "k006"]
    last = tmp_path / "s" / "k006" / FILE
    assert not Transcript.load(last.parent).of(Ended)
    with pytest.raises(RunFolderError):
        select_n_clusters(five, range(2, 7), **words)
    # A fit that was cut off within its first line begins anew, others where they were.
    (tmp_path / "s" / "k005" / FILE).write_bytes(b'{"type":"Beg')
    summed = len(Transcript.load(last.parent).of(Summed))
    again = select_n_clusters(five, range(2, 7), resume=True, **words)
    assert [row.index for row in again.table] == [row.index for row in whole.table]
    for one, other in zip(again.models, whole.models, strict=True):
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert summed == 6 and again.table[-1].sums > 6
    exchanged = len(again.models[-1].transcript_.of(Exchanged))
    assert select_n_clusters(five, range(2, 7), resume=True, **words).to_dict() == again.to_dict()
    assert len(again.models[-1].transcript_.of(Exchanged)) == exchanged
    with pytest.raises(ResumeError):
        select_n_clusters(five, range(2, 7), resume=True, max_iter=7, **words)
    with pytest.raises(ResumeError):
        select_n_clusters(five, range(2, 7), resume=True, index="simplified_silhouette", **words)


def test_the_names_are_exported() -> None:
    assert privfed.select_n_clusters is select_n_clusters
    assert {"FederatedScaler", "SelectionResult", "select_n_clusters"} <= set(privfed.__all__)
