"""A node answers what its coordinator signed for it, once, whatever the secure sum; and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.core.agreed.agreement import MOST_METRICS, Agreement
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.roles.engine import Exchange
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.core.values.domain import Ranges
from privfed.errors import MessageError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node import answered
from privfed.nodes.flower.node_messages import Answered, Ask, Join, read_down, read_up
from privfed.nodes.identity import read_identity
from privfed.nodes.signed import MOST_SESSIONS, SEEN, UNSIGNED, Requests, SignedRequest, SignedSide
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.plain import PlainAnswer, PlainClient, PlainRequest
from privfed.protocols.setup.simulated import fresh_agreement
from privfed.questions.lloyd import LloydSums
from tests.nodes.flower.federations import WORDS, N, assert_same, federation, here
from tests.nodes.flower.networks import Folders

SUMS = ("plain", "masked", "masked-verified", "group-masked", "ckks")
SHORT: dict[str, Any] = {**WORDS, "max_iter": 1}


def signed(data: bytes) -> SignedRequest:
    found: SignedRequest = decode(data, SignedRequest, sender="", stage="")
    return found


def forged(request: SignedRequest, other: SignedRequest, strangers: list[Identity]) -> Iterator[bytes]:
    """Yield what somebody may send who has seen a client's request, and another client's.

    Args:
        request: as the coordinator signed it for the client that gets it.
        other: the same exchange's, for another client.
        strangers: whoever has a key, other clients among them.
    """
    change = msgspec.structs.replace
    yield request.body
    yield encode(change(request, signature=b""))
    yield encode(change(request, signature=request.signature[:-1]))
    yield encode(change(request, signature=request.signature + b"\0"))
    yield encode(change(request, signature=other.signature))
    yield encode(other)
    yield encode(change(request, number=request.number + 1))
    yield encode(change(request, session=bytes(32)))
    yield encode(change(request, body=request.body[:-1] + bytes([request.body[-1] ^ 1])))
    yield encode(change(request, signature=bytes(64)))
    yield encode(request)[:-1]
    for one in strangers:
        yield encode(change(request, signature=one.sign(request.body)))


class Strangers(Folders):
    """Nodes that hear strangers before and after each request of their coordinator.

    Attributes:
        kinds: types of the requests that were forged.
        codes: codes of all refusals.
        coordinator: signs other bodies under numbers that were used.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(nodes_of(folder))
        self.kinds: set[bytes] = set()
        self.codes: set[str] = set()
        self.coordinator = read_identity(folder / "coordinator").key
        self._strangers = [Identity.generate(), *(read_identity(one).key for one in nodes_of(folder))]
        self._agreement: Agreement | None = None
        self._earlier: dict[int, Ask] = {}

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        read = {node: read_down(data) for node, data in messages.items()}
        for one in read.values():
            if isinstance(one, Join):
                self._agreement = Agreement.from_bytes(one.agreement)
        asks = {node: one for node, one in read.items() if isinstance(one, Ask)}
        for node, ask in asks.items():
            other = next(one for at, one in asks.items() if at != node)
            self._forge(node, ask, other)
        heard = super().send(messages, seconds)
        for node, ask in asks.items():
            self._repeat(node, ask, heard.replies[node])
        return heard

    def _refused(self, node: int, digest: bytes, request: bytes) -> str:
        back = read_up(answered(self.folders[node], encode(Ask(digest, request))), "")
        if isinstance(back, Answered):
            back = decode(back.reply, Refusal, sender="", stage="")
        assert isinstance(back, Refusal), type(back)
        self.codes.add(back.code)
        return back.code

    def _forge(self, node: int, ask: Ask, other: Ask) -> None:
        request = signed(ask.request)
        self.kinds.add(bytes(msgspec.msgpack.decode(request.body)[0], "ascii"))
        for data in forged(request, signed(other.request), self._strangers):
            assert self._refused(node, ask.digest, data) in (UNSIGNED, "malformed")

    def _repeat(self, node: int, ask: Ask, reply: bytes) -> None:
        """Send a request again, an earlier one, and another body under the same number."""
        assert answered(self.folders[node], encode(ask)) == reply
        if node in self._earlier:
            assert self._refused(node, ask.digest, self._earlier[node].request) == SEEN
        request, agreement = signed(ask.request), self._agreement
        assert agreement is not None
        lie = msgspec.structs.replace(request, body=request.body + b"\0")
        lie = msgspec.structs.replace(lie, signature=self.coordinator.sign(lie.signed(agreement, node - 100)))
        assert self._refused(node, ask.digest, encode(lie)) == SEEN
        self._earlier[node] = ask


