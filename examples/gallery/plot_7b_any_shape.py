"""
Clusters of any shape
=====================

k-means cuts long clusters. Many centers follow them, and a tree of the released centers joins these
again. Nobody is asked anything more for it.
"""

# %%
# Two moons, over four clients that each hold a part of both.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from privfed import DWFKMeans, MergedClusters, plot

rows, truth = make_moons(1200, noise=0.06, random_state=0)
clients = np.array_split(np.random.default_rng(0).permutation(rows), 4)
cut = DWFKMeans(2).fit(clients)
model = MergedClusters(DWFKMeans(40)).fit(clients)
print("clusters found by the tree:", model.n_clusters_)
print("sums asked:", len(model.estimator_.transcript_.totals()))

# %%
# Two centers of k-means, and forty joined ones.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
left.scatter(*rows.T, c=cut.predict(rows), s=4, cmap="coolwarm")
left.set_title("k-means with 2 centers")
middle.scatter(*rows.T, c=model.predict(rows), s=4, cmap="coolwarm", alpha=0.3)
plot.ClusterMapDisplay.of(model).plot(middle).set_title("40 centers, joined")
plot.DendrogramDisplay.from_estimator(model, right).ax_.set_title("the tree, and where it is cut")
right.set_xticks([])
plt.show()

# %%
# Rows far from every center are named by the same distances.

print(model.outliers(np.array([[0.0, 1.0], [6.0, 6.0]])))
