"""
Spend a budget over a year
==========================

Releases of the same rows add up. A ``PrivacyBudget`` is a file that pays for all of them, before
they are asked.
"""

# %%
# The budget is declared once, with what it protects.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from privfed import Box, DPKMeans, PrivacyBudget, metrics

rng = np.random.default_rng(5)
groups = np.array([[-6.0, -6.0], [6.0, -5.0], [0.0, 7.0]])
clinics = [rng.normal(groups[rng.integers(3, size=400)], 1.0) for _ in range(5)]

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "budget.db"
budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", path, domain=Box(-12, 12))

# %%
# A fit a quarter, and after each an index of how well its clusters are apart. The noise is real: this
# page's figures
# change from build to build.

left, spent = [1.0], []
for quarter in range(4):
    model = DPKMeans(3, privacy=budget.take(0.18)).fit(clinics)
    left.append(left[-1] - 0.18)
    index = metrics.davies_bouldin(clinics, model.cluster_centers_, privacy=budget.take(0.04))
    left.append(left[-1] - 0.04)
    spent.append(float(index))
    print(f"quarter {quarter + 1}: Davies-Bouldin {index:.2f}; {budget.remaining()}")
for paid in budget.log():
    print(f"{paid.date[:10]}  {paid.share:.0%}  {paid.purpose}")

# %%

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.step(range(len(left)), left, where="post")
axes.set_ylim(0, 1)
axes.set_xlabel("releases")
axes.set_ylabel("share of the budget that is left")
plt.show()
folder.cleanup()
