"""Programs of every registered algorithm and metric, without privacy and with it, for what they declare."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from privfed import Privacy
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import AgreedProgram
from privfed.core.asking.phases import Among, Form, Origin, Same, each, origin_of
from privfed.core.asking.question import Question, wire_name
from privfed.core.stored.encoding import Array
from privfed.errors import PrivacyError
from privfed.metrics.asked import AskedMetric
from privfed.party.program import Program, agreed_program
from privfed.questions.cluster_spread import (
    ClusterDistances,
    ClusterProfiles,
    ClusterScatter,
    ClusterSilhouettes,
)
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Contingency, Inertia
from privfed.questions.local_cluster_counts import LocalClusterCounts
from privfed.questions.ranges import Found
from privfed.tables.beside import ClusterColumns, ClusterTimes
from tests.nodes.journals import DOMAIN
from tests.party.test_largest import EXAMPLES, agreed

UNITS = ("", "record", "client")
EDGES = np.array([[-1.0, 0.0, 1.0]])
METRICS = (
    *(AskedMetric.of(kind, 3) for kind in (ClusterDistances, ClusterProfiles, ClusterScatter)),
    *(AskedMetric.of(kind, 3) for kind in (ClusterSilhouettes, Inertia)),
    AskedMetric.of(FuzzySpread, 3, m=2.0),
    AskedMetric.of(Contingency, 3, n_labels=3),
    AskedMetric.of(LocalClusterCounts, most=4, seed=1),
    *(AskedMetric.of(kind, 3, placing=1, edges=EDGES) for kind in (ClusterColumns, ClusterTimes)),
)


def claimed(plain: Configuration, unit: str) -> Configuration:
    """Return an agreement under a unit of protection; without a claim where it is empty."""
    low, high = (Array.from_numpy(np.full(plain.n_features, bound)) for bound in DOMAIN.bounds(1))
    words: dict[str, Any] = {"privacy": None, "low": None, "high": None, "max_rows": None}
    if unit:
        claim = Privacy(epsilon=9.0, delta=1e-6, unit=unit, domain=DOMAIN, neighbours="add-remove")
        words = {"privacy": claim.terms(), "low": low, "high": high, "max_rows": 64}
    return msgspec.structs.replace(plain, **words)


def _agreements() -> Iterator[tuple[str, Configuration]]:
    for name, makes in EXAMPLES.items():
        for make in makes:
            made = make()
            for columns in (2, 30):
                if made is not None:
                    yield name, agreed(made, columns)
                    continue
                plain = agreed(None, columns)
                for metric in METRICS:
                    program = AgreedProgram.of(None, (metric.alone(),))
                    yield metric.name, msgspec.structs.replace(plain, program=program)


@cache
def programs(unit: str) -> tuple[tuple[str, Program], ...]:
    """Return the programs that can be agreed on under a unit, with the name of the algorithm or question."""
    found = []
    for name, plain in _agreements():
        try:
            program = agreed_program(claimed(plain, unit))
        except PrivacyError:
            # It is for privacy, or has no bound for the unit.
            continue
        assert program is not None
        found.append((name, program))
    return tuple(found)


def origins(rule: object, name: str = "") -> Iterator[tuple[str, Origin]]:
    """Yield where each value comes from that a rule allows, by question.field or question.field.of_a_part."""
    inner = rule
    while isinstance(inner, Same) and inner.rule is not None:
        inner = inner.rule
    forms = [one for one in inner.rules if isinstance(one, Form)] if isinstance(inner, Among) else [inner]
    for form in forms:
        if isinstance(form, Form):
            where = wire_name(form.kind) if issubclass(form.kind, Question) else name
            for field_name, one in form.rules.items():
                yield from origins(one, f"{where}.{field_name}")
    if not any(isinstance(form, Form) for form in forms):
        yield name, origin_of(rule, name)


def values_of(program: Program) -> dict[str, Origin]:
    """Return where each value comes from that questions bring to a client, by question and field."""
    found: dict[str, Origin] = {}
    for phase in chain.from_iterable(map(each, (program.phases, *program.metrics))):
        for name, origin in origins(program._asked(phase)):
            if name.endswith(".ranges") and origin is Origin.ANY:
                origin = Found(program.setting).origin
            found[name] = Origin.weakest((origin, found.get(name, origin)))
    return found
