"""
Cluster three hospitals' rows
=============================

Three hospitals hold rows that must stay where they are. They find common clusters: by the default
sum the server sees totals only.
"""

# %%
# Each hospital has its own share of four groups of patients.

import matplotlib.pyplot as plt
import numpy as np

from privfed import DWFKMeans

rng = np.random.default_rng(7)
groups = np.array([[-4.0, -3.0], [-3.0, 4.0], [3.5, -2.5], [4.0, 3.5]])
shares = {"Aarhus": [0.6, 0.2, 0.1, 0.1], "Odense": [0.1, 0.1, 0.2, 0.6], "Viborg": [0.1, 0.4, 0.4, 0.1]}
hospitals = {
    name: rng.normal(groups[rng.choice(4, size=150, p=share)], 0.9) for name, share in shares.items()
}

# %%
# ``protocol="masked"`` is the default: masks hide each hospital's sums, and cancel in the total.

model = DWFKMeans(n_clusters=4, n_init=5, random_state=0).fit(hospitals)
print(model.cluster_centers_.round(2))

# %%
# The hospitals' rows are drawn here only because this program plays all of them.

figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
for name, rows in hospitals.items():
    axes.scatter(*rows.T, s=8, alpha=0.5, label=name)
axes.scatter(*model.cluster_centers_.T, marker="X", s=160, color="black", label="centroids")
axes.legend()
axes.set_xlabel("first column")
axes.set_ylabel("second column")
plt.show()
