"""Audit of one run's claim: its questions are asked again, with and without a worst-case record or client.

The exact answers come from the questions' own code, along the same path as a client's answers; fresh noise
from the sampler is added to them. A mistake in clipping, in the size of the noise or in how the budget was
divided therefore lifts the bound above the claim. Under Gaussian noise it does not matter that questions
depend on earlier totals, so those of this run stand for all. Under Skellam noise only (epsilon, delta) is
tested.

These units are tried: records in corners of the domain, and records on the first and the last centroids that
were asked about. Others lie around these, at the distance that offsets are clipped to and nearer. At unit
"client", a client has copies of one such record, more of them than the number that sums are divided by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privfed.algorithms.private.clients import ClientLengths, ClientShares
from privfed.attacks.audits.samples import Audit, Claim, Noise, audit_samples
from privfed.core.asking.question import ClientData, centers_of, parts_of, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Transcript
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism, Neighbours, Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.privacy.noised import Noised
from privfed.privacy.rejection import RandomBits
from privfed.privacy.sampler import SecureBits, SeededBits
from privfed.questions.bounded.bounded_sums import SumsInCells

CORNERS = 6
"""Number of pairs of opposite corners that are tried."""

LENGTHS = (1.0, 0.5, 0.2)
"""Distances from a centroid, as multiples of the length that offsets are clipped to."""

LARGE = 2
"""Rows of a tried client, as a multiple of the number that its sums are divided by."""

MOST_ROWS = 512
"""Largest number that a tried client's sums are divided by; it bounds how many copies a client needs."""

_MOST_CENTERS = 8


class Release(NamedTuple):
    """Holds how much each unit moves one question's total.

    Args:
        shifts: change of the total by each unit, in quantisation steps, float64 of shape (n_units, n_values).
        sigma: standard deviation of the noise that is certain to be in the total, in steps, (n_values,).
        question: the question, which draws the noise.
    """

    shifts: FloatArray
    sigma: FloatArray
    question: Noised


def audit_units(
    transcript: Transcript,
    *,
    trials: int = 20_000,
    claim: Claim | None = None,
    rng: np.random.Generator | None = None,
    confidence: float = 0.95,
) -> Audit:
    """Bound the true epsilon of a run from below, for the unit that moves its totals most.

    Args:
        transcript: transcript of a run with differential privacy; its configuration says unit and neighbours.
        trials: number of draws with the unit, and of draws without it; at least 100.
        claim: what is claimed; by default what the configuration says.
        rng: draws units, and the noise if the run is seeded; otherwise noise is drawn from the
            operating system's generator.
        confidence: probability that all bounds hold, in (0.5, 1).

    Raises:
        ArgumentError: the run claims no differential privacy, or a parameter is out of its bounds.
        PrivacyError: a question of the run carries no noise.
    """
    agreed, rng = transcript.configuration, np.random.default_rng(0) if rng is None else rng
    if agreed.privacy is None:
        raise ArgumentError("the run claims no differential privacy to be audited.")
    terms = agreed.privacy
    questions = [_with_few_rows(_noised(record)) for record in transcript.of(Asked)]
    rows = 1
    if terms.unit == Unit.CLIENT:
        divided = [asked.inner.rows for asked in questions if isinstance(asked.inner, ClientLengths)]
        rows = LARGE * int(max([1.0, *divided]))
    elif terms.unit == Unit.USER:
        rows = terms.rows_per_user
    units = np.repeat(_pairs(questions, rng)[:, :, None], rows, axis=2)
    releases = [_release(question, units, terms.neighbours, agreed.noising) for question in questions]
    worst = int(np.argmax(sum(np.square(one.shifts / one.sigma).sum(axis=1) for one in releases)))
    bits: RandomBits = SeededBits(rng) if terms.seeded else SecureBits()
    inside, outside = _drawn(releases, worst, trials, bits)
    # Only for Gaussian noise is the whole trade-off curve claimed.
    noise: Noise = "gaussian" if terms.mechanism == Mechanism.GAUSSIAN else "any"
    claimed = claim or Claim(epsilon=terms.epsilon, delta=terms.delta, noise=noise)
    return audit_samples(inside, outside, claim=claimed, confidence=confidence)


