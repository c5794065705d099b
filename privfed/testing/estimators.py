"""The contract of estimators: over every secure sum, repeated, resumed, saved and loaded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from privfed.core.roles.conversation import Ask, Total
from privfed.core.values.domain import FloatArray
from privfed.engines.in_process import Fault
from privfed.errors import DataError, NotEnoughClientsError, PrivFedError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.saving import load
from privfed.federation.clients import gather
from privfed.federation.simulation import Simulation


class EstimatorContract:
    """Properties of every `FederatedClusterer`. Set `kind`, and `parameters` where defaults are not quick.

    It finds the same over every secure sum, whatever the order of the clients. It repeats with its
    `random_state`. A run that was interrupted is finished as if it had not been. A saved model predicts
    after `load`. It asks no more sums than it announced, and lost clients are left out.

    Attributes:
        kind: the class.
        parameters: of the constructor, besides `protocol`, `run_dir` and `engine`.
        sums: secure sums besides the plain one.
        tolerance: how far centers over a masked sum may lie from those over the plain one.
    """

    kind: ClassVar[type[FederatedClusterer]]
    parameters: ClassVar[Mapping[str, Any]] = {"n_clusters": 3, "random_state": 1}
    sums: ClassVar[Sequence[str]] = ("masked", "group-masked")
    tolerance: ClassVar[float] = 1e-6

    def clients(self) -> list[FloatArray]:
        """Return five clients of 9 to 30 rows of four blobs in the plane; write it for other data."""
        rng = np.random.default_rng(5)
        means = np.array([[1.0, 0.5], [7.0, 1.0], [1.0, 8.0], [6.0, 6.0]])
        return [means[rng.integers(4, size=n)] + 0.5 * rng.normal(size=(n, 2)) for n in (30, 9, 14, 25, 18)]

    def make(self, protocol: str = "plain", **more: Any) -> FederatedClusterer:
        """Return an unfitted estimator."""
        return self.kind(**{**self.parameters, "protocol": protocol, **more})

    def test_what_a_fit_leaves(self) -> None:
        """Centers, their history, labels of each client's rows; `fit` returns the estimator."""
        clients, model = self.clients(), self.make()
        assert model.fit(clients) is model
        k, d = model.cluster_centers_.shape
        assert d == clients[0].shape[1] and np.isfinite(model.cluster_centers_).all()
        assert len(model.history_) == model.n_iter_ + 1
        np.testing.assert_array_equal(model.history_[-1], model.cluster_centers_)
        for labels, rows in zip(model.labels_, clients, strict=True):
            np.testing.assert_array_equal(labels, model.predict(rows))
            assert model.transform(rows).shape == (len(rows), k)

    def test_every_secure_sum_leads_to_the_same_centers(self) -> None:
        """Masks cancel: what a sum hides changes nothing but the last digits."""
        clients, plain = self.clients(), self.make().fit(self.clients())
        for over in self.sums:
            hidden = self.make(over).fit(clients)
            np.testing.assert_allclose(hidden.cluster_centers_, plain.cluster_centers_, atol=self.tolerance)
            assert (hidden.n_rows_, hidden.n_iter_) == (plain.n_rows_, plain.n_iter_)

    def test_the_order_of_the_clients_changes_nothing(self) -> None:
        """Clients are their names; where they stand in the list tells nothing."""
        named = {f"clinic-{i}": rows for i, rows in enumerate(self.clients())}
        groups = np.repeat(list(named), [len(rows) for rows in named.values()])
        rows = np.concatenate(list(named.values()))
        one, other = (
            self.make().fit(rows, groups=groups, client_names=names)
            for names in (sorted(named), sorted(named, reverse=True))
        )
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-9)

    def test_the_same_random_state_repeats_the_fit(self) -> None:
        """To the last bit."""
        one, other = (self.make().fit(self.clients()) for _ in range(2))
        np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))

    def test_it_asks_no_more_sums_than_clients_agreed_on(self) -> None:
        """Sums cost key material, and privacy: their number is announced."""
        model = self.make().fit(self.clients())
        announced = model.make_algorithm(model.n_features_in_, 1).max_sums
        assert 0 < len(model.transcript_.totals()) <= announced

    def test_a_lost_client_is_left_out_of_that_sum(self) -> None:
        """The fit goes on with the others."""
        lost = Simulation(faults=[Fault(2, "collect", sums=frozenset({1}))])
        model = self.make(engine=lost).fit(self.clients())
        heard = [2 in total.contributors for _, total in model.transcript_.totals()]
        assert any(heard) and not heard[0] and np.isfinite(model.cluster_centers_).all()

    def test_an_interrupted_fit_is_finished_as_if_it_had_not_been(self, tmp_path: Path) -> None:
        """`resume` replays the totals, and asks the rest."""
        whole = self.make().fit(self.clients())

        def interrupt(index: int, ask: Ask, total: Total) -> None:
            if index == 1:
                raise KeyboardInterrupt

        stopped = self.make(run_dir=tmp_path / "run")
        with pytest.raises(KeyboardInterrupt):
            stopped.fit_clients(gather(self.clients()), watch=interrupt)
        resumed = self.make(run_dir=tmp_path / "run").resume(self.clients())
        np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)

    def test_a_saved_model_predicts_after_load(self, tmp_path: Path) -> None:
        """`load` is given the class, as no file may name one that is imported."""
        clients, model = self.clients(), self.make().fit(self.clients())
        model.save(tmp_path / "model.npz")
        again = load(tmp_path / "model.npz", estimators=[self.kind])
        assert type(again) is self.kind
        np.testing.assert_array_equal(again.predict(clients[0]), model.predict(clients[0]))
        np.testing.assert_array_equal(np.stack(again.history_), np.stack(model.history_))

    def test_a_fit_that_is_cut_off_says_what_helps(self) -> None:
        """Of estimators with `max_iter`: one round is enough, or a `ConvergenceWarning` names a remedy."""
        if "max_iter" not in self.make().get_params(deep=False):
            pytest.skip("it has no max_iter")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = self.make(max_iter=1).fit(self.clients())
        said = [one for one in caught if issubclass(one.category, ConvergenceWarning)]
        assert len(said) == (model.converged_ is False)

    def test_clones_have_the_same_parameters(self) -> None:
        """scikit-learn's `clone`, `get_params` and `set_params`."""
        model = self.make()
        copy = clone(model)
        assert copy.get_params() == model.get_params() and not hasattr(copy, "cluster_centers_")
        assert self.kind().set_params(**model.get_params()).get_params() == model.get_params()

    def test_what_cannot_be_clustered_is_one_of_privfeds_errors(self) -> None:
        """Rows that are no numbers, no cluster, no client left."""
        clients = self.clients()
        with pytest.raises(DataError):
            self.make().fit([np.full_like(clients[0], np.nan), *clients[1:]])
        with pytest.raises(PrivFedError):
            self.make(n_clusters=0).fit(clients)
        nobody = Simulation(faults=[Fault(i, "collect") for i in range(len(clients))])
        with pytest.raises(NotEnoughClientsError):
            self.make(engine=nobody).fit(clients)
