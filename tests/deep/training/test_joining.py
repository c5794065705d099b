"""A newcomer descends the tree of splits, and meets only those of its own branch."""

import numpy as np

from privfed.core.values.domain import Box
from privfed.deep import CFL
from privfed.deep.training.regrouping import descended
from tests.deep.population import clients, kinds

ENDS = {0: (9.0, 9.0), 1: (-9.0, 9.0), 2: (9.0, -9.0), 3: (-9.0, -9.0)}
"""Goal of each final cluster; 1 is split from 0 by the first column, 2 from 0 and 3 from 1 by the second."""


def test_a_newcomer_follows_the_half_that_its_update_is_nearer_to() -> None:
    start = np.zeros((1, 2))
    split = np.array([[1.0, 0.0], [-1.0, 0.0]])
    rest = split + np.array([0.0, 0.5])
    later = np.array([[1.0, 1.5], [-1.0, 1.5], [1.0, -0.5], [-1.0, -0.5]])
    trained: list[tuple[float, ...]] = []
    for cluster, goal in ENDS.items():

        def update(model: np.ndarray, goal: tuple[float, float] = goal) -> np.ndarray:
            trained.append(tuple(model))
            return 0.1 * (np.array(goal) - model)

        assert descended([start, split, rest, later], [-1, 0, 0, 1], update) == cluster
    assert len(trained) == 8  # Two splits lie on each way down.
    assert descended([start, start], [-1], lambda _: np.ones(2)) == 0


def test_newcomers_of_each_kind_join_their_cluster_of_cfl_and_after_loading() -> None:
    X, y = clients(9)
    words = {"n_classes": 3, "rounds": 8, "learning_rate": 0.5, "epochs": 2, "domain": Box(0, 1)}
    splits = {"split_mean_norm": 9.0, "split_max_norm": 0.2, "split_after": 1, "gamma_max": 0.4}
    fitted = CFL(**words, **splits, protocol="plain", merge="gathered").fit(X[:6], y[:6])
    assert len(fitted.models_) >= 3 and fitted.parents_[0] == -1 and (fitted.parents_[1:] >= 0).all()
    found = [fitted.join(X[i], y[i]) for i in (6, 7, 8)]
    assert len(set(found)) == 3 and len(set(kinds(9)[6:])) == 3
    for i, cluster in zip((6, 7, 8), found, strict=True):
        assert cluster in fitted.labels_[kinds(6) == kinds(9)[i]]
