"""Mutated messages to a node: a reply with a code, and nothing that it would not have answered."""

from __future__ import annotations

import random
import re
from pathlib import Path

import msgspec
import pytest

from privfed import DWFKMeans
from privfed.core.stored.encoding import CODE, Refusal, encode
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import answered
from privfed.nodes.flower.node_messages import (
    Answered,
    Declined,
    Ended,
    Join,
    Joined,
    Silent,
    read_down,
    read_up,
)
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from tests.nodes.flower.federations import WORDS, federation
from tests.nodes.flower.networks import Folders
from tests.protocols.client_opened.test_group_mutations import mutated


def inside(data: bytes, rng: random.Random) -> bytes:
    """Mutate the agreement within a request to join, or the sum's request within a question; else all."""
    message = read_down(data)
    if isinstance(message, Join):
        return encode(msgspec.structs.replace(message, agreement=mutated(message.agreement, rng)))
    if rng.random() < 0.5 and hasattr(message, "request"):
        return encode(msgspec.structs.replace(message, request=mutated(message.request, rng)))
    return mutated(data, rng)


def play(folder: Path, protocol: str, mutations: int, seed: int) -> dict[str, int]:
    """Send a node mutated messages of a fit that it was in; return how often it replied how."""
    rng, counts = random.Random(seed), dict[str, int]()
    network = Folders(nodes_of(folder))
    DWFKMeans(3, protocol=protocol, engine=FlowerEngine(folder, network=network), **WORDS).fit()
    node = nodes_of(folder)[0]
    before = Journal(node, read_identity(node)).usage("rows")
    for _ in range(mutations):
        reply = read_up(answered(node, inside(rng.choice(network.down), rng)), "a node")
        assert isinstance(reply, Refusal | Declined | Answered | Joined | Silent | Ended)
        if isinstance(reply, Refusal | Declined):
            assert re.fullmatch(CODE, reply.code)
        counts[type(reply).__name__] = counts.get(type(reply).__name__, 0) + 1
    after = Journal(node, read_identity(node)).usage("rows")
    assert (after.fits, after.sums, after.starts) == (before.fits, before.sums, before.starts)
    return counts


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["plain", "masked", "masked-verified", "group-masked", "ckks"])
def test_mutated_messages_to_a_node_are_refused_and_answer_nothing(protocol: str, tmp_path: Path) -> None:
    counts = play(federation(tmp_path / "fed"), protocol, 500, 1)
    # Most others are the last reply again, or refusals that a channel seals.
    assert sum(counts.values()) == 500 and counts["Refusal"] > 100
