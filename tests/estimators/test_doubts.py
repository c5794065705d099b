"""What noise leaves open: intervals cover the exact answers to what was asked, and doubt is said aloud."""

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.private_baselines import BaselineKMeans
from privfed import (
    KFED,
    Ball,
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedScaler,
    FederatedSummary,
    Privacy,
)
from privfed.core.asking.question import ClientData
from privfed.data import ClientTable, ClientTables
from privfed.errors import ArgumentError, BoundsError
from privfed.estimators.doubts import _asked_last
from privfed.numerics.quotients import quotients
from tests.some import some

RNG = np.random.default_rng(0)
CENTERS = np.array([[-0.5, 0.5], [0.5, -0.5], [0.0, 0.0]])
ROWS = CENTERS[RNG.integers(3, size=900)] + 0.08 * RNG.standard_normal((900, 2))
CLIENTS = np.array_split(ROWS, 3)


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box(-1.0, 1.0, max_rows=1000)} | words))


KINDS = [
    lambda **words: DPKMeans(3, **words),
    lambda **words: DWFKMeans(3, local_iter=1, **words),
    lambda **words: FederatedFuzzyCMeans(3, local_iter=1, averaging="weighted", **words),
]


@pytest.mark.filterwarnings("ignore:the centers are mostly noise")
@pytest.mark.parametrize(
    ("kind", "words", "seeds"),
    [
        (KINDS[0], {"epsilon": 0.2}, 25),
        (KINDS[2], {"epsilon": 2.0}, 5),
        *(
            pytest.param(kind, words, 60, marks=pytest.mark.slow)
            for kind in KINDS
            for words in ({"epsilon": 0.2}, {"epsilon": 2.0}, {"neighbours": "replace-one"})
        ),
    ],
)
def test_intervals_cover_the_exact_answers_to_the_last_question(
    kind: Any, words: dict[str, Any], seeds: int
) -> None:
    """P(low <= exact <= high) = level, for the counts and the means that the last question asks for."""
    sizes, means = [], []
    for seed in range(seeds):
        own = privacy(noise_seed=seed, **words)
        model = kind(protocol="plain", privacy=own, random_state=seed).fit(CLIENTS)
        known = _asked_last(model.transcript_, model.cluster_centers_.shape)
        assert known is not None
        (exact,) = known[1].answer_all([ClientData(ROWS)], [np.random.default_rng(0)])
        found = model.intervals(0.8)
        held = exact["count"] > 0
        sizes.append((found.sizes_low <= exact["count"]) & (exact["count"] <= found.sizes_high))
        true = known[1].centers + exact["sum"] / np.maximum(exact["count"], 1.0)[:, None]
        means.append(((found.low <= true + 1e-12) & (true <= found.high + 1e-12))[held])
    # At most four deviations of a binomial below the level.
    for covered, n in ((np.concatenate(sizes), 3 * seeds), (np.concatenate(means), 6 * seeds)):
        assert covered.mean() > 0.8 - 4.0 * np.sqrt(0.16 / n)


@pytest.mark.parametrize("size", [3.0, 30.0, 300.0])
def test_the_level_is_met_and_not_passed_by_much(size: float) -> None:
    """Over many draws a mean is covered as often as the level says, also where its count may be 0."""
    z, true, noise = 1.2815515655446004, 0.7, (4.0, 10.0)
    sums = size * true + noise[0] * RNG.standard_normal(40_000)
    counts = size + noise[1] * RNG.standard_normal(40_000)
    low, high = quotients(sums, counts, z * noise[0], z * noise[1], 1.0)
    covered = float(((low <= true) & (true <= high)).mean())
    assert covered >= 0.79 and (size < 100.0 or covered == pytest.approx(0.8, abs=0.01))


