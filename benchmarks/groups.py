"""What groups of rows cost, and what they leave of rows: the tables of docs/measurements/groups.md.

    python -m benchmarks.groups

Rows are standardised, and split over clients ten times at random. The cost is that of scikit-learn's k-means
on the clients' group means, measured on the rows themselves, divided by that of k-means on the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn import datasets
from sklearn.cluster import KMeans

from privfed.party.groups import Groups, RawTable

SPLITS = 10
SETS: dict[str, Callable[[], np.ndarray]] = {
    "breast_cancer": lambda: datasets.load_breast_cancer().data,
    "digits": lambda: datasets.load_digits().data,
    "wine": lambda: datasets.load_wine().data,
    "diabetes": lambda: datasets.load_diabetes().data,
    "blobs": lambda: datasets.make_blobs(1000, n_features=4, centers=5, random_state=0)[0],
    "moons": lambda: datasets.make_moons(1000, noise=0.1, random_state=0)[0],
    "s_curve": lambda: datasets.make_s_curve(1500, noise=0.1, random_state=0)[0],
    "classification": lambda: datasets.make_classification(
        2000, 20, n_informative=6, n_classes=4, n_clusters_per_class=1, random_state=0
    )[0],
}


def standardised(name: str) -> np.ndarray:
    """Return a set's rows with mean 0 and deviation 1."""
    rows = SETS[name]()
    deviation = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))


def clients(rows: np.ndarray, number: int, seed: int) -> list[np.ndarray]:
    """Return the numbers of each client's rows."""
    return np.array_split(np.random.default_rng(seed).permutation(len(rows)), number)


