"""Accuracy of CFLA's algorithms for clusters of clients, on the clients of `benchmarks.models`.

    python -m benchmarks.models --data sites --images mnist.npz         # writes the clients as .npz files
    python benchmarks/clustered_baselines.py sites                      # in an environment with CFLA

CFLA 1.0.4 pins torch 2.0.1, which fails with the numpy 2 that it installs: add `numpy<2`. So it needs an
environment of its own, and this file imports nothing of privfed. Rounds, batches and learning rate are those
of `benchmarks.models` without privacy. "told" methods know that there are four clusters; all clients take
part in each round. HCFL and LCFed need a model in two parts: a perceptron of 32 units; all others train
softmax regression. What else they have are the defaults of CFLA's own scripts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cfla.framework.client import (
    client_cgpfl,
    client_fedgroup,
    client_fesem,
    client_flhc,
    client_hcfl,
    client_ifca,
    client_lcfed,
)
from cfla.framework.server import (
    server_cgpfl,
    server_fedgroup,
    server_fesem,
    server_flhc,
    server_hcfl,
    server_ifca,
    serveur_lcfed,
)
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUE, ROUNDS = np.arange(20) % 4, 20
FLHC = (client_flhc.ClientFLHC, server_flhc.ServerFLHC)
FEDGROUP = (client_fedgroup.ClientFedGroup, server_fedgroup.ServerFedGroup)
HCFL = (client_hcfl.ClientHCFL, server_hcfl.ServerHCFL)
METHODS: dict[str, tuple[Any, Any, bool, dict[str, Any]]] = {
    "oracle": (*FEDGROUP, False, {"initial_rounds": 0}),
    "FLHC": (*FLHC, False, {"initial_rounds": 5, "n_clusters": None}),
    "FLHC, told": (*FLHC, False, {"initial_rounds": 5, "n_clusters": 4}),
    "FedGroup": (*FEDGROUP, False, {"initial_rounds": 3}),
    "FeSEM, told": (client_fesem.ClientFeSEM, server_fesem.ServerFeSEM, False, {}),
    "CGPFL, told": (client_cgpfl.ClientCGPFL, server_cgpfl.ServerCGPFL, False, {}),
    "IFCA, told": (client_ifca.ClientIFCA, server_ifca.ServerIFCA, False, {}),
    "oracle, perceptron": (*FEDGROUP, True, {"initial_rounds": 0}),
    "HCFL": (*HCFL, True, {"initial_rounds": 5, "n_clusters": None}),
    "HCFL, told": (*HCFL, True, {"initial_rounds": 5, "n_clusters": 4}),
    "LCFed, told": (client_lcfed.ClientLCFed, serveur_lcfed.ServerLCFed, True, {}),
}


def model_of(width: int, n_classes: int, split: bool) -> type[nn.Module]:
    """Return a class of models without arguments, as CFLA makes them."""

    class Softmax(nn.Linear):
        def __init__(self) -> None:
            super().__init__(width, n_classes)

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Sequential(nn.Linear(width, 32), nn.ReLU()), nn.Linear(32, n_classes)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(rows))

    return Perceptron if split else Softmax


def measured(name: str, drawn: Any, folder: str, seed: int) -> tuple[float, float]:
    """Return the mean accuracy of a method over the clients, and the adjusted Rand index of its clusters."""
    torch.manual_seed(seed)
    client_class, server_class, split, own = METHODS[name]
    common = {"device": "cpu", "output_dir": folder, "seed": seed, "optimizer": None, "criterion": None}
    of_client = {"local_epochs": 1, "learning_rate": 0.3, "batch_size": 32, "train_fraction": 0.5}
    clients = []
    for number in range(len(TRUE)):
        parts = [
            TensorDataset(
                torch.tensor(drawn[f"X{part}"][number]).float(), torch.tensor(drawn[f"y{part}"][number])
            )
            for part in ("train", "test")
        ]
        one = client_class(number, parts[0], common | of_client, folder)
        # CFLA divides rows by chance: here all of them train, and others test.
        one.train_loader = DataLoader(parts[0], batch_size=32, shuffle=True)
        one.test_loader = DataLoader(parts[1], batch_size=256)
        clients.append(one)
    of_server = {
        "fraction": 1.0,
        "rounds": ROUNDS,
        "cluster_rounds": ROUNDS - own.get("initial_rounds", 0),
        "num_clusters": 4,
        "distance_threshold": 0.5,
        "clustering_metric": "cosine",
        **own,
    }
    kind = model_of(drawn["Xtrain"].shape[2], int(drawn["n_classes"]), split)
    server = server_class(kind(), clients[0].test_loader, common | of_server)
    if name.startswith("oracle"):
        groups = {k: [clients[i] for i in np.flatnonzero(k == TRUE)] for k in range(4)}
        server._collect_params_and_cluster = lambda: groups
    server.set_clients(clients)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        server.train()
    if isinstance(server, server_flhc.ServerFLHC):
        places = {one.client_id: label for label, members in server.clusters.items() for one in members}
        labels = [places[i] for i in range(len(clients))]
        states = {label: one.state_dict() for label, one in server.specialized_models.items()}
    else:
        labels, states = list(server.R), dict(enumerate(server.cluster_centers))
    found = []
    for one, label in zip(clients, labels, strict=True):
        model = kind()
        model.load_state_dict(states[label])
        found.append(
            one.evaluate(model)[0] if not isinstance(one, client_flhc.ClientFLHC) else _scored(one, model)
        )
    return float(np.mean(found)), float(adjusted_rand_score(TRUE, labels))


def _scored(client: Any, model: nn.Module) -> float:
    client.local_model = model
    return float(client.evaluate()[0])


def main() -> None:
    """Measure and print, a line of JSON for each kind of rows and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where benchmarks.models --data has written clients")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    args = parser.parse_args()
    kinds = sorted({path.stem.rsplit("-", 1)[0] for path in args.folder.glob("*.npz")})
    for kind in kinds:
        for name in args.methods:
            found = []
            for path in sorted(args.folder.glob(f"{kind}-*.npz")):
                with np.load(path) as drawn, tempfile.TemporaryDirectory() as folder:
                    found.append(measured(name, drawn, folder, int(path.stem.rsplit("-", 1)[1])))
            accuracies, indices = np.round(np.transpose(found), 3).tolist()
            print(
                json.dumps({"kind": kind, "method": name, "accuracy": accuracies, "ari": indices}), flush=True
            )


if __name__ == "__main__":
    main()