def test_at_unit_client_the_numbers_are_of_rows() -> None:
    clients = np.array_split(ROWS, 60)
    with pytest.warns(UserWarning, match="promises very little"):
        own = privacy(epsilon=60.0, unit="client", noise_seed=1)
    found = DPKMeans(3, protocol="plain", privacy=own).fit(clients).intervals()
    assert found.sizes.sum() == pytest.approx(900, rel=0.3)
    assert (found.sizes_low <= found.sizes).all() and (found.sizes <= found.sizes_high).all()


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_called_rows_only_where_each_row_counts_once(kind: Any) -> None:
    """A fuzzy fit asks for sums of u^m: about 550 of 900 rows here, which no interval of rows would cover."""
    spread = np.array_split(np.random.default_rng(1).uniform(-1.0, 1.0, (900, 2)), 3)
    found = kind(protocol="plain", privacy=privacy(epsilon=8.0, noise_seed=1)).fit(spread).intervals()
    assert found.of_rows == found.to_dict()["of_rows"] == (found.sizes.sum() > 800)


def test_centers_of_noise_are_not_given_without_a_word() -> None:
    own = privacy(epsilon=0.01, noise_seed=3)
    with pytest.warns(UserWarning, match=r"the centers are mostly noise: [23] of 3 clusters"):
        model = DPKMeans(3, protocol="plain", privacy=own).fit(CLIENTS)
    found = model.intervals()
    bad = found.mostly_noise
    assert bad.sum() >= 2 and ((found.sizes_low[bad] == 0) | (found.noise[bad] >= found.nearest[bad])).all()
    sure = DPKMeans(3, protocol="plain", privacy=privacy(epsilon=4.0, noise_seed=3)).fit(CLIENTS).intervals()
    assert not sure.mostly_noise.any() and (sure.low < sure.means).all() and (sure.means < sure.high).all()


def mostly_in_one_place(n_features: int) -> np.ndarray:
    """Return rows of which one in twenty lies in three places far from all others."""
    rng = np.random.default_rng(0)
    far = rng.uniform(-0.9, 0.9, (3, n_features))
    rows = np.where(rng.random((20_000, 1)) < 0.05, far[rng.integers(0, 3, 20_000)], 0.0)
    return np.asarray(rows + 0.003 * rng.standard_normal((20_000, n_features)))


@pytest.mark.parametrize(("n_features", "epsilon"), [(2, 1.0), (6, 4.0)])
def test_clusters_far_from_most_rows_are_found(n_features: int, epsilon: float) -> None:
    """Later searches for the radius look at most rows alone, and forgot what the first had seen."""
    rows = mostly_in_one_place(n_features)
    for seed in range(3):
        own = privacy(epsilon=epsilon, domain=Box(-1.0, 1.0), noise_seed=seed)
        model = DPKMeans(4, protocol="plain", privacy=own, random_state=seed).fit(np.array_split(rows, 4))
        spread = 20_000 * n_features * 0.003**2
        assert np.square(rows - model.cluster_centers_[model.predict(rows)]).sum() < 10.0 * spread


@pytest.mark.parametrize(
    ("model", "said"),
    [(DWFKMeans(1, init=np.zeros((1, 6)), local_iter=1), r"9\d\d|10\d\d"), (DPKMeans(2), r"[2-6]\d\d")],
)
def test_rows_that_no_center_is_near_to_are_said(model: Any, said: str) -> None:
    """A center that is given among most rows stays there; one of two serves a part of the far ones."""
    own = privacy(epsilon=4.0, domain=Box(-1.0, 1.0), noise_seed=0)
    model.set_params(protocol="plain", privacy=own)
    with pytest.warns(UserWarning, match=rf"about ({said}) rows lie far from all centers"):
        model.fit(np.array_split(mostly_in_one_place(6), 4))


@pytest.mark.slow
def test_rows_that_no_center_is_near_to_are_said_at_unit_client() -> None:
    """Where counts are in units of a client; 1000 clients have 20 rows each."""
    with pytest.warns(UserWarning, match="promises very little"):
        own = privacy(epsilon=600.0, unit="client", domain=Box(-1.0, 1.0, max_rows=21), noise_seed=1)
    model = DWFKMeans(1, init=np.zeros((1, 6)), local_iter=1, protocol="plain", privacy=own, random_state=1)
    with pytest.warns(UserWarning, match=r"about (9\d\d|10\d\d) rows lie far from all centers"):
        model.fit(np.array_split(mostly_in_one_place(6), 1000))


