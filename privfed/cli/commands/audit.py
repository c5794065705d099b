"""`privfed audit`: tests a claim of differential privacy against what was released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from privfed.attacks.audits import (
    Audit,
    Claim,
    RunAudit,
    audit_one_run,
    audit_run,
    audit_samples,
    audit_units,
)
from privfed.cli.folder.claim import claim_of_run
from privfed.cli.folder.run_folder import read_transcript
from privfed.cli.options import json_file, json_option, truth_options
from privfed.cli.runs.attacking import true_rows
from privfed.cli.runs.fitting import know_questions
from privfed.core.record.transcript import Transcript
from privfed.core.stored.files import replaced
from privfed.errors import ArgumentError, DataError
from privfed.federation.run_dir import LOCAL
from privfed.privacy.claim import PrivacySpent

STATED = (
    "the claim is what was stated (--epsilon, --delta); what is protected (record or client, added or "
    "replaced), by which noise and against whom, is what the releases were made for: the file does not say"
)
NOT_COVERED = "this audit is computed from the clients' rows: the claim does not cover what it prints"


@click.command(short_help="Test a privacy claim against what came out.")
@click.argument("subject", metavar="RUN|FILE", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="Claimed epsilon, for a file.")
@click.option("--delta", type=float, help="Claimed delta, for a file.")
@click.option(
    "--noise",
    type=click.Choice(["gaussian", "any"]),
    default="gaussian",
    show_default=True,
    help="gaussian tests the whole trade-off curve of Gaussian noise, any (epsilon, delta) only.",
)
@click.option("--confidence", type=float, help="Confidence of all bounds.  [default: 0.95; a run: 0.999]")
@truth_options
@click.option(
    "--trials",
    type=click.IntRange(min=1000),
    default=20_000,
    show_default=True,
    help="For a run: number of draws with its worst unit, and without it.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), callback=json_file, help="JSON file to write (.json)."
)
@json_option
def audit(
    subject: Path,
    truth: Path | None,
    group: str | None,
    columns: tuple[str, ...],
    algorithm: str | None,
    trials: int,
    out: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Audit the claim and the noise of the run in folder RUN, or releases in FILE.

    For a run, the noise in each total is compared with what was declared. Its questions are also answered
    with and without a worst-case record or client, which bounds the true epsilon from below. FILE is an .npz
    with the releases of a mechanism with and without one unit, "inside" and "outside" of shape (trials,) or
    (trials, n_values), or with the canaries of one run, "scores" and "included". Exit code 1 says that the
    claim is violated.
    """
    found: list[Audit | RunAudit]
    if subject.is_dir():
        transcript = read_transcript(subject)
        said = _claim(subject, transcript)
        know_questions(subject, algorithm, "audit")
        rows, *_ = true_rows(subject, transcript, truth, group, columns)
        words = _given(confidence=given["confidence"])
        found = [audit_run(transcript, rows, **words), audit_units(transcript, trials=trials, **words)]
        plain = found[0].to_dict() | {"unit": found[1].to_dict(), "privacy": said.to_dict()}
        lines = [str(said), NOT_COVERED]
    else:
        found = [_audit_file(subject, **given)]
        plain = found[0].to_dict() | {"privacy": {"summary": STATED}}
        lines = [STATED]
    violated = any(one.verdict == "violated" for one in found)
    plain["verdict"] = "violated" if violated else "not refuted"
    if out is not None:
        with replaced(out) as path:
            path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    click.echo(json.dumps(plain, indent=2) if as_json else "\n".join([*lines, *map(str, found)]))
    if violated:
        raise click.exceptions.Exit(1)


def _claim(folder: Path, transcript: Transcript) -> PrivacySpent:
    """Return the claim of the run in a folder.

    Raises:
        ArgumentError: the run has no claim, or noise was not added to its totals.
    """
    claim = claim_of_run(folder, transcript)
    if claim is None:
        raise ArgumentError(
            f"the run in {folder} claims no differential privacy: there is nothing to audit; name a run of "
            "'privfed fit --epsilon', or a file of releases."
        )
    if transcript.configuration.privacy is not None and transcript.configuration.noising_terms is None:
        raise ArgumentError(
            f"the totals of the run in {folder} carry no noise: each client trained by DP-SGD, with noise in "
            f"each of its steps, which a transcript does not hold, so that this command cannot audit them. "
            f"{claim.line}."
        )
    if transcript.configuration.privacy is None:
        raise ArgumentError(
            f"the totals of the run in {folder} carry no noise: each client noised the centers that it "
            f"showed in a run of its own ({folder / LOCAL}), which this command cannot audit. {claim.line}."
        )
    return claim


def _given(**words: Any) -> dict[str, Any]:
    return {name: value for name, value in words.items() if value is not None}


def _audit_file(
    path: Path, *, epsilon: float | None, delta: float | None, noise: Any, confidence: float | None
) -> Audit:
    if epsilon is None or delta is None:
        raise ArgumentError("releases in a file are audited against a claim: give --epsilon and --delta.")
    claim = Claim(epsilon=epsilon, delta=delta, noise=noise)
    arrays = _arrays(path)
    words = _given(confidence=confidence)
    if {"inside", "outside"} <= set(arrays):
        return audit_samples(arrays["inside"], arrays["outside"], claim=claim, **words)
    if {"scores", "included"} <= set(arrays):
        return audit_one_run(arrays["scores"], arrays["included"], claim=claim, **words)
    raise DataError(f'{path} needs arrays "inside" and "outside", or "scores" and "included".')


def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError):
        raise DataError(f"{path} is no .npz file of numbers.") from None
