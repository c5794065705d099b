"""What lies in a fit's folder beside its transcript, and which fit may use it.

    transcript.jsonl              the agreement, then what was asked and what was opened
    clients/<position>.ledger     how much of its budget each client has spent
    local/<position>/             a client's own run, whose noised centers it takes part with

The transcript's first line, the agreement, is written before anything else: what lies beside it belongs to
it. A fresh fit takes nothing of that, and begins in a folder that holds none. `resume` goes on with all of
it: under the same agreement, which is compared, and with the same rows, which are not: whatever tells two
tables apart, a hash of them too, would tell whoever reads the folder of the rows.
"""

from __future__ import annotations

from pathlib import Path

from privfed.core.configuration import Configuration
from privfed.core.question import question_from_bytes
from privfed.core.transcript import Transcript, has_begun
from privfed.errors import ArgumentError, RunFolderError, StateError
from privfed.party.state import FileStore
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import cost

CLIENTS = "clients"
LOCAL = "local"
"""Folder in a run's folder in which each client's own run lies, by its position."""


_ROUNDING = 1e-9


def folder_to_resume(run_dir: str | Path | None) -> Path:
    """Return the folder of a run that is to be finished.

    Raises:
        ArgumentError: none was named.
    """
    if run_dir is None:
        raise ArgumentError("resume needs run_dir, the folder of the run that is to be finished.")
    return Path(run_dir)


def check_fresh(folder: Path) -> None:
    """Check that a fit may begin in a folder.

    Raises:
        RunFolderError: it holds a run, or what clients spent or found in one.
    """
    if has_begun(folder):
        raise RunFolderError(f"{folder} already holds a run; resume it or name another folder.")
    for left in (folder / CLIENTS, folder / LOCAL):
        if left.exists() and any(left.iterdir()):
            raise RunFolderError(
                f"{left} was left by another fit, and made of its rows; name another folder for this one."
            )


def folders_of(run_dir: Path) -> list[Path]:
    """Return the folders of the clients' own runs in a run's folder, by position; none without any."""
    found = [one for one in (run_dir / LOCAL).glob("*") if one.name.isdecimal()]
    return sorted(found, key=lambda one: int(one.name))


def ledger_of(folder: Path, client: int) -> FileStore:
    """Return where a client keeps how much of its budget it has spent, as a share of it."""
    path = folder / CLIENTS / f"{client}.ledger"

    def read(content: bytes) -> float:
        spent = float(content)
        if not 0.0 <= spent <= 2.0:
            raise ValueError("not a share of a budget")
        return spent

    return FileStore(path, lambda spent: repr(spent).encode(), read)


def check_ledgers(folder: Path, configuration: Configuration, transcript: Transcript) -> None:
    """Check that no client has forgotten what its answers in a transcript cost.

    Raises:
        RunFolderError: a ledger is missing, damaged, or of an earlier time.
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
            raise RunFolderError(f"{error} Begin anew in another folder.") from None
        if spent < paid[i] - _ROUNDING:
            raise RunFolderError(
                f"{folder / CLIENTS} does not say what client {name!r} spent on its answers: its ledger is "
                "missing, or an older copy. Begin anew in another folder."
            )
