"""The two sides of a list of parties: the coordinator adds cards to it, an owner approves the kit with it."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from privfed.core.stored.encoding import digest
from privfed.core.stored.files import make_folder, rewrite
from privfed.errors import ArgumentError, ColumnsError
from privfed.nodes.deploy.certificates import AUTHORITY, CERTIFICATES, certify
from privfed.nodes.deploy.folders import (
    CARD,
    CARDS,
    KIT,
    KITS,
    Card,
    Kit,
    new_party,
    read_card,
    read_kit,
    write_federation,
)
from privfed.nodes.flower.settings import FILE, PARTIES_FILE, FederationFile, NodeSettings
from privfed.nodes.identity import IDENTITY, PARTIES, Parties, read_identity

MEMBERS, REMOVED = "members", "removed"
"""In the coordinator's folder: the cards of the list, and those that were taken off it."""


@dataclass(frozen=True)
class Added:
    """What became of a list.

    Args:
        kit: that everybody gets.
        changes: who was added, renewed and removed, a line each; empty where nothing changed.
        path: of the kit.
    """

    kit: Kit
    changes: tuple[str, ...]
    path: Path


def members(folder: Path) -> dict[str, Card]:
    """Return the cards of a federation's list, by name of the party."""
    found = [read_card(path) for path in sorted((folder / MEMBERS).glob("*.pub"))]
    return {one.party.name: one for one in sorted(found, key=lambda one: one.party.name)}


def add(
    folder: Path,
    cards: Sequence[Path],
    *,
    remove: Collection[str] = (),
    columns: Sequence[str] = (),
    hosts: Sequence[str] = (),
    port: int | None = None,
    name: str = "coordinator",
    renew: bool = False,
) -> Added:
    """Add nodes to a federation's list, or take some off it, and write the kit for everybody.

    The first time it makes the coordinator's folder: identity, authority, certificate, federation.toml.

    Args:
        folder: the coordinator's.
        cards: files of `privfed flower join`. One of a party in the list replaces its own.
        remove: names of parties to take off, before any is added.
        columns: names of all tables' columns; empty for those on the cards.
        hosts: names and addresses by which nodes reach the SuperLink, the first one in the kit.
        port: of the SuperLink; None for the one it has, or 9092.
        name: the coordinator's, the first time.
        renew: whether the SuperLink gets a new certificate.

    Raises:
        ArgumentError: a card does not hold, two share a name, or their columns are not the same.
    """
    there, changes = members(folder), list[str]()
    listed = dict(there)
    for one in remove:
        if one not in listed:
            raise ArgumentError(f"{one!r} is not in the list: {', '.join(listed) or 'it is empty'}.")
        changes.append(f"- {one}: its node is refused from now on")
        del listed[one]
    for path in cards:
        card = read_card(path)
        _check_new(folder, card, listed, path)
        if listed.get(card.party.name) != card:
            verb = "renewed" if card.party.name in listed else "added"
            changes.append(f"+ {card.party.name}: {verb}, from {path}")
            listed[card.party.name] = card
    if not listed:
        raise ArgumentError("the list would be empty: name .pub files of privfed flower join.")
    agreed = _columns(folder, listed, columns)
    fresh = not (folder / FILE).exists()
    file = _folder(folder, agreed, hosts, port, name)
    if not fresh and (renew or hosts):
        certify(folder / CERTIFICATES, hosts)
        changes.append("~ the SuperLink has a new certificate: start it again")
    _keep(folder, there, listed)
    own = read_identity(file.coordinator)
    parties = Parties.of(own.signed_key, [one.party for one in listed.values()])
    rewrite(file.parties, PARTIES.to_bytes(parties))
    place = folder.absolute().with_name(f"{folder.absolute().name}.kit")
    before = read_kit(folder / KIT) if (folder / KIT).exists() else None
    kit = Kit(
        number=1 if before is None else before.number + 1,
        parties=parties,
        columns=file.columns,
        address=file.superlink,
        authority=(folder / CERTIFICATES / AUTHORITY).read_bytes(),
    )
    same = before is not None and kit == structs.replace(before, number=kit.number, signature=b"")
    kit = before if before is not None and same else kit.signed(own.key)
    for path in (folder / KIT, place):
        rewrite(path, KITS.to_bytes(kit))
    return Added(kit, tuple(changes), place)


def _check_new(folder: Path, card: Card, listed: dict[str, Card], path: Path) -> None:
    """Check that a card adds a party, or renews what its own key signed.

    Raises:
        ArgumentError: it was removed, or the name has another key.
    """
    name = card.party.name
    if (folder / REMOVED / _file(card)).exists() and name not in listed:
        raise ArgumentError(
            f"{path}: this identity of {name!r} was removed. {name}'s move: join in a new folder. Yours, to "
            f"take it back all the same: delete {folder / REMOVED / _file(card)}."
        )
    if name in listed and listed[name].party.public != card.party.public:
        raise ArgumentError(
            f"{path}: {name!r} is in the list with another key. To replace it, name it with --remove in the "
            "same command, once its owner told you so by voice."
        )


