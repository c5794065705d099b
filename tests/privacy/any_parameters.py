"""Questions with whatever parameters a lying server may choose, asked of rows that are as odd.

Parameters are tiny, huge, denormal, equal, on rows, far away, or no numbers at all. A question is refused,
for what it asks and never for the rows it is asked of, or its bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from privfed import Privacy
from privfed.core.asking.phases import (
    OF_THE_RUN,
    Among,
    Form,
    Near,
    Phases,
    Same,
    Shape,
    Within,
    each,
)
from privfed.core.asking.question import ClientData, Question, question_from_bytes
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import LARGEST, NARROWEST, Ball, Box, Domain, Ranges
from privfed.core.values.numbers import LEAST_BOUND, MOST_BOUND
from privfed.errors import ArgumentError, PolicyError, PrivacyError
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.noised import Noised
from tests.declared import METRICS
from tests.party.test_largest import EXAMPLES

MOST_ROWS = 1 << 20
N_LABELS = 3

SMALL = [0.0, -0.0, *(2.0**-power for power in (1074, 1022, 900, 537, 451, 450, 226, 200, 52, 10, 0))]
LARGE = [1.0 + 2.0**-52, 3.0, 12.0, 1e6, 1e16, 1e30, 2.0**199, LARGEST]
ABSURD = [np.nextafter(LARGEST, np.inf), 1e100, 1e150, 1e154, 1e160, 2.0**900, 1.7e308]
NO_NUMBERS = [np.inf, np.nan]
LENGTHS = [0.0, 2.0**-1000, 1e-160, np.nextafter(LEAST_BOUND, 0.0), LEAST_BOUND, 1e-100, 1.0, MOST_BOUND]


class Draw:
    """Draws domains, parameters and rows.

    Args:
        seed: two draws of the same seed are alike.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.wild, self.tiny = self.rng.random() < 0.25, 0.0

    def among(self, values: Sequence[float]) -> float:
        """Return one of some values."""
        return float(values[self.rng.integers(len(values))])

    def number(self, finite: bool = False) -> float:
        """Return a number; where the draw is wild, an absurd one or none."""
        kinds = [SMALL, LARGE, [self.rng.uniform(-2.0, 2.0)], [2.0 ** self.rng.uniform(-460, 200)]]
        if finite or self.wild:
            kinds += [ABSURD]
        if self.wild and not finite:
            kinds += [NO_NUMBERS]
        sign = 1.0 if self.rng.random() < 0.5 else -1.0
        return sign * self.among(kinds[self.rng.integers(len(kinds))])

    def domain(self) -> tuple[Domain, int]:
        """Return a domain that may be declared, and a number of features."""
        d, size = int(self.rng.integers(1, 12)), self.among([NARROWEST, 1e-30, 1e-3, 1.0, 12.0, 2.0**190])
        middle = size * self.rng.choice([0.0, 1.0, -7.0, 1e3], d)
        if self.rng.random() < 0.5:
            return Ball(size, middle, MOST_ROWS), d
        return Box(middle - size, middle + size, MOST_ROWS), d

    def points(self, ranges: Ranges, n: int) -> np.ndarray:
        """Return points: in the ranges, nearly equal to each other, next to nothing, or anywhere."""
        d = ranges.n_features
        points = self.rng.uniform(ranges.low - 0.1 * ranges.width, ranges.high)
        points = points + self.rng.uniform(0.0, 0.1, (n, d)) * ranges.width
        if self.rng.random() < 0.5:
            points = np.array([self.number() for _ in range(n * d)]).reshape(n, d)
        elif self.rng.random() < 0.4:
            # Around a row of zeros, so near that squares vanish.
            self.tiny = 10.0 ** -self.rng.uniform(100, 310)
            points = self.rng.standard_normal((n, d)) * self.tiny
        if n and self.rng.random() < 0.3:
            points[1:] = points[0] + self.among([0.0, 1e-300, 1e-165, 1e-16])
        return points

    def centers(self, ranges: Ranges) -> np.ndarray:
        """Return a few points."""
        return self.points(ranges, int(self.rng.integers(1, 6)))

    def length(self, ranges: Ranges) -> float:
        """Return a radius, or another length: of the size of the ranges, or any.

        Where points are next to nothing, mostly one that is much less.
        """
        if self.tiny and self.rng.random() < 0.8:
            return self.tiny * 10.0 ** -self.rng.uniform(0, 60)
        own = float(ranges.width.max()) * 10.0 ** self.rng.uniform(-9, 1)
        return self.among([own, self.among([own, self.among(LENGTHS), abs(self.number())])])

    def reach(self, ranges: Ranges) -> float | None:
        """Return the radius of a ball that rows are said to lie in."""
        return None if self.rng.random() < 0.5 else self.length(ranges)

    def power(self, high: float) -> float:
        """Return a power, or a fuzzifier."""
        known = [1.0, 1.0 + 2.0**-52, 1.5, 2.0, high, self.rng.uniform(1.0, high)]
        return self.among([*known, abs(self.number())] if self.wild else known)

    def rows(self, question: Question | None, n: int, within: Ranges | None = None) -> np.ndarray:
        """Return raw rows: at a parameter of the question or a corner of the ranges, a little or far off.

        Many are as far off as the question's bounds say that rows may be, or some times that.
        """
        ranges = within or question.ranges  # type: ignore[union-attr]
        d = ranges.n_features
        places = [np.zeros(d), ranges.low, ranges.high, (ranges.low + ranges.high) / 2.0]
        for name in ("center", "centers", "origin"):
            known = getattr(question, name, None)
            places += [] if known is None else list(np.atleast_2d(known))
        rows = np.array([places[i] for i in self.rng.integers(len(places), size=n)])
        off = np.array([[self.number(finite=True) for _ in range(d)] for _ in range(n)])
        far = [0.0, 1.0, 1e-13, float(ranges.width.max())]
        if isinstance(question, RecordBounded):
            far += [
                bound.l2 * share for bound in question.bounds.values() for share in (1e-3, 1.0, 10.0, 1e20)
            ]
        with np.errstate(over="ignore"):
            rows = rows + off * self.rng.choice(far, (n, 1))
        return np.where(np.isfinite(rows), rows, 1.7e308)

    def value(self, rule: object, ranges: Ranges, kept: dict[str, object]) -> Any:
        """Return a value that a rule allows: whatever it leaves open is any, as absurd as it may be.

        Args:
            rule: of a form, or a value.
            ranges: of the run.
            kept: values of the run by the name of their `Same`; it is added to.
        """
        if isinstance(rule, Same):
            if rule.name not in kept:
                kept[rule.name] = ranges if rule is OF_THE_RUN else self.value(rule.rule, ranges, kept)
            return kept[rule.name]
        if isinstance(rule, Among):
            return self.value(rule.rules[self.rng.integers(len(rule.rules))], ranges, kept)
        if isinstance(rule, Form):
            fields = {name: self.value(one, ranges, kept) for name, one in rule.rules.items()}
            if {"low", "high"} <= fields.keys() and self.rng.random() < 0.7:
                fields["low"], fields["high"] = np.sort([fields["low"], fields["high"]], axis=0)
            return rule.kind(**fields)
        if isinstance(rule, Near):
            return rule.arrays[self.rng.integers(len(rule.arrays))]
        if isinstance(rule, Within):
            return self.within(rule.low, rule.high, ranges)
        return self.array(rule, ranges) if isinstance(rule, Shape) else rule

    def within(self, low: float, high: float, ranges: Ranges) -> float:
        """Return a number between two ends, whole where both are."""
        if type(low) is int and type(high) is int:
            return int(np.clip(self.among([low, low + 1, high, self.rng.integers(low, high + 1)]), low, high))
        own = np.clip([self.length(ranges), abs(self.number(finite=True))], low, high).tolist()
        return self.among([high, np.nextafter(low, high), self.rng.uniform(low, high), *own])

    def array(self, rule: Shape, ranges: Ranges) -> np.ndarray:
        """Return an array of a shape: points where it has their columns, else numbers."""
        bounds = [(one, one) if isinstance(one, int) else one for one in rule.sizes]
        sizes = [int(self.among([low, min(high, low + 1), min(high, low + 4)])) for low, high in bounds]
        if sizes[-1] == ranges.n_features and len(sizes) <= 2:
            points = self.points(ranges, sizes[0] if len(sizes) == 2 else 1)
            return points.reshape(sizes)
        if self.rng.random() < 0.5:
            return (self.rng.integers(2) + self.rng.integers(0, 3, sizes)).astype(np.float64)
        many = np.resize([self.number() for _ in range(16)], sizes)
        return np.abs(many) if self.rng.random() < 0.5 else np.where(self.rng.random(sizes) < 0.5, many, 0.0)


