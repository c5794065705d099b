"""Fits of the same rows in other scales and columns: one system of the rows before."""

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy, attacks
from privfed.attacks import Differencing, Membership, Prior, Truth, evaluate
from privfed.attacks.evidence.cells import evidence_of
from privfed.attacks.evidence.equations import equations_of
from privfed.attacks.evidence.mapped import LinearMap, Mapped, before
from privfed.core.asking.question import ClientData
from privfed.numerics.kernels.interpreted import cell_sums
from tests.attacks.figures import real
from tests.some import some

MAPS = [
    LinearMap(np.array([2.0, 0.5, 1.0]), np.array([1.0, 0.0, -3.0])),
    LinearMap(np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 3.0]]), np.zeros(3)),
    # The last column is dropped, and the first one is seen in two units.
    LinearMap(np.array([[1.0, 0.0, 9.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), np.array([0.0, 4.0, 0.0])),
]


def clients(seed=0, n=60):
    return np.array_split(np.random.default_rng(seed).normal(size=(n, 3)), 4)


def viewed(rows, of, seed, **words):
    model = DWFKMeans(4, random_state=seed, **{"protocol": "masked", "local_iter": 1, **words})
    return model.fit([of.after(own) for own in rows]).transcript_.view("server")


@pytest.mark.parametrize("of", MAPS)
def test_what_rows_before_add_is_what_the_run_s_totals_hold(of):
    rows = clients()
    view = before(viewed(rows, of, 0), of)
    units = [ClientData(row[None]) for row in np.concatenate(rows)]
    for one in some(equations_of(view)):
        assert isinstance(one.question, Mapped)
        np.testing.assert_allclose(one.of_units(units).sum(axis=0), one.shown[0].values, atol=1e-4)


@pytest.mark.parametrize("of", MAPS[:2])
def test_cells_and_sums_are_those_of_the_rows_before(of):
    rows = clients()
    own, after = viewed(rows, of, 0), np.concatenate(rows)
    for one in some(evidence_of(before(own, of), None).observations):
        counts, sums = cell_sums(after, one.cells.place(after), one.cells.n_cells)
        np.testing.assert_array_equal(np.rint(one.counts), counts)
        np.testing.assert_allclose(one.sums, sums, atol=1e-4)


def test_a_map_that_drops_a_column_gives_no_rows_and_still_tells_members():
    rows = clients()
    view = before(viewed(rows, MAPS[2], 0), MAPS[2])
    found = Differencing().run(view, Prior(), np.random.default_rng(0))
    assert not len(getattr(found, "points", []))
    others = np.random.default_rng(1).normal(size=(90, 3))
    listed = np.concatenate([*rows, others[:30]])
    members = np.arange(90) < 60
    scores = Membership(listed, listed=1.0).run(view, Prior(sample=others[30:]), np.random.default_rng(0))
    assert evaluate(scores, Truth(rows, members=members)).recovered > 0.9


def test_three_scalings_of_wine_give_the_rows_that_one_fit_does_not():
    rows = [own * 3.0 + 1.0 for own in real("wine", 0)]
    every = np.concatenate(rows)
    scales = [every.std(axis=0), np.ptp(every, axis=0), np.quantile(every, 0.75, axis=0)]
    maps = [LinearMap(1.0 / np.abs(one), -every.mean(axis=0) / np.abs(one)) for one in scales]
    views = [
        DWFKMeans(10, random_state=i).fit([of.after(own) for own in rows]).transcript_.view("server")
        for i, of in enumerate(maps)
    ]
    alone, whole = (
        evaluate(
            Differencing().run(attacks.pooled(*own), Prior(), np.random.default_rng(0)),
            Truth(rows, tolerance=1e-4),
        )
        for own in ((views[:1], maps[:1]), (views, maps))
    )
    assert whole.precision == 1.0 and whole.recovered > alone.recovered + 0.2


def test_noise_stays_as_it_was():
    rows = clients()
    claim = Privacy(
        epsilon=3.0,
        delta=1e-5,
        unit="record",
        domain=Box(-9.0, 9.0),
        neighbours="add-remove",
        noise_seed=0,
    )
    model = DPKMeans(3, privacy=claim, protocol="masked", random_state=0)
    view = model.fit([MAPS[0].after(own) for own in rows]).transcript_.view("server")
    for one, other in some(zip(equations_of(view), equations_of(before(view, MAPS[0])), strict=True)):
        np.testing.assert_allclose(one.shown[0].noise, other.shown[0].noise)
