"""
How many clusters are there?
============================

``select_n_clusters`` fits each candidate and compares an index, which is asked over the same sums
as the fits.
"""

# %%
# Six clinics hold rows of five groups.

import matplotlib.pyplot as plt
import numpy as np

from privfed import select_n_clusters

rng = np.random.default_rng(3)
groups = np.array([[0.0, 0.0], [6.0, 0.5], [0.5, 6.0], [6.5, 6.5], [3.0, 11.0]])
clinics = [rng.normal(groups[rng.integers(5, size=120)], 0.8) for _ in range(6)]

# %%
# The Davies-Bouldin index is small where clusters are narrow and far apart.

chosen = select_n_clusters(clinics, range(2, 9), index="davies_bouldin", n_init=3, random_state=0)
print(chosen)

# %%
# The best candidate's estimator is fitted already: ``chosen.estimator``.

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.plot([row.n_clusters for row in chosen.table], [row.index for row in chosen.table], marker="o")
axes.axvline(chosen.n_clusters, color="black", linestyle=":", label="chosen")
axes.set_xlabel("number of clusters")
axes.set_ylabel("Davies-Bouldin index")
axes.legend()
plt.show()
