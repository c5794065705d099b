"""
Answer from groups of rows
==========================

A client may answer from the means of groups of alike rows. Then no total, of however many fits, has
a single row.
"""

# %%
# Wine over five clinics, in groups of at least 1 (the rows as they are), 3, 5 and 10 rows.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from privfed import ClientPolicy, DWFKMeans, attacks
from privfed.data import ClientTable, ClientTables

wine = load_wine()
rows = np.random.default_rng(0).permutation(scale(wine.data))
parts = np.array_split(rows, 5)
true_cost = DWFKMeans(3, n_init=5, random_state=0).fit(parts).inertia_


def cost(centers):
    """Return the cost of centers on the true rows."""
    return sum(np.square(part[:, None] - centers).sum(axis=2).min(axis=1).sum() for part in parts)


sizes, costs, found = [1, 3, 5, 10], [], []
for size in sizes:
    tables = (ClientTable(f"clinic {i}", part) for i, part in enumerate(parts))
    clinics = ClientTables(tuple(tables), wine.feature_names)
    policy = ClientPolicy(group_size=size)
    fits = [
        DWFKMeans(3, local_iter=1, max_iter=30, random_state=seed, policy=policy).fit(clinics)
        for seed in range(10)
    ]
    costs.append(min(cost(one.cluster_centers_) for one in fits) / true_cost)
    views = [one.transcript_.view("server") for one in fits]
    rng = np.random.default_rng(0)
    claims = attacks.Differencing().run(attacks.pooled(views), attacks.Prior(), rng)
    found.append(attacks.evaluate(claims, attacks.Truth(parts)).recovered)
    print(f"groups of {size}: cost {costs[-1]:.3f}, rows found in ten fits {found[-1]:.2f}")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
for axes, values, named in ((left, costs, "cost, of the fit on rows"), (right, found, "share of rows found")):
    axes.plot(sizes, values, marker="o")
    axes.set_xlabel("least rows in a group")
    axes.set_ylabel(named)
plt.show()
