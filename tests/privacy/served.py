"""Federations whose server noises sums that clients open, for runs of questions that a test names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Exchanged
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Conversation, Setting, Total
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import Box
from privfed.engines.in_process import Fault
from privfed.federation.clients import gather
from privfed.federation.driver import Federation
from privfed.federation.opening import open_federation
from privfed.federation.request import FederationRequest
from privfed.federation.simulation import Simulation
from privfed.privacy import pricing
from privfed.privacy.claim import Privacy
from privfed.privacy.noised import Noised
from privfed.protocols import CKKS, GroupMasked
from tests.undeclared import ANYTHING

PROTOCOLS: dict[str, Any] = {"ckks": CKKS, "group-masked": GroupMasked}
BOX = Box(-1.0, 1.0, max_rows=64)


class Asks:
    """An algorithm that asks what a test names, and returns the totals."""

    fixed: ClassVar[bool] = False

    fixed: ClassVar[bool] = True

    def __init__(self, *asks: Ask) -> None:
        self.asks = asks

    @property
    def max_sums(self) -> int:
        return len(self.asks)

    def run(self, setting: Setting) -> Conversation[list[Total]]:
        totals = []
        for ask in self.asks:
            totals.append((yield ask))
        return totals


def by_server(**words: Any) -> Privacy:
    """Return a guarantee by noise of the server: a seeded run, unless told otherwise."""
    known: dict[str, Any] = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "unit": "record",
        "domain": BOX,
        "neighbours": "add-remove",
        "noise": "server",
        "noise_seed": 1,
    }
    return Privacy(**(known | words))


def served(
    protocol: SecureSum,
    rows: Sequence[np.ndarray],
    runs: Asks,
    privacy: Privacy | None = None,
    faults: Sequence[Fault] = (),
    seed: int = 0,
) -> Federation:
    """Return clients behind a sum that the server noises, agreed on what will be asked."""
    privacy = by_server() if privacy is None else privacy
    request = FederationRequest(
        clients=gather(list(rows), None, None),
        description="test",
        max_sums=runs.max_sums,
        protocol=protocol,
        algorithm=runs,
        seed=seed,
        privacy=privacy,
        engine=Simulation(faults=faults),
        policy=ANYTHING,
    )
    return open_federation(request)


def exact(transcript: Transcript, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return each total of a run as it would be without noise, flat."""
    clients, found = gather(list(rows), None, None), []
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        assert isinstance(question, Noised)
        inside = [clients.data[i].within(question.ranges)[0] for i in total.contributors]
        bare = replace(question, by_server=True)
        answers = bare.answer_all(inside, [np.random.default_rng(0) for _ in inside])
        found.append(sum(question.spec.flatten(answer) for answer in answers))
    return found  # type: ignore[return-value]


def opened(transcript: Transcript) -> list[np.ndarray]:
    """Return each total of a run, flat."""
    totals = transcript.totals()
    return [question_from_bytes(one.question).spec.flatten(total.statistics) for one, total in totals]


def seen_by_server(transcript: Transcript) -> list[object]:
    """Return what the server can count: stages, numbers and the lengths of all messages."""
    return [
        (one.stage, one.number, [[(sent.client, sent.size) for sent in way] for way in (one.down, one.up)])
        for one in transcript.of(Exchanged)
    ]


def silence(patch: pytest.MonkeyPatch) -> None:
    """Let the server's noise be zero."""
    patch.setattr(pricing, "discrete_gaussian", lambda sigma, size, source: np.zeros(size, dtype=np.int64))
