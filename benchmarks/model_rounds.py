"""CPU time of a round of models beside bare torch in the same process, and of a DP-SGD fit beside Opacus.

    OMP_NUM_THREADS=1 python -m benchmarks.model_rounds

A perceptron of 159,010 parameters in float32, 20 clients of 100 rows, batches of 25, one epoch. A round is
the difference of two fits by their number of rounds, so that set-up is in neither; bare torch trains the same
batches from copies of one model, and averages. DP-SGD is of a network of two convolutions (13,066
parameters), one client of 300 rows, batches of a fifth. Prints a table with the day.
"""

from __future__ import annotations

import datetime
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine

from privfed import Box, Privacy
from privfed.deep import DCFL, FedAvg

CLIENTS, ROWS, SHORT, LONG, TURNS = 20, 100, 2, 5, 3


def perceptron() -> Any:
    """Return the network of the first table."""
    return torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))


def convolutions() -> Any:
    """Return the network of the second table."""
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 28, 28)),
        torch.nn.Conv2d(1, 16, 8, 2, padding=3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, 1),
        torch.nn.Conv2d(16, 32, 4, 2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, 1),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )


def seconds(what: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes."""
    began = time.process_time()
    what()
    return time.process_time() - began


def bare(X: list[np.ndarray], y: list[np.ndarray], rounds: int) -> None:
    """Train as a round does, with torch alone."""
    model, loss = perceptron(), torch.nn.functional.cross_entropy
    data = [(torch.tensor(a, dtype=torch.float32), torch.tensor(b)) for a, b in zip(X, y, strict=True)]
    for _ in range(rounds):
        start, total = [one.detach().clone() for one in model.parameters()], None
        for rows, labels in data:
            with torch.no_grad():
                for one, value in zip(model.parameters(), start, strict=True):
                    one.copy_(value)
            for batch in torch.randperm(len(rows)).split(25):
                gradients = torch.autograd.grad(
                    loss(model(rows[batch]), labels[batch]), list(model.parameters())
                )
                with torch.no_grad():
                    for one, gradient in zip(model.parameters(), gradients, strict=True):
                        one.sub_(0.1 * gradient)
            own = [one.detach().clone() for one in model.parameters()]
            total = own if total is None else [a + b for a, b in zip(total, own, strict=True)]
        with torch.no_grad():
            for one, value in zip(model.parameters(), total or [], strict=True):
                one.copy_(value / len(data))


def opacus(X: np.ndarray, y: np.ndarray, epochs: int) -> None:
    """Train by Opacus."""
    model = convolutions()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
    loader = torch.utils.data.DataLoader(rows, batch_size=len(X) // 5)
    made = PrivacyEngine().make_private(
        module=model, optimizer=sgd, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for _ in range(epochs):
        for features, labels in made[2]:
            made[1].zero_grad()
            torch.nn.functional.cross_entropy(made[0](features), labels).backward()
            made[1].step()


def private(X: np.ndarray, y: np.ndarray, rounds: int) -> object:
    """Train by DP-SGD, an epoch a round."""
    claim = Privacy(
        epsilon=100.0, delta=1e-5, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
    )
    words = {"n_classes": 10, "rounds": rounds, "protocol": "plain", "privacy": claim, "sample_rate": 0.2}
    return FedAvg(convolutions(), **words, rows_per_client=len(X), noise_multiplier=1.0).fit([X], [y])


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = [rng.random((ROWS, 784)) for _ in range(CLIENTS)]
    y = [rng.integers(0, 10, ROWS) for _ in range(CLIENTS)]
    common: dict[str, Any] = {"n_classes": 10, "batch_size": 25, "domain": Box(0, 1, max_rows=ROWS)}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "FedAvg, plain sums": (FedAvg, {"protocol": "plain"}),
        "FedAvg, masked sums": (FedAvg, {}),
        'DCFL, `merge="gathered"`': (DCFL, {"protocol": "plain", "merge": "gathered"}),
        "DCFL by default": (DCFL, {}),
    }

    def fitted(name: str, rounds: int) -> object:
        kind, words = ways[name]
        return kind(perceptron(), rounds=rounds, **common, **words).fit(X, y)

    def of_a_round(what: Callable[[int], object]) -> float:
        what(1)
        short = median(seconds(lambda: what(SHORT)) for _ in range(TURNS))
        return (median(seconds(lambda: what(LONG)) for _ in range(TURNS)) - short) / (LONG - SHORT)

    print(f"{datetime.date.today()}, torch {torch.__version__}\n")
    floor = of_a_round(lambda rounds: bare(X, y, rounds))
    print(f"| a round | CPU seconds | beside bare torch ({floor:.3f} s) |\n|---|---|---|")
    for name in ways:
        found = of_a_round(lambda rounds, name=name: fitted(name, rounds))  # type: ignore[misc]
        print(f"| {name} | {found:.2f} | {found / floor:.1f} |", flush=True)
    rows, labels = rng.random((300, 784)), rng.integers(0, 10, 300)
    theirs = of_a_round(lambda rounds: opacus(rows, labels, rounds))
    ours = of_a_round(lambda rounds: private(rows, labels, rounds))
    print(f"| DP-SGD, two convolutions | {ours:.2f} | {ours / theirs:.2f} of Opacus |")


if __name__ == "__main__":
    main()
