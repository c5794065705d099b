"""A node's side of Flower: one process that asks its SuperLink for messages, and answers each in a fork.

Flower's own SuperNode looks for messages every three seconds, starts four processes, serves an interface on
this machine, and runs the code that a run brings. This one speaks the same interface of a SuperLink, by
Flower's own client for it, and runs the installed privfed only: no code comes over the network. It looks
again after a tenth of the time that has passed since the last message, at most every three seconds.

It leans on parts of Flower that are private (`privfed.nodes.deploy.processes.TESTED`).
"""

from __future__ import annotations

import logging
import math
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app.error import Error
from flwr.app.message import Message, remove_content_from_message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from privfed.core.names import ALGORITHMS, PARTS
from privfed.errors import ArgumentError, MessageError
from privfed.nodes.deploy.folders import Kit
from privfed.nodes.flower.apps import packed, unpacked
from privfed.nodes.flower.node import answered

if TYPE_CHECKING:
    from privfed.nodes.deploy.node import Says

DIED = 8
"""Flower's code for a node whose process died."""

IMPORTED = (
    *("privfed.estimators.registry", "privfed.metrics.asked", "privfed.protocols.slotted"),
    *("privfed.protocols.masked.masked", "privfed.protocols.group_masked.group_masked"),
    *("privfed.protocols.ckks.ckks", "privfed.algorithms.wf_kmeans", "privfed.algorithms.fuzzy"),
    *("privfed.algorithms.fkm", "privfed.algorithms.summary"),
)
"""What answers need, and a fork has."""

SHORTEST, LONGEST, SHARE = 0.1, 3.0, 0.1
"""Seconds between two looks for a message, at least, at most, and as share of the time since the last."""

_AGAIN, _LINK, _LEAVING = 0.5, 60.0, 2.0
"""Seconds before a call is tried again, for how long where the link is cut, and for taking leave."""


class LinkError(Exception):
    """The SuperLink cannot be used; the text says why, and whose move is next."""


@contextmanager
def _on_its_way() -> Iterator[None]:
    """Turn any error of Flower's own while a message is pulled or pushed into one of the link."""
    try:
        yield
    except LinkError:
        raise
    except Exception as error:
        raise LinkError(f"a message was lost on its way ({type(error).__name__}). Trying again.") from None


class Fleet:
    """A SuperLink, as a node reaches it. It has no thread, so that this process can fork.

    Args:
        kit: its address, and the authority of its certificate.
        key: file with the node's key for it.
        says: hears where the link is cut.
        alive: file that is touched whenever the SuperLink has done what it was asked.

    Raises:
        LinkError: it cannot be reached, or does not know the key.
    """

    def __init__(self, kit: Kit, key: Path, says: Callable[[str, str], None], alive: Path) -> None:
        self._kit, self._says, self._alive = kit, says, alive
        self._clock = ""
        private = load_ssh_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ArgumentError(f"{key} is no key of privfed flower join.")
        signing = NodeAuthHttpInterceptor(private, private.public_key())
        self._client = FleetHttpClient.from_server_address(
            kit.address,
            False,
            kit.authority,
            [RuntimeVersionHttpInterceptor(component_name="SuperNode"), signing],
        )
        self._client._client.event_hooks = {"response": [self._compare]}
        own = public_key_to_bytes(private.public_key())
        about = ActivateNodeRequest(public_key=own, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
        self._node = Node(node_id=self._tried(self._client.ActivateNode, about, 0.0).node_id)
        self._beaten = time.monotonic()

    def _tried(self, call: Callable[[Any], Any], request: Any, seconds: float = _LINK) -> Any:
        """Call the SuperLink, again for some time where the link is cut."""
        until = time.monotonic() + seconds
        while True:
            try:
                done = call(request)
                self._alive.touch()
                return done
            except httpx.TransportError as error:
                if time.monotonic() >= until or _by_tls(error):
                    raise LinkError(self._why(error)) from None
                self._says("cut", f"{self._kit.address} does not answer; trying for {_LINK:.0f} s")
                time.sleep(_AGAIN)
            except httpx.HTTPStatusError as error:
                raise LinkError(self._refused(error.response.status_code)) from None

    def _compare(self, response: httpx.Response) -> None:
        """Note how far the two machines' clocks differ."""
        with suppress(KeyError, ValueError):
            theirs = parsedate_to_datetime(response.headers["date"]).timestamp()
            self._clock = f" This machine's clock is {time.time() - theirs:+.0f} s from the SuperLink's."

    def _why(self, error: httpx.TransportError) -> str:
        address, said = self._kit.address, str(error) or type(error).__name__
        if not _by_tls(error):
            return (
                f"{address} does not answer ({said}). The coordinator's move: run privfed flower superlink "
                "there, and let this port through; yours, if that is done: your network's way out to it."
            )
        if "expired" in said or "not yet valid" in said:
            return (
                f"the certificate of {address} does not hold today ({said}). The coordinator's move: privfed "
                "flower add --renew, and start the SuperLink again. Yours, if your clock is wrong: set it."
            )
        return (
            f"{address} shows a certificate not of your kit's authority, or for another name ({said}). "
            "Nothing was sent. The coordinator's move: send the fed.kit of this SuperLink. If you have it, "
            "somebody else answers at that address."
        )

    def _refused(self, code: int) -> str:
        if code == httpx.codes.UNAUTHORIZED:
            return (
                "the SuperLink no longer takes this node's signature: it was started anew, this party was "
                f"removed, or the two machines' clocks differ by minutes.{self._clock} Trying again."
            )
        return (
            f"the SuperLink does not know this node's key (HTTP {code}), or a node with it was there within "
            "the last half minute. The coordinator's move: privfed flower add with this party's .pub file. "
            "Yours, if you started this node twice: stop one."
        )

    def beat(self) -> None:
        """Tell the SuperLink that this node lives, where that is due."""
        if time.monotonic() - self._beaten < HEARTBEAT_MIN_INTERVAL / 2:
            return
        about = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
        if not self._tried(self._client.SendNodeHeartbeat, about).success:
            raise LinkError(self._refused(httpx.codes.UNAUTHORIZED))
        self._beaten = time.monotonic()

    @_on_its_way()
    def pull(self) -> Message | None:
        """Return the next message for this node; None where there is none."""
        found = self._tried(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        run, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(lambda x: self._tried(self._client.PullObject, x), self._node, run),
            make_confirm_message_received_fn_protobuf(
                lambda x: self._tried(self._client.ConfirmMessageReceived, x), self._node, run
            ),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    @_on_its_way()
    def push(self, message: Message, reply: bytes | None) -> None:
        """Reply to a message; None says that the process that answered has died."""
        run = message.metadata.run_id
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, self._node.node_id, 0
        content = Error(DIED, "") if reply is None else packed(reply)
        sent = Message(content, reply_to=message)
        sent.metadata.__dict__["_message_id"] = sent.object_id
        bare = remove_content_from_message(sent) if sent.has_content() else sent
        with no_object_id_recompute():
            about = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(bare)],
                message_object_trees=[get_object_tree(sent)],
                clientapp_runtime_list=[0.0],
            )
            wanted = self._tried(self._client.PushMessages, about)
            one = make_push_object_fn_protobuf(
                lambda x: self._tried(self._client.PushObject, x), self._node, run, wanted.session_id
            )
            push_objects(get_all_nested_objects(sent), one, object_ids_to_push=set(wanted.objects_to_push))

    def close(self) -> None:
        """Tell the SuperLink that this node leaves, where it hears that."""
        # Whoever stops a node does not wait for a SuperLink that is gone.
        self._client._client.timeout = httpx.Timeout(_LEAVING)
        with suppress(httpx.HTTPError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))


