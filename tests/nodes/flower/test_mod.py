"""Others' Flower apps with the masked sum in place of SecAgg+: two lines, the same averages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

from privfed.core.stored.encoding import encode
from privfed.nodes.flower.apps import packed
from privfed.nodes.flower.mod import Asked, MaskedWorkflow, masked_mod
from privfed.nodes.flower.network import environment
from privfed.protocols.crypto.fixed_point import Grid

N, SIZE = 5, 6
Fitted = tuple[list[np.ndarray], int, dict[str, float]]


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say which process this is, as Flower's own do before messages are made."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Site(NumPyClient):  # type: ignore[misc]  # Flower is not typed here.
    """Adds its number to each parameter."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(
        self, parameters: list[np.ndarray], config: Any
    ) -> tuple[list[np.ndarray], int, dict[str, float]]:
        return [one + 0.1 * self.number for one in parameters], 10 + self.number, {"secret": 7.25}


class Sites:
    """A grid whose nodes answer in this process, each with its own state, by Flower's own ClientApp."""

    def __init__(self) -> None:
        def client(context: Context) -> Any:
            return Site(context.node_id - 100).to_client()

        self.app = ClientApp(client_fn=client, mods=[masked_mod])
        self.contexts = {100 + i: Context(1, 100 + i, {}, RecordDict(), {}) for i in range(N)}
        self.gone: set[tuple[int, int]] = set()
        self.trips, self.replies, self.up = 0, dict[str, Message](), list[bytes]()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.trips, ids = self.trips + 1, list[str]()
        for message in messages:
            node, name = message.metadata.dst_node_id, f"{self.trips}/{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            if (self.trips, node) not in self.gone:
                reply = self.app(message, self.contexts[node])
                self.up += [one.deflate() for one in reply.content.values()]
                self.replies[name] = reply
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(one) for one in ids if one in self.replies]


class Rounds:
    """A server that averages by a workflow, as Flower's DefaultWorkflow calls it."""

    def __init__(self, workflow: Any, grid: Sites) -> None:
        self.workflow, self.grid, self.failures = workflow, grid, list[str]()
        strategy = FedAvg(min_fit_clients=N, min_available_clients=N)
        aggregate = strategy.aggregate_fit

        def heard(number: int, results: Any, failures: Any) -> Any:
            self.failures += map(str, failures)
            return aggregate(number, results, failures)

        strategy.aggregate_fit = heard
        manager = SimpleClientManager()
        for node in grid.contexts:
            manager.register(GridClientProxy(node, grid, 1))
        own = Context(1, 1, {}, RecordDict(), {})
        self.context = LegacyContext(own, ServerConfig(num_rounds=3), strategy, manager)
        start = ndarrays_to_parameters([np.zeros(SIZE - 2), np.zeros((1, 2), dtype=np.float32)])
        self.context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)

    def run(self, number: int) -> list[np.ndarray]:
        self.context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: number})
        self.workflow(self.grid, self.context)
        kept = self.context.state.array_records[MAIN_PARAMS_RECORD]
        found: list[np.ndarray] = parameters_to_ndarrays(compat.arrayrecord_to_parameters(kept, True))
        return found


def mean_of(sites: Iterable[int]) -> float:
    weights = {i: 10 + i for i in sites}
    return sum(0.1 * i * weight for i, weight in weights.items()) / sum(weights.values())


def test_rounds_are_federated_averages_in_two_exchanges_and_show_no_client() -> None:
    grid = Sites()
    rounds, expected = Rounds(MaskedWorkflow(), grid), 0.0
    trips = []
    for number in (1, 2, 3):
        found, expected = rounds.run(number), expected + mean_of(range(N))
        trips.append(grid.trips)
        assert [one.shape for one in found] == [(SIZE - 2,), (1, 2)] and found[1].dtype == np.float32
        np.testing.assert_allclose(np.concatenate([one.ravel() for one in found]), expected, atol=1e-6)
    assert [trips[0], *np.diff(trips)] == [6, 2, 2] and not rounds.failures
    assert not any(b"secret" in one or np.float64(7.25).tobytes() in one for one in grid.up)


def test_a_client_that_is_lost_in_any_exchange_leaves_an_average_of_the_others() -> None:
    grid = Sites()
    rounds = Rounds(MaskedWorkflow(timeout=0.5), grid)
    start = rounds.run(1)[0][0]
    grid.gone = {(7, 103)}  # Before it uploads: the others' masks with it are taken off.
    assert rounds.run(2)[0][0] - start == pytest.approx(mean_of((0, 1, 2, 4)), abs=1e-6)
    assert rounds.failures == ["103 was lost in collect"]
    after = rounds.run(3)[0][0]
    grid.gone = {(grid.trips + 2, 101)}  # After: its update is in the sum.
    assert rounds.run(4)[0][0] - after == pytest.approx(mean_of(range(N)), abs=1e-6)


def test_values_beyond_the_range_are_a_failure_with_a_reason_and_not_clipped() -> None:
    grid = Sites()
    rounds = Rounds(MaskedWorkflow(clip=0.35), grid)
    with pytest.warns(UserWarning, match="beyond the workflow's clip"):
        assert rounds.run(1)[0][0] == pytest.approx(mean_of(range(4)), abs=1e-6)
    assert rounds.failures == ["104 was lost in collect"]


