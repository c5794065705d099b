"""Cost of differential privacy over masked sums of many clients, and with clients as the unit.

The clients of a masked sum share the noise. If all n are counted as honest, the total has exactly the noise
of the claim; if fewer are, it has more than the claim needs. docs/measurements/utility.md has the tables.
"""

import numpy as np
import pytest

from benchmarks.utility import FOUR, CountedOn, costs, dealt, shown
from privfed import DPKMeans
from privfed.protocols import Masked

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(0)]

CLIENTS = 100
SEEDS = {"blobs": 20, "digits": 100, "g2": 20, "big": 10}
EPSILONS = (0.5, 1.0, 4.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", FOUR)
def test_masked_sums_with_all_noise_counted_on_cost_what_one_claim_costs(name: str, epsilon: float) -> None:
    parts = dealt(FOUR[name]()[0], CLIENTS)
    masked = costs(
        name, epsilon, 1, parts=parts, model=DPKMeans(protocol=Masked(colluders=0, honest=CLIENTS))
    )
    counted = costs(name, epsilon, SEEDS[name], parts=parts, model=DPKMeans(protocol=CountedOn(CLIENTS)))
    assert masked[0] == counted[0]
    alone = costs(name, epsilon, SEEDS[name])
    print(f"{name:>8} {epsilon:4} masked {shown(counted)} one client {shown(alone)}")
    error = np.hypot(*(found.std(ddof=1) / np.sqrt(len(found)) for found in (counted, alone)))
    assert abs(counted.mean() / alone.mean() - 1) <= 0.01 + 2 * error


@pytest.mark.parametrize("honest", [100, 51, 25])
@pytest.mark.parametrize("name", FOUR)
def test_counting_on_fewer_clients_costs_more(name: str, honest: int) -> None:
    parts = dealt(FOUR[name]()[0], CLIENTS)
    counted = costs(name, 1.0, 10, parts=parts, model=DPKMeans(protocol=CountedOn(honest)))
    if (name, honest) == ("g2", 51):
        model = DPKMeans(protocol=Masked(colluders=0, honest=honest))
        assert costs(name, 1.0, 1, parts=parts, model=model)[0] == counted[0]
    print(f"{name:>8} honest {honest:3} {shown(counted)}")
    assert counted.mean() < {"blobs": 1.01, "digits": 1.5, "g2": 1.02, "big": 1.05}[name]


@pytest.mark.parametrize(("clients", "epsilon"), [(1000, 1.0), (1000, 4.0), (1000, 10.0), (10_000, 1.0)])
def test_whole_clients_are_protected(clients: int, epsilon: float) -> None:
    parts = dealt(FOUR["big"]()[0], clients)
    delta = 1 / (clients * np.log(clients))
    model = DPKMeans(protocol=CountedOn(clients))
    found = costs("big", epsilon, 5, parts=parts, model=model, delta=delta, unit="client")
    print(f"     big {clients} clients, epsilon {epsilon}: {shown(found)} {np.round(found, 3)}")
    assert found.mean() < (1.6 if clients == 1000 else 1.05)
