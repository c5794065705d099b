"""The audited epsilon of a cell: the releases of its own run, with and without one worst row.

Every noised question of the run is answered for a row in a corner of the domain (with replacement: for two
opposite rows), by the question's own code; the answer is added to fresh noise of the sampler, or not. The
bound is from below: a bug in clipping, in the noise or in how a budget is shared out lifts it above the
claim. The questions are those of the run: that they depend on earlier totals costs nothing under Gaussian
noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from privfed.attacks.audits import Claim, audit_samples
from privfed.core.domain import FloatArray
from privfed.core.question import ClientData, question_from_bytes
from privfed.core.transcript import Asked, Transcript
from privfed.errors import ArgumentError, PrivacyError
from privfed.experiments.cells import Privately
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import RandomBits, RehearsalBits, SecureBits, discrete_gaussian

CORNERS = 16
"""Rows that are tried: two opposite corners, and others at random."""


def audit_run(transcript: Transcript, claim: Privately, trials: int, seed: int) -> dict[str, Any]:
    """Audit what a run released.

    Args:
        transcript: of the run.
        claim: what it claims, or rehearses.
        trials: draws on each side.
        seed: of the cell; a rehearsal's audit repeats with it.

    Returns:
        `attacks.Audit` as plain values.

    Raises:
        ArgumentError: the guarantee's unit is the client.
        PrivacyError: a question of the run carries no noise.
    """
    if claim.unit != "record":
        raise ArgumentError("audit measures guarantees for one record; leave it out at unit 'client'.")
    rng = np.random.default_rng([seed, 4])
    questions = [_noised(record) for record in transcript.of(Asked)]
    low, high = questions[0].ranges.low, questions[0].ranges.high
    corners = np.concatenate([[low, high], np.where(rng.random((CORNERS - 2, low.size)) < 0.5, low, high)])
    honest = transcript.configuration.noising
    releases = [_release(question, corners, claim, honest) for question in questions]
    worst = int(np.argmax(sum(np.square(shift / sigma).sum(axis=1) for shift, sigma in releases)))
    bits: RandomBits = RehearsalBits(rng) if claim.rehearsal else SecureBits()
    inside, outside = np.zeros(trials), np.zeros(trials)
    for shifts, sigma in releases:
        moved = np.flatnonzero(shifts[worst])
        weights = shifts[worst, moved] / np.square(sigma[moved])
        for scores in (inside, outside):
            scores += discrete_gaussian(sigma[moved], (trials, moved.size), bits) @ weights
        inside += float(shifts[worst, moved] @ weights)
    found = audit_samples(inside, outside, claim=Claim(epsilon=claim.epsilon, delta=claim.delta))
    return found.to_dict()


def _noised(record: Asked) -> Noised:
    question = question_from_bytes(record.question)
    if not isinstance(question, Noised):
        raise PrivacyError(f"{type(question).__name__} was asked without noise.")
    return question


def _release(
    question: Noised, corners: FloatArray, claim: Privately, honest: int
) -> tuple[FloatArray, FloatArray]:
    """Return how far each row moves the total, (n_rows, n_values) in steps, and the noise's sigmas."""
    sizes = [int(np.prod(entry.shape)) for entry in question.inner.spec.entries]
    steps, sigma = (np.repeat(each, sizes) for each in (question.steps, question.sigma * np.sqrt(honest)))
    generator = np.random.default_rng(0)
    rows = [ClientData(row[None]) for row in corners]
    answers = [question.inner.answer(row, generator) for row in rows]
    shifts = np.stack([question.inner.spec.flatten(answer) for answer in answers]) / steps
    # The opposite row of a corner is another corner, of the first one the second.
    return (shifts if claim.neighbours == "add-remove" else shifts - np.roll(shifts, 1, axis=0)), sigma
