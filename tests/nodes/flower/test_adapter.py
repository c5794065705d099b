"""Flower's own messages, grid and apps, in this process: what our side makes of them."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import threading
import time
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict
from flwr.app.error import Error
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.task_identity import TaskIdentity

from privfed import DWFKMeans
from privfed.core.stored.encoding import Refusal, encode
from privfed.errors import MessageError, ProtocolError
from privfed.estimators.fitting import clients_of
from privfed.nodes.deploy import node, supernode
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.apps import QUERY, GridNetwork, packed, unpacked
from privfed.nodes.flower.network import EXPIRED, DrivenRun, RunLostError, relay
from tests.nodes.flower.federations import WORDS, assert_same, federation, here
from tests.nodes.flower.networks import Folders


@pytest.fixture(autouse=True)
def a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say which run messages are of, as Flower's processes do."""
    for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


class OneGrid:
    """A grid whose replies are set by hand, and arrive in another order."""

    def __init__(self, replies: dict[int, Any]) -> None:
        self.replies, self.pushed = replies, list[Message]()

    def get_node_ids(self) -> list[int]:
        return [3, 1, 2]

    def push_messages(self, messages: list[Message]) -> list[str | None]:
        for number, one in enumerate(messages):
            one.metadata.__dict__["_message_id"] = f"id {number}"
        self.pushed = messages
        return [
            None if self.replies.get(one.metadata.dst_node_id) == "lost" else one.metadata.message_id
            for one in messages
        ]

    def pull_messages(self, ids: list[str]) -> list[Message]:
        found = []
        for one in reversed(self.pushed):
            reply = self.replies.pop(one.metadata.dst_node_id, None)
            if isinstance(reply, int):
                error = Error(reply, "<class 'ValueError'>:<'row 17 = 3.14159'>")
                answer = Message(error, reply_to=one)
                # Flower's server answers for nodes that cannot.
                answer.metadata.__dict__["_src_node_id"] = 1
                found.append(answer)
            elif isinstance(reply, RecordDict):
                found.append(Message(reply, reply_to=one))
        return found


def test_replies_are_matched_to_what_they_reply_to_and_errors_are_codes() -> None:
    replies = {1: packed(b"one"), 2: 5, 3: packed(b"three"), 4: "lost", 5: None, 6: RecordDict()}
    grid = OneGrid(dict(replies))
    heard = GridNetwork(grid).send({i: b"%d" % i for i in replies}, 0.3)  # type: ignore[arg-type]
    assert heard.replies == {1: b"one", 3: b"three"}
    assert heard.faults == {2: 5, 4: 5, 5: EXPIRED, 6: 0}
    assert [unpacked(one.content) for one in grid.pushed] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {one.metadata.ttl for one in grid.pushed} == {0.3}
    assert GridNetwork(grid).nodes() == (1, 2, 3)  # type: ignore[arg-type]
    with pytest.raises(MessageError):
        unpacked(RecordDict())


@pytest.mark.parametrize("n", [0, 1, 1 << 20, (1 << 20) + 1, 6 << 20])
def test_bytes_of_any_length_are_a_message(n: int) -> None:
    data = bytes(n)
    assert unpacked(packed(data)) == data


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.few(1)
def test_a_fit_is_driven_over_a_socket_and_goes_on_in_another_run(back: bool, tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed")
    pipes: list[Connection] = []
    gone = [False]

    def connect() -> Connection:
        if gone[0]:
            raise RunLostError("no SuperLink is back in time")
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        pipes.append(Connection(theirs.detach()))
        threading.Thread(target=relay, args=(Folders(nodes_of(folder)), pipes[-1]), daemon=True).start()
        return Connection(ours.detach())

    with FlowerEngine(folder, network=DrivenRun(connect)) as engine:
        words = {**WORDS, "run_dir": tmp_path / "run"}
        model = DWFKMeans(3, engine=engine, **words)

        def stop(index: int, ask: object, total: object) -> None:
            if index == 2:
                # As if the SuperLink were gone: the relay's end of the socket is closed.
                engine.network._pipe.close()  # type: ignore[attr-defined]
                gone[0] = not back

        clients = clients_of(model, None, None, None, None)
        if back:
            model.fit_clients(clients, watch=stop)
        else:
            with pytest.raises(ProtocolError, match="no SuperLink is back"):
                model.fit_clients(clients, watch=stop)
            gone[0] = False
            model.resume()
        assert_same(model, here(DWFKMeans(3, **WORDS)))
    assert len(pipes) == 2


def test_equal_replies_are_different_objects(tmp_path: Path) -> None:
    """Flower keeps content by its hash: the first of two equal replies took the other's away."""
    first, second = packed(b"same"), packed(b"same")
    assert first.object_id != second.object_id and unpacked(first) == unpacked(second) == b"same"


def test_a_reply_that_was_lost_on_its_way_is_kept_for_the_next_link(tmp_path: Path) -> None:
    """A node died at the end of a fit, of an error of Flower's that nobody caught."""
    sent = Message(packed(b"no message"), 2, QUERY, ttl=77.0)
    sent.metadata.__dict__["_message_id"] = "id"

    class Link:
        def __init__(self, waiting: list[Message], broken: bool) -> None:
            self.waiting, self.broken, self.pushed = waiting, broken, list[bytes]()

        def beat(self) -> None:
            pass

        def pull(self) -> Message | None:
            return self.waiting.pop() if self.waiting else None

        @supernode._on_its_way()
        def push(self, message: Message, reply: bytes | None) -> None:
            if self.broken:
                raise ObjectPushError("gone")
            self.pushed.append(reply or b"")

    unsent: list[Any] = []
    says = node.Says("ward 3", StringIO())
    with pytest.raises(supernode.LinkError, match="lost on its way"):
        supernode.serve(Link([sent], True), tmp_path, says, lambda: False, unsent)  # type: ignore[arg-type]
    assert len(unsent) == 1
    looks, again = iter([False, True]), Link([], False)
    supernode.serve(again, tmp_path, says, lambda: next(looks), unsent)  # type: ignore[arg-type]
    assert again.pushed == [encode(Refusal("error"))] and not unsent


def test_lines_are_json_and_counted_for_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node.LOG, "json")
    monkeypatch.setenv(node.LEVEL, "warning")
    said = StringIO()
    says = node.Says("hub", said, metrics=tmp_path / "metrics", there={'ward "3"': True, "ward 5": False})
    says("answered", "by the secure sum")
    says("refused", "policy:max_fits")
    (line,) = map(json.loads, said.getvalue().splitlines())
    assert (line["word"], line["level"], line["name"]) == ("refused", "warning", "hub")
    text = (tmp_path / "metrics").read_text()
    assert 'privfed_lines_total{word="answered"} 1\n' in text and text.endswith("# EOF\n")
    assert 'privfed_party_connected{party="ward \\"3\\""} 1\n' in text
    for _ in range(9):
        says("cut", "hub:9092 does not answer")
    assert len(said.getvalue().splitlines()) == 2
    assert 'privfed_lines_total{word="cut"} 1\n' in (tmp_path / "metrics").read_text()


