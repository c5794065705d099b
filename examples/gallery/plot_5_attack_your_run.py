"""
Attack your own run, then ten
=============================

Totals over clients are no answers of one client, but enough of them give rows away. Attacks read
what a party saw.
"""

# %%
# Five clinics fit wine, with other starts each time. The server sees masked totals only.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from privfed import DWFKMeans, attacks

rows = np.random.default_rng(0).permutation(scale(load_wine().data))
clinics = np.array_split(rows, 5)


def seen_by_server():
    for seed in range(10):
        model = DWFKMeans(10, local_iter=1, max_iter=30, random_state=seed)
        yield model.fit(clinics).transcript_.view("server")


def share_found(views, seed=0):
    """Return the share of all rows that differencing finds in views that are read together."""
    claims = attacks.Differencing().run(attacks.pooled(views), attacks.Prior(), np.random.default_rng(seed))
    return attacks.evaluate(claims, attacks.Truth(clinics)).recovered


# %%
# Each further fit of the same rows adds equations.

fits = [1, 2, 5, 10]
exact = list(seen_by_server())
found = [share_found(exact[:n]) for n in fits]
print({n: round(share, 2) for n, share in zip(fits, found, strict=True)})

# %%
# What helps: clients that answer from means of groups of rows, a kept start, or differential privacy.

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.plot(fits, found, marker="o")
axes.set_ylim(-0.03, 1.03)
axes.set_xlabel("fits of the same rows")
axes.set_ylabel("share of rows found")
plt.show()
