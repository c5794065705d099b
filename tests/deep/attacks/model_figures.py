"""What models and sketches tell of the digits; prints the figures of docs/algorithms/deep.md.

Six clients whose classes are shared out by Dirichlet draws, eight rounds of DCFL over masked slots, with the
defaults. As many digits that nobody trained on are the candidates that are no members.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from privfed import Box
from privfed.attacks import evaluate
from privfed.attacks.base.preparation import Prior
from privfed.deep import DCFL
from privfed.deep.attacks.linkage import LabelledTruth, SketchLinkage
from privfed.deep.attacks.membership import ModelMembership

N, SEEDS = 6, range(6)


def shared_out(labels: np.ndarray, alpha: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the positions of each client's rows."""
    parts: list[list[int]] = [[] for _ in range(N)]
    for kind in np.unique(labels):
        own = np.flatnonzero(labels == kind)
        cuts = (np.cumsum(rng.dirichlet([alpha] * N))[:-1] * len(own)).astype(int)
        for part, rows in zip(parts, np.split(own, cuts), strict=True):
            part += rows.tolist()
    return [np.array(part, dtype=np.intp) for part in parts]


def figures(seed: int, alpha: float, rows: int) -> tuple[float, float, float]:
    """Return the share of sketches that are linked, that by guessing, and the area of membership."""
    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))[: 2 * rows]
    X, y = features[order] / 16.0, labels[order]
    parts = shared_out(y[:rows], alpha, rng)
    own = [X[part] for part in parts], [y[part] for part in parts]
    view = (
        DCFL(n_classes=10, rounds=8, domain=Box(0, 1), random_state=seed).fit(*own).transcript_.view("server")
    )
    linked = SketchLinkage().run(view, Prior(), np.random.default_rng(0))
    report = evaluate(linked, LabelledTruth(own[0], labels=own[1]))
    scores = ModelMembership(X, y).run(view, Prior(), np.random.default_rng(0)).scores  # type: ignore[union-attr]
    return report.recovered, report.baseline, float(roc_auc_score(np.arange(len(y)) < rows, scores))


if __name__ == "__main__":
    for alpha in (0.5, 5.0, 100.0):
        for rows in (120, 900):
            found = np.array([figures(seed, alpha, rows) for seed in SEEDS])
            means, errors = found.mean(axis=0), found.std(axis=0) / len(SEEDS) ** 0.5
            print(alpha, rows, " ".join(f"{a:.3f} ± {b:.3f}" for a, b in zip(means, errors, strict=True)))
