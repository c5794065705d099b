"""Groups of rows over the whole product: what simulated clients send follows from their group tables."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import (
    Box,
    ClientPolicy,
    DPKMeans,
    DWFKMeans,
    FederatedScaler,
    FederatedSummary,
    Privacy,
    metrics,
    select_n_clusters,
)
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.data import ClientTable, ClientTables
from privfed.deep import FedAvg
from privfed.errors import ArgumentError, PrivacyError, PrivFedError
from privfed.federation.clients import gather
from privfed.federation.opening import open_over
from privfed.federation.simulation import KeptGroups
from tests.core.question_examples import EXAMPLES
from tests.raised import parameter_refused
from tests.some import some
from tests.twins import M, twin_clients

POLICY = ClientPolicy(group_size=M)
ANYTHING = ClientPolicy(group_size=M, undeclared=True)
ALGORITHMS = ["dwf", "ewf", "lloyd", "minibatch", "fkm", "kfed", "fuzzy"]


def sent(tables: ClientTables, question: Any) -> list[bytes] | str:
    """Return each client's answer to a question, over sums in which it is seen; or the error."""
    federation = open_over(tables, protocol="plain", policy=ANYTHING, n_clusters=4)
    try:
        total = federation.ask(Ask(question, purpose="test"))
    except PrivFedError as error:
        return str(error)
    assert total.contributions is not None
    shown = total.contributions.values()
    return [b"".join(value.tobytes() for _, value in sorted(one.items())) for one in shown]


@pytest.mark.parametrize("d", [2, 5])
# Noise is the operating system's, and goes with no groups.
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"Noised"}))
@pytest.mark.few(40)
def test_two_tables_with_one_group_table_give_the_same_answer_to_every_question(name: str, d: int) -> None:
    ranges = Ranges(np.full(d, -1.0), np.full(d, 1.0), 40)
    centers = np.random.default_rng(d).uniform(-1, 1, (3, d))
    question = EXAMPLES[name](ranges, centers)
    first, second = twin_clients(d)
    found = sent(first, question)
    assert found == sent(second, question)
    assert isinstance(found, list)


def everything(tables: ClientTables) -> list[Any]:
    """Return all that fits, scalers, metrics and selections send, in order, and the errors they end with."""
    words: dict[str, Any] = {"protocol": "plain", "policy": POLICY}
    scaler = FederatedScaler(**words).fit(tables)
    scaled = scaler.transform(tables)
    found = [scaler.transcript_, FederatedSummary(bins=4, **words).fit(tables).transcript_]
    for name in ALGORITHMS:
        model = privfed.estimators.base.estimator_of(name, words)
        model.set_params(n_clusters=2, max_iter=4).fit(scaled)
        metrics.score(model.federation_, model.cluster_centers_)
        metrics.labels_agreement(model.federation_, model.cluster_centers_, n_labels=3)
        found += [model.transcript_, *(one.transcript for one in model.federation_.others)]
    chosen = select_n_clusters(scaled, [2, 3], estimator="lloyd", **words)
    found += [model.transcript_ for model in chosen.models]
    return [
        (
            asked.question,
            [value.tobytes() for one in (total.contributions or {}).values() for value in one.values()],
        )
        for transcript in found
        for asked, total in transcript.totals()
    ]


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_two_tables_with_one_group_table_give_the_same_bytes_from_scaling_to_selection() -> None:
    first, second = (everything(tables) for tables in twin_clients())
    assert first == second and len(first) > 60


def test_groups_enter_every_sum_and_no_row_does() -> None:
    tables = twin_clients()[0]
    fitted = DWFKMeans(2, protocol="plain", policy=POLICY, max_iter=1, tol=0).fit(tables)
    groups = KeptGroups.of(tables).grouped(M)
    assert fitted.n_rows_ == sum(sum(one.rows) for one in groups) == 84
    means = np.concatenate([one.expanded().features for one in groups])
    assert metrics.inertia(fitted.federation_, fitted.cluster_centers_) == pytest.approx(
        ((means[:, None] - fitted.cluster_centers_) ** 2).sum(axis=2).min(axis=1).sum()
    )
    rows = np.concatenate(tables.arrays)
    with pytest.warns(UserWarning, match="were in groups of 3, and this call reads single rows"):
        of_rows = metrics.inertia(tables, fitted.cluster_centers_)
    assert of_rows == pytest.approx(
        ((rows[:, None] - fitted.cluster_centers_) ** 2).sum(axis=2).min(axis=1).sum()
    )


