"""
Your own algorithm
==================

An algorithm over sums says what to ask in a round, and where centers go by the total. Ranges, starts,
secure sums, dropouts and transcripts are inherited.
"""

# %%
# Here centers of few rows are drawn towards the middle of all centers. The question is that of k-means.

import matplotlib.pyplot as plt
import numpy as np

import privfed.extend as px
from privfed import DWFKMeans


@px.register_algorithm
class Shrunken(px.RoundsAlgorithm):
    """k-means whose centers count so many further rows, in the middle of all centers."""

    rows: float = px.parameter(default=30.0, text="rows in the middle that each center counts.")

    def ask(self, ranges, centers):
        return px.LloydSums(ranges=ranges, centers=centers)

    def move(self, question, total):
        middle = question.centers.mean(axis=0)
        return (total["sum"] + self.rows * middle) / (total["count"] + self.rows)[:, None]


class ShrunkenKMeans(px.RoundsClusterer):
    """Shrunken k-means over any secure sum."""

    algorithm = Shrunken


# %%
# It fits as any other, over masked sums; ``privfed fit --algorithm module:ShrunkenKMeans`` does, too.

rng = np.random.default_rng(4)
groups = np.array([[-5.0, 0.0], [5.0, 0.0], [0.0, 6.0]])
clients = [rng.normal(groups[rng.choice(3, size=80, p=[0.5, 0.45, 0.05])], 1.0) for _ in range(5)]
plain = DWFKMeans(3, n_init=3, random_state=0).fit(clients)
shrunken = ShrunkenKMeans(3, rows=30.0, n_init=3, random_state=0).fit(clients)
print(plain.cluster_centers_.round(2), shrunken.cluster_centers_.round(2), sep="\n")

figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
axes.scatter(*np.concatenate(clients).T, s=6, color="lightgrey")
for name, model in (("k-means", plain), ("shrunken", shrunken)):
    axes.scatter(*model.cluster_centers_.T, marker="X", s=140, label=name)
axes.legend()
plt.show()