def _file(card: Card) -> str:
    return f"{digest('member', card.party.public).hex()[:32]}.pub"


def _columns(folder: Path, listed: dict[str, Card], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of all.

    Raises:
        ArgumentError: there are none, or a table's are others.
    """
    if (folder / FILE).exists():
        agreed = FederationFile.read(folder).columns
        if columns and tuple(columns) != agreed:
            raise ArgumentError(f"the columns of {folder} are {', '.join(agreed)}; others need a new folder.")
    else:
        agreed = tuple(columns) or next((one.columns for one in listed.values() if one.columns), ())
    if not agreed:
        raise ArgumentError("these nodes' tables do not name their columns: name them with --columns.")
    for name, card in listed.items():
        if card.columns and sorted(card.columns) != sorted(agreed):
            raise ArgumentError(
                f"the columns of {name!r} are {', '.join(card.columns)}; the others' {', '.join(agreed)}. "
                f"{name}'s move: columns = {json.dumps(list(agreed))} in node.toml, then privfed flower "
                "check, which writes the .pub file anew, and send that."
            )
    return agreed


def _folder(
    folder: Path, columns: tuple[str, ...], hosts: Sequence[str], port: int | None, name: str
) -> FederationFile:
    """Return the federation's file, made with all else where it is missing, or with a new address."""
    if not (folder / CERTIFICATES / AUTHORITY).exists() and not (folder / FILE).exists():
        certify(folder / CERTIFICATES, hosts or [socket.gethostname()])
    if not (folder / "coordinator" / IDENTITY).exists() and not (folder / FILE).exists():
        new_party(folder / "coordinator", name)
    host = hosts[0] if hosts else socket.gethostname()
    if not (folder / FILE).exists():
        return write_federation(folder, columns, superlink=_address(host, port or 9092))
    file = FederationFile.read(folder)
    if hosts or port:
        before, _, had = file.superlink.rpartition(":")
        address = _address(host if hosts else before.strip("[]"), port or int(had))
        file = replace(file, superlink=address)
        rewrite(folder / FILE, file.text().encode())
    return file


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _keep(folder: Path, there: dict[str, Card], listed: dict[str, Card]) -> None:
    """Write the cards of a list; those that are off it are kept, so that nobody adds them unawares."""
    for name in (MEMBERS, REMOVED):
        make_folder(folder / name)
    files = {_file(one): one for one in listed.values()}
    for name, card in files.items():
        rewrite(folder / MEMBERS / name, CARDS.to_bytes(card))
    for card in there.values():
        if _file(card) not in files:
            (folder / MEMBERS / _file(card)).replace(folder / REMOVED / _file(card))


def news(folder: Path, kit: Kit) -> list[str]:
    """Return what a kit changes for a party's owner, a line each; empty where it was approved before.

    Args:
        folder: of the party.
        kit: that came from the coordinator.

    Raises:
        ArgumentError: the kit lacks this party, is an old one, or is for other tables.
    """
    own, list_ = read_identity(folder), kit.parties
    before = read_kit(folder / KIT) if (folder / KIT).exists() else None
    if before == kit:
        return []
    if own.key.public not in [one.public for one in list_.clients]:
        raise ArgumentError(
            f"this list has no {own.name!r} with your key. The coordinator's move: privfed flower add with "
            f"{folder / CARD}, and a new kit for everybody; or you were removed, and take no more part."
        )
    settings = NodeSettings.read(folder)
    try:
        found = settings.raw(kit.columns if settings.table.named else None)
    except ColumnsError as error:
        raise ArgumentError(f"{error} Your move: name columns in node.toml in the agreed order.") from None
    if found.features.shape[1] != len(kit.columns):
        raise ArgumentError(
            f"{settings.data} has {found.features.shape[1]} columns, the others {', '.join(kit.columns)}. "
            "Your move: name columns in node.toml."
        )
    if before is None:
        return [f"  {one.name}" for one in list_.clients] + [f"  coordinator: {list_.server.name}"]
    lines = []
    if before.parties.server.public != list_.server.public:
        lines.append(f"! the coordinator is another one: {list_.server.name}")
    elif kit.number < before.number:
        raise ArgumentError(
            f"this kit is number {kit.number}, and you approved {before.number}. The coordinator's move: "
            "send the newest kit."
        )
    old, new = ({one.public: one.name for one in each.clients} for each in (before.parties, list_))
    lines += [f"- {name} takes no more part" for key, name in old.items() if key not in new]
    lines += [f"+ {name} is new" for key, name in new.items() if key not in old]
    if before.address != kit.address:
        lines.append(f"~ the SuperLink is at {kit.address}")
    if before.authority != kit.authority:
        lines.append("~ the SuperLink has another authority")
    return [*lines, f"  {len(new)} clients: {', '.join(new.values())}"]


def approve(folder: Path, kit: Kit) -> None:
    """Keep a kit that a party's owner approved; its running node takes it at its next look for a message."""
    for name, content in ((PARTIES_FILE, PARTIES.to_bytes(kit.parties)), (KIT, KITS.to_bytes(kit))):
        rewrite(folder / name, content)
