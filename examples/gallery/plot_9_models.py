"""
Models for clusters of clients
==============================

Clients of two kinds want different classifiers. DCFL finds the kinds from the updates, which
clients send anyway. Needs the extra ``privfed[deep]``.
"""

# %%
# Twelve clients; for half of them the classes are exchanged.

import matplotlib.pyplot as plt
import numpy as np

from privfed import Box
from privfed.deep import DCFL, FedAvg

rng = np.random.default_rng(0)
clients, labels = [], []
for i in range(12):
    kinds = rng.integers(2, size=80)
    clients.append(np.clip(rng.normal(np.where(kinds, 1.5, -1.5)[:, None], 1.0, (80, 2)), -6, 6))
    labels.append(kinds if i < 6 else 1 - kinds)

# %%
# One model for all does no better than a coin; a model a cluster does.

words = {"n_classes": 2, "rounds": 8, "domain": Box(-6, 6), "random_state": 0}
together, clustered = FedAvg(**words).fit(clients, labels), DCFL(**words).fit(clients, labels)
print("clusters of the clients:", clustered.labels_)

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, model in (("one model (FedAvg)", together), ("a model a cluster (DCFL)", clustered)):
    mine = getattr(model, "labels_", [None] * 12)
    pairs = zip(clients, labels, mine, strict=True)
    right = [(model.predict(x, own) == y).mean() for x, y, own in pairs]
    axes.plot(right, "o", label=name)
axes.set_xlabel("client")
axes.set_ylabel("accuracy")
axes.set_ylim(0, 1.03)
axes.legend()
plt.show()