def test_an_answer_comes_from_a_fork_and_one_that_dies_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked, fork = list[int](), os.fork

    def counted() -> int:
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", counted)
    assert supernode.in_fork(tmp_path, b"no message", list) == encode(Refusal("error"))
    monkeypatch.setattr(supernode, "answered", lambda folder, request: os.kill(os.getpid(), signal.SIGKILL))
    assert supernode.in_fork(tmp_path, b"", list) is None
    for child in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)  # No child is left over.
    assert len(forked) == 2


def test_an_answer_that_nobody_waits_for_any_more_is_ended_and_the_next_one_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a model of the owner's hangs: the node is there for later messages."""
    with monkeypatch.context() as patched:
        patched.setattr(supernode, "answered", lambda folder, request: time.sleep(20.0) or b"late")
        assert supernode.in_fork(tmp_path, b"", list, seconds=0.1) is None
    assert supernode.in_fork(tmp_path, b"no message", list, seconds=60.0) == encode(Refusal("error"))


def test_a_line_is_said_once_a_minute_where_nobody_sits_and_moves_no_cursor() -> None:
    said = StringIO()
    says = node.Says("ward 3", said)
    for _ in range(3):
        says("connecting", "hub:9092")
        says("waiting", "nobody\x1b[2J answers\n")
    says("connected", "to hub:9092")
    says("connecting", "hub:9092")
    for seconds in (3.0, 6.0):
        says.working(seconds)
    says.asked(b"no message")
    says.told(b"no message", encode(Refusal("malformed")))
    says.told(b"", None)
    lines = [line.partition(" ward 3 ")[2] for line in said.getvalue().splitlines()]
    assert lines[:4] == [
        "connecting: hub:9092",
        "waiting: nobody?[2J answers?",
        "connected: to hub:9092",
        "connecting: hub:9092",
    ]
    assert lines[4:6] == ["working: on that for 3 s", "asked: something that is no message of privfed's"]
    assert lines[6] == "refused: malformed" and lines[7].startswith("failed: its process died, or")


def test_a_node_serves_through_messages_that_are_none_until_its_kit_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came is heard before it is answered, and what left after it has left; and how long it lives."""
    heard, lives = list[str](), list[float]()
    sent = Message(packed(b"no message"), 2, QUERY, ttl=77.0)
    sent.metadata.__dict__["_message_id"] = "id"

    class OneMessage:
        def __init__(self) -> None:
            self.waiting = [sent]

        def beat(self) -> None:
            heard.append("beat")

        def pull(self) -> Message | None:
            return self.waiting.pop() if self.waiting else None

        def push(self, message: Message, reply: bytes | None) -> None:
            heard.append(f"pushed {len(reply or b'')}")

    class Hearing:
        def asked(self, request: bytes) -> None:
            heard.append(f"asked {request.decode()}")

        def working(self, seconds: float) -> None:
            heard.append("working")

        def told(self, request: bytes, reply: bytes | None) -> None:
            heard.append("told")

    looks = iter([False, False, True])
    monkeypatch.setattr(supernode, "SHORTEST", 0.001)
    in_fork = supernode.in_fork

    def timed(folder: Path, request: bytes, meanwhile: Any, seconds: float = math.inf) -> bytes | None:
        lives.append(seconds)
        return in_fork(folder, request, meanwhile, seconds)

    monkeypatch.setattr(supernode, "in_fork", timed)
    supernode.serve(OneMessage(), tmp_path, Hearing(), lambda: next(looks), [])  # type: ignore[arg-type]
    assert heard == ["beat", "asked no message", f"pushed {len(encode(Refusal('error')))}", "told", "beat"]
    assert lives == [77.0]
