"""Measures the figures of docs/attacks: `python -m tests.attacks.figures [part ...]` prints them.

Ten seeds unless a line says otherwise. Without a part it measures all (see `PARTS`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn import datasets

from privfed import Box, ClientPolicy, DWFKMeans, EWFKMeans, Privacy
from privfed.attacks import (
    Differencing,
    Disaggregation,
    EqualWeightCounts,
    Oracle,
    Prior,
    Probing,
    Report,
    Tomography,
    Truth,
    evaluate,
)
from privfed.attacks.base.report import wasserstein
from privfed.core.values.domain import FloatArray
from privfed.federation.opening import open_over

SEEDS = 10


def mixture(
    seed: int, n: int, d: int, *, components: int = 5, clients: int = 10, alpha: float = 1.0
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Draw clients of n rows from Gaussians of unit variance, mixed by Dirichlet shares, each twice."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(-8, 8, (components, d))
    shares = rng.dirichlet(np.full(components, alpha), clients)

    def draw(share: FloatArray) -> FloatArray:
        return means[rng.choice(components, n, p=share)] + rng.normal(size=(n, d))

    return [draw(share) for share in shares], [draw(share) for share in shares]


def real(name: str, seed: int, clients: int = 5) -> list[FloatArray]:
    """Standardise one of scikit-learn's data sets and deal it out evenly."""
    rows = getattr(datasets, f"load_{name}")().data.astype(np.float64)
    deviation = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[part] for part in np.array_split(order, clients)]


def line(name: str, reports: Iterable[Report], *details: str) -> None:
    """Print means over seeds, pooled precision, and the worst seed's ratio to the bound."""
    all_reports = list(reports)
    claims = sum(one.claims for one in all_reports)
    right = sum(one.precision * one.claims for one in all_reports if one.claims)
    recovered = [one.recovered for one in all_reports]
    shown = [
        f"recovered {np.mean(recovered):.3f} +- {np.std(recovered):.3f}",
        f"precision {right / claims if claims else float('nan'):.3f}",
        f"bound {np.mean([one.bound for one in all_reports]):.3f}",
        f"queries {np.mean([one.queries for one in all_reports]):.0f}",
        f"seconds {np.median([one.seconds for one in all_reports]):.2f}",
        *(f"{one} {np.nanmean([r.details[one] for r in all_reports]):.4f}" for one in details),
    ]
    print(f"{name:<44}", ", ".join(shown), flush=True)


def fitted(clients: list[FloatArray], k: int, seed: int, **words: Any) -> DWFKMeans:
    """Fit DWF k-means with one local step, in clear unless told otherwise."""
    kind = words.pop("kind", DWFKMeans)
    words = {"local_iter": 1, "init": "kfed", "protocol": "plain", "max_iter": 30, **words}
    model: DWFKMeans = kind(k, random_state=seed, **words).fit(clients)
    return model


def differenced(clients: list[FloatArray], model: DWFKMeans, client: int | None, **truth: Any) -> Report:
    """Run differencing on the server's view."""
    found = Differencing(client=client).run(
        model.transcript_.view("server"), Prior(), np.random.default_rng(0)
    )
    return evaluate(found, Truth(clients, **truth))