@pytest.mark.parametrize(("high", "unfit"), [((1.0, 1.0), False), ((1.0, -2.0), True), ((1.0, 60.0), True)])
def test_a_range_that_does_not_fit_the_rows_is_named(high: tuple[float, float], unfit: bool) -> None:
    """As for values of up to 300 that are declared to lie between 18 and 100; only released centers tell."""
    domain = Box((-1.0, -3.0 if high[1] < 0 else -1.0), high, max_rows=1000)
    model = DPKMeans(3, protocol="plain", privacy=privacy(epsilon=8.0, domain=domain, noise_seed=1))
    if unfit:
        with pytest.warns(UserWarning, match="all centers lie at one end of the declared range of column 1:"):
            model.fit(CLIENTS)
    else:
        model.fit(CLIENTS)


@pytest.mark.parametrize("kind", [DPKMeans, BaselineKMeans])
def test_intervals_of_every_method_hold_the_means_of_the_clusters(kind: type[DPKMeans]) -> None:
    """Of DPLloyd sums are of offsets from one point, which were taken for offsets from the centers."""
    own = privacy(epsilon=8.0, noise_seed=1)
    own_words = {} if kind is DPKMeans else {"method": "lloyd"}
    model = kind(3, **own_words, protocol="plain", privacy=own, random_state=4).fit(CLIENTS)
    found = model.intervals(0.999, joint=True)
    nearest = np.square(CENTERS[:, None] - found.means).sum(axis=2).argmin(axis=1)
    assert sorted(nearest.tolist()) == [0, 1, 2]
    np.testing.assert_allclose(found.means[nearest], CENTERS, atol=0.06)
    assert (found.low <= found.means).all() and (found.means <= found.high).all()
    assert (found.high - found.low).max() < 0.5


def test_centers_in_corners_of_the_domain_are_said() -> None:
    rng = np.random.default_rng(4)
    far = np.array([[-9.0, -9.0], [9.0, 9.0], [-9.0, 9.0], [0.2, 0.1]])
    rows = far[rng.integers(4, size=2000)] + 0.3 * rng.normal(size=(2000, 2))
    for width, said in ((1.0, True), (15.0, False)):
        own = privacy(epsilon=4.0, domain=Box(-width, width, max_rows=2000), noise_seed=1)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            DPKMeans(4, protocol="plain", privacy=own, random_state=0).fit(np.array_split(rows, 4))
        assert any("in corners of the declared domain" in str(one.message) for one in found) == said