def check_labelled(question: Noised, labelled: bool) -> None:
    """Check that rows have labels where a question trains on them: without, clients would answer nothing.

    Raises:
        ArgumentError: they have none.
    """
    declared = question.inner.declaration
    if declared is not None and declared.classes and not labelled:
        raise ArgumentError("the run trained models on labels: name their column with --label.")


def without_noise(question: Noised) -> Noised:
    """Return the same question without noise in its answers, as if the server added the noise."""
    return replace(question, by_server=True)


def _noised(record: Asked) -> Noised:
    question = question_from_bytes(record.question)
    if not isinstance(question, Noised):
        raise PrivacyError(f"{type(question).__name__} was asked without noise.")
    return question


def _with_few_rows(question: Noised) -> Noised:
    """Limit the number that clients' sums are divided by, so that clients with so many rows can be tried."""
    if not isinstance(question.inner, ClientLengths):
        return question
    return replace(question, inner=replace(question.inner, rows=min(question.inner.rows, float(MOST_ROWS))))


def _centers(question: Noised) -> tuple[FloatArray, float] | None:
    """Return the centroids that a question is about, and the offset from them that moves its total most."""
    parts = list(parts_of(question))
    radius = max([0.0, *(part.radius for part in parts if isinstance(part, SumsInCells))])
    for part in parts:
        if isinstance(part, ClientShares):
            # A client's counts and sums are scaled down together: longer offsets would shrink its counts.
            radius *= min(1.0, part.most_sum / part.most_count)
    return next(((center, radius) for center in centers_of(question)), None)


def _pairs(questions: Sequence[Noised], rng: np.random.Generator) -> FloatArray:
    """Return pairs of records that lie far apart, float64 of shape (n_pairs, 2, n_features)."""
    ranges = questions[0].ranges
    corners = np.where(rng.random((CORNERS, ranges.n_features)) < 0.5, ranges.low, ranges.high)
    corners[0] = ranges.low
    pairs = [np.stack([corners, ranges.low + ranges.high - corners], axis=1)]
    told = [asked for asked in map(_centers, questions) if asked is not None]
    for centers, radius in (told[0], told[-1]) if told else ():
        chosen = centers[rng.permutation(len(centers))[:_MOST_CENTERS]]
        away = rng.standard_normal(chosen.shape)
        away *= radius / np.linalg.norm(away, axis=1, keepdims=True)
        pairs += [np.stack([chosen, np.roll(chosen, 1, axis=0)], axis=1)]
        pairs += [np.stack([chosen + s * away, chosen - s * away], axis=1) for s in LENGTHS]
    return ranges.clip(np.concatenate(pairs))


def _release(question: Noised, units: FloatArray, neighbours: Neighbours, noising: int) -> Release:
    """Return how far each unit moves the total; `units` has shape (n_pairs, 2, n_rows, n_features)."""
    sizes = [int(np.prod(entry.shape)) for entry in question.inner.spec.entries]
    stds = question.noise_std(noising)
    steps = np.repeat(question.steps, sizes)
    sigma = np.repeat([stds[entry.name] for entry in question.inner.spec.entries], sizes) / steps
    bare, generator = without_noise(question), np.random.default_rng(0)
    answers = np.stack(
        [
            [question.spec.flatten(bare.answer(ClientData(rows), generator)) / steps for rows in pair]
            for pair in units
        ]
    )
    shifts = (
        answers.reshape(-1, len(steps))
        if neighbours == Neighbours.ADD_REMOVE
        else answers[:, 0] - answers[:, 1]
    )
    return Release(shifts, sigma, question)


def _drawn(
    releases: Sequence[Release], worst: int, trials: int, bits: RandomBits
) -> tuple[FloatArray, FloatArray]:
    """Draw scores of releases with and without a unit: the linear statistic that separates them best."""
    inside, outside = np.zeros(trials), np.zeros(trials)
    for shifts, sigma, question in releases:
        moved = np.flatnonzero(shifts[worst])
        weights = shifts[worst, moved] / np.square(sigma[moved])
        for scores in (inside, outside):
            scores += question.draw(sigma[moved], (trials, moved.size), bits) @ weights
        inside += float(shifts[worst, moved] @ weights)
    return inside, outside