def test_labels_are_those_of_the_rows_themselves() -> None:
    tables = twin_clients()[1]
    fitted = DWFKMeans(2, policy=POLICY, max_iter=1, tol=0).fit(tables)
    assert [len(one) for one in fitted.labels_] == [30, 30, 30]
    for labels, rows in some(zip(fitted.labels_, tables.arrays, strict=True)):
        np.testing.assert_array_equal(labels, fitted.predict(rows))


@pytest.mark.parametrize("protocol", ["masked", "masked-verified", "group-masked"])
def test_groups_are_the_same_over_every_sum(protocol: str) -> None:
    tables = twin_clients()[0]
    plain = DWFKMeans(2, protocol="plain", policy=POLICY).fit(tables)
    other = DWFKMeans(2, protocol=protocol, policy=POLICY).fit(tables)
    np.testing.assert_allclose(other.cluster_centers_, plain.cluster_centers_, atol=1e-6)


def test_clients_objects_keep_their_groups_and_a_larger_size_unites_them() -> None:
    tables = twin_clients(labelled=False)[0]
    DWFKMeans(2, policy=POLICY, max_iter=1, tol=0).fit(tables)
    first = KeptGroups.of(tables).grouped(M)
    assert KeptGroups.of(tables).grouped(M) is first
    united = KeptGroups.of(tables).grouped(2 * M)
    for before, after in some(zip(first, united, strict=True)):
        assert min(after.rows) >= 2 * M and sum(after.rows) == sum(before.rows)
    with pytest.warns(UserWarning, match="in groups of 6: group_size=3 changes nothing"):
        assert KeptGroups.of(tables).grouped(M) is united


def test_scaled_clients_have_the_groups_of_the_clients_that_were_scaled() -> None:
    tables = twin_clients()[0]
    scaler = FederatedScaler(policy=POLICY).fit(tables)
    scaled = scaler.transform(tables)
    for own, other in some(zip(*(KeptGroups.of(one).grouped(M) for one in (tables, scaled)), strict=True)):
        expected = scaler._scaled(own.means.to_numpy())
        assert other.means.to_numpy().tobytes() == expected.tobytes() and own.rows == other.rows
    back = scaler.inverse_transform(scaled)
    np.testing.assert_allclose(back.arrays[1], tables.arrays[1], atol=1e-12)
    assert [len(one.rows) for one in KeptGroups.of(back).grouped(M)] == [
        len(one.rows) for one in KeptGroups.of(tables).grouped(M)
    ]


def test_groups_that_are_first_asked_of_scaled_clients_are_those_of_the_raw_rows() -> None:
    tables, others = twin_clients()[0], twin_clients()[0]
    scaler = FederatedScaler("range").fit(tables)
    scaled = scaler.transform(tables)
    found = KeptGroups.of(scaled).grouped(M)
    assert KeptGroups.of(tables).grouped(M) == KeptGroups.of(others).grouped(M)
    assert [one.rows for one in found] == [one.rows for one in KeptGroups.of(others).grouped(M)]


