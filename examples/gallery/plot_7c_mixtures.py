"""
Mixtures of unlike clusters
===========================

A Gaussian mixture finds clusters that differ in size and are long in any direction, where k-means cuts
them. Its steps are sums.
"""

# %%
# A large round group and two thin ones that cross it, over four clients.

import matplotlib.pyplot as plt
import numpy as np

from privfed import DWFKMeans, FederatedGaussianMixture

rng = np.random.default_rng(3)
long = rng.normal(size=(400, 2)) * [2.2, 0.12]
turn = np.array([[0.8, -0.6], [0.6, 0.8]])
round_one = rng.normal(size=(900, 2)) + np.array([0.0, 3.0])
rows = np.concatenate([round_one, long @ turn, long @ turn.T - np.array([0.0, 1.5])])
clients = np.array_split(rng.permutation(rows), 4)
model = FederatedGaussianMixture(3, n_init=5, random_state=0).fit(clients)
print("shares of the components:", model.weights_.round(2))

# %%
# The number of components is chosen by the Bayesian information criterion of all rows.

for k in range(2, 5):
    print(k, round(FederatedGaussianMixture(k, n_init=5, random_state=0).fit(clients).bic()))

# %%
# Both clusterings of the same rows.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.scatter(*rows.T, c=DWFKMeans(3).fit(clients).predict(rows), s=4, cmap="viridis")
left.set_title("k-means")
right.scatter(*rows.T, c=model.predict(rows), s=4, cmap="viridis")
right.set_title("mixture")
plt.show()
