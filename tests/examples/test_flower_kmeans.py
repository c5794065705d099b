"""The adapter for k-means apps of Flower, on rounds that Flower's own server ran."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from tests.examples.scripts import loaded

common = pytest.importorskip("flwr.common")
server = pytest.importorskip("flwr.server")
from flwr.server.client_manager import SimpleClientManager  # noqa: E402
from flwr.server.client_proxy import ClientProxy  # noqa: E402
from flwr.server.strategy import Strategy  # noqa: E402

flower_kmeans = loaded("other_programs/flower_kmeans")
to_arrays, to_parameters = common.parameters_to_ndarrays, common.ndarrays_to_parameters
WINE = np.random.default_rng(0).permutation(load_wine().data / load_wine().data.std(axis=0))
CLIENTS = {f"clinic-{i}": own for i, own in enumerate(np.array_split(WINE, 3))}


class Clinic(ClientProxy):  # type: ignore[misc]
    def fit(self, ins: Any, timeout: Any, group_id: Any) -> Any:
        (centers,), rows = to_arrays(ins.parameters), CLIENTS[self.cid]
        near = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        marks = np.eye(len(centers))[near]
        arrays = to_parameters([marks.T @ rows, marks.sum(axis=0)])
        return common.FitRes(common.Status(common.Code.OK, ""), arrays, len(rows), {})

    get_properties = get_parameters = evaluate = reconnect = None


class KMeans(Strategy):  # type: ignore[misc]
    """Stands for somebody's app: Lloyd's algorithm as a strategy of Flower."""

    def initialize_parameters(self, client_manager: Any) -> Any:
        return to_parameters([WINE[:8]])

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        return [(one, common.FitIns(parameters, {})) for one in client_manager.all().values()]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        sums, counts = (
            sum(each) for each in zip(*(to_arrays(r.parameters) for _, r in results), strict=True)
        )
        return to_parameters([sums / np.maximum(counts, 1)[:, None]]), {}

    def evaluate(self, server_round: int, parameters: Any) -> None:
        return None

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        return []

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        return None, {}


Clinic.__abstractmethods__ = frozenset()


def test_what_flowers_server_gets_is_attacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manager, strategy = SimpleClientManager(), KMeans()
    for name in CLIENTS:
        manager.register(Clinic(name))
    flower_kmeans.record(strategy, tmp_path / "log")
    server.Server(client_manager=manager, strategy=strategy).fit(num_rounds=6, timeout=None)
    seen = flower_kmeans.view(tmp_path / "log")
    assert seen.clients == tuple(CLIENTS) and len(seen.sums) == 6
    for one in seen.sums[:1]:
        total = sum(np.asarray(answer["sum"]) for answer in one.answers.values())
        np.testing.assert_allclose(total.sum(axis=0), WINE.sum(axis=0))
    np.savez(tmp_path / "rows.npz", **CLIENTS)
    flower_kmeans.main(str(tmp_path / "log"), str(tmp_path / "rows.npz"))
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [f"client {i}" for i in range(3)] + [
        "everybody, totals alone"
    ]
    assert all("precision 1.00" in line for line in said[:3]) and not any(
        ": 0.00 of" in line for line in said
    )
