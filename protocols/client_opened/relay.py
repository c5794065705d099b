"""The coordinator of sums that clients open: it relays sealed totals, adds sealed answers, counts clients.

It shares one channel key with each client, and never has a question, a total or a key of the group. If the
server adds the noise, it adds it once to each completed sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import MAX_MESSAGE_BYTES, Refusal, encode
from privfed.errors import IntegrityError, MessageError, ProtocolError, RepeatsSpentError
from privfed.privacy.pricing import ServerNoise
from privfed.protocols.client_opened.scheme import (
    MISSED,
    NOTHING,
    Confirmed,
    Contribution,
    Invited,
    Joined,
    OpenRequest,
    Scheme,
    Sealed,
    leader_of,
    needed,
)
from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.setup.advertising import with_keys
from privfed.protocols.setup.ceilings import Ceiling
from privfed.protocols.setup.parties import NO_KEY, Coordinator
from privfed.protocols.setup.rules import bitmap
from privfed.protocols.setup.setup_messages import Advertisement, part
from privfed.protocols.setup.simulated import MAX_BEHIND

DOUBTED = "the leader's box did not bring a client what others got, and no evidence says who of the two lies"
"""Why two clients are left out of the fit."""


class NothingAskedError(ProtocolError):
    """The clients' own runs ask no more: nothing was answered, and nobody is lost."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """Holds a completed sum: a total that the coordinator cannot read, and what happened to its clients.

    Args:
        sealed: the total.
        dropped: position -> stage in which a client of the cohort was lost.
        rejected: position -> why a message of that client was thrown away.
        attempts: how many attempts the sum took.
    """

    sealed: Sealed
    dropped: Mapping[int, str]
    rejected: Mapping[int, str]
    attempts: int = 1


class Relay(Coordinator):
    """Coordinates sums that it cannot open.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
        scheme: how sealed answers are added.
    """

    def __init__(self, agreement: Agreement, identity: Signer, scheme: Scheme) -> None:
        super().__init__(agreement, identity, needed)
        # Its `boxes` hold what the scheme draws, as the key of CKKS, for all others.
        self._ceiling = Ceiling.of(agreement.configuration, boxes=MAX_MESSAGE_BYTES)
        self._scheme, self._noise = scheme, ServerNoise(agreement.configuration)
        self._forget()

    def _forget(self) -> None:
        self._boxes: dict[int, bytes] = {}
        self._lost: dict[int, str] = {}
        self._number = 0
        self._repeats = 0
        self._totals: list[Sealed] = []
        self._n_totals = 0
        self._heard: dict[int, int] = {}
        self._told: dict[int, int] = {}

    # Set-up.

    def open(self) -> Steps[None]:
        """Set up the group; if its leader is lost or doubted, or a journal stale, start again without it."""
        self._forget()
        agreed = False
        while not agreed:
            asked = [i for i in self._everyone if i not in self._lost]
            came = yield from self._advertised(new_secret(), asked)
            self._lose((i for i in asked if i not in came), "advertise")
            secret = yield from self._prepared(came)
            agreed = bool(secret) and (yield from self._confirmed(leader_of(self._session, [*came]), secret))

    def _prepared(self, came: Mapping[int, Advertisement]) -> Steps[bytes]:
        """Have clients agree on keys; return the hash of what the leader drew, empty where it was lost."""
        leader = leader_of(self._session, [*came])
        others = [i for i in came if i != leader]
        self._pairing.want(leader, others, alone=True)
        for client in came if self._scheme.pairwise else ():
            self._pairing.want(client, came)
        offered = {i: self._pairing.offered(i) for i in came}
        without = encode(self._roster)
        requests = {
            i: encode(with_keys(self._roster, keys)) if keys else without for i, keys in offered.items()
        }
        replies = yield Exchange("prepare", 0, requests)

        def check(client: int, reply: Joined) -> None:
            name = self._name(client)
            if client == leader and len(reply.boxes) % len(others):
                raise MessageError("boxes of another length", sender=name, stage="prepare")
            if {one.client for one in reply.capsules} != {one.client for one in offered[client]}:
                raise MessageError("other capsules than were asked for", sender=name, stage="prepare")

        def read(client: int, data: bytes) -> Joined | Refusal:
            return cast(Joined | Refusal, self._joining(client, data, "prepare", Joined, check))

        answers, rejected = gather(replies, requests, read)
        self._rejected |= rejected
        if stale := self._out.keys() - self._lost.keys():
            self._lose(stale, "prepare")
            return b""
        joined = {i: one for i, one in answers.items() if isinstance(one, Joined)}
        self._refused = {i: one.code for i, one in answers.items() if isinstance(one, Refusal)}
        self._require(joined, self._everyone, "prepare", self._refused)
        self._lose((i for i in came if i not in joined), "prepare")
        self._heard = dict.fromkeys(joined, 0)
        self._told = {i: one.told for i, one in joined.items()}
        if leader not in joined:
            return b""
        boxes = joined[leader].boxes
        size = len(boxes) // len(others)
        self._boxes = {other: part(boxes, place, size) for place, other in enumerate(others)}
        return joined[leader].secret

    def _confirmed(self, leader: int, secret: bytes) -> Steps[bool]:
        """Have all confirm the leader's secret; say whether all that answered have the same one."""
        requests = {
            i: self._channels[i].down.seal(
                0, "collect", Invited(self._boxes.get(i, b""), self._pairing.capsules(i))
            )
            for i in self._heard
        }
        replies = yield Exchange("invite", 0, requests)
        read, rejected = gather(
            replies, requests, lambda i, data: self._opened(i, data, 0, "collect", Confirmed)
        )
        self._rejected |= rejected
        told = {i: getattr(one, "secret", b"") for i, one in read.items()}
        refused = {i: one.code for i, one in read.items() if isinstance(one, Refusal)}
        # Silence, and a refusal for another reason, accuse nobody.
        self._lose(
            (i for i in requests if refused.get(i, "" if i in told else "lost") not in ("", "invitation")),
            "invite",
        )
        self._require(self._present(), self._everyone, "invite", refused)
        # No evidence says who of the two lies. Each of these pairs has the leader: nobody else goes.
        doubting = min((i for i, one in told.items() if one != secret and i not in self._lost), default=None)
        if doubting is not None:
            self._leave([(leader, doubting)], DOUBTED)
            self._lose((leader, doubting), "invite")
        return doubting is None

    @property
    def group(self) -> str:
        """Name of the group that was set up last."""
        return self._session.hex()

    @property
    def told(self) -> int:
        """How many totals of earlier set-ups so many clients say they have as a sum needs."""
        least = self._fewest(len(self._everyone), self._agreement.configuration.terms)
        return next(iter(sorted(self._told.values(), reverse=True)[least - 1 :]), 0)

    # A sum.

    def sum(self, index: int) -> Steps[Relayed]:
        """Let the clients answer the next question; ask again without lost clients if need be.

        Raises:
            NotEnoughClientsError: too few clients are left.
            RefusedError: too few clients are left because some refused.
            RepeatsSpentError: clients were lost, and the agreed number of repeats is spent.
            NothingAskedError: the clients' own runs ask no more.
            IntegrityError: the clients' hash chains of totals differ.
        """
        if not self._n_totals:
            self._leave_behind(index)
        before = self._repeats
        while True:
            relayed = yield from self._attempt(index)
            if relayed is not None:
                return replace(relayed, attempts=1 + self._repeats - before)

    def _leave_behind(self, index: int) -> None:
        """Go on without clients that lack totals of an earlier set-up, before they cost a repeat.

        The coordinator cannot read these totals, and the keys that open them are gone.

        Raises:
            RefusedError: too few clients are left.
        """
        behind = [i for i in self._present() if self._told[i] < index]
        self._lose(behind, "prepare")
        self._rejected |= {i: f"has {self._told[i]} of {index} totals of earlier set-ups" for i in behind}
        self._refused = dict.fromkeys(behind, MISSED)
        self._require(self._present(), self._everyone, "prepare", self._refused)

    def close(self) -> Steps[None]:
        """Deliver the last total to clients that do not have it."""
        if any(self._behind(i) for i in self._present()):
            yield from self._exchanged("close", 0, False, lambda client, reply: None)

    def _present(self) -> list[int]:
        """Return the clients still in the fit; those that lack more than MAX_BEHIND totals are lost now."""
        self._lose((i for i in self._heard if self._behind(i) > MAX_BEHIND), "collect")
        return [i for i in self._heard if i not in self._lost]

    def _behind(self, client: int) -> int:
        return self._n_totals - self._heard[client]

    def _exchanged(
        self, stage: str, index: int, asks: bool, take: Callable[[int, Contribution], None]
    ) -> Steps[dict[int, Contribution]]:
        """Send every client the totals that it lacks, and return the contributions that came back."""
        self._number += 1
        number, present = self._number, self._present()
        replies = yield Exchange(stage, number, {i: self._request(i, index, asks) for i in present})

        def read(client: int, data: bytes) -> Contribution | Refusal:
            reply: Contribution | Refusal = self._opened(client, data, number, "collect", Contribution)
            if isinstance(reply, Contribution):
                take(client, reply)
            return reply

        answers, rejected = gather(replies, present, read)
        self._rejected |= rejected
        told = {i: one for i, one in answers.items() if isinstance(one, Contribution)}
        self._refused = {i: one.code for i, one in answers.items() if isinstance(one, Refusal)}
        for client in told:
            self._heard[client] = self._n_totals
        self._compare(told)
        return told

    def _request(self, client: int, index: int, asks: bool) -> bytes:
        behind = self._behind(client)
        totals = tuple(self._totals[-behind:]) if behind else ()
        return self._channels[client].down.seal(
            self._number, "collect", OpenRequest(index, asks, self._lost_bitmap(), totals)
        )

    def _lost_bitmap(self) -> bytes:
        return bitmap(tuple(self._everyone), frozenset(self._lost))

    def _compare(self, told: Mapping[int, Contribution]) -> None:
        """Check that all replays have the same totals and ask the same cohort.

        Raises:
            IntegrityError: they differ, or a client could not open a total.
        """
        reports = Counter((one.tag, one.cohort) for one in told.values())
        common = reports.most_common(1)[0][0] if reports else None
        odd = [self._name(i) for i, one in told.items() if (one.tag, one.cohort) != common]
        odd += [self._name(i) for i, code in self._refused.items() if code == "total"]
        if odd:
            raise IntegrityError(
                f"the totals that {', '.join(odd)} opened differ from those of the other clients in sum "
                f"{self._number}: the run stops. Begin a new fit; a client with another version, or a "
                "dishonest one, may be among them."
            )

    def _attempt(self, index: int) -> Steps[Relayed | None]:
        """Ask once; return None if clients were lost whose masks cannot be removed."""
        configuration, present = self._agreement.configuration, self._present()
        lost, adder = self._lost_bitmap(), self._scheme.adder()

        def take(client: int, reply: Contribution) -> None:
            if reply.body:
                if client not in configuration.cohort(reply.cohort):
                    raise MessageError("not of the cohort", sender=self._name(client), stage="collect")
                adder.add(client, reply.body, self._name(client))

        told = yield from self._exchanged("collect", index, True, take)
        label = next((one.cohort for one in told.values()), None)
        if label == NOTHING:
            raise NothingAskedError(f"the clients' own runs ask no sum {index}: what was agreed has ended.")
        members = tuple(self._everyone) if label is None else configuration.cohort(label)
        contributors, body = adder.result()
        for client in told:
            if told[client].body and client not in contributors:
                self._rejected[client] = "does not fit the other answers"
        missing = [i for i in members if i not in contributors and i in present]
        if self._scheme.pairwise:
            # Who is not asked needs no key, so that only members say that they lack that of another one.
            refused = sorted((i, code) for i, code in self._refused.items() if i in missing)
            edges = {i: j for i, code in refused for j in {*members} & {*present} if code == f"box:{j}"}
            self._leave(edges.items(), NO_KEY)
            # Who complained of a client that left with another is asked again without it.
            self._lose({*missing, *self._out} - (edges.keys() - self._out.keys()), "collect")
            contributors = tuple(i for i in members if i not in self._lost)
        self._require(contributors, members, "collect", self._refused)
        if missing and self._scheme.pairwise:
            self._repeats += 1
            if self._repeats > configuration.terms.repeats:
                raise RepeatsSpentError(
                    missing=[self._name(i) for i in missing], repeats=configuration.terms.repeats
                )
            return None
        if configuration.noised_by_server:
            # Noise is drawn once for each sum: a client that gets the total again gets the same bytes.
            body = self._scheme.noised(body, self._noise.draw(index), len(members))
        sealed = Sealed(self._number, index, lost, body)
        self._totals, self._n_totals = [*self._totals, sealed][-MAX_BEHIND:], self._n_totals + 1
        rejected, self._rejected = self._rejected | self._out, {}
        return Relayed(
            sealed, {i: self._lost.get(i, "collect") for i in members if i not in contributors}, rejected
        )

    # Lost clients, and replies.

    def _lose(self, clients: Iterable[int], stage: str) -> None:
        for client in clients:
            self._lost.setdefault(client, stage)
