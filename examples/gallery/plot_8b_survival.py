"""
Which cluster lives longer?
===========================

Clusters are found in two measurements. One more sum compares them by times that played no part in it:
Kaplan-Meier curves, their intervals and the log-rank test.
"""

# %%
# Patients of four hospitals are of three groups, whose lives are of unlike length. Some patients were last
# seen before they died (censored), and none is followed for more than two years. The fit starts from places
# that a guideline names.

import matplotlib.pyplot as plt
import numpy as np

from privfed import Box, DWFKMeans, Privacy
from privfed.plot import SurvivalDisplay
from privfed.tables import survival

rng = np.random.default_rng(0)
group = rng.integers(3, size=3000)
places = np.array([[1.0, 1.0], [4.0, 1.0], [2.5, 4.0]])
rows = places[group] + rng.normal(scale=0.5, size=(3000, 2))
life = rng.exponential(np.array([250.0, 600.0, 900.0])[group])
seen = rng.uniform(100.0, 730.0, size=3000)
clients, times, events = (np.array_split(one, 4) for one in (rows, np.minimum(life, seen), life <= seen))

centers = DWFKMeans(3, init=places).fit(clients).cluster_centers_

# %%
# The edges of time are public. Finer edges say more, of fewer rows each.

edges = np.arange(30.0, 721.0, 30.0)
exact = survival(clients, centers, times, events, edges=edges)
print("rows:", exact.at_risk[0].round())
print("days by which half had their event:", exact.median)
print(f"log-rank: {exact.statistic:.1f}, p = {exact.p_value:.2g}")

# %%
# Under differential privacy a patient changes one count, however many bins there are. Centers that exact
# sums of the same rows gave would break the claim, so that these rows count for the guideline's places.
# Bands are wider, since they know of the noise.

claim = Privacy(epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-2, 7))
private = survival(clients, places, times, events, edges=edges[2::3], privacy=claim)
print("claimed:", private.claim)
print(f"log-rank: {private.statistic:.1f}, p = {private.p_value:.2g}")

# %%
# Curves of the exact counts, and of the noised ones.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
SurvivalDisplay(exact, unit="days").plot(left).set_title("exact totals")
SurvivalDisplay(private, unit="days").plot(right).set_title("epsilon 1, bins of 90 days")
plt.show()
