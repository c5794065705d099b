"""What `Membership` tells from views of a run, beside a least-squares attack of few lines; and starts.

    python -m benchmarks.evidence [seeds] [view, or starts ...]

Half of a data set takes part in five clients, a quarter are other candidates, the rest is public. Lists hold
all members, three quarters and half of them. `outside` is one bounded least-squares problem over all
candidates, with the public rows as further columns where the list is not complete. `named` counts candidates
of whom the attack claims that they took part, and `right` those who did.

The last table has one fit each with the starts: area under the curve for a complete list, and the cost of the
clusters as a multiple of the least of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import lsq_linear
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import scale

from privfed import FKM, KFED, Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, attacks
from privfed.attacks.evidence.system import System
from privfed.attacks.membership.scores import MembershipScores, area
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
SETS = {"wine": load_wine, "diabetes": load_diabetes, "breast_cancer": load_breast_cancer}
SHARES = (1.0, 0.75, 0.5)
FIRST = 7000


def parts(name: str, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows that take part, other candidates, and public rows."""
    rows = scale(SETS[name]().data)
    first, second = len(rows) // 2, len(rows) // 2 + len(rows) // 4
    members, others, public = np.split(np.random.default_rng(seed).permutation(rows), [first, second])
    return members, others, public


def view_of(members: FloatArray, seed: int, kind: type = DWFKMeans, fits: int = 1, **words: object) -> View:
    """Return what the server sees of fits to the same rows; `party` and `k` name another party and number."""
    party, k = words.pop("party", "server"), words.pop("k", 10)
    models = [kind(k, protocol="masked", random_state=10 * seed + fit, **words) for fit in range(fits)]
    clients = np.array_split(members, 5)
    return attacks.pooled([one.fit(clients).transcript_.view(party) for one in models])


def private(epsilon: float) -> dict[str, object]:
    """Return what makes a fit private, with noise that repeats."""
    claim = Privacy(
        epsilon=epsilon,
        delta=1e-5,
        unit="record",
        domain=Box(-5, 5),
        neighbours="add-remove",
        noise_seed=0,
    )
    return {"kind": DPKMeans, "privacy": claim}


VIEWS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "one default fit": ({}, tuple(SETS)),
    "model alone": ({"party": "observer"}, ("wine", "breast_cancer")),
    "model alone, k = 30": ({"party": "observer", "k": 30}, ("diabetes",)),
    "groups of five, three fits": (
        {"fits": 3, "policy": ClientPolicy(group_size=5)},
        ("wine", "breast_cancer"),
    ),
    "k-FED": ({"kind": KFED}, ("wine",)),
    "FKM": ({"kind": FKM}, ("wine",)),
    "k-FED, three fits": ({"kind": KFED, "fits": 3}, ("wine",)),
    "FKM, three fits": ({"kind": FKM, "fits": 3}, ("wine",)),
    "epsilon 1": (private(1.0), ("breast_cancer",)),
    "epsilon 3": (private(3.0), ("breast_cancer",)),
    "epsilon 10": (private(10.0), ("wine", "breast_cancer")),
}


def product(
    view: View, candidates: FloatArray, public: FloatArray, listed: float, n: int | None
) -> MembershipScores:
    """Return the attack's scores."""
    attack = attacks.Membership(candidates, listed=listed, units=n)
    found = attack.run(view, attacks.Prior(sample=public), np.random.default_rng(0))
    assert isinstance(found, MembershipScores)
    return found


