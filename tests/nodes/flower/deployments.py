"""A Flower deployment on this machine: TLS, and authenticated nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.three_hospitals.processes import Processes, free_port
from privfed.core.roles.engine import Exchange, Replies
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower.engine import FlowerFit
from privfed.nodes.flower.settings import FederationFile
from tests.nodes.flower.federations import federation

TIMEOUT = 75.0
"""Seconds for one reply: above what Flower takes to notice a killed node, on a busy machine."""


@contextmanager
def deployed(
    folder: Path,
    *,
    before: Callable[[Path], None] = lambda folder: None,
    **words: Any,
) -> Iterator[Processes]:
    """Start a federation's SuperLink and its four nodes, after a change of its folder; end them all."""
    address = f"127.0.0.1:{free_port()}"
    federation(folder, **{"timeout": TIMEOUT, "wait": 120.0, "superlink": address, **words})
    before(folder)
    with Processes(FederationFile.read(folder)) as running:
        running.start_superlink()
        for one in nodes_of(folder):
            running.start_node(one)
        yield running


def before(monkeypatch: pytest.MonkeyPatch, stage: str, number: int, act: Callable[[], object]) -> None:
    """Do something once, before a stage of a sum is carried to the nodes."""
    exchange, done = FlowerFit.exchange, list[Exchange]()

    def carried(self: FlowerFit, asked: Exchange, timeout: float | None = None) -> Replies:
        if (asked.stage, asked.number) == (stage, number) and not done:
            done.append(asked)
            act()
        return exchange(self, asked, timeout)

    monkeypatch.setattr(FlowerFit, "exchange", carried)
