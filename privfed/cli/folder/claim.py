"""Reads the privacy claim of a run from its folder, so that every command can state it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from privfed.core.record.transcript import Asked, Transcript, has_begun
from privfed.errors import PrivFedError
from privfed.federation.run_dir import folders_of
from privfed.privacy.claim import PrivacySpent, claimed, one_line
from privfed.privacy.stepped import all_payments_of
from privfed.protocols.registry import one_key_of


def claim_of_run(folder: Path, transcript: Transcript) -> PrivacySpent | None:
    """Return the claim of differential privacy of the run in a folder; None without one.

    If clients added noise on their own before the run, each has a run of its own in the folder.
    """
    if transcript.configuration.privacy is not None:
        return _claim_of(transcript)
    own = [_claim_of(Transcript.load(one)) for one in folders_of(folder) if has_begun(one)]
    return own[-1] if own else None


def _claim_of(transcript: Transcript) -> PrivacySpent | None:
    agreed = transcript.configuration
    one_key = one_key_of(agreed.protocol)
    claim = claimed(agreed, all_payments_of(transcript), one_key=bool(one_key))
    if claim is None or one_key is not None:
        return claim
    unknown = f"unknown here: {agreed.protocol!r} is no protocol of this privfed"
    return replace(claim, against=claim.against | {"the server with clients": unknown})


def claim_from(privacy: Mapping[str, Any] | None) -> PrivacySpent | None:
    """Decode a claim from a result in JSON."""
    return None if privacy is None else PrivacySpent.from_dict(privacy)


def to_json(claim: PrivacySpent | None) -> dict[str, Any] | None:
    """Encode a claim for JSON; None without one."""
    return None if claim is None else claim.to_dict()


@contextmanager
def saying_the_claim(folder: Path) -> Iterator[None]:
    """State the claim of a run that does not finish, if anything was asked in it.

    What was sent was seen, and its budget is spent. An error gets the claim as a note at the end of its line;
    for a run that was stopped, the claim is printed on stderr.
    """
    try:
        yield
    except PrivFedError as error:
        for said in _said(folder):
            error.add_note(said)
        raise
    except click.exceptions.Exit:
        for said in _said(folder):
            click.echo(f"privfed: {said}", err=True)
        raise


def _said(folder: Path) -> list[str]:
    found = [one for one in (folder, *folders_of(folder)) if has_begun(one)]
    asked = [one for one in map(Transcript.load, found) if one.of(Asked)]
    claims = [claim for claim in map(_claim_of, asked) if claim is not None]
    return [f"What was asked so far is under the claim: {one_line(claims[-1])}."] if claims else []
