"""One client of sums that clients open: its set-up of the group, then answers to what opened totals imply.

1. Advertise: each client sends fresh keys of X25519 and ML-KEM-768, signed by its registered identity over
   role, position, fit and agreement; the coordinator relays the list.
2. Prepare: each client checks the list, and agrees on K_iS with the coordinator and on K_ij with those that
   it encapsulates to (`privfed.protocols.setup.hybrid`). The leader, which follows from the session,
   encapsulates to all others, draws G, 32 bytes from the operating system's generator, and seals it for each
   under K_ij.
3. Invite: each client gets its box and what others encapsulated to it, and confirms the hash of G. Where one
   does not open its box, or confirms another hash, either it lies or the leader: both are left out, G is
   never used, and the rest begin anew.
4. Sums: the coordinator only relays: its requests carry sealed totals that it cannot read, and no question.

Reveals to the coordinator: who takes part. A single colluding client can tell it G and the scheme's own
secret, which travels with G.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import question_from_bytes
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Answerer
from privfed.core.roles.secure_sum import COLLECT, Replay
from privfed.core.stored.encoding import Refusal, encode
from privfed.errors import IntegrityError, MessageError, PolicyError, PrivFedError
from privfed.protocols.answering import admit, answer, refusal_code
from privfed.protocols.client_opened.scheme import (
    CODEC,
    MISSED,
    NOTHING,
    Confirmed,
    Contribution,
    Group,
    Invited,
    Joined,
    Opened,
    OpenRequest,
    Scheme,
    Sealed,
    State,
    SumAttempt,
    attempt_of,
    closed,
    hash_of_secret,
    invitation_data,
    invitation_key,
    leader_of,
    lost_clients,
    needed,
    next_head,
    tag_of,
)
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    digest,
    equal,
    new_secret,
    seal,
    unseal,
)
from privfed.protocols.setup import losses
from privfed.protocols.setup.hybrid import Keyring, agreed_on
from privfed.protocols.setup.parties import JoiningClient
from privfed.protocols.setup.setup_messages import Channel, Envelope, Joining, RosterRequest


def _misplaced(reason: str) -> MessageError:
    return MessageError(reason, sender="the coordinator", stage=COLLECT)


class GroupClient:
    """Answers, for one client, the questions that the opened totals imply.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the coordinator.
        identity: the client's long-term key.
        policy: decides what the client answers.
        scheme: how answers are sealed and opened.
        replay: the client's own run of the algorithm.
        joined: called with the group's keys once the client has all of them, for a replay that opens
            totals itself.
    """

    def __init__(
        self,
        position: int,
        agreement: Agreement,
        identity: Signer,
        policy: ClientPolicy,
        scheme: Scheme,
        replay: Replay,
        joined: Callable[[Group], None] = lambda group: None,
    ) -> None:
        self._me, self._agreement, self._policy = position, agreement, policy
        self._scheme, self._replay, self._joined = scheme, replay, joined
        self._setup = GroupSetup(position, agreement, identity, policy, scheme, replay)

        self.codec, self.initial = self._setup.codec, self._setup.initial

    def step(self, state: State, request: bytes, answerer: Answerer) -> tuple[State, bytes]:
        """Answer one request, or refuse it with a code that depends on messages and policy only.

        Valid totals that came with the request stay opened even if the request is refused, and an invalid
        one ends the fit and erases its keys. Otherwise a refusal leaves the state as it was, except that a
        refusal by the answerer closes the attempt, as an answer does.
        """
        if equal(digest("request", request), state.reply_to):
            return state, state.reply
        try:
            message = self._setup.set_up(state, request)
            if not isinstance(message, Envelope):
                state, reply = message
                if state.key:
                    # Asked again, a client advertises the same key; a list is joined only once.
                    return state, reply
            else:
                before = state.group
                if before is None:
                    raise _misplaced("before the set-up")
                channel = Channel(before.channel, before.session, self._me)
                state, answered = self._in_fit(state, before, channel, message, answerer)
                reply = channel.up.seal(message.number, message.stage, answered)
                after = state.group
                # A refusal by the answerer closes an attempt, as an answer does.
                if isinstance(answered, Refusal) and (after is None or after.last == before.last):
                    return state, reply
        except (PrivFedError, CryptographyError) as error:
            return state, encode(Refusal(refusal_code(error)))
        return msgspec.structs.replace(state, reply_to=digest("request", request), reply=reply), reply

    def _in_fit(
        self, state: State, before: Group, channel: Channel, envelope: Envelope, answerer: Answerer
    ) -> tuple[State, Contribution | Confirmed | Refusal]:
        try:
            message = self._setup.ceiling.unsealed(channel.down, envelope, OpenRequest | Invited)
            if isinstance(message, Invited):
                group, confirmed = self._setup.confirm(before, message)
                self._joined(group)
                return msgspec.structs.replace(state, group=group), confirmed
            if envelope.stage != COLLECT or envelope.number <= before.last:
                raise _misplaced("not an upcoming sum")
            group = self._admit(before, envelope.number, message)
            for sealed in message.totals:
                # If this client's reply was lost, the coordinator sends again totals that it has opened.
                if sealed.index > group.opened:
                    group = self._open(group, sealed)
                    # The replay has this total now: even after a refusal no other may take its place.
                    kept = msgspec.structs.replace(group, last=before.last, lost=before.lost)
                    state = msgspec.structs.replace(state, group=kept)
            group = self._asked_again(group, before.lost if before.last else state.lost)
            return self._answered(state, group, envelope.number, message, answerer)
        except IntegrityError:
            return closed(state), Refusal("total")
        except (PrivFedError, CryptographyError) as error:
            return state, Refusal(refusal_code(error))

    def _answered(
        self, state: State, group: Group, number: int, message: OpenRequest, answerer: Answerer
    ) -> tuple[State, Contribution | Refusal]:
        cohort: int = 0
        body: bytes | Refusal = b""
        if message.asks:
            group, cohort, body = self._contribute(state, group, number, message.index, answerer)
        state = msgspec.structs.replace(state, group=group, answered=state.answered + bool(body))
        if isinstance(body, Refusal):
            return state, body
        return state, Contribution(cohort, tag_of(group.secret, number, group.head), memoryview(body))

    def _asked_again(self, group: Group, known: bytes) -> Group:
        """Count a repeat, if the coordinator could now see two totals that differ by one client's answer.

        It could if a sum that this client contributed to is asked again, because the coordinator and a
        colluder may have opened the first attempt. It also could if a client is named lost between two sums
        of nearly the same question.

        Args:
            group: the group's state, after the totals that came.
            known: who was out of the fit before, in this set-up or an earlier one, as a bitmap; empty if
                nothing was asked before.
        """
        again = bool(group.pending) or (self._scheme.pairwise and known not in (b"", group.lost))
        return msgspec.structs.replace(group, repeats=group.repeats + again)

    def _admit(self, group: Group, number: int, message: OpenRequest) -> Group:
        """Accept the list of clients that are out of the fit, which may only grow."""
        if not group.secret:
            raise _misplaced("before an invitation")
        configuration = self._agreement.configuration
        if not lost_clients(configuration, group.lost) <= lost_clients(configuration, message.lost):
            raise _misplaced("a lost client is back")
        return msgspec.structs.replace(group, last=number, lost=message.lost)

    def _attempt(self, group: Group, number: int, index: int, lost: bytes) -> SumAttempt:
        """Derive an attempt at a sum from what this client knows; its own replay names the cohort."""
        configuration, expected = self._agreement.configuration, self._replay.ask(index)
        return attempt_of(configuration, group, self._me, expected, number, index, lost)

    def _open(self, group: Group, sealed: Sealed) -> Group:
        """Open a total, tell the replay, and add it to the hash chain.

        Raises:
            IntegrityError: it is not the total of this sum; the fit ends.
        """
        if sealed.number >= group.last:
            raise _misplaced("a total out of order")
        attempt = self._attempt(group, sealed.number, sealed.index, sealed.lost)
        opened = self._scheme.open(group, attempt, sealed.body)
        self._replay.tell(sealed.index, total_of(attempt, opened))
        pending = group.pending if group.pending > sealed.number else 0
        counted = losses.after_total(
            group.losses, attempt.cohort, set(attempt.cohort) - set(opened.contributors)
        )
        changed = {"opened": sealed.index, "pending": pending, "losses": counted, "shown": counted.over_fits}
        return msgspec.structs.replace(group, head=next_head(attempt.header, opened.integers), **changed)

    def _counted(self, group: Group, attempt: SumAttempt) -> Group:
        """Count clients that were lost, before anything is answered.

        Raises:
            PolicyError: they are more than was agreed; the text is the code of the refusal.
        """
        configuration, counted = self._agreement.configuration, group.losses
        if self._scheme.pairwise:
            # Whom the request calls lost is in no total any more; elsewhere each total says who is in it.
            counted = losses.after_total(counted, attempt.cohort, set(attempt.cohort) - set(attempt.members))
        return msgspec.structs.replace(group, losses=losses.checked(counted, configuration))

    def _contribute(
        self, state: State, group: Group, number: int, index: int, answerer: Answerer
    ) -> tuple[Group, int, bytes | Refusal]:
        """Answer the question that the totals imply; return the cohort and the sealed answer.

        If the answerer refuses, its refusal is returned instead and counts as an answer.
        """
        terms, configuration = self._agreement.configuration.terms, self._agreement.configuration
        if index <= group.opened:
            raise _misplaced("a sum that is already open")
        if self._replay.told < index:
            raise PolicyError(MISSED)
        if self._replay.ended and self._replay.told == index:
            return group, NOTHING, b""
        label = self._replay.ask(index).cohort
        attempt = self._attempt(group, number, index, group.lost)
        if self._me not in attempt.members:
            return group, label, b""
        if state.repeats + group.repeats > terms.repeats:
            raise PolicyError("policy:repeats")
        if state.answered >= terms.max_sums + terms.repeats:
            raise PolicyError("policy:max_sums")
        if len(attempt.members) < needed(len(attempt.cohort), terms):
            raise PolicyError("members:few")
        for j in attempt.members if self._scheme.pairwise else ():
            if j != self._me and j not in group.pairs:
                raise PolicyError(f"box:{j}")
        group = self._counted(group, attempt)
        question = admit(attempt.question, self._policy, configuration, server_opens=False)
        answered = msgspec.structs.replace(group, pending=number)
        try:
            return answered, label, self._scheme.upload(group, attempt, answer(question, index, answerer))
        except (PrivFedError, CryptographyError) as error:
            return answered, label, Refusal(refusal_code(error))


def total_of(attempt: SumAttempt, opened: Opened) -> Total:
    """Return the total as a replay is told it: only what clients can know."""
    return Total(
        statistics=question_from_bytes(attempt.question).spec.unflatten(opened.vector),
        contributors=opened.contributors,
        clipped=opened.clipped,
    )


class GroupSetup(JoiningClient):
    """Sets up a group on one client's side.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the coordinator.
        identity: the client's long-term key.
        policy: decides what the client answers.
        scheme: says whether pairwise keys are needed, and which secret travels with G.
        replay: the client's own run, which knows how many totals it has; None where the server opens them.
    """

    codec = CODEC

    def __init__(
        self,
        position: int,
        agreement: Agreement,
        identity: Signer,
        policy: ClientPolicy,
        scheme: Scheme,
        replay: Replay | None = None,
    ) -> None:
        super().__init__(position, agreement, identity, policy)
        self._scheme, self._replay = scheme, replay

    def join(self, state: State, message: RosterRequest) -> tuple[State, bytes]:
        """Check the list of clients and derive the keys; the leader draws the group's secret.

        Raises:
            PolicyError: the list fails a check; the text is the code of the refusal.
            MessageError: the client advertised no key.
        """
        # An earlier fit ends only once the whole list, with this client's key, is the coordinator's.
        before, me = closed(state), self._me
        session, channel, ciphertext, ring, counted = self._checked_list(
            state, before.losses, message, "prepare", whole=self._scheme.pairwise
        )
        leader = leader_of(session, [one.client for one in message.clients])
        ring, pairs, capsules = agreed_on(ring, session, me, (), message.keys, ())
        listed = {one.client for one in message.clients}
        lost = bytes(i not in listed for i in range(len(self._agreement.configuration.clients)))
        group = Group(
            session, leader, channel, pairs, digest("group chain", session), ring, lost=lost, losses=counted
        )
        group, boxes = self._lead(group) if leader == me else (group, b"")
        told = 0 if self._replay is None else self._replay.told
        joined = Joined(boxes, hash_of_secret(group) if boxes else b"", told, capsules)
        sealed = Channel(channel, session, me).up.seal(0, "prepare", joined)
        state = msgspec.structs.replace(before, key=b"", seed=b"", group=group)
        return state, encode(Joining(ciphertext, sealed))

    def _lead(self, group: Group) -> tuple[Group, bytes]:
        """Draw the group's secret; return the group, and the secret sealed for each other client."""
        secret, extra = new_secret(), self._scheme.draw()
        boxes = [
            seal(
                invitation_key(group.pairs[j], group.session),
                secret + extra,
                invitation_data(group.session, self._me, j),
            )
            for j in sorted(group.pairs)
        ]
        return msgspec.structs.replace(group, secret=secret, extra=extra), b"".join(boxes)

    def confirm(self, group: Group, message: Invited) -> tuple[Group, Confirmed]:
        """Take the leader's secret and keys shared with all, once; return the hash of the secret.

        Raises:
            PolicyError: the invitation is not from the leader for this client in this session.
            MessageError: the set-up does not wait for it.
        """
        if group.ring == Keyring():
            raise _misplaced("an invitation that was not awaited")
        _, new, _ = agreed_on(group.ring, group.session, self._me, group.pairs, (), message.capsules)
        # What agrees on keys goes, whoever was lost before: nobody joins later.
        group = msgspec.structs.replace(group, pairs=group.pairs | new, ring=Keyring())
        if not group.secret:
            group = self._opened(group, message.box)
        return group, Confirmed(hash_of_secret(group))

    def _opened(self, group: Group, invitation: bytes) -> Group:
        if group.leader not in group.pairs:
            raise PolicyError("invitation")
        key = invitation_key(group.pairs[group.leader], group.session)
        data = invitation_data(group.session, group.leader, self._me)
        try:
            opened = unseal(key, invitation, data)
        except CryptographyError:
            raise PolicyError("invitation") from None
        if len(opened) < KEY_BYTES:
            raise PolicyError("invitation")
        return msgspec.structs.replace(group, secret=opened[:KEY_BYTES], extra=opened[KEY_BYTES:])
