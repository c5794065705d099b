"""Runs of other programs: a k-means of a few lines, and what attacks get of its rounds."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus

from privfed import DWFKMeans
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.attacks import Differencing, Membership, Prior, Truth, evaluate, pooled, view_from_rounds
from privfed.attacks.evidence.cells import evidence_of
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView
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
        (lambda c, n, s: (c, [-one for one in n], s), "no count below 0"),
        (lambda c, n, s: (c, n, [one * np.nan for one in s]), "must be finite"),
        (lambda c, n, s: (c, [n[0], n[1][0]], [s[0], s[1][0]]), "same clients"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        view_from_rounds(*change(*rounds(real("iris", 0), 0, n=2)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_totals_on_the_coarsest_grid_that_a_question_takes_tell_what_exact_ones_tell(seed: int) -> None:
    """As `ckks` opens them: attacks on local steps found less there than over `masked`."""
    rng = np.random.default_rng(seed)
    clients = [rng.normal(rng.integers(3, size=(10, 1)) * 5.0, 1.0, (10, 2)) for _ in range(6)]
    model = DWFKMeans(4, local_iter=3, max_iter=4, tol=0, protocol="masked", random_state=0).fit(clients)
    view = model.transcript_.view("server")

    def on_a_grid(one: SumView) -> SumView:
        assert one.question is not None and one.total is not None
        # Each of six clients rounds to half a step at most.
        off = {entry.name: 3.0 * np.asarray(entry.resolution) for entry in one.question.spec.entries}
        moved = {
            name: value
            + rng.choice([-1.0, 1.0], value.shape) * off[name] * name.endswith(("sum", "weighted"))
            for name, value in one.total.items()
        }
        return replace(one, total=Statistics(**moved))

    exact = evidence_of(view, None).observations
    coarse = evidence_of(replace(view, sums=tuple(map(on_a_grid, view.sums))), None).observations
    # The start, and each round.
    assert len(exact) == 1 + sum(isinstance(one.question, WeightedCentroids) for one in view.sums)
    assert [one.local for one in exact] == [one.local for one in coarse]
    np.testing.assert_array_equal(*([np.concatenate([o.counts for o in seen]) for seen in (exact, coarse)]))
