"""A server with colluding clients: totals of the others are what is left."""

import numpy as np
import pytest

from privfed import DWFKMeans, FederatedFuzzyCMeans, attacks
from privfed.attacks import Prior
from privfed.attacks.base.preparation import without_colluders
from privfed.errors import ArgumentError
from tests.attacks.populations import mixture


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(DWFKMeans(3, local_iter=1, max_iter=3, tol=0), id="lloyd"),
        pytest.param(DWFKMeans(3, local_iter=4, max_iter=3, tol=0), id="dwf"),
        pytest.param(DWFKMeans(3, max_iter=3, tol=0, clients_per_round=4), id="changing cohorts"),
        # Means of local centers rest from the start on, up to a last bit that rounded totals do not have.
        pytest.param(FederatedFuzzyCMeans(3, max_iter=3, tol=0, averaging="weighted"), id="fuzzy"),
    ],
)
@pytest.mark.few(3)
def test_what_is_left_is_the_sum_of_the_others(model, protocol):
    population, colluding = mixture(0, n_clients=6), [1, 4]
    # By plain sums of the same run every client's own answer is known.
    model.set_params(protocol="plain").fit(population.clients)
    answers = {one.index: one.answers for one in model.transcript_.view("server").sums}
    model.set_params(protocol=protocol).fit(population.clients)
    view = model.transcript_.view("server", colluding=colluding)
    left = without_colluders(view, {i: population.clients[i] for i in colluding})
    assert len(left.sums) == len(view.sums)
    for one in left.sums:
        assert not set(colluding) & {*one.cohort, *one.contributors, *one.answers}
        for name, total in one.total.items():
            own = sum(answer[name] for i, answer in answers[one.index].items() if i not in colluding)
            scale = 1e-6 * (1.0 + np.abs(total).max() + 50.0 * 30.0)
            np.testing.assert_allclose(total, own, atol=scale)


def test_attacks_take_the_colluders_out_by_themselves():
    population = mixture(1, n_clients=4)
    model = DWFKMeans(3, local_iter=1, protocol="masked", max_iter=3, tol=0).fit(population.clients)
    view = model.transcript_.view("server", colluding=[0, 1, 2])
    prior = Prior(sample=population.draw(50), colluders={i: population.clients[i] for i in range(3)})
    # All but one collude: what is left of each total is that one's own counts.
    result = attacks.Disaggregation().run(view, prior, np.random.default_rng(0))
    own = np.bincount(model.predict(population.clients[3]), minlength=3)
    assert result.clients == [3]
    np.testing.assert_allclose(result.counts[0], own, atol=1.0)


def test_rows_of_every_colluder_are_needed():
    population = mixture(1, n_clients=4)
    model = DWFKMeans(3, protocol="masked", max_iter=2, tol=0).fit(population.clients)
    view = model.transcript_.view("server", colluding=[2])
    with pytest.raises(ArgumentError, match=r"colluders \[2\], rows were given for \[\]"):
        attacks.Linkage().run(view, Prior(), np.random.default_rng(0))
