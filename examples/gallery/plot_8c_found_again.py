"""
Are the clusters real, and what else do they tell?
==================================================

The same fit over parts of the hospitals says whether a cluster is found again. Columns that found no
cluster say what it means.
"""

# %%
# Six hospitals, three groups of patients; age and weight find them. A blood value has gaps.

import matplotlib.pyplot as plt
import numpy as np

from privfed import DWFKMeans, metrics
from privfed.tables import columns_by_cluster

rng = np.random.default_rng(0)
group = rng.integers(3, size=1800)
rows = np.array([[40.0, 60.0], [70.0, 65.0], [55.0, 95.0]])[group] + rng.normal(size=(1800, 2)) * 4
blood = rng.gamma(2.0, np.array([3.0, 8.0, 5.0])[group])
blood[rng.random(1800) < 0.1] = np.nan
smokes = (rng.random(1800) < np.array([0.2, 0.3, 0.6])[group]).astype(float)
hospitals = np.array_split(rows, 6)
model = DWFKMeans(3, n_init=3, random_state=0).fit(hospitals)

# %%
# Three clusters come back in each half of the hospitals; of five, none comes back as well.

for k in (3, 5):
    fitted = DWFKMeans(k, n_init=3, random_state=0).fit(hospitals)
    found = metrics.stability(fitted, hospitals, n_resamples=10)
    print(k, "clusters, mean Jaccard coefficients:", np.nanmean(found, axis=0).round(2))

# %%
# One sum has the further columns by cluster: means, quartiles, shares and gaps.

edges = [np.linspace(0, 60, 61), [-0.5, 0.5, 1.5]]
table = np.column_stack([rows, blood, smokes])
found = columns_by_cluster(np.array_split(table, 6), model.cluster_centers_, edges=edges)
for k in range(3):
    low, median, high = found.quartiles[:, k, 0]
    print(
        f"cluster {k}: {found.sizes[k]:.0f} rows, blood {median:.1f} [{low:.1f}, {high:.1f}], "
        f"missing {found.missing[k, 0]:.0%}, {found.means[k, 1]:.0%} smoke"
    )
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
three = found.quartiles[:, :, 0]
axes.errorbar(range(3), three[1], yerr=[three[1] - three[0], three[2] - three[1]], fmt="o", capsize=6)
axes.set(xticks=range(3), xlabel="cluster", ylabel="blood value: median and quartiles")
plt.show()
