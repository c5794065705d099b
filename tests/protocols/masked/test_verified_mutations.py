"""Whatever a coordinator seals for a client in place of an honest request, it refuses or answers the same."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.core.asking.question import question_from_bytes
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.protocols.crypto.keys import seal
from privfed.protocols.masked.masked_messages import Upload, VerifiedRequest
from privfed.protocols.masked.verifier import alike
from privfed.protocols.setup.setup_messages import Envelope
from tests.default_run import examples
from tests.protocols.federations import vectors
from tests.protocols.masked.lying import delivery_of, server_of, verified

CODES = {"message", "total", "program", "invitation", "prepared:list", "prepared:few", "prepared:lengths"}


@pytest.mark.parametrize("mutations", [examples(2_000), pytest.param(30_000, marks=pytest.mark.slow)])
def test_changed_bytes_of_a_request_are_refused_and_raise_nothing(mutations: int) -> None:
    run = verified(5)
    run.ask()
    run.ask(vectors(), 0, (0,), Fault(4, "collect"))
    kept: list[tuple[int, bytes]] = []
    delivery, server = delivery_of(run), server_of(run)
    honest = delivery.request

    def request(client: int, collect: object) -> object:
        sent = honest(client, collect)  # type: ignore[arg-type]
        kept.append((client, encode(sent)))
        return sent

    delivery.request = request  # type: ignore[assignment, method-assign]
    states = {i: run.state(i) for i in range(5)}
    number = states[1].keys.last + 1
    run.ask()
    codes, uploads, rng = set[str](), 0, np.random.default_rng(0)
    for turn in range(mutations):
        client, plain = kept[turn % len(kept)]
        if client == 4:
            continue
        data, channel = bytearray(plain), server._channels[client]
        for at in rng.integers(0, len(data), 1 + turn % 3):
            data[at] = rng.integers(256)
        binding = channel.down._binding(number, "collect")
        sealed = encode(Envelope(number, "collect", memoryview(seal(channel.down.key, bytes(data), binding))))
        _, reply = run.sides[client].step(states[client], sealed, run.answerer(client))
        envelope = decode(reply, Envelope | Refusal, sender="client", stage="collect")
        opened = envelope
        if isinstance(envelope, Envelope):
            opened = channel.up.open(envelope, Upload | Refusal, "client")
        if isinstance(opened, Refusal):
            codes.add(opened.code.split(":")[0] if opened.code.startswith("box") else opened.code)
            continue
        # It answers only where no total was touched: what is asked, and when, is bound into its masks.
        uploads += 1
        read = decode(bytes(data), VerifiedRequest, sender="server", stage="collect")
        assert read.totals == decode(plain, VerifiedRequest, sender="server", stage="collect").totals
        assert alike(vectors(), question_from_bytes(read.collect.question))
    assert codes <= CODES | {"box", "history"} and {"message", "total"} <= codes, codes
    assert uploads < mutations / 3
