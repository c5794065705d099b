"""A node: a party that is asked over a network, a process of its own for every message.

All that it remembers lies in its folder: identity, journal, settings, everybody's signed public keys, and by
its digest each agreement that it joined. Nothing is kept in a module, since simulated nodes share processes.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import apart, own_versions
from privfed.core.asking.question import ERRORS
from privfed.core.roles.engine import Client, ErrorLog, PythonLog, note
from privfed.core.stored.encoding import CODE, Codec, Refusal, encode
from privfed.core.stored.files import rewrite
from privfed.core.values.guarantee import Unit
from privfed.core.values.origin import Origin
from privfed.engines.in_process import ClientLogs
from privfed.errors import (
    FAILED,
    ArgumentError,
    ColumnsError,
    DataError,
    MessageError,
    PolicyError,
    PrivFedError,
    StateError,
)
from privfed.nodes.flower import node_messages as messages
from privfed.nodes.flower.settings import PARTIES_FILE, NodeSettings
from privfed.nodes.identity import Parties, read_identity, read_parties
from privfed.nodes.journal import left
from privfed.nodes.party import Party
from privfed.nodes.signed import read_request
from privfed.party.client import check_uses, rows_in_domain
from privfed.party.groups import OwnRows, RawTable
from privfed.party.program import agreed_program
from privfed.party.replay import TOTAL, OpenedTotal
from privfed.protocols.crypto.keys import CryptographyError, digest
from privfed.protocols.secure_sums import agreed_sum
from privfed.tables.beside import gaps_in
from privfed.tables.described_clients import scaled, unscaled

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
    totals: bytes

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
        return encode(Node(folder, log).answer(messages.read_down(request)))
    except StateError as error:
        note(log, error)
        return encode(messages.Silent())
    except PolicyError as error:
        code = str(error) if re.fullmatch(CODE, str(error)) else FAILED
    except (MessageError, CryptographyError) as error:
        note(log, error)
        code = "malformed"
    except Exception as error:
        note(log, error)
        code = FAILED
    return encode(_refusal(folder, request, code))


def _refusal(folder: Path, request: bytes, code: str) -> Refusal | messages.Declined:
    """Return a refusal; of a client that is asked to join a signed one, as far as it has its key."""
    with suppress(PrivFedError, OSError, ValueError):
        message = messages.read_down(request)
        if isinstance(message, messages.Join):
            agreement, own = Agreement.from_bytes(message.agreement), read_identity(folder).key
            position = agreement.registry.clients.index(own.public)
            declined = messages.Declined(position=position, code=code)
            return declined.signed(own, agreement.digest, message.reader)
    return Refusal(code)


def _listed(agreement: Agreement, parties: Parties) -> bool:
    """Say whether an agreement's clients have the keys of a list of parties."""
    try:
        return agreement.registry == parties.registry(agreement.configuration.clients)
    except ArgumentError:  # The list lacks one of them.
        return False


def agreements(folder: Path) -> dict[str, Agreement]:
    """Return the agreements that a node joined, or a coordinator made, by digest in hexadecimal digits."""
    paths = [one for one in (folder / JOINED).glob("*") if not one.suffix]
    return {one.name: Agreement.from_bytes(_JOINED.from_bytes(one.read_bytes()).agreement) for one in paths}


