"""Metrics follow a program once each, in any order; a metric alone is a program."""

from __future__ import annotations

import numpy as np
import pytest

import privfed
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Asked
from privfed.federation.driver import Federation
from privfed.federation.request import FederationRequest
from privfed.metrics.asked import AskedMetric
from privfed.metrics.named import METRICS as METRIC_FUNCTIONS
from privfed.party.program import Program
from privfed.questions.cluster_spread import ClusterDistances, ClusterScatter, ClusterSilhouettes
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Inertia
from tests.party.test_program import fitted, private, refuses, state_after, tables
from tests.undeclared import ANYTHING

METRICS: list[tuple[str, dict[str, object], AskedMetric]] = [
    ("inertia", {}, AskedMetric.of(Inertia, 3)),
    ("davies_bouldin", {"q": 2.0}, AskedMetric.of(ClusterDistances, 3, power=2.0)),
    ("mean_distance", {}, AskedMetric.of(ClusterDistances, 3, power=1.0)),
    ("simplified_silhouette", {}, AskedMetric.of(ClusterSilhouettes, 3)),
    ("calinski_harabasz", {}, AskedMetric.of(ClusterScatter, 3)),
    ("fuzzy_davies_bouldin", {"m": 3.0}, AskedMetric.of(FuzzySpread, 3, m=3.0, q=1.0)),
]
"""Metric, its options, and how it is agreed on."""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_metrics_follow_once_each_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(privfed.DWFKMeans, {"local_iter": 1, "policy": ANYTHING}, 2)
    monkeypatch.setattr(FederationRequest, "_program", lambda self: None)
    model.fit(tables())
    monkeypatch.undo()
    fit = [question_from_bytes(one.question) for one in model.transcript_.of(Asked)]
    for name, options, _ in METRICS:
        METRIC_FUNCTIONS.find(name)(model.federation_, model.cluster_centers_, **options)
    asked = [question_from_bytes(one.question) for one in model.federation_.transcript.of(Asked)]
    algorithm = model.make_algorithm(2, model.federation_.configuration.seed)
    agreed = [metric for _, _, metric in METRICS]
    program = Program.of(algorithm, model.federation_.setting, agreed)
    extra = asked[len(fit) :]
    assert len(extra) == len(METRICS)
    state = state_after(program, [*fit, *extra[::-1]])
    assert [one for one in extra if not refuses(program, state, one)] == []
    assert refuses(program, state_after(program, fit[:3]), extra[1])
    assert refuses(Program.of(algorithm, model.federation_.setting), state_after(program, fit), extra[1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", [None, "record", "client"])
@pytest.mark.parametrize(("name", "options", "agreed"), METRICS)
@pytest.mark.few(6)
def test_a_metric_alone_is_a_program(
    name: str,
    options: dict[str, object],
    agreed: AskedMetric,
    unit: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Federation] = []
    ask = Federation.ask
    monkeypatch.setattr(Federation, "ask", lambda self, one: (opened.append(self), ask(self, one))[1])
    words = {} if unit is None else {"privacy": private(unit, 1e4, ball=True)}
    METRIC_FUNCTIONS.find(name)(tables(), np.arange(6.0).reshape(3, 2), **options, **words)
    federation = opened[-1]
    asked = [question_from_bytes(one.question) for one in federation.transcript.of(Asked)]
    program, asked = Program.of(agreed.alone(), federation.setting), [one.at(None) for one in asked]
    assert state_after(program, asked).index == len(asked) - 1
    assert refuses(program, state_after(program, asked), asked[0])
