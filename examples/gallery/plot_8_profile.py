"""
What is each cluster?
=====================

A profile has each cluster's size, means and spreads, in the columns' units. It takes the same path
as a fit.
"""

# %%
# Five hospitals; columns of unlike scales are compared on one (``scale="standard"``).

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from privfed import DWFKMeans, metrics

wine = load_wine()
hospitals = np.array_split(np.random.default_rng(0).permutation(wine.data), 5)
model = DWFKMeans(3, n_init=5, scale="standard", random_state=0).fit(hospitals)

# %%
# ``apart`` says by how many standard deviations of all rows a cluster's mean lies off.

profile = metrics.profiles(model.federation_, model.cluster_centers_)
print("rows:", profile.sizes.astype(int))
order = np.argsort(-np.abs(profile.apart).max(axis=0))[:8]
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
drawn = axes.imshow(profile.apart[:, order], cmap="RdBu", vmin=-1.5, vmax=1.5, aspect="auto")
axes.set_xticks(range(8), [wine.feature_names[i][:18] for i in order], rotation=35, ha="right")
axes.set_yticks(range(3), [f"cluster {i}" for i in range(3)])
figure.colorbar(drawn, label="standard deviations")
plt.show()