def differencing() -> None:
    """One client's rows from its answers."""
    for init in ("kfed", "coreset"):
        for name, n_init in (("iris", 10), ("wine", 10), ("breast_cancer", 1), ("breast_cancer", 10)):
            data = [real(name, seed) for seed in range(SEEDS)]
            runs = (fitted(c, 10, s, n_init=n_init, init=init) for s, c in enumerate(data))
            line(
                f"{name}, {init}, n_init {n_init}",
                (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
            )
        data = [real("digits", seed) for seed in range(3)]
        runs = (fitted(c, 10, s, n_init=5, init=init) for s, c in enumerate(data))
        line(
            f"digits (3 seeds), {init}, n_init 5",
            (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
        )
    for n, k, d in (
        (20, 10, 2),
        (50, 10, 2),
        (100, 10, 2),
        (100, 50, 2),
        (200, 10, 2),
        (500, 10, 2),
        (100, 10, 10),
        (100, 10, 50),
    ):
        for n_init in (1, 2, 5, 10) if (n, k, d) == (100, 10, 2) else (1, 10):
            data = [mixture(seed, n, d)[0] for seed in range(SEEDS)]
            runs = (fitted(c, k, s, n_init=n_init, max_iter=20) for s, c in enumerate(data))
            line(
                f"mixture n={n} k={k} d={d}, kfed, n_init {n_init}",
                (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
            )


def pooled() -> None:
    """All rows from the totals of a secure sum."""
    for init in ("kfed", "coreset"):
        for name, n_init in (("iris", 10), ("breast_cancer", 1), ("breast_cancer", 10)):
            data = [real(name, seed) for seed in range(SEEDS)]
            runs = (fitted(c, 10, s, n_init=n_init, init=init, protocol="masked") for s, c in enumerate(data))
            reports = (differenced(c, m, None, tolerance=1e-4) for c, m in zip(data, runs, strict=True))
            line(f"{name}, masked, {init}, n_init {n_init}", reports)


def local() -> None:
    """Differencing with more local steps."""
    for steps in (1, 2, 5):
        for init in ("kfed", "coreset"):
            data = [real("breast_cancer", seed) for seed in range(5)]
            runs = (fitted(c, 10, s, n_init=10, init=init, local_iter=steps) for s, c in enumerate(data))
            line(
                f"breast_cancer (5 seeds), {init}, {steps} local steps",
                (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
            )


def counts() -> None:
    """Hidden counts of EWF k-means."""
    for n, k, d in ((50, 10, 2), (100, 10, 2), (100, 5, 2), (100, 10, 10), (100, 10, 50)):
        for use_totals in (True, False):
            reports = []
            for seed in range(SEEDS):
                clients = mixture(seed, n, d)[0]
                model = fitted(clients, k, seed, kind=EWFKMeans, max_iter=20)
                attack = EqualWeightCounts(client=0, use_totals=use_totals)
                found = attack.run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
                reports.append(evaluate(found, Truth(clients)))
            line(f"EWF n={n} k={k} d={d}, totals {use_totals}", reports)


def tomography() -> None:
    """A client's distribution from its counts."""
    for n_init, rounds in ((1, 1), (1, 5), (1, 20), (5, 20)):
        reports, ideal = [], []
        for seed in range(SEEDS):
            clients, others = mixture(seed, 200, 2, components=8, alpha=0.3)
            model = fitted(clients, 10, seed, n_init=n_init, max_iter=rounds, tol=0)
            found = Tomography(client=0).run(
                model.transcript_.view("server"),
                Prior(sample=np.concatenate(others)),
                np.random.default_rng(0),
            )
            reports.append(evaluate(found, Truth(clients)))
            ideal.append(wasserstein(others[0], np.ones(200), clients[0], np.random.default_rng(0)))
        line(f"tomography T={rounds} n_init={n_init}", reports, "W1", "W1 without access", "W1 ratio")
        print(f"    W1 of a fresh sample of the client's own distribution: {np.mean(ideal):.3f}")


def verified() -> None:
    """What a curious client and a lying server recover, without and with verified totals."""
    for name, n_init in (("iris", 10), ("wine", 10), ("breast_cancer", 10)):
        data = [real(name, seed) for seed in range(SEEDS)]
        for over in ("masked", "masked-verified"):
            runs = [
                fitted(c, 10, s, n_init=n_init, init="coreset", protocol=over) for s, c in enumerate(data)
            ]
            for party, colluding in (("server", ()), ("clients", (0,))):
                views = (model.transcript_.view(party, colluding=colluding) for model in runs)
                priors = (Prior(colluders={i: c[i] for i in colluding}) for c in data)
                rng = np.random.default_rng(0)
                found = (Differencing().run(v, p, rng) for v, p in zip(views, priors, strict=True))
                reports = [evaluate(f, Truth(c, tolerance=1e-4)) for f, c in zip(found, data, strict=True)]
                line(f"{name}, {over}, {party}", reports)
    for over in ("masked", "masked-verified"):
        reports = [probed(mixture(s, 50, 2)[0], Probing(10), protocol=over, tolerance=1e-5) for s in range(3)]
        line(f"probing 10 clients of 50 (3 seeds), {over}", reports)


def probed(
    clients: list[FloatArray],
    attack: Probing,
    *,
    protocol: str = "plain",
    budget: int = 5000,
    policy: ClientPolicy | None = None,
    domain: Box | None = None,
    tolerance: float = 1e-6,
) -> Report:
    """Probe clients that check no program."""
    policy = replace(policy or ClientPolicy(), undeclared=True)
    oracle = Oracle(open_over(clients, protocol=protocol, policy=policy, domain=domain), budget)
    low, high = (None, None) if domain is None else domain.bounds(clients[0].shape[1])
    found = attack.run(oracle, Prior(low=low, high=high), np.random.default_rng(0))
    return evaluate(found, Truth(clients, tolerance=tolerance))


def probing() -> None:
    """Chosen centroids."""
    for n, k, d in ((20, 5, 2), (100, 5, 2), (100, 10, 2), (100, 10, 100), (500, 10, 2), (1000, 50, 10)):
        attack = Probing(k, client=0)
        reports = [probed(mixture(s, n, d, clients=2)[0], attack) for s in range(SEEDS)]
        most = max(one.queries for one in reports)
        line(f"probing n={n} k={k} d={d}", reports)
        print(f"    most questions {most}, 1.1 (n-1)/(k/2) + 2 = {1.1 * (n - 1) / (k / 2) + 2:.1f}")
        policy = ClientPolicy(group_size=5)
        reports = [probed(mixture(s, n, d, clients=2)[0], attack, policy=policy) for s in range(SEEDS)]
        line(f"probing n={n} k={k} d={d}, groups of 5", reports)
    for n, k, d in ((20, 10, 2), (50, 10, 2), (50, 10, 5)):
        attack = Probing(k, client=0, counts_only=True, precision=1e-7)
        reports = [probed(mixture(s, n, d, clients=2)[0], attack, tolerance=1e-5) for s in range(5)]
        line(f"probing by counts (5 seeds) n={n} k={k} d={d}", reports)
    for budget in (5, 10, 20, 30):
        data = [mixture(s, 100, 2, clients=2)[0] for s in range(SEEDS)]
        reports = [probed(one, Probing(10, client=0), budget=budget) for one in data]
        line(f"probing n=100 k=10, {budget} questions", reports)
    for protocol in ("plain", "masked"):
        for name, attack in (
            ("broadcast", Probing(10)),
            ("inconsistent", Probing(10, client=3, inconsistent=True)),
        ):
            reports = [
                probed(mixture(s, 50, 2)[0], attack, protocol=protocol, tolerance=1e-5) for s in range(3)
            ]
            line(f"probing 10 clients of 50 (3 seeds), {protocol}, {name}", reports)


def probing_noised() -> None:
    """Chosen centroids under differential privacy: 20 questions share the budget."""
    low, high = np.full(2, -12.0), np.full(2, 12.0)
    for protocol, client in (("plain", 0), ("masked", None)):
        for epsilon in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5):
            reports, near, guessed = [], [], []
            for seed in range(SEEDS):
                clients = mixture(seed, 100, 2, clients=3)[0]
                privacy = Privacy(
                    epsilon=epsilon,
                    delta=1e-5,
                    unit="record",
                    domain=Box(-12, 12),
                    neighbours="add-remove",
                    noise_seed=seed,
                )
                oracle = Oracle(
                    open_over(
                        clients, protocol=protocol, privacy=privacy, policy=ClientPolicy(undeclared=True)
                    ),
                    20,
                )
                rng = np.random.default_rng(seed)
                found = Probing(10, client=client).run(oracle, Prior(low=low, high=high), rng)
                rows = cKDTree(clients[0] if client == 0 else np.concatenate(clients))
                near.append(np.median(rows.query(found.points)[0]) if len(found.points) else np.nan)
                guessed.append(np.median(rows.query(rng.uniform(low, high, (1000, 2)))[0]))
                reports.append(evaluate(found, Truth(clients)))
            line(f"probing, {protocol}, epsilon {epsilon:g}", reports, "recovered within .05 sd")
            claims = np.mean([one.claims for one in reports])
            print(f"    claims {claims:.0f}, median distance {np.nanmean(near):.2f}, of guesses", end=" ")
            print(f"{np.mean(guessed):.2f}")


def disaggregation() -> None:
    """Clients' statistics from totals over changing cohorts."""
    for n_clients, cohort, rounds, rate in (
        (20, 10, 100, 1.0),
        (20, 10, 100, 0.1),
        (20, 10, 100, 0.01),
        (50, 10, 300, 1.0),
        (20, 19, 100, 1.0),
    ):
        reports = []
        for seed in range(SEEDS):
            clients = mixture(seed, 50, 2, clients=n_clients)[0]
            words: dict[str, Any] = {"learning_rate": rate, "max_iter": rounds, "clients_per_round": cohort}
            model = fitted(clients, 5, seed, tol=0, **words)
            found = Disaggregation().run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
            reports.append(evaluate(found, Truth(clients)))
        line(
            f"disaggregation N={n_clients} of {cohort} T={rounds} rate={rate}",
            reports,
            "relative error",
            "relative error, no access",
            "rows with all counts right",
        )


def defences() -> None:
    """What does not stop differencing."""
    policies = {f"groups of {m}": ClientPolicy(group_size=m) for m in (1, 3, 5)}
    for init in ("coreset", "kfed", "random"):
        for name, policy in policies.items():
            data = [real("breast_cancer", seed) for seed in range(5)]
            runs = (fitted(c, 10, s, n_init=10, init=init, policy=policy) for s, c in enumerate(data))
            line(
                f"breast_cancer (5 seeds), {init}, {name}",
                (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
            )
        data = [real("breast_cancer", seed) for seed in range(5)]
        runs = (fitted(c, 10, s, n_init=10, init=init, clients_per_round=1) for s, c in enumerate(data))
        line(
            f"breast_cancer (5 seeds), {init}, 1 of 5 clients a round",
            (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
        )


PARTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        *(
            differencing,
            pooled,
            verified,
            local,
            counts,
            tomography,
            probing,
            probing_noised,
            disaggregation,
            defences,
        ),
    )
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
