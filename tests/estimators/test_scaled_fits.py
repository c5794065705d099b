"""Fits on scaled rows: those of scikit-learn's pipeline on the pooled rows, from sums."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import privfed
from privfed import (
    Ball,
    Box,
    ClientPolicy,
    DPKMeans,
    DWFKMeans,
    FederatedScaler,
    Privacy,
    PrivacyBudget,
    Simulation,
    metrics,
)
from privfed.core.record.records import Asked, question_of
from privfed.core.values.guarantee import Mechanism
from privfed.data import ClientTable, ClientTables
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, BudgetError, NotEnoughClientsError
from privfed.estimators.scaling import SHARES, Scaling, scaling_of_run
from privfed.federation.clients import gather
from privfed.privacy.accounting import budget_of
from privfed.privacy.derived import parts
from privfed.questions.histograms import GAUSSIAN_IQR
from privfed.tables import survival
from tests.raised import parameter_refused

RNG = np.random.default_rng(7)
MIDDLES = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 5.0], [0.0, 7.0, 5.0]])
DRAWN = (np.repeat(MIDDLES, 40, axis=0) + RNG.normal(size=(120, 3)))[RNG.permutation(120)]
ROWS = DRAWN * [1, 100, 0.01] + [5, 9, -7]
CLIENTS = np.array_split(ROWS, 4)
START = ROWS[[0, 3, 11]]
BOX = Box((-20, -900, -8), (40, 1500, -6), max_rows=200)
KINDS = pytest.mark.parametrize("kind", ["standard", "range", "robust"])


def lloyd(**words: Any) -> DWFKMeans:
    given = {"local_iter": 1, "init": START, "tol": 0.0, "max_iter": 30, "protocol": "plain", **words}
    return DWFKMeans(3, **given)


def private(**words: Any) -> Privacy:
    declared = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove", "domain": BOX}
    return Privacy(**{**declared, **words})


# --- the numbers ---


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_it_is_the_pooled_pipeline(protocol: str) -> None:
    model = lloyd(scale="standard", protocol=protocol).fit(CLIENTS)
    scaler = StandardScaler().fit(ROWS)
    theirs = KMeans(3, init=scaler.transform(START), n_init=1, tol=0, max_iter=30, algorithm="lloyd")
    pipeline = make_pipeline(scaler, theirs).fit(ROWS)
    np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_, rtol=0, atol=1e-9)
    assert model.predict(ROWS).tolist() == pipeline.predict(ROWS).tolist()
    assert np.concatenate(model.labels_).tolist() == pipeline.predict(ROWS).tolist()
    assert model.scaling_ is not None
    original = scaler.inverse_transform(theirs.cluster_centers_)
    np.testing.assert_allclose(model.scaling_.original(model.cluster_centers_), original, rtol=1e-9)
    np.testing.assert_allclose(model.transform(ROWS), pipeline.transform(ROWS), rtol=0, atol=1e-8)


@KINDS
def test_it_is_a_fit_on_rows_that_a_scaler_has_scaled(kind: Any) -> None:
    model = lloyd(scale=kind, init="coreset").fit(CLIENTS)
    scaler = FederatedScaler(kind, protocol="plain").fit(CLIENTS)
    other = lloyd(init="coreset").fit(scaler.transform(CLIENTS))
    np.testing.assert_allclose(model.cluster_centers_, other.cluster_centers_, rtol=0, atol=1e-9)


def test_a_declared_box_is_mapped_and_nothing_is_asked_for_it(tmp_path: Path) -> None:
    model = lloyd(scale="range", domain=BOX, run_dir=tmp_path).fit(CLIENTS)
    assert not (tmp_path / "scaling").exists()
    theirs = MinMaxScaler().fit(np.stack(BOX.bounds(3)))
    other = lloyd(domain=Box(0.0, 1.0, max_rows=200), init=theirs.transform(START))
    other.fit([theirs.transform(one) for one in CLIENTS])
    np.testing.assert_allclose(model.cluster_centers_, other.cluster_centers_, rtol=0, atol=1e-12)


def test_the_domain_follows_other_scalings() -> None:
    model = lloyd(scale="standard", domain=BOX).fit(CLIENTS)
    assert model.scaling_ is not None
    low, high = BOX.bounds(3)
    last = question_of(model.transcript_.of(Asked)[-1]).ranges
    assert last.rows == BOX.max_rows
    np.testing.assert_allclose(model.scaling_.original([last.low, last.high]), [low, high], atol=1e-9)
    assert model.get_params()["domain"] is BOX


def test_quartiles_are_those_of_the_rows_up_to_a_bin() -> None:
    rng = np.random.default_rng(1)
    rows = np.stack([rng.uniform(-3, 9, 4000), rng.lognormal(size=4000), np.full(4000, 3.0)], axis=1)
    scaler = FederatedScaler("robust", protocol="plain").fit(np.array_split(rows, 3))
    quartiles = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    assert (np.abs(scaler.center_ - quartiles[1])[:2] <= scaler.width_[:2]).all()
    between = quartiles[2] - quartiles[0]
    assert (np.abs(scaler.scale_ - between)[:2] <= 2.0 * scaler.width_[:2]).all()
    assert scaler.scale_[2] == 1.0 and np.isfinite(scaler.transform(rows)).all()


@pytest.mark.parametrize(("kind", "spread"), [("standard", 1.0), ("robust", GAUSSIAN_IQR)])
def test_a_category_counts_as_much_as_a_standardised_number(kind: str, spread: float) -> None:
    codes = np.random.default_rng(2).choice(4, p=[0.6, 0.3, 0.09, 0.01], size=300)
    rows = np.concatenate([ROWS[np.arange(300) % 120][:, :1], 0.7 * np.eye(4)[codes]], axis=1)
    tables = [ClientTable(str(i), one) for i, one in enumerate(np.array_split(rows, 3))]
    clients = ClientTables(tuple(tables), ("a", "w=0", "w=1", "w=2", "w=3"), blocks=((1, 2, 3, 4),))
    model = DWFKMeans(2, scale=kind, protocol="plain", max_iter=1, tol=0).fit(clients)
    assert model.scaling_ is not None
    scaled = model.scaling_.scaled(rows)
    # The mean squared distance of two rows is twice the sum of the variances.
    assert scaled[:, 1:].var(axis=0).sum() == pytest.approx(1.0 / spread**2)
    assert set(model.scaling_.shift[1:]) == {0.0} and len(set(model.scaling_.scale[1:])) == 1


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=4),
    st.floats(-1e6, 1e6),
)
def test_original_is_the_inverse(numbers: list[tuple[float, float]], value: float) -> None:
    shift, scale = zip(*numbers, strict=True)
    one = Scaling("standard", shift, scale)
    rows = np.full((2, len(shift)), value)
    size = np.abs(rows) + np.abs(shift)
    assert (np.abs(one.original(one.scaled(rows)) - rows) <= 1e-12 * size).all()
    assert Scaling.from_dict(one.to_dict()) == one


@pytest.mark.parametrize(
    ("shift", "scale"), [((0.0,), (0.0,)), ((np.nan,), (1.0,)), ((0.0, 1.0), (1.0,)), ((0.0,), (np.inf,))]
)
def test_a_scaling_that_is_none_is_an_error(shift: tuple[float, ...], scale: tuple[float, ...]) -> None:
    with pytest.raises(ArgumentError, match="finite shift and a scale above 0"):
        Scaling("standard", shift, scale)


# --- groups of rows ---


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_groups_of_arrays_are_made_once() -> None:
    policy = ClientPolicy(group_size=3)
    clients = gather(CLIENTS)
    scaling = Scaling.of("standard", ROWS.mean(axis=0), ROWS.std(axis=0))
    before, after = clients.answering(policy), scaling.clients(clients, policy).answering(policy)
    assert before is not None and after is not None
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(scaling.scaled(one.features), other.features)
        assert other.grouped


def test_kept_groups_stay_the_same() -> None:
    tables = ClientTables(tuple(ClientTable(str(i), one) for i, one in enumerate(CLIENTS)), ("a", "b", "c"))
    policy = ClientPolicy(group_size=4)
    means = gather(tables).answering(policy)
    model = lloyd(scale="standard", policy=policy).fit(tables)
    assert model.scaling_ is not None and means is not None
    seen = np.concatenate([one.features for one in means])
    scaler = StandardScaler().fit(seen)
    np.testing.assert_allclose(model.scaling_.shift, scaler.mean_, rtol=1e-9)
    np.testing.assert_allclose(model.scaling_.scale, scaler.scale_, rtol=1e-9)


# --- what is kept ---


@KINDS
def test_a_saved_model_scales_rows(kind: Any, tmp_path: Path) -> None:
    model = lloyd(scale=kind, run_dir=tmp_path).fit(CLIENTS)
    again = privfed.load(tmp_path)
    assert again.scaling_ == model.scaling_ == scaling_of_run(model.transcript_)
    assert again.predict(ROWS).tolist() == model.predict(ROWS).tolist()


def test_a_later_fit_without_scaling_forgets_it() -> None:
    model = lloyd(scale="standard").fit(CLIENTS)
    assert model.set_params(scale=None).fit(CLIENTS).scaling_ is None


def test_a_run_goes_on_wherever_it_was_stopped(tmp_path: Path) -> None:
    whole = lloyd(scale="standard", run_dir=tmp_path / "whole").fit(CLIENTS)
    for name in ("transcript.jsonl", "scaling/transcript.jsonl"):
        lines = (tmp_path / "whole" / name).read_bytes().splitlines(keepends=True)
        for kept in (2, len(lines) - 2):
            folder = tmp_path / f"{name.replace('/', '-')}-{kept}"
            shutil.copytree(tmp_path / "whole", folder)
            if name != "transcript.jsonl":
                (folder / "transcript.jsonl").unlink()
            (folder / name).write_bytes(b"".join(lines[:kept]))
            model = lloyd(scale="standard", run_dir=folder).resume(CLIENTS)
            assert model.cluster_centers_.tolist() == whole.cluster_centers_.tolist()


def test_a_scaling_that_is_cut_off_is_kept(tmp_path: Path) -> None:
    lost = Simulation(faults=[Fault(client, "collect", sums=frozenset({2})) for client in range(3)])
    with pytest.raises(NotEnoughClientsError):
        lloyd(scale="standard", protocol="masked", engine=lost, run_dir=tmp_path).fit(CLIENTS)
    model = lloyd(scale="standard", protocol="masked", run_dir=tmp_path).resume(CLIENTS)
    assert model.scaling_ == lloyd(scale="standard", protocol="masked").fit(CLIENTS).scaling_


def test_numbers_of_clusters_are_compared_on_rows_that_are_scaled_once(tmp_path: Path) -> None:
    found = privfed.select_n_clusters(
        CLIENTS, range(2, 5), scale="standard", protocol="plain", run_dir=tmp_path, index="calinski_harabasz"
    )
    assert found.n_clusters == 3
    assert [one.name for one in tmp_path.glob("**/scaling")] == ["scaling"]
    theirs = StandardScaler().fit(ROWS)
    for model in found.models:
        assert model.scaling_ is not None and model.get_params()["domain"] is None
        np.testing.assert_allclose(model.scaling_.shift, theirs.mean_, rtol=1e-9)
        assert model.predict(ROWS).tolist() == np.concatenate(model.labels_).tolist()


# --- differential privacy ---


def test_under_privacy_the_declared_box_is_mapped() -> None:
    claim = private(noise_seed=3)
    model = DPKMeans(3, scale="range", privacy=claim, protocol="plain").fit(CLIENTS)
    theirs = MinMaxScaler().fit(np.stack(BOX.bounds(3)))
    within = private(noise_seed=3, domain=Box(np.zeros(3), np.ones(3), max_rows=200))
    other = DPKMeans(3, privacy=within, protocol="plain").fit([theirs.transform(one) for one in CLIENTS])
    np.testing.assert_allclose(model.cluster_centers_, other.cluster_centers_, rtol=0, atol=1e-9)
    assert model.get_params()["privacy"] is claim
    ours, scaled = model.intervals(), other.intervals()
    np.testing.assert_allclose(ours.low, theirs.inverse_transform(scaled.low), rtol=0, atol=1e-6)
    assert (ours.low <= ours.means).all() and ours.noise == pytest.approx(scaled.noise)


def cost(epsilon: float, mechanism: str = "gaussian") -> float:
    return budget_of(Mechanism(mechanism), epsilon, 1e-6)


@pytest.mark.parametrize("kind", ["standard", "robust"])
@pytest.mark.parametrize("words", [{}, {"mechanism": "skellam"}, {"unit": "client"}], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_under_privacy_a_share_of_the_claim_pays_for_the_scale(kind: str, words: dict[str, Any]) -> None:
    claim = private(epsilon=8.0, **words)
    model = DPKMeans(3, scale=kind, privacy=claim, random_state=0).fit(CLIENTS)
    assert model.get_params()["privacy"] is claim and model.scaling_.kind == kind
    own = model.transcript_.configuration.privacy
    mechanism = words.get("mechanism", "gaussian")
    assert own is not None
    assert cost(own.epsilon, mechanism) <= (1 - SHARES[kind]) * cost(8.0, mechanism)
    assert model.privacy_claim_.epsilon == pytest.approx(8.0, rel=1e-9)
    paid = [one.share for one in model.privacy_claim_.payments]
    assert sum(paid) <= 1.0 + 1e-9 and sum(paid) > 0.9


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 9.0])
@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
@pytest.mark.filterwarnings("ignore")
def test_the_parts_of_a_claim_compose_to_it(epsilon: float, mechanism: str) -> None:
    whole = private(epsilon=epsilon, mechanism=mechanism, noise_seed=4)
    first, rest = parts(whole, 0.3)
    assert cost(first.epsilon, mechanism) + cost(rest.epsilon, mechanism) <= cost(epsilon, mechanism)
    assert cost(first.epsilon, mechanism) == pytest.approx(0.3 * cost(epsilon, mechanism), rel=1e-6)
    assert first.noise_seed != rest.noise_seed
    assert (first.delta, first.domain, first.unit) == (rest.delta, rest.domain, rest.unit)


@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_a_budget_pays_for_both_runs_once(reserve: bool, tmp_path: Path) -> None:
    budget = PrivacyBudget(8.0, 1e-6, "record", "add-remove", tmp_path / "budget", domain=BOX)
    for number in (1, 2):
        claim = budget.take(0.5, reserve=reserve)
        model = DPKMeans(3, scale="robust", privacy=claim, random_state=0).fit(CLIENTS)
        assert model.privacy_claim_.epsilon == pytest.approx(claim.epsilon, rel=1e-9)
        assert sum(one.share for one in budget.log()) == pytest.approx(0.5 * number)
        assert [one.used for one in budget.log()] == [True, True] * number
    assert budget.remaining().share == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(BudgetError):
        budget.take(0.01)


@pytest.mark.filterwarnings("ignore")
def test_a_resumed_fit_pays_for_its_scale_once(tmp_path: Path) -> None:
    budget = PrivacyBudget(8.0, 1e-6, "record", "add-remove", tmp_path / "budget", domain=BOX)

    def model() -> DPKMeans:
        claim = budget.take(0.5, reserve=False)
        return DPKMeans(3, scale="robust", privacy=claim, random_state=0, run_dir=tmp_path / "run")

    whole = model().fit(CLIENTS)
    again = model().resume(CLIENTS)
    np.testing.assert_array_equal(whole.cluster_centers_, again.cluster_centers_)
    assert again.privacy_claim_.epsilon == pytest.approx(whole.privacy_claim_.epsilon)
    assert sum(one.share for one in budget.log()) == pytest.approx(0.5)


@pytest.mark.filterwarnings("ignore")
def test_plausible_ranges_that_are_wide_beside_the_spread_hide_no_groups() -> None:
    """Four groups in columns of which each fills a twentieth to a half of what its owner declares."""
    rng = np.random.default_rng(5)
    low, high = np.array([0.0, 20, 10, 0, 100, 30]), np.array([120.0, 900, 70, 500, 180, 220])
    means = np.array([[45, 75, 24, 8, 140, 140], [70, 180, 27, 30, 136, 110], [62, 95, 34, 15, 139, 135]])
    group = rng.integers(0, 3, 6000)
    rows = means[group] + np.array([9, 12, 2, 4, 2.5, 9]) * rng.normal(size=(6000, 6))
    claim = Privacy(
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        neighbours="add-remove",
        domain=Box(low, high, max_rows=4000),
        noise_seed=0,
    )
    found = {}
    for kind in ("range", "robust"):
        model = DPKMeans(3, scale=kind, privacy=claim, random_state=0).fit(np.array_split(rows, 3))
        found[kind] = adjusted_rand_score(group, np.concatenate(model.labels_))
    assert found["robust"] > 0.95 and found["robust"] >= found["range"]


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.filterwarnings("ignore")
def test_quartiles_under_a_large_epsilon_are_those_of_the_rows(columns: int) -> None:
    rng = np.random.default_rng(3)
    odd = [rng.normal(5, 0.1, 4000), rng.exponential(2.0, 4000), np.full(4000, 7.0), rng.normal(-90, 9, 4000)]
    rows = np.stack(odd[:columns], axis=1)
    claim = private(epsilon=1e4, domain=Box(np.full(columns, -1000.0), np.full(columns, 1000.0)))
    scaler = FederatedScaler("robust", privacy=claim).fit(np.array_split(rows, 4))
    quarters = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    bins = 2000.0 / 32 * 3.0 / 16
    np.testing.assert_allclose(scaler.center_, quarters[1], atol=bins)
    between = quarters[2] - quarters[0]
    np.testing.assert_allclose(scaler.scale_, np.where(between > 0, between, scaler.scale_), atol=bins)
    assert abs(scaler.n_samples_seen_ - 4000) <= 2 and (scaler.scale_ > 0).all()


# --- what cannot be scaled ---


def test_a_ball_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the domain is a Ball; declare a Box"):
        lloyd(scale="range", domain=Ball(radius=2000.0), protocol="plain").fit(CLIENTS)


def test_a_federation_is_scaled_no_more() -> None:
    federation = lloyd().fit(CLIENTS).federation_
    with parameter_refused("scale"):
        privfed.select_n_clusters(federation, range(2, 4), estimator=lloyd(scale="standard"))


def test_metrics_refuse_rows_that_were_not_scaled_as_the_centers_were(tmp_path: Path) -> None:
    model = lloyd(scale="standard").fit(CLIENTS)
    model.save(tmp_path / "model")
    scaling, of = model.scaling_, np.repeat(range(4), 30)
    assert scaling is not None
    rows = [scaling.scaled(one) for one in CLIENTS]
    named = {str(i): one for i, one in enumerate(CLIENTS)}
    for centers in (model.cluster_centers_, privfed.load(tmp_path / "model", DWFKMeans).cluster_centers_[:2]):
        for held, words in ((CLIENTS, {}), (named, {}), (ROWS, {"groups": of})):
            for ask in (metrics.profiles, metrics.inertia, metrics.davies_bouldin):
                with parameter_refused("centers"):
                    ask(held, centers, protocol="plain", **words)
        with parameter_refused("centers"):
            survival(CLIENTS, centers, [np.ones(30)] * 4, [np.ones(30)] * 4, edges=[1, 2], protocol="plain")
        known = metrics.inertia(rows, centers, protocol="plain")
        others = [(np.vstack(rows), {"groups": of}), (ClientTables([*map(table, rows)], ("a", "b", "c")), {})]
        for held, words in others:
            assert metrics.inertia(held, centers, protocol="plain", **words) == pytest.approx(known)
        assert metrics.inertia(CLIENTS, np.array(centers), protocol="plain") > known
    whole = metrics.inertia(model.federation_, model.cluster_centers_)
    assert whole == pytest.approx(metrics.inertia(rows, model.cluster_centers_, protocol="plain"))
    own = metrics.profiles(rows, model.cluster_centers_, protocol="plain")
    units = metrics.profiles(CLIENTS, scaling.original(model.cluster_centers_), protocol="plain")
    assert own.mapped(np.array(scaling.shift), np.array(scaling.scale)).sizes.sum() == units.sizes.sum()


def table(rows: np.ndarray) -> ClientTable:
    return ClientTable(str(rows[0, 0]), rows)