def keep_agreement(folder: Path, agreement: Agreement, reader: bytes) -> None:
    """Keep an agreement that a node joined, or that a coordinator made, with who reads what clients open."""
    kept = _Joined(agreement.to_bytes(), reader)
    rewrite(folder / JOINED / agreement.digest.hex(), _JOINED.to_bytes(kept))


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
        self._totals: list[tuple[int, bytes]] = []

    def answer(self, message: messages.Down) -> messages.Up:
        """Answer one message; raises `StateError`, and `PolicyError` with a code."""
        if isinstance(message, messages.End):
            return self._end(message)
        if isinstance(message, messages.Look):
            return self._look(message)
        return self._join(message) if isinstance(message, messages.Join) else self._ask(message)

    def _end(self, message: messages.End) -> messages.Up:
        """Close a fit, where the coordinator of this node's own list says that it is over."""
        message.check_by(read_parties(self._folder / PARTIES_FILE).server.public)
        journal = self._party.journal
        for one in journal.fits:
            if one.agreement == message.digest.hex() and not one.closed:
                journal.end(one.number)
        self._kept(message.digest, _LAST).unlink(missing_ok=True)
        return messages.Ended()

    def _look(self, message: messages.Look) -> messages.Up:
        """Tell how this node stands, where the coordinator of its own list asks."""
        parties, journal = read_parties(self._folder / PARTIES_FILE), self._party.journal
        message.check_by(parties.server.public)
        policy, name = self._settings.policy, self._settings.data_set
        given, then = journal.usage(name), journal.usage(name, message.parties)
        about = messages.About(
            at=time.time(),
            versions=own_versions(),
            parties=parties.fingerprint,
            left=left(policy, given),
            cost=0 if policy.max_losses is None else then.losses - given.losses,
            open=tuple(one.number for one in journal.fits if not one.closed),
        )
        own = self._party.own.key
        return messages.Standing(client=own.public, about=about).signed(own, message.nonce)

    def _join(self, message: messages.Join) -> messages.Up:
        try:
            agreement = Agreement.from_bytes(message.agreement)
        except PrivFedError as error:
            note(self._log, error)
            raise PolicyError("agreement:format") from None
        if self._party.own.key.public not in agreement.registry.clients:
            raise PolicyError("agreement:position")
        message.check(agreement.registry.server)
        self._check_owner(agreement)
        self._check_program(agreement)
        try:
            self._client(agreement)
        except ColumnsError as error:
            note(self._log, error)
            raise PolicyError("agreement:columns") from None
        for line in self.beyond(agreement):
            note(self._log, DataError(line))
        keep_agreement(self._folder, agreement, message.reader)
        position, totals = self._party.position(agreement), self._opened(agreement)
        sealed = (agreement.digest, position, message.reader)
        box = messages.seal_totals(totals, *sealed) if totals else b""
        joined = messages.Joined(position=position, totals=box)
        return joined.signed(self._party.own.key, agreement.digest, message.reader)

    def _check_owner(self, agreement: Agreement) -> None:
        """Check that the owner's list and approvals, as they are now, have an agreement.

        Raises:
            PolicyError: they have not, also where they had when the fit began; the text is the code.
        """
        # The list of parties is this node's own: whoever else wrote it would decide who takes part.
        if not _listed(agreement, read_parties(self._folder / PARTIES_FILE)):
            raise PolicyError("agreement:parties")
        if not self._settings.approves(agreement):
            raise PolicyError("agreement:approved")

    def _check_program(self, agreement: Agreement) -> None:
        """Check that this node can build what was agreed; what it lacks stays in its log."""
        configuration = agreement.configuration
        for one in apart(configuration.program.versions) if configuration.program else ():
            raise PolicyError(f"version:{':'.join(one)}")
        try:
            program = agreed_program(configuration, self._settings.domain_of(configuration))
        except PolicyError:
            raise
        except Exception as error:  # A plain value may stand where a part of an algorithm belongs.
            note(self._log, error)
            raise PolicyError("agreement:program") from None
        check_uses(self._settings.declared(configuration), program)
        terms = configuration.privacy
        if terms is not None and terms.unit == Unit.USER and self._settings.id is None:
            raise PolicyError("agreement:ids")
        if terms is not None and terms.rows_are_public and self._settings.table.leaves_out:
            raise PolicyError("agreement:missing")
        if terms is not None and self._settings.table.origin == Origin.EXACT:
            raise PolicyError("agreement:exact")

    def _opened(self, agreement: Agreement) -> messages.Totals:
        """Return the totals that clients have opened of a resumed fit, where this node passes them on."""
        settings = self._settings
        if not settings.tells or agreed_sum(agreement.configuration).recipient != "clients":
            return ()
        position, name = self._party.position(agreement), settings.data_set
        fit = self._party.journal.begin(agreement, position, name, settings.policy)
        with fit.store("totals").transaction() as kept:
            totals: tuple[OpenedTotal, ...] = kept.load() or ()
        return tuple((index, TOTAL.to_bytes(total)) for index, total in enumerate(totals))

    def _ask(self, message: messages.Ask) -> messages.Up:
        try:
            kept = _JOINED.from_bytes(self._kept(message.digest).read_bytes())
        except FileNotFoundError:
            raise PolicyError("agreement:unknown") from None
        agreement = Agreement.from_bytes(kept.agreement)
        position = self._party.position(agreement)
        read_request(agreement, position, message.request)  # Before rows are read, or a reply is given again.
        self._check_owner(agreement)
        request = digest("node request", message.request)
        if (last := self._last(message.digest)) is not None and last.request == request:
            # It came again because the reply was lost on its way; nothing is answered twice.
            return messages.Answered(last.reply, last.totals)
        answer = messages.Answered(self._client(agreement).handle(message.request))
        if self._totals and self._settings.tells:
            totals = messages.seal_totals(tuple(self._totals), agreement.digest, position, kept.reader)
            answer = messages.Answered(answer.reply, totals)
        last = _Last(request, answer.reply, answer.totals)
        rewrite(self._kept(message.digest, _LAST), _LAST_REPLY.to_bytes(last))
        return answer

    def _last(self, fit: bytes) -> _Last | None:
        try:
            return _LAST_REPLY.from_bytes(self._kept(fit, _LAST).read_bytes())
        except FileNotFoundError:
            return None

    def _kept(self, fit: bytes, suffix: str = "") -> Path:
        return self._folder / JOINED / f"{fit.hex()}{suffix}"

    def _client(self, agreement: Agreement) -> Client:
        """Begin a fit, or go on with one: all that counts lies in the journal."""
        configuration, settings = agreement.configuration, self._settings
        return self._party.join(
            agreement,
            agreed_sum(configuration),
            self._rows(configuration),
            data_set=settings.data_set,
            policy=settings.policy,
            domain=settings.domain_of(configuration),
            log=self._log,
            tells=self._tell,
        )

    def beyond(self, agreement: Agreement) -> list[str]:
        """Say where there are more rows than was agreed on for this client: for its owner alone."""
        configuration, name, settings = agreement.configuration, self._party.own.name, self._settings
        domain = configuration.domain
        if domain is None or (most := domain.rows_of(name)) is None:
            return []
        data_set = self._party.journal.data_set(settings.data_set)
        rows = data_set.answering(self._rows(configuration), configuration)
        own, key = settings.domain_of(configuration), self._party.own.user_key
        n = rows_in_domain(rows, configuration, own, key).n_rows
        said = (
            f"{n} rows are answered from in fit {agreement.digest.hex()[:8]}, and {most} at most are agreed "
            f"on for {name}: its answers are cut, or totals refused as impossible. Ask the coordinator for a "
            "larger max_rows."
        )
        return [said] * (n > most)

    def _rows(self, configuration: Configuration) -> OwnRows:
        """Return how the rows are read. Whatever they are, the node answers: an error would tell of them."""
        settings, agreed = self._settings, configuration.columns
        without, schema = settings.declared(configuration), settings.schema

        def read(own: NodeSettings, columns: tuple[str, ...] | None) -> RawTable:
            try:
                found = own.raw(columns or agreed, () if without.grouped else gaps_in(configuration))
            except (DataError, KeyboardInterrupt):
                raise
            except ERRORS as error:
                note(self._log, error)
                found = RawTable(without.features, without.labels, whole=False)
            if (width := found.features.shape[1]) != configuration.n_features and columns is None:
                raise ColumnsError(
                    f"{settings.data} has {width} feature columns, the agreement has "
                    f"{configuration.n_features}."
                )
            return found

        rows = OwnRows(partial(read, settings), agreed, n_classes=settings.classes, times=without.times)
        if schema is None:
            return rows
        in_units = replace(settings, schema=unscaled(schema))
        names = agreed or schema.features
        return replace(rows, units=partial(read, in_units), scaled=partial(scaled, schema, names))

    def _tell(self, index: int, total: OpenedTotal) -> None:
        self._totals.append((index, TOTAL.to_bytes(total)))


