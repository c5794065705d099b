"""One client of sums that clients open: it opens the totals, and answers the question that they imply.

The coordinator only relays: its requests carry sealed totals that it cannot read, and no question.
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
from privfed.protocols.client_opened.opened_messages import (
    MISSED,
    NOTHING,
    Contribution,
    OpenRequest,
    Sealed,
    lost_clients,
    needed,
    next_head,
    tag_of,
)
from privfed.protocols.client_opened.scheme import (
    Group,
    Opened,
    Scheme,
    State,
    SumAttempt,
    attempt_of,
    closed,
)
from privfed.protocols.client_opened.setup import GroupSetup
from privfed.protocols.crypto.keys import CryptographyError, digest, equal
from privfed.protocols.setup import losses
from privfed.protocols.setup.setup_messages import Channel, Envelope


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
                if isinstance(answered, Refusal) and not _closes(before, state.group):
                    return state, reply
        except (PrivFedError, CryptographyError) as error:
            return state, encode(Refusal(refusal_code(error)))
        return msgspec.structs.replace(state, reply_to=digest("request", request), reply=reply), reply

    def _in_fit(
        self, state: State, before: Group, channel: Channel, envelope: Envelope, answerer: Answerer
    ) -> tuple[State, Contribution | Refusal]:
        try:
            message = channel.down.open(envelope, OpenRequest)
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
        named = self._scheme.whole and known not in (b"", group.lost)
        again = bool(group.pending) or named
        return msgspec.structs.replace(group, repeats=group.repeats + again)

    def _admit(self, group: Group, number: int, message: OpenRequest) -> Group:
        """Accept the group's secret, and the list of clients that are out of the fit, which may only grow."""
        fresh = not group.secret
        group = self._setup.accept(group, message.invitation, message.capsules)
        if not group.secret:
            raise _misplaced("before an invitation")
        if fresh:
            self._joined(group)
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
        lost = set(attempt.cohort) - set(opened.contributors)
        counted = losses.after_total(group.losses, attempt.cohort, lost)
        changed = {"opened": sealed.index, "pending": pending, "losses": counted}
        return msgspec.structs.replace(group, head=next_head(attempt.header, opened.integers), **changed)

    def _counted(self, group: Group, attempt: SumAttempt) -> Group:
        """Count clients that were lost, before anything is answered.

        Raises:
            PolicyError: they are more than was agreed; the text is the code of the refusal.
        """
        configuration, counted = self._agreement.configuration, group.losses
        if self._scheme.whole:
            # Whom the request calls lost is in no total any more; elsewhere each total says who is in it.
            lost = set(attempt.cohort) - set(attempt.members)
            counted = losses.after_total(counted, attempt.cohort, lost)
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
            own = answer(question, index, answerer)
            return answered, label, self._scheme.upload(group, attempt, own)
        except (PrivFedError, CryptographyError) as error:
            return answered, label, Refusal(refusal_code(error))


def _closes(before: Group, after: Group | None) -> bool:
    """Say whether a request closed an attempt, because it was answered or refused by the answerer."""
    return after is not None and after.last > before.last


def total_of(attempt: SumAttempt, opened: Opened) -> Total:
    """Return the total as a replay is told it: only what clients can know."""
    return Total(
        statistics=question_from_bytes(attempt.question).spec.unflatten(opened.vector),
        contributors=opened.contributors,
        clipped=opened.clipped,
    )
