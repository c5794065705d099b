"""`privfed keys`: a party's identity, its card for the others, and the list of all that they compare."""

from __future__ import annotations

from pathlib import Path

import click

from privfed.errors import ArgumentError
from privfed.party.identity import (
    CARD,
    PARTIES,
    OwnIdentity,
    Parties,
    read_card,
    read_identity,
    read_parties,
    write_identity,
    write_new,
)
from privfed.party.journal import Journal

_COMPARE = "Read these digits to each other by phone; they must be the same for all."

file_argument = click.Path(path_type=Path)


@click.group(short_help="Make a party's identity, and the list of all parties.")
def keys() -> None:
    """Make a party's identity and journal, and the list of all parties.

    Each party makes its identity on its own machine and sends its card to the others. Each makes the list of
    all cards, and they compare its digits by phone: whoever writes the list decides who takes part.
    """


@keys.command(short_help="Make an identity, with its card and its journal.")
@click.argument("name")
@click.option("--out", type=file_argument, required=True, help="Folder to make, for its owner alone.")
def new(name: str, out: Path) -> None:
    """Make the identity of party NAME, as configurations will call it, in a folder of its own.

    The folder holds the secret key (identity), the card for the others (public) and the journal of all that
    the party will answer. The three belong together: keep the folder, and never go back to a copy of it.
    """
    own = OwnIdentity.generate(name)
    if out.exists() and any(out.iterdir()):
        raise ArgumentError(f"{out} is not empty; name a new folder, one for each identity.")
    Journal.create(out, own)
    # Last: a folder with an identity has its journal.
    write_identity(out, own)
    click.echo(f"made the identity of {name} in {out}; send {out / CARD} to the others.")
    click.echo(own.card.fingerprint)
    click.echo(_COMPARE)


@keys.command(short_help="Make the list of all parties from their cards.")
@click.argument("cards", metavar="CARD...", nargs=-1, required=True, type=file_argument)
@click.option("--server", type=file_argument, required=True, help="Card of the coordinator.")
@click.option("--out", type=file_argument, required=True, help="File to write; it must not exist.")
def registry(cards: tuple[Path, ...], server: Path, out: Path) -> None:
    """Make the list of all parties from the clients' CARDs and the coordinator's."""
    parties = Parties.of(read_card(server), map(read_card, cards))
    write_new(out, PARTIES.to_bytes(parties))
    _tell(parties)


@keys.command("show", short_help="Print the digits of a folder, a card or a list.")
@click.argument("path", type=file_argument)
def show_keys(path: Path) -> None:
    """Print whose keys PATH holds (a party's folder, a card or a list), and their digits to compare."""
    if path.is_dir():
        card = read_identity(path).card
    else:
        try:
            card = read_card(path)
        except ArgumentError as error:
            try:
                _tell(read_parties(path))
            except ArgumentError:
                raise error from None
            return
    click.echo(f"{card.name}\n{card.fingerprint}\n{_COMPARE}")


def _tell(parties: Parties) -> None:
    click.echo(f"server: {parties.server.name}\n    {parties.server.fingerprint}")
    for card in parties.clients:
        click.echo(f"client: {card.name}\n    {card.fingerprint}")
    click.echo(f"all of them:\n    {parties.fingerprint}\n{_COMPARE}")