def check_node(folder: Path, columns: tuple[str, ...] | None = None) -> str:
    """Check that a folder can serve as a node, and return its party's name.

    Args:
        folder: the party's.
        columns: those of all parties, in the agreed order, to make groups of its rows where it answers from
            these and has none; None to make none.

    Raises:
        ArgumentError: a file is missing or damaged.
        DataError: there is no such table, or it lacks a column; no row is the cause.
        StateError: its journal cannot be used.
    """
    settings, party = NodeSettings.read(folder), Party(folder)
    m, own = settings.policy.group_size, party.own
    parties = read_parties(folder / PARTIES_FILE)
    if own.key.public not in [one.public for one in parties.clients]:
        raise ArgumentError(f"{folder / PARTIES_FILE} has no client with the key of {own.name!r}.")
    settings.register()
    if columns is None or m == 1:
        settings.rows()
    else:
        in_units = None if settings.schema is None else unscaled(settings.schema)
        rows = OwnRows(lambda names: replace(settings, schema=in_units).raw(columns))
        party.journal.data_set(settings.data_set).prepare(rows, m)
    return own.name


def report(folder: Path) -> list[str]:
    """Return what a node's rows are, what it answers, and how many ids wait: for its owner alone.

    Raises:
        DataError: as `NodeSettings.report`; or the table is of another kind than the one that was grouped.
    """
    settings, party = NodeSettings.read(folder), Party(folder)
    said, m = settings.report(), settings.policy.group_size
    if m > 1:
        said.append(party.journal.data_set(settings.data_set).report(settings.raw(), m))
    node, running = Node(folder, PythonLog()), {one.agreement for one in party.journal.fits if not one.closed}
    joined = [one for name, one in agreements(folder).items() if name in running]
    return said + [line for one in (*settings.copies(), *joined) for line in node.beyond(one)]
