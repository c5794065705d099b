"""What a study measures of a fit that trains models: each client's own model on its own rows."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np

from privfed.deep.estimators.base import FederatedModel
from privfed.experiments.study.datasets import Scene


def values_of_models(scene: Scene, model: FederatedModel) -> dict[str, Any]:
    """Return utility and size of a fitted model, for scoring only.

    `accuracy` is the mean over the clients of the share of its own rows that a client's own model gets
    right, and `accuracy_spread` their standard deviation.
    """
    held = zip(scene.clients, scene.labels or (), model.labels_.tolist(), strict=True)
    own = [
        float((model.predict(rows, cluster) == labels).mean())
        for rows, labels, cluster in held
        if cluster >= 0 and len(rows)
    ]
    return {
        **({"accuracy": float(np.mean(own)), "accuracy_spread": float(np.std(own))} if own else {}),
        "clusters": len(model.models_),
        "parameters": model.models_.shape[1],
        "centers": sha256(model.models_.tobytes()).hexdigest()[:16],
        "converged": None,
        "remedy": "",
        "marks": [],
        "score_ratio_after": [],
    }