@pytest.mark.parametrize(("spread", "said"), [(0.02, True), (0.5, False)])
def test_categories_that_outweigh_the_numbers_are_said(spread: float, said: bool) -> None:
    """A number that fills a fiftieth of its declared range tells nothing beside a ward."""
    rng = np.random.default_rng(4)
    ward, number = rng.integers(3, size=3000), rng.choice([-1.0, 1.0], size=(3000, 2))
    number = number * spread + 0.1 * spread * rng.normal(size=number.shape)
    rows = np.column_stack([number, np.eye(3)[ward] * 0.7])
    tables = [ClientTable(str(i), one) for i, one in enumerate(np.array_split(rows, 3))]
    clients = ClientTables(tuple(tables), ("a", "b", "w=0", "w=1", "w=2"), blocks=((2, 3, 4),))
    box = Box((-1, -1, 0, 0, 0), (1, 1, 0.7, 0.7, 0.7), max_rows=2000)
    own = privacy(epsilon=8.0, domain=box, noise_seed=1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        DPKMeans(3, protocol="plain", privacy=own, random_state=0).fit(clients)
    assert any("categories make" in str(one.message) for one in found) == said


N_JOINT = 25


def test_joint_intervals_cover_all_at_once() -> None:
    """Each single interval misses one in twenty, so that many fits miss one somewhere."""
    together = {True: 0, False: 0}
    for seed in some(range(N_JOINT)):
        own = privacy(epsilon=2.0, noise_seed=seed)
        model = DPKMeans(3, protocol="plain", privacy=own, random_state=seed).fit(CLIENTS)
        known = _asked_last(model.transcript_, model.cluster_centers_.shape)
        assert known is not None
        inner = known[1]
        (exact,) = inner.answer_all([ClientData(ROWS)], [np.random.default_rng(0)])
        count, summed = exact["count"], exact["sum"]
        means = inner.centers + summed / count[:, None]
        for joint in together:
            found = model.intervals(joint=joint)
            held = ((found.sizes_low <= count) & (count <= found.sizes_high)).all()
            held &= ((found.low <= means + 1e-9) & (means <= found.high + 1e-9)).all()
            together[joint] += bool(held)
    assert together[True] >= 0.95 * N_JOINT - 2 * (0.05 * 0.95 * N_JOINT) ** 0.5
    assert together[False] < together[True]


def test_where_there_are_no_such_totals_there_are_no_intervals() -> None:
    alone = KFED(2, protocol="plain", privacy=privacy(epsilon=8.0)).fit(CLIENTS)
    exact = DWFKMeans(2, protocol="plain", domain=Box(-1, 1)).fit(CLIENTS)
    for model in (alone, exact, DPKMeans(2, privacy=privacy())):
        with pytest.raises(ArgumentError, match="this estimator has none"):
            model.intervals()
    ball = privacy(epsilon=4.0, domain=Ball(2.0, max_rows=1000))
    fitted = DPKMeans(2, protocol="plain", privacy=ball).fit(CLIENTS)
    with pytest.raises(BoundsError) as found:
        fitted.intervals(1.0)
    assert found.value.parameter == "level"


def test_rare_categories_are_no_sign_of_an_unfit_range() -> None:
    rng = np.random.default_rng(2)
    rare = (rng.random(900) < 0.02).astype(float)
    rows = np.column_stack([ROWS[:, 0], rare, 1.0 - rare])
    tables = [ClientTable(str(i), one) for i, one in enumerate(np.array_split(rows, 3))]
    own = privacy(epsilon=8.0, domain=Box((-1, 0, 0), (1, 1, 1), max_rows=400), noise_seed=1)
    model = DPKMeans(2, protocol="plain", privacy=own)
    with pytest.warns(UserWarning, match="all centers lie at one end"):
        model.fit(list(np.array_split(rows, 3)))
    together = ClientTables(tuple(tables), ("a", "w=0", "w=1"), blocks=((1, 2),))
    assert model.fit(together).n_iter_ > 0


def test_errors_of_moments_are_those_of_the_noise() -> None:
    """Of seeded fits about two thirds lie within one error of the exact numbers, nearly all in three."""
    rng, off, seeds = np.random.default_rng(3), [], 12
    rows = [rng.normal([0.2, -0.3], [0.2, 0.4], (200, 2)).clip(-1, 1) for _ in range(5)]
    pooled = np.concatenate(rows)
    for seed in range(seeds):
        found = FederatedScaler(privacy=privacy(noise_seed=seed)).fit(rows)
        off.append((found.mean_ - pooled.mean(axis=0)) / found.mean_error_)
        off.append((found.var_ - pooled.var(axis=0)) / found.var_error_)
        off.append(np.full(2, (found.n_samples_seen_ - len(pooled)) / found.rows_error_))
    inside = [float((np.abs(off) < most).mean()) for most in (1.0, 3.0)]
    assert 0.5 < inside[0] < 0.95 and inside[1] > 0.9


@pytest.mark.parametrize("kind", [FederatedScaler, FederatedSummary])
def test_a_variance_of_noise_is_not_given_without_a_word(kind: Any) -> None:
    rows = [np.random.default_rng(i).uniform(-0.5, 0.5, (60, 2)) for i in range(4)]
    with pytest.warns(UserWarning, match=r"variances of 2 of 2 columns are mostly noise \(from 0: 0, 1\)"):
        noised = kind(privacy=privacy(epsilon=0.02)).fit(rows)
    assert (noised.var_error_ > 0.5 / 12).all()
    named = [pl.DataFrame(one, schema=["age", "weight"]) for one in rows]
    with pytest.warns(UserWarning, match=r"are mostly noise \(age, weight\)"):
        kind(privacy=privacy(epsilon=0.02)).fit(named)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = kind().fit(rows)
        clear = kind(privacy=privacy(epsilon=8.0)).fit(rows)
    assert not hasattr(exact, "mean_error_") and (clear.var_error_ < 0.25 / 12).all()
