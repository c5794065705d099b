"""A node: a party that is asked over a network, a process of its own for every message.

All that it remembers lies in its folder: identity, journal, settings, everybody's cards, and each agreement
that it joined, by its digest. Nothing is kept in a module, as simulated nodes share their processes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.agreed.agreement import Agreement
from privfed.core.roles.engine import Client, ErrorLog, note
from privfed.core.stored.codec import Codec
from privfed.core.stored.files import make_folder, open_file, replaced
from privfed.core.stored.messages import CODE, Refusal, encode
from privfed.engines.flower.messages import (
    Answered,
    Ask,
    Declined,
    Down,
    End,
    Ended,
    Join,
    Silent,
    Told,
    Up,
    check_end,
    check_join,
    declined,
    joined,
    read_down,
    seal_told,
)
from privfed.engines.flower.settings import PARTIES_FILE, NodeSettings
from privfed.engines.logs import ClientLogs
from privfed.errors import FAILED, ArgumentError, MessageError, PolicyError, PrivFedError, StateError
from privfed.party.client import check_columns
from privfed.party.identity import read_identity, read_parties
from privfed.party.joining import Party
from privfed.party.program import agreed_program
from privfed.party.replica import TOTAL, OpenedTotal
from privfed.protocols.agreed import agreed_sum
from privfed.protocols.crypto.keys import CryptographyError, digest

JOINED = "joined"
"""Folder of the agreements that a node joined, by digest."""


class _Joined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node keeps of a fit besides its journal."""

    agreement: bytes
    reader: bytes


_JOINED: Codec[_Joined] = Codec(_Joined, "agreement that a node joined", 1)