def test_an_average_beyond_every_clients_range_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Grid.encode

    def lying(self: Grid, vector: np.ndarray, clipped: int) -> np.ndarray:
        # One client's examples are few, and its sums are of as many as a client may have.
        few = vector[0] == 10.0
        return honest(self, np.where(few & (np.arange(len(vector)) > 0), 2.0**22, vector), clipped)

    monkeypatch.setattr(Grid, "encode", lying)
    with pytest.warns(UserWarning, match="round 1 opened nothing"):
        assert not Rounds(MaskedWorkflow(), Sites()).run(1)[0].any()


def test_too_few_clients_open_nothing_and_the_next_round_begins_anew() -> None:
    grid = Sites()
    rounds = Rounds(MaskedWorkflow(timeout=0.3), grid)
    grid.gone = {(5, node) for node in (100, 101, 102)}
    with pytest.warns(UserWarning, match="round 1 opened nothing"):
        assert not rounds.run(1)[0].any()
    assert rounds.run(2)[0][0] == pytest.approx(mean_of(range(N)), abs=1e-6)


def test_other_messages_pass_the_mod() -> None:
    def app(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    context = Context(1, 100, {}, RecordDict(), {})
    for kind, content in ((MessageType.TRAIN, RecordDict()), (MessageType.QUERY, packed(encode(Asked())))):
        sent = Message(content, 100, kind)
        sent.metadata.__dict__["_message_id"] = "id"
        assert not masked_mod(sent, context, app).content and not context.state


_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "quickstart"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "quickstart:server"
clientapp = "quickstart:client"
[tool.flwr.app.config]
sum = "plain"
out = "out.npz"
"""

_QUICKSTART = """\
import time
import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_PARAMS_RECORD
from privfed.nodes.flower.mod import MaskedWorkflow, masked_mod

SIZE = 20

class Site(NumPyClient):
    def __init__(self, i):
        rng = np.random.default_rng(i)
        self.x = rng.normal(size=(50 + 10 * i, SIZE))
        self.y = self.x @ np.arange(SIZE) / 10 + rng.normal(size=len(self.x))

    def fit(self, parameters, config):
        w = parameters[0].copy()
        for _ in range(20):
            w -= 0.05 * self.x.T @ (self.x @ w - self.y) / len(self.x)
        return [w], len(self.x), {}

def client_fn(context):
    return Site(int(context.node_config["partition-id"])).to_client()

def chosen(message, context, call_next):
    mods = {"masked": masked_mod, "secagg": secaggplus_mod}
    kind = context.run_config["sum"]
    return mods[kind](message, context, call_next) if kind in mods else call_next(message, context)

client = ClientApp(client_fn=client_fn, mods=[chosen])
server = ServerApp()

@server.main()
def main(grid, context):
    start = ndarrays_to_parameters([np.zeros(SIZE)])
    words = {"min_fit_clients": 5, "min_available_clients": 5, "initial_parameters": start}
    strategy, config = FedAvg(fraction_evaluate=0.0, **words), ServerConfig(num_rounds=3)
    legacy = LegacyContext(context=context, config=config, strategy=strategy)
    workflows = {
        "masked": MaskedWorkflow,
        "secagg": lambda: SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3),
        "plain": lambda: None,
    }
    began = time.monotonic()
    DefaultWorkflow(fit_workflow=workflows[context.run_config["sum"]]())(grid, legacy)
    kept = compat.arrayrecord_to_parameters(legacy.state.array_records[MAIN_PARAMS_RECORD], True)
    np.savez(context.run_config["out"], w=parameters_to_ndarrays(kept)[0], seconds=time.monotonic() - began)
"""


def end_what_flwr_left(home: Path) -> None:
    """End the SuperLink that `flwr run` leaves behind: of the processes whose environment names this home."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            own = f"FLWR_HOME={home}\0".encode() in (place / "environ").read_bytes()
        except OSError:
            continue
        if own and int(place.name) != os.getpid():
            os.kill(int(place.name), signal.SIGTERM)


@pytest.mark.flower
def test_an_app_under_flwr_run_gives_the_same_parameters_as_without_a_secure_sum(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "pyproject.toml").write_text(_PROJECT)
    (tmp_path / "quickstart.py").write_text(_QUICKSTART)
    home = tmp_path / "home"
    home.mkdir()
    lines = ["[superlink]", 'default = "here"', "[superlink.here]", "options.num-supernodes = 5"]
    (home / "config.toml").write_text("\n".join([*lines, "options.backend.client-resources.num-cpus = 1"]))
    found = {}
    try:
        for kind in ("plain", "masked", "secagg"):
            out = tmp_path / f"{kind}.npz"
            words = ("run", str(tmp_path), "here", "--stream", "-c", f'sum="{kind}" out="{out}"')
            done = subprocess.run(
                [str(Path(sys.executable).with_name("flwr")), *words],
                env=environment(home),
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert out.exists(), done.stdout[-2000:] + done.stderr[-2000:]
            found[kind] = np.load(out)["w"]
            assert re.search(r"finished 3 round", done.stdout + done.stderr)
    finally:
        end_what_flwr_left(home)
    np.testing.assert_allclose(found["masked"], found["plain"], atol=1e-6)
    # SecAgg+ rounds to 22 bits of 16, and draws how.
    np.testing.assert_allclose(found["secagg"], found["plain"], atol=1e-3)