PHASED = {name: makes for name, makes in EXAMPLES.items() if name != "AskedMetric"} | {
    one.name: [one.alone] for one in METRICS
}
"""What may be agreed on: algorithms and metrics, by name."""


def forms(name: str, unit: str, domain: Domain, d: int, draw: Draw) -> list[Form]:
    """Return the forms of all questions of an algorithm under a claim; none where it cannot be claimed."""
    algorithm = PHASED[name][draw.rng.integers(len(PHASED[name]))]()
    claim = Privacy(epsilon=1.0, delta=1e-6, unit=unit, domain=domain, neighbours="add-remove")
    setting = Setting(tuple("abcde"), d, domain, privacy=claim.terms(), noising=5)
    try:
        with np.errstate(all="ignore"):
            phases: Phases = algorithm.phases(setting)
    except (ArgumentError, PrivacyError):
        return []
    rules = [phase.form for phase in each(phases)]
    several = [one.rules if isinstance(one, Among) else (one,) for one in rules]
    return [form for listed in several for form in listed if isinstance(form, Form)]


def sent(form: Form, draw: Draw, ranges: Ranges, limits: Sequence[float] = ()) -> Noised | None:
    """Return a noised question of a form as a client reads it, or None where nobody can ask it."""
    try:
        inner = draw.value(form, ranges, {})
        asked = Noised(
            ranges=ranges,
            inner=inner,
            sigma=np.full(len(inner.spec.entries), 1e3),
            limits=np.resize(limits, len(inner.spec.entries) if limits else 0),
        )
        data = asked.to_bytes()
        read = question_from_bytes(data)
    except (ArgumentError, PolicyError):
        return None
    assert isinstance(read, Noised)
    return read