class _Last(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last request of a fit, as a hash, and what was replied; for a reply that is lost on its way."""

    request: bytes
    reply: bytes
    told: bytes

    def __repr__(self) -> str:
        return "_Last(...)"


_LAST_REPLY: Codec[_Last] = Codec(_Last, "last reply of a node", 1)
_LAST = ".last"


def answered(folder: Path, request: bytes) -> bytes:
    """Answer one message from a party's folder; whatever fails, no text of an error leaves the node.

    Args:
        folder: the party's.
        request: what came over the network.
    """
    log: ErrorLog = ClientLogs(folder / "log", silent=True).of(0)
    try:
        return encode(Node(folder, log).answer(read_down(request)))
    except StateError as error:
        note(log, error)
        return encode(Silent())
    except PolicyError as error:
        code = str(error) if re.fullmatch(CODE, str(error)) else FAILED
    except (MessageError, CryptographyError) as error:
        note(log, error)
        code = "malformed"
    except Exception as error:
        note(log, error)
        code = FAILED
    return encode(_refusal(folder, request, code))


def _refusal(folder: Path, request: bytes, code: str) -> Refusal | Declined:
    """Return a refusal; of a client that is asked to join a signed one, as far as it has its key."""
    with suppress(PrivFedError, OSError, ValueError):
        message = read_down(request)
        if isinstance(message, Join):
            agreement, own = Agreement.from_bytes(message.agreement), read_identity(folder).key
            position = agreement.registry.clients.index(own.public)
            return declined(agreement.digest, message.reader, position, code, own)
    return Refusal(code)


class Node:
    """A party's side of the network.

    Args:
        folder: the party's.
        log: its own log of errors.
    """

    def __init__(self, folder: Path, log: ErrorLog) -> None:
        self._folder, self._log = folder, log
        self._settings = NodeSettings.read(folder)
        self._settings.register()
        self._party = Party(folder)
        self._told: list[tuple[int, bytes]] = []

    def answer(self, message: Down) -> Up:
        """Answer one message; raises what the law of clients lets it, and `PolicyError` with a code."""
        if isinstance(message, End):
            return self._end(message)
        return self._join(message) if isinstance(message, Join) else self._ask(message)

    def _end(self, message: End) -> Up:
        """Close a fit, where the coordinator of this node's own list says that it is over."""
        check_end(message, read_parties(self._folder / PARTIES_FILE).server.public)
        journal = self._party.journal
        for one in journal.fits:
            if one.agreement == message.digest.hex() and not one.closed:
                journal.end(one.number)
        self._kept(message.digest, _LAST).unlink(missing_ok=True)
        return Ended()

    def _join(self, message: Join) -> Up:
        agreement = Agreement.from_bytes(message.agreement)
        # The list of parties is this node's own: whoever else wrote it would decide who takes part.
        parties = read_parties(self._folder / PARTIES_FILE)
        if self._party.own.key.public not in agreement.registry.clients:
            raise PolicyError("agreement:position")
        if agreement.registry != parties.registry(agreement.configuration.clients):
            raise PolicyError("agreement:parties")
        check_join(message, agreement.digest, parties.server.public)
        if not self._settings.approves(agreement):
            raise PolicyError("agreement:approved")
        self._check_program(agreement)
        self._client(agreement)
        self._write(self._kept(agreement.digest), _JOINED, _Joined(message.agreement, message.reader))
        position, own = self._party.position(agreement), self._party.own.key
        return joined(agreement.digest, message.reader, position, own, self._opened(agreement, position))

    def _check_program(self, agreement: Agreement) -> None:
        """Check that this node can build what was agreed; what it lacks stays in its log."""
        configuration = agreement.configuration
        check_columns(self._settings.rows(private=configuration.privacy is not None), configuration)
        try:
            agreed_program(configuration, self._settings.domain_of(configuration))
        except ArgumentError as error:
            note(self._log, error)
            raise PolicyError("agreement:program") from None

    def _opened(self, agreement: Agreement, position: int) -> Told:
        """Return what clients have opened of a fit that is resumed, where this node tells it."""
        settings = self._settings
        if not settings.tells or agreed_sum(agreement.configuration).opens_to != "clients":
            return ()
        fit = self._party.journal.begin(agreement, position, settings.data_set, settings.policy)
        with fit.opened.transaction() as kept:
            totals: tuple[OpenedTotal, ...] = kept.load() or ()
        return tuple((index, TOTAL.to_bytes(total)) for index, total in enumerate(totals))

    def _ask(self, message: Ask) -> Up:
        try:
            kept = _JOINED.from_bytes(self._kept(message.digest).read_bytes())
        except FileNotFoundError:
            raise PolicyError("agreement:unknown") from None
        request = digest("node request", message.request)
        if (last := self._last(message.digest)) is not None and last.request == request:
            # It came again because the reply was lost on its way; nothing is answered twice.
            return Answered(last.reply, last.told)
        agreement = Agreement.from_bytes(kept.agreement)
        answer = Answered(self._client(agreement).handle(message.request))
        if self._told and self._settings.tells:
            told = seal_told(
                tuple(self._told), agreement.digest, self._party.position(agreement), kept.reader
            )
            answer = Answered(answer.reply, told)
        self._write(self._kept(message.digest, _LAST), _LAST_REPLY, _Last(request, answer.reply, answer.told))
        return answer

    def _last(self, fit: bytes) -> _Last | None:
        try:
            return _LAST_REPLY.from_bytes(self._kept(fit, _LAST).read_bytes())
        except FileNotFoundError:
            return None

    def _write(self, place: Path, codec: Codec[Any], value: object) -> None:
        make_folder(self._folder / JOINED)
        with replaced(place) as path, open_file(path, "wb") as file:
            file.write(codec.to_bytes(value))

    def _kept(self, fit: bytes, suffix: str = "") -> Path:
        return self._folder / JOINED / f"{fit.hex()}{suffix}"

    def _client(self, agreement: Agreement) -> Client:
        """Begin a fit, or go on with one: all that counts lies in the journal."""
        configuration, settings = agreement.configuration, self._settings
        return self._party.join(
            agreement,
            agreed_sum(configuration),
            settings.rows(private=configuration.privacy is not None),
            data_set=settings.data_set,
            policy=settings.policy,
            domain=settings.domain_of(configuration),
            log=self._log,
            tells=self._tell,
        )

    def _tell(self, index: int, total: OpenedTotal) -> None:
        self._told.append((index, TOTAL.to_bytes(total)))


def check_node(folder: Path) -> str:
    """Check that a folder can serve as a node, and return its party's name.

    Raises:
        ArgumentError: a file is missing or damaged.
        DataError: its rows cannot be read.
        StateError: its journal cannot be used.
    """
    settings, own = NodeSettings.read(folder), Party(folder).own
    parties = read_parties(folder / PARTIES_FILE)
    if own.key.public not in [one.public for one in parties.clients]:
        raise ArgumentError(f"{folder / PARTIES_FILE} has no client with the key of {own.name!r}.")
    settings.register()
    settings.rows()
    return own.name
