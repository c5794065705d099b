"""Fits diffprivlib's k-means; `test_dp_anchors.py` runs it with the Python of an environment that has it.

Usage: python diffprivlib_fits.py sets.npz centers.npz seeds epsilon...

`sets.npz` has for each set its rows in [-1, 1] under its name, and the number of clusters under `name.k`;
`centers.npz` gets centers of shape (n_clusters, n_features) under `name/epsilon/seed`.
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import KMeans


def main(sets: str, out: str, seeds: str, *epsilons: str) -> None:
    found = {}
    with np.load(sets) as held:
        names = [name for name in held.files if not name.endswith(".k")]
        for name in names:
            rows, k = held[name], int(held[f"{name}.k"])
            for epsilon in epsilons:
                for seed in range(int(seeds)):
                    model = KMeans(k, epsilon=float(epsilon), bounds=(-1.0, 1.0), random_state=seed)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found[f"{name}/{epsilon}/{seed}"] = model.fit(rows).cluster_centers_
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