def test_arrays_are_grouped_with_one_warning_a_call() -> None:
    arrays = list(twin_clients()[0].arrays)
    for call in some(
        (
            lambda: DWFKMeans(2, policy=POLICY, max_iter=1, tol=0).fit(arrays),
            lambda: select_n_clusters(arrays, [2, 3], estimator="lloyd", policy=POLICY, max_iter=1, tol=0),
            lambda: metrics.inertia(arrays, np.zeros((1, 2)), policy=POLICY),
            lambda: FederatedScaler(policy=POLICY).fit(arrays),
        )
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [str(one.message)[:31] for one in caught] == ["arrays are grouped anew in each"]


def test_other_rows_have_groups_of_their_own() -> None:
    tables = twin_clients()[0]
    first = KeptGroups.of(tables).grouped(M)
    moved = tuple(replace(one, features=one.features * 2) for one in tables.tables)
    other = KeptGroups.of(replace(tables, tables=moved)).grouped(M)
    assert [one.rows for one in other] == [one.rows for one in first] and other != first


def test_all_rows_of_an_id_are_in_one_group() -> None:
    rows = np.arange(12.0)[:, None]
    ids = tuple("abcabcabcabc")
    tables = ClientTables((ClientTable("a", rows, None, ids), ClientTable("b", rows, None, ids)), ("x",))
    assert [one.members for one in KeptGroups.of(tables).grouped(3)] == [(("a", "b", "c"),)] * 2
    fitted = DWFKMeans(1, policy=POLICY, protocol="plain").fit(tables)
    np.testing.assert_allclose(fitted.cluster_centers_, [[5.5]])


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("init", ["coreset", "nested", "kfed", "random"])
def test_a_client_with_fewer_rows_than_a_group_answers_zeros(name: str, init: str) -> None:
    few = ClientTable("few", np.full((M - 1, 2), 7.0))
    clients = twin_clients(labelled=False)[0].tables
    tables = ClientTables((*clients, few), ("x", "y"))
    estimator = privfed.estimators.base.estimator_of(name, {"protocol": "plain"})
    estimator.set_params(n_clusters=2, init=init, max_iter=3, tol=0, policy=POLICY)
    with pytest.warns(UserWarning, match=f"1 of 4 clients have too few rows for a group of {M}"):
        estimator.fit(tables)
    shown = [total.contributions[3] for _, total in estimator.transcript_.totals()]
    assert shown and all(not value.any() for one in shown for value in one.values())
    assert estimator.n_rows_ == 84


def test_models_are_trained_on_group_means_and_resumed_alike(tmp_path: Path) -> None:
    first, second = twin_clients()
    words: dict[str, Any] = {"n_classes": 3, "rounds": 2, "protocol": "plain", "policy": POLICY}
    found = [FedAvg(**words).fit(tables) for tables in (first, second)]
    assert found[0].models_.tobytes() == found[1].models_.tobytes()
    exact = FedAvg(**words | {"policy": None}).fit(twin_clients()[0])
    assert np.abs(exact.models_ - found[0].models_).max() > 1e-6
    kept = FedAvg(**words, run_dir=tmp_path / "run").fit(first)
    resumed = FedAvg(**words, run_dir=tmp_path / "run").resume(second)
    assert kept.models_.tobytes() == resumed.models_.tobytes()


def test_a_run_is_resumed_with_the_same_groups(tmp_path: Path) -> None:
    first, second = twin_clients()

    def interrupt(index: int, ask: Ask, total: Any) -> None:
        if index == 4:
            raise KeyboardInterrupt

    words: dict[str, Any] = {"n_clusters": 3, "policy": POLICY, "tol": 0, "max_iter": 6}
    with pytest.raises(KeyboardInterrupt):
        DWFKMeans(**words, run_dir=tmp_path / "run").fit_clients(gather(first), watch=interrupt)
    resumed = DWFKMeans(**words, run_dir=tmp_path / "run").resume(second)
    whole = DWFKMeans(**words).fit(first)
    assert resumed.cluster_centers_.tobytes() == whole.cluster_centers_.tobytes()


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_a_group_size_is_a_whole_number_of_at_least_1(size: Any) -> None:
    with parameter_refused("group_size"):
        ClientPolicy(group_size=size)


@pytest.mark.parametrize("noise_seed", [None, 7])
def test_groups_go_with_no_differential_privacy(noise_seed: int | None) -> None:
    privacy = Privacy(
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        neighbours="add-remove",
        domain=Box(-1, 1),
        noise_seed=noise_seed,
    )
    tables = twin_clients()[0]
    with pytest.raises(PrivacyError, match="group_size=3"):
        DPKMeans(2, privacy=privacy, policy=POLICY).fit(tables)
    with pytest.raises(PrivacyError, match="group_size=3"):
        metrics.inertia(tables, np.zeros((1, 2)), privacy=privacy, policy=POLICY)
    with pytest.raises(PrivacyError, match="group_size=3"):
        privfed.FKM(2, privacy=privacy, policy=POLICY).fit(tables)


def test_a_clients_object_brings_names_and_labels_of_its_own() -> None:
    tables = twin_clients()[0]
    for words in some(({"y": [0]}, {"groups": [0]}, {"client_names": ["a"]})):
        with pytest.raises(ArgumentError, match="leave y, groups and names out"):
            DWFKMeans(2).fit(tables, **words)
    fitted = DWFKMeans(2).fit(tables)
    assert fitted.transcript_.configuration.clients == ("0", "1", "2")
    assert len(question_from_bytes(fitted.transcript_.of(Asked)[-1].question).ranges.low) == 2
    assert metrics.accuracy(fitted.federation_, fitted.cluster_centers_, n_labels=3) > 0.4