def inertia(rows: np.ndarray, centers: np.ndarray) -> float:
    """Return the cost of centers."""
    return float(((rows[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum())


def cost(rows: np.ndarray, k: int, m: int, number: int) -> float:
    """Return the mean relative cost of k-means on group means."""
    best = KMeans(k, n_init=20, random_state=0).fit(rows).inertia_
    found = []
    for seed in range(SPLITS):
        groups = [Groups.begun(RawTable(rows[own]), m) for own in clients(rows, number, seed)]
        means = np.concatenate([one.means.to_numpy() for one in groups])
        sizes = np.concatenate([one.rows for one in groups])
        fitted = KMeans(k, n_init=10, random_state=seed).fit(means, sample_weight=sizes)
        found.append(inertia(rows, fitted.cluster_centers_) / best)
    return float(np.mean(found))


def with_means(rows: np.ndarray, m: int, number: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each client's rows, and the mean of each row's group: nearest is not it, so ids find it."""
    found = []
    for own in clients(rows, number, seed):
        ids = [str(i) for i in range(len(own))]
        groups = Groups.begun(RawTable(rows[own], None, ids), m)
        means = np.full((len(own), rows.shape[1]), np.nan)
        for mean, members in zip(groups.means.to_numpy(), groups.members, strict=True):
            means[[int(one) for one in members]] = mean
        found.append((rows[own], means))
    return found


def explained(rows: np.ndarray, m: int) -> float:
    """Return the share of the rows' variance that their groups' means have."""
    pairs = with_means(rows, m, 5, 0)
    within = sum(((own - means) ** 2).sum() for own, means in pairs)
    return float(1 - within / sum(((own - own.mean(axis=0)) ** 2).sum() for own, _ in pairs))


def distances(rows: np.ndarray, m: int) -> tuple[float, float, float]:
    """Return a row's median distance to its nearest group mean, and to its nearest other row of its client.

    Both are roots of mean squares over features, in deviations. The third is the share of rows within .1 of a
    group mean.
    """
    to_mean, to_row = [], []
    for own, means in with_means(rows, m, 5, 0):
        shown = np.unique(means, axis=0)
        to_mean.append(np.sqrt(((own[:, None] - shown) ** 2).mean(axis=2)).min(axis=1))
        between = np.sqrt(((own[:, None] - own) ** 2).mean(axis=2))
        np.fill_diagonal(between, np.inf)
        to_row.append(between.min(axis=1))
    near, other = np.concatenate(to_mean), np.concatenate(to_row)
    return float(np.median(near)), float(np.median(other)), float((near < 0.1).mean())


def dominated(name: str, m: int, p: float = 10.0) -> float:
    """Return the share of sums, of groups and columns, that break the p % rule: who has the second largest
    share of a sum knows the largest to within p %. Values are taken without their sign."""
    rows = np.abs(SETS[name]())
    broken, number = 0, 0
    for own in clients(rows, 5, 0):
        ids = [str(i) for i in range(len(own))]
        for members in Groups.begun(RawTable(rows[own], None, ids), m).members:
            values = np.sort(rows[own][[int(one) for one in members]], axis=0)
            shown = values[-1] > 0
            broken += int((values[:-2].sum(axis=0) < p / 100 * values[-1])[shown].sum())
            number += int(shown.sum())
    return broken / number


def inferred(rows: np.ndarray, m: int) -> tuple[float, float]:
    """Return R2 of a hidden column of a row whose other columns are known.

    The first is from the nearest group mean; the second from the mean of the m nearest other rows of the
    client, as somebody could who knows all rows but this one.
    """
    by_means, by_rows, total = 0.0, 0.0, 0.0
    for own, means in with_means(rows, m, 5, 0):
        shown = np.unique(means, axis=0)
        for column in range(rows.shape[1]):
            others = np.arange(rows.shape[1]) != column
            nearest = ((own[:, None][..., others] - shown[..., others]) ** 2).sum(axis=2).argmin(axis=1)
            between = ((own[:, None][..., others] - own[..., others]) ** 2).sum(axis=2)
            np.fill_diagonal(between, np.inf)
            by_means += ((own[:, column] - shown[nearest, column]) ** 2).sum()
            alike = own[between.argsort(axis=1)[:, :m], column].mean(axis=1)
            by_rows += ((own[:, column] - alike) ** 2).sum()
            total += ((own[:, column] - own[:, column].mean()) ** 2).sum()
    return 1 - by_means / total, 1 - by_rows / total


def main() -> None:
    """Print the tables."""
    print("| set, clusters | m = 3 | 5 | 10 |\n|---|---|---|---|")
    for name, k in (
        ("breast_cancer", 2),
        ("digits", 10),
        ("blobs", 5),
        ("wine", 3),
        ("wine", 10),
        ("diabetes", 5),
        ("diabetes", 10),
    ):
        costs = (f"{cost(standardised(name), k, m, 5):.3f}" for m in (3, 5, 10))
        print(f"| {name}, {k} | {' | '.join(costs)} |", flush=True)
    print("\n| set, clusters, twenty clients | rows a client | m = 5 |\n|---|---|---|")
    for name, k in (("breast_cancer", 2), ("digits", 10), ("blobs", 5), ("diabetes", 5), ("wine", 3)):
        rows = standardised(name)
        print(f"| {name}, {k} | {len(rows) // 20} | {cost(rows, k, 5, 20):.3f} |", flush=True)
    print(
        "\n| set, clusters | 5 clients, m = 5 | m = 10 | 20 clients, m = 5 | m = 10 |\n|---|---|---|---|---|"
    )
    for name, k in (("moons", 2), ("moons", 8), ("s_curve", 6), ("classification", 4)):
        rows = standardised(name)
        costs = (f"{cost(rows, k, m, number):.3f}" for number in (5, 20) for m in (5, 10))
        print(f"| {name}, {k} | {' | '.join(costs)} |", flush=True)
    print(
        "\n| set | variance explained | to a group's mean | to the nearest row | within .1 | dominated | "
        "inferred from means | from other rows |\n|---|---|---|---|---|---|---|---|"
    )
    for name in ("wine", "diabetes", "breast_cancer", "digits"):
        rows = standardised(name)
        near, other, share = distances(rows, 5)
        explain = " to ".join(f"{explained(rows, m):.2f}" for m in (10, 3))
        means, alone = inferred(rows, 5)
        print(
            f"| {name} | {explain} | {near:.2f} | {other:.2f} | {share:.3f} | {dominated(name, 5):.3f} | "
            f"{means:.2f} | {alone:.2f} |",
            flush=True,
        )
    binary = (np.random.default_rng(0).random((1000, 8)) < 0.2).astype(float)
    own = np.concatenate([(one == means).all(axis=1) for one, means in with_means(binary, 5, 5, 0)])
    print(
        f"\nEight columns of zeros and ones, a fifth of them ones: {own.mean():.2f} of the rows are their "
        "group's mean."
    )
    rows = np.random.default_rng(0).normal(size=(200_000, 12))
    began = time.process_time()
    Groups.begun(RawTable(rows), 5)
    print(f"200,000 rows of 12 columns: {time.process_time() - began:.1f} CPU seconds.")


if __name__ == "__main__":
    main()
