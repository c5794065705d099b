"""Runs of other programs: a k-means of a few lines, and what attacks get of its rounds."""

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus

from privfed.attacks import Differencing, Membership, Prior, Truth, evaluate, pooled, view_from_rounds
from privfed.errors import ArgumentError
from tests.attacks.figures import real


def rounds(clients, seed, k=10, n=8):
    """Run k-means over clients, as a program of somebody else would, and keep each round's messages."""
    centers, *_ = kmeans_plusplus(np.concatenate(clients), k, random_state=seed)
    seen = []
    for _ in range(n):
        near = [((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1) for rows in clients]
        counts = np.stack([np.bincount(one, minlength=k) for one in near])
        sums = np.stack([np.eye(k)[one].T @ rows for one, rows in zip(near, clients, strict=True)])
        seen.append((centers, counts, sums))
        total = counts.sum(axis=0)
        centers = np.where(total[:, None] > 0, sums.sum(axis=0) / np.maximum(total, 1)[:, None], centers)
    return tuple(zip(*seen, strict=True))


def test_answers_of_single_clients_give_their_rows():
    clients = real("iris", 0)
    views = [view_from_rounds(*rounds(clients, seed)) for seed in range(4)]
    result = Differencing(client=0).run(pooled(views), Prior(), np.random.default_rng(0))
    report = evaluate(result, Truth(clients))
    assert report.linked and report.precision >= 0.98 and report.recovered > 0.5
    assert view_from_rounds(*rounds(clients, 0)).clients[0] == "client 0"


def test_totals_give_rows_and_who_did_not_take_part():
    rows = np.concatenate(real("diabetes", 0))
    clients, others = np.array_split(rows[:200], 4), rows[200:]
    views = []
    for seed in range(2):
        centers, counts, sums = rounds(clients, seed, k=40)
        totals = [one.sum(axis=0) for one in counts], [one.sum(axis=0) for one in sums]
        views.append(view_from_rounds(centers, *totals, clients="abcd"))
    view, truth = pooled(views), Truth(clients, members=np.arange(300) < 200)
    attack = Membership(np.concatenate([rows[:200], others[:100]]))
    report = evaluate(attack.run(view, Prior(sample=others[100:]), np.random.default_rng(0)), truth)
    assert report.precision == 1.0 and report.details["others excluded"] > 0.0
    assert evaluate(Differencing().run(view, Prior(), np.random.default_rng(0)), truth).claims


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, n, s: (c, n[:1], s), "each round has centers"),
        (lambda c, n, s: (c, [one[:, :3] for one in n], s), "round 0 has centers"),
        (lambda c, n, s: (c, [-one for one in n], s), "must not be negative"),
        (lambda c, n, s: (c, n, [one * np.nan for one in s]), "must be finite"),
        (lambda c, n, s: (c, [n[0], n[1][0]], [s[0], s[1][0]]), "same clients"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        view_from_rounds(*change(*rounds(real("iris", 0), 0, n=2)))
