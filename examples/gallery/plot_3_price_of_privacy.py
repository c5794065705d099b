"""
What differential privacy costs
===============================

``DPKMeans`` pays all that a fit releases from one epsilon. A smaller epsilon protects more, and
costs more.
"""

# %%
# Ten banks, 1,500 rows. The domain is declared without looking at the rows.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from privfed import Box, DPKMeans, DWFKMeans, Privacy, metrics

rng = np.random.default_rng(1)
groups = rng.uniform(-8, 8, size=(6, 2))
banks = [rng.normal(groups[rng.integers(6, size=150)], 0.7) for _ in range(10)]
domain = Box(-12, 12)


def privacy(epsilon, seed):
    # noise_seed makes the run repeat for this page; it voids the claim. Leave it out for real rows.
    words = {"unit": "record", "neighbours": "add-remove", "domain": domain}
    return Privacy(epsilon=epsilon, delta=1e-6, noise_seed=seed, **words)


# %%
# The cost is the mean squared distance to the nearest centroid, beside that of a fit without noise. At
# the smallest epsilons each fit warns that its centers are mostly noise, as the picture shows.

warnings.filterwarnings("ignore", "the centers are mostly noise")
exact = DWFKMeans(6, n_init=10, random_state=0).fit(banks)
least = metrics.score(banks, exact.cluster_centers_)
epsilons, ratios = [0.1, 0.2, 0.5, 1.0, 2.0, 4.0], []
for epsilon in epsilons:
    fits = [DPKMeans(6, privacy=privacy(epsilon, seed), random_state=seed).fit(banks) for seed in range(5)]
    ratios.append([metrics.score(banks, one.cluster_centers_) / least for one in fits])
print({epsilon: round(float(np.median(one)), 2) for epsilon, one in zip(epsilons, ratios, strict=True)})

# %%

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for epsilon, some in zip(epsilons, ratios, strict=True):
    axes.scatter([epsilon] * len(some), some, s=14, color="tab:blue")
axes.plot(epsilons, np.median(ratios, axis=1), color="tab:blue", label="median of five fits")
axes.axhline(1.0, color="black", linestyle=":", label="without noise")
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_xlabel("epsilon")
axes.set_ylabel("cost, of the exact fit's")
axes.legend()
plt.show()
