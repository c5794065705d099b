"""
Principal components with a claim
=================================

Components of all clients' rows come from sums, exactly or under differential privacy: noise is added to
one sum of products.
"""

# %%
# Four clients with ten columns, of which two directions carry most of the variance.

import matplotlib.pyplot as plt
import numpy as np

from privfed import Box, FederatedPCA, Privacy

rng = np.random.default_rng(0)
directions = np.linalg.qr(rng.normal(size=(10, 2)))[0]
rows = rng.normal(size=(8000, 2)) @ (directions * [0.3, 0.2]).T + rng.normal(size=(8000, 10)) * 0.03
clients = np.array_split(rows, 4)
exact = FederatedPCA(2).fit(clients)
print("shares of the variance:", exact.explained_variance_ratio_.round(3))

# %%
# With a claim the plane of the first two turns a little; the angle is between the two planes.

angles = []
for epsilon in (0.5, 1.0, 4.0):
    claim = Privacy(
        epsilon=epsilon,
        delta=1e-6,
        unit="record",
        neighbours="add-remove",
        domain=Box([-2.0] * 10, [2.0] * 10),
    )
    noised = FederatedPCA(2, privacy=claim).fit(clients)
    kept = np.linalg.svd(exact.components_ @ noised.components_.T, compute_uv=False).min()
    angles.append(np.degrees(np.arccos(min(kept, 1.0))))
    print(f"epsilon {epsilon:g}: {angles[-1]:.1f} degrees from the exact plane")

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot([0.5, 1.0, 4.0], angles, "o-")
axes.set(xscale="log", xlabel="epsilon", ylabel="degrees from the exact plane", ylim=(0, None))
plt.show()
