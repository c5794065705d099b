"""Federated learning of models for clusters of clients: DCFL, CFL, IFCA, FedAvg (extra `deep`).

Models are registered by name, or torch modules; only these need the extra. What a client trains is the answer
to a question like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.deep.estimators.clustered import CFL, DCFL, IFCA, FedAvg
    from privfed.deep.training.torch_trainer import TorchTrainer
    from privfed.deep.training.trainer import MODELS, Trainer

__all__ = ["CFL", "DCFL", "IFCA", "MODELS", "FedAvg", "TorchTrainer", "Trainer"]

__getattr__ = lazily(
    __name__,
    {
        "CFL": "privfed.deep.estimators.clustered",
        "DCFL": "privfed.deep.estimators.clustered",
        "FedAvg": "privfed.deep.estimators.clustered",
        "IFCA": "privfed.deep.estimators.clustered",
        "MODELS": "privfed.deep.training.trainer",
        "TorchTrainer": "privfed.deep.training.torch_trainer",
        "Trainer": "privfed.deep.training.trainer",
    },
)