@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", SUMS)
def test_no_request_is_answered_that_the_coordinator_did_not_sign_for_this_node(
    protocol: str, tmp_path: Path
) -> None:
    network = Strangers(federation(tmp_path / "fed"))
    engine = FlowerEngine(tmp_path / "fed", network=network)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **SHORT).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol=protocol, **SHORT)))
    assert network.codes == {UNSIGNED, SEEN, "malformed"}
    kinds = {b"AdvertiseRequest", b"RosterRequest", b"Envelope"}
    assert network.kinds == ({b"PlainRequest"} if protocol == "plain" else kinds)


def test_a_stranger_who_knows_the_agreement_gets_no_answer_of_a_plain_sum(tmp_path: Path) -> None:
    """The coordinator stops after its first sums; whoever saw them asks a node about the next."""

    class Stopped(Exception):
        pass

    class Stops(Folders):
        def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
            if self.trips == 3:
                raise Stopped
            return super().send(messages, seconds)

    network = Stops(nodes_of(federation(tmp_path / "fed")))
    engine = FlowerEngine(tmp_path / "fed", network=network)
    with pytest.raises(Stopped):
        DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    seen = [one for one in map(read_down, network.down) if isinstance(one, Ask)][-1]
    last: PlainRequest = decode(signed(seen.request).body, PlainRequest, sender="", stage="")
    later = here(DWFKMeans(3, protocol="plain", **WORDS)).transcript_.of(Asked)[last.index + 1]
    body = encode(
        PlainRequest(last.number + 1, last.index + 1, question_from_bytes(later.question).to_bytes())
    )
    agreement = next(
        Agreement.from_bytes(one.agreement) for one in map(read_down, network.down) if isinstance(one, Join)
    )
    for identity in (Identity.generate(), read_identity(nodes_of(tmp_path / "fed")[0]).key):
        own = Requests(agreement, identity).signed(Exchange("collect", 1, {1: body})).requests[1]
        for request in (body, own):
            back = read_up(answered(network.folders[101], encode(Ask(seen.digest, request))), "")
            assert isinstance(back, Refusal) and back.code in (UNSIGNED, "malformed")
    # What was asked is what the node would have answered its coordinator.
    signs = Requests(agreement, read_identity(tmp_path / "fed" / "coordinator").key)
    request = signs.signed(Exchange("collect", 1, {1: body})).requests[1]
    answer = read_up(answered(network.folders[101], encode(Ask(seen.digest, request))), "")
    assert isinstance(answer, Answered) and b"PlainAnswer" in answer.reply and N > 1


def test_a_client_hears_so_many_processes_of_the_coordinator_and_those_go_on() -> None:
    configuration = Configuration(
        protocol="plain",
        algorithm="",
        clients=tuple("abc"),
        n_features=1,
        terms=Terms(max_sums=MOST_SESSIONS + 2),
    )
    agreement, coordinator, _ = fresh_agreement(configuration, range(3))
    question = LloydSums(ranges=Ranges([0.0], [1.0], 4), centers=np.zeros((1, 1)))
    side = SignedSide(PlainClient(configuration, ClientPolicy()), agreement, 0)
    state, processes = side.initial(), [Requests(agreement, coordinator) for _ in range(MOST_SESSIONS + 1)]

    def asked(process: Requests, number: int) -> PlainAnswer | Refusal:
        nonlocal state
        body = encode(PlainRequest(number, 0, question.to_bytes()))
        request = process.signed(Exchange("collect", number, {0: body})).requests[0]
        state, reply = side.step(state, request, lambda one, index: (zeros, 0))
        found: PlainAnswer | Refusal = decode(reply, PlainAnswer | Refusal, sender="a", stage="collect")
        return found

    zeros = question.spec.unflatten(np.zeros(question.spec.size))
    for number, process in enumerate(processes[:-1], start=1):
        assert isinstance(asked(process, number), PlainAnswer)
    assert asked(processes[-1], MOST_SESSIONS + 1) == Refusal("request:sessions")
    assert isinstance(asked(processes[0], MOST_SESSIONS + 1), PlainAnswer)


def test_a_request_names_no_more_metrics_than_an_agreement_can_have() -> None:
    """A million of them, signed, cost a client a third of a second before they were looked at."""
    request = SignedRequest(bytes(32), 1, (0,) * MOST_METRICS, b"", bytes(64))
    assert decode(encode(request), SignedRequest, sender="", stage="") == request
    more = msgspec.structs.replace(request, metrics=(0,) * (MOST_METRICS + 1))
    with pytest.raises(MessageError):
        decode(encode(more), SignedRequest, sender="", stage="")
