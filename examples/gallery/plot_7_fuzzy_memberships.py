"""
Fuzzy memberships
=================

In federated fuzzy c-means a row belongs to every cluster, to a degree. The totals are sums over
rows as well.
"""

# %%
# Two groups that overlap, over four clients.

import matplotlib.pyplot as plt
import numpy as np

from privfed import FederatedFuzzyCMeans, metrics

rng = np.random.default_rng(2)
groups = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 4.5]])
clients = [rng.normal(groups[rng.integers(3, size=150)], 1.1) for _ in range(4)]
model = FederatedFuzzyCMeans(3, random_state=0).fit(clients)
print(model.cluster_centers_.round(2))

# %%
# The fuzzy Davies-Bouldin index is asked over the same sums; it is small where clusters are apart.

for k in range(2, 6):
    tried = FederatedFuzzyCMeans(k, n_init=3, random_state=0).fit(clients)
    print(k, round(float(metrics.fuzzy_davies_bouldin(tried.federation_, tried.cluster_centers_)), 3))

# %%
# Memberships are computed from the centroids, by whoever holds the row.

rows = np.concatenate(clients)
degree = model.predict_proba(rows).max(axis=1)
figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
drawn = axes.scatter(*rows.T, c=degree, s=9, cmap="viridis")
axes.scatter(*model.cluster_centers_.T, marker="X", s=140, color="black")
figure.colorbar(drawn, label="largest membership of the row")
plt.show()
