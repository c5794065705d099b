"""The files in a fit's folder, and which fit may use them.

    transcript.jsonl              the agreement, then the questions asked and the totals opened
    transcript.values             large tables of answers in clear, to which its lines refer
    clients/<position>.ledger     the share of its budget that each client has spent
    clients/<position>.moves      what the guard of a client with a policy has counted
    local/<position>/             a client's own run, whose noised centers it contributes

The agreement, which is the transcript's first line, is written first, and the other files belong to it. A new
fit begins only in a folder without such files. `resume` continues with all of them, under the same agreement
and with the same rows. It checks the agreement but not the rows: any stored fingerprint of the rows, even a
hash, would reveal something about them to readers of the folder.
"""

from __future__ import annotations

from pathlib import Path

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.transcript import Transcript, has_begun
from privfed.errors import ArgumentError, RunFolderError, StateError
from privfed.party.client import ledger_in
from privfed.party.guard import MOVES
from privfed.party.state import FileStore
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import cost

CLIENTS = "clients"
LOCAL = "local"
"""Subfolder of a run's folder with the clients' own runs, by position."""


_ROUNDING = 1e-9


def folder_to_resume(run_dir: str | Path | None) -> Path:
    """Return the folder of the run to resume.

    Raises:
        ArgumentError: none was given.
    """
    if run_dir is None:
        raise ArgumentError("resume needs run_dir, the folder of the run that is to be finished.")
    return Path(run_dir)


def check_fresh(folder: Path) -> None:
    """Check that a fit may begin in a folder.

    Raises:
        RunFolderError: it holds a run, or clients' ledgers or local runs of another fit.
    """
    if has_begun(folder):
        raise RunFolderError(f"{folder} already holds a run; resume it or name another folder.")
    for left in (folder / CLIENTS, folder / LOCAL):
        if left.exists() and any(left.iterdir()):
            raise RunFolderError(
                f"{left} was left by another fit and depends on its rows; name another folder for this one."
            )


def folders_of(run_dir: Path) -> list[Path]:
    """Return the folders of the clients' own runs in a run's folder, ordered by position."""
    found = [one for one in (run_dir / LOCAL).glob("*") if one.name.isdecimal()]
    return sorted(found, key=lambda one: int(one.name))


def ledger_of(folder: Path, client: int) -> FileStore:
    """Return the store of the share of its budget that a client has spent."""
    return ledger_in(folder / CLIENTS / f"{client}.ledger")


def moves_of(folder: Path, client: int) -> FileStore:
    """Return the store of what a client's guard has counted: a resumed run does not count from 0 again."""
    return FileStore(folder / CLIENTS / f"{client}.moves", MOVES.to_bytes, MOVES.from_bytes)


def check_ledgers(folder: Path, configuration: Configuration, transcript: Transcript) -> None:
    """Check that each client's ledger contains the costs of its answers in a transcript.

    Raises:
        RunFolderError: a ledger is missing, damaged, or an older copy.
    """
    paid = [0.0] * len(configuration.clients)
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        share = cost(question, configuration) if isinstance(question, Noised) else 0.0
        for i in total.contributors:
            paid[i] += share
    for i, name in enumerate(configuration.clients):
        try:
            spent = ledger_of(folder, i).load() or 0.0
        except StateError as error:
            raise RunFolderError(f"{error} Begin a new run in another folder.") from None
        if spent < paid[i] - _ROUNDING:
            raise RunFolderError(
                f"{folder / CLIENTS} does not show what client {name!r} spent on its answers: its ledger is "
                "missing, or an older copy. Begin a new run in another folder."
            )