def outside(
    view: View, candidates: FloatArray, public: FloatArray, listed: float, n: int | None
) -> FloatArray:
    """Return shares by bounded least squares; public rows are columns where the list is not complete."""
    columns = candidates if listed == 1.0 else np.concatenate([candidates, public])
    seen = view if view.party == "server" else View("observer", (), view.clients, (), view.result)
    system = System.of(seen, [ClientData(row[None]) for row in columns])
    assert system is not None
    left, noise = system.left.toarray(), np.sqrt(system.noise)
    unit = np.where(noise > 0, noise, 1e-3 * np.maximum(left.std(axis=1), 1e-9))
    kept = np.abs(left).max(axis=1) > 0
    table, wanted = left[kept] / unit[kept, None], system.right[kept] / unit[kept]
    if n is not None:
        # The model alone does not show how many rows took part: both attacks are told.
        table, wanted = np.vstack([table, np.ones(len(columns))]), np.append(wanted, n)
    # The triangle of a QR decomposition has the same least squares.
    triangle = np.linalg.qr(np.column_stack([table, wanted]), mode="r")
    solved = lsq_linear(triangle[:, :-1], triangle[:, -1], (0, 1), max_iter=200)
    return np.asarray(solved.x[: len(candidates)])


def measured(n_seeds: int, each: Callable[[int], tuple[float, ...]]) -> FloatArray:
    """Return figures of each seed, (n_seeds, n_figures)."""
    return np.array([each(FIRST + seed) for seed in range(n_seeds)])


def lines(n_seeds: int, views: list[str]) -> Iterator[str]:
    """Yield the first table's lines."""
    for what in views:
        words, names = VIEWS[what]
        for name in names:
            table = measured(n_seeds, lambda seed, name=name, words=words: told(name, seed, words))
            for share, own in zip(SHARES, np.split(table, len(SHARES), axis=1), strict=True):
                mean, error = own.mean(axis=0), own[:, 0].std() / n_seeds**0.5
                counts = own[:, 2:].sum(axis=0)
                figures = f"{mean[0]:.3f} +- {error:.3f} | {mean[1]:.3f} | {counts[0]:.0f} | {counts[1]:.0f}"
                yield f"| {what} | {name} | {share:.0%} | {figures} |"


def told(name: str, seed: int, words: dict[str, object]) -> tuple[float, ...]:
    """Return for each share of the list both areas, how many are named, and how many of these took part."""
    members, others, public = parts(name, seed)
    view, found = view_of(members, seed, **words), list[float]()
    for share in SHARES:
        n = int(share * len(members))
        candidates = np.concatenate([members[:n], others])
        count = len(members) if view.party == "observer" else None
        own, beside = (one(view, candidates, public, share, count) for one in (product, outside))
        named = np.zeros(len(candidates), bool) if own.named is None else own.named
        found += [area(one[:n], one[n:]) for one in (own.scores, beside)] + [named.sum(), named[:n].sum()]
    return tuple(found)


STARTS = ("coreset", "nested", "kfed", "random")


def starts(n_seeds: int) -> Iterator[str]:
    """Yield the second table's lines."""
    for name in SETS:
        table = measured(n_seeds, lambda seed, name=name: started(name, seed)).mean(axis=0)
        for i, init in enumerate(STARTS):
            yield f"| {name} | {init} | {table[i]:.3f} | {table[i + len(STARTS)]:.3f} |"


def started(name: str, seed: int) -> tuple[float, ...]:
    """Return the area of each start, then the cost of each."""
    members, others, public = parts(name, seed)
    found, costs = list[float](), list[float]()
    for init in STARTS:
        model = DWFKMeans(10, protocol="masked", init=init, random_state=seed)
        view = model.fit(np.array_split(members, 5)).transcript_.view("server")
        scores = product(view, np.concatenate([members, others]), public, 1.0, None).scores
        found.append(area(scores[: len(members)], scores[len(members) :]))
        squared = np.square(members[:, None] - model.cluster_centers_).sum(axis=2)
        costs.append(float(squared.min(axis=1).sum()))
    return (*found, *(cost / min(costs) for cost in costs))


def main() -> None:
    """Print both tables."""
    warnings.simplefilter("ignore")
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    wanted = sys.argv[2:] or [*VIEWS, "starts"]
    print("| view | data | listed | AUC | outside | named | right |\n|---|---|---|---|---|---|---|")
    for line in lines(n_seeds, [one for one in VIEWS if one in wanted]):
        print(line, flush=True)
    if "starts" in wanted:
        print("\n| data | start | AUC, complete list | cost |\n|---|---|---|---|")
        for line in starts(n_seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
