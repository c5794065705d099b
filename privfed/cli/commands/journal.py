"""`privfed journal`: what a party has answered, paid and lost, for whoever owns the rows."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from privfed.cli.folder.run_folder import pretty
from privfed.core.agreed.given import Given
from privfed.party.identity import read_identity, write_new
from privfed.party.journal import FitLine, Journal

folder_argument = click.argument("folder", type=click.Path(path_type=Path))


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed journal export` writes: no key, no state, no total, no row."""

    name: str
    counter: int
    head: str
    data_sets: dict[str, Given]
    fits: tuple[FitLine, ...]
    entries: tuple[dict[str, object], ...] = ()


@click.group(short_help="Print or export what a party has given, or end a fit.")
def journal() -> None:
    """Print or export what a party has given over all its fits, or end one."""


def _shown(folder: Path, *, whole: bool) -> Shown:
    own = read_identity(folder)
    kept = Journal(folder, own)
    fits, head = kept.fits, kept.head
    return Shown(
        name=own.name,
        counter=head.counter,
        head=head.head.hex(),
        data_sets={name: kept.given(name) for name in sorted({one.data_set for one in fits})},
        fits=fits,
        entries=kept.entries() if whole else (),
    )


@journal.command("show", short_help="Print what each data set has given.")
@folder_argument
def show_journal(folder: Path) -> None:
    """Print what each data set has given, and each fit, from the journal in a party's FOLDER."""
    shown = _shown(folder, whole=False)
    click.echo(f"{shown.name}: {shown.counter} entries, {len(shown.fits)} fits")
    for name, given in shown.data_sets.items():
        click.echo(
            f"data set {name}: {given.fits} fits, {given.sums} sums answered, {given.losses} losses; "
            f"epsilon {given.epsilon:g}, delta {given.delta:g} agreed in all, {given.unprotected} fits "
            "without a guarantee"
        )
    for fit in shown.fits:
        claim = (
            "no guarantee" if fit.epsilon is None else f"epsilon {fit.epsilon:g}, {fit.spent:.1%} of it paid"
        )
        click.echo(
            f"fit {fit.number} ({'ended' if fit.closed else 'open'}, {fit.began}): {fit.data_set}, "
            f"{fit.protocol}, {fit.answered} sums, {fit.losses} losses, {claim}"
        )


@journal.command(short_help="End a fit: erase its keys, answer no more of it.")
@folder_argument
@click.argument("fit", type=int)
def end(folder: Path, fit: int) -> None:
    """End the FIT of this number in the journal in a party's FOLDER, as privfed journal show numbers them.

    Its keys are erased and it is not answered any more, whoever asks; what it gave stays counted. A party
    that gives no more ends a fit so, also one that its coordinator left unfinished.
    """
    Journal(folder, read_identity(folder)).end(fit)
    click.echo(f"ended fit {fit}")


@journal.command(short_help="Write the whole journal as JSON.")
@folder_argument
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.")
def export(folder: Path, out: Path) -> None:
    """Write the journal in a party's FOLDER as JSON, after checking that its entries are as written."""
    write_new(out, pretty(_shown(folder, whole=True)))
    click.echo(f"wrote {out}")