def _by_tls(error: httpx.TransportError) -> bool:
    """Say whether a connection failed by the certificate."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def load(also: tuple[str, ...] = ()) -> None:
    """Import all that answers need, so that forks have it.

    Args:
        also: parts to import besides. Not modules of the node's owner: what runs in them before a fork, as
            threads, may hang in the fork.
    """
    logging.getLogger("flwr").setLevel(logging.WARNING)
    for name in IMPORTED:
        import_module(name)
    for part in also:
        PARTS.find(part)
    with suppress(ArgumentError):  # Where no models can be trained, none are.
        ALGORITHMS.find("RegroupedLearning")


def in_fork(
    folder: Path, request: bytes, meanwhile: Callable[[], None], seconds: float = math.inf
) -> bytes | None:
    """Answer a message in a fork; return None where the fork died, or was ended.

    Args:
        folder: the party's.
        request: what came over the network.
        meanwhile: is called every few seconds.
        seconds: how long the message lives: later nobody takes its answer, so that the fork is ended.
    """
    until = time.monotonic() + seconds
    ours, theirs = Pipe(duplex=False)
    child = os.fork()
    if not child:
        _answer(folder, request, theirs)
    theirs.close()
    try:
        with ours:
            while not ours.poll(min(HEARTBEAT_MIN_INTERVAL / 4, max(0.0, until - time.monotonic()))):
                if time.monotonic() >= until:
                    return None
                meanwhile()
            try:
                return ours.recv_bytes()
            except EOFError:
                return None
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(folder: Path, request: bytes, pipe: Connection) -> None:
    """Answer in the fork, and end it."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        pipe.send_bytes(answered(folder, request))
        pipe.close()
        code = 0
    finally:
        # Nothing of the process that was forked is ended twice.
        os._exit(code)


def serve(
    fleet: Fleet,
    folder: Path,
    hears: Says,
    looked: Callable[[], bool],
    unsent: list[tuple[Message, bytes | None]],
) -> None:
    """Answer messages from a party's folder, until there is something else to do.

    Args:
        fleet: the SuperLink.
        folder: the party's.
        hears: hears each message and its answer.
        looked: is called at each look for a message; True ends the service.
        unsent: the last reply as long as it has not left, for the service over the next link.

    Raises:
        LinkError: the SuperLink cannot be used any more.
    """
    last = time.monotonic()
    while not looked():
        fleet.beat()
        if unsent:
            fleet.push(*unsent.pop())  # A reply that is lost again is asked for anew, if it is wanted.
        message = fleet.pull()
        if message is None:
            time.sleep(min(LONGEST, max(SHORTEST, SHARE * (time.monotonic() - last))))
            continue
        try:
            request = unpacked(message.content)
        except (MessageError, ValueError):
            request = b""
        hears.asked(request)
        began = time.monotonic()

        def meanwhile() -> None:
            hears.working(time.monotonic() - began)  # noqa: B023  # Called before the next message.
            # An answer is not given up where the link is cut meanwhile.
            with suppress(LinkError):
                fleet.beat()

        reply = in_fork(folder, request, meanwhile, message.metadata.ttl)
        unsent.append((message, reply))
        fleet.push(message, reply)
        unsent.clear()
        hears.told(request, reply)
        last = time.monotonic()