Answer = list[np.ndarray]
"""A client's answer without noise, in steps, by entry: int64."""


def answered(question: Noised, raw: np.ndarray, labels: np.ndarray, domain: Domain) -> Answer:
    """Return a client's answer from its raw rows, on the way that a fit goes."""
    data = ClientData(raw, labels).inside(domain).within(question.ranges)[0]
    answer = replace(question, by_server=True).answer(data, np.random.default_rng(0))
    found = []
    for entry, step in zip(question.inner.spec.entries, question.steps, strict=True):
        values = answer[entry.name] / step
        assert (np.abs(values) < 2.0**30).all() and (values == np.rint(values)).all()
        found.append(values.astype(np.int64))
    return found


def apart(one: Answer, other: Answer, question: Noised) -> list[Fraction]:
    """Return the squared distance of two answers, by entry, in units of the squared bound: exactly."""
    inner, limits = question.inner, question.limits.tolist()
    if not limits:
        assert isinstance(inner, RecordBounded)
        limits = [inner.bounds[entry.name].l2 for entry in inner.spec.entries]
    steps = [Fraction(limit) / Fraction(step) for limit, step in zip(limits, question.steps, strict=True)]
    squares = [int(np.square(a - b).sum()) for a, b in zip(one, other, strict=True)]
    return [square / bound**2 for square, bound in zip(squares, steps, strict=True)]
