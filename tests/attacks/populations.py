"""Populations that attacks are measured on: mixtures of Gaussians over clients, and a public sample."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Population(NamedTuple):
    """Rows of clients, and draws of further rows from the mixture of all clients."""

    clients: list[FloatArray]
    draw: Callable[[int], FloatArray]

    @property
    def rows(self) -> FloatArray:
        return np.concatenate(self.clients)


def mixture(seed, n_clients=10, n_rows=50, d=2, components=5, concentration=1.0) -> Population:
    """Return clients whose shares of the components are Dirichlet draws."""
    rng = np.random.default_rng(seed)
    means = rng.normal(scale=6.0, size=(components, d))
    shares = rng.dirichlet(np.full(components, concentration), n_clients)

    def of(share, n):
        return means[rng.choice(components, n, p=share)] + rng.normal(size=(n, d))

    clients = [of(share, n_rows) for share in shares]
    return Population(clients, lambda n: of(shares.mean(axis=0), n))
