"""A client can check, without totals, that what it is asked is a round of the agreed training."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from examples.rdpcfl import RDPCFL
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.training.regrouping import Regrouping
from privfed.party.program import Program, ProgramState
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import Inertia
from tests.deep.estimators.test_private import CLIENTS, RECORDS
from tests.deep.population import clients
from tests.party.test_program import refuses, state_after

WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 4, "learning_rate": 0.5, "epochs": 2, "domain": Box(0, 1)}
GATHERED: dict[str, Any] = {**WORDS, "protocol": "plain", "merge": "gathered"}
SPLITS: dict[str, Any] = {"split_mean_norm": 0.6, "split_max_norm": 0.5, "split_after": 1}
UNDER: dict[str, Any] = {"domain": None}
DPSGD: dict[str, Any] = {**UNDER, "privacy": RECORDS, "noise_multiplier": 3.0, "rows_per_client": 40}
MODELS = {
    "FedAvg": FedAvg(**WORDS, protocol="plain"),
    "ranges found": FedAvg(**{**WORDS, "domain": None}, protocol="plain"),
    "by rows": FedAvg(**WORDS, protocol="plain", weighting="rows"),
    "IFCA": IFCA(n_clusters=2, **WORDS, protocol="plain"),
    "CFL": CFL(**GATHERED, **SPLITS),
    "DCFL": DCFL(**GATHERED),
    "DCFL in slots": DCFL(**WORDS),
    "DCFL by sketches": DCFL(**GATHERED, sketch_error=0.9),
    "DCFL, compared": DCFL(**{**GATHERED, "rounds": 6}, clients_per_round=5),
    "DCFL in slots, compared": DCFL(**{**WORDS, "rounds": 6}),
    "CFL by sketches, compared": CFL(**{**WORDS, "rounds": 6}, **SPLITS, sketch_error=0.9),
    "CFL in slots": CFL(**WORDS, **SPLITS),
    "DCFL, cohorts drawn": DCFL(**GATHERED, clients_per_round=4),
    "DCFL by DP-SGD": DCFL(**{**GATHERED, **DPSGD}),
    "R-DPCFL": RDPCFL(**GATHERED, n_clusters=3, choosing_share=0.3),
    "R-DPCFL in slots": RDPCFL(**WORDS, choosing_share=0.3),
    "R-DPCFL by DP-SGD": RDPCFL(**{**GATHERED, **DPSGD}, choosing_share=0.3),
    "DCFL, clients noised": DCFL(**{**WORDS, **UNDER, "rounds": 2}, privacy=CLIENTS),
    "IFCA, clients noised": IFCA(**{**WORDS, **UNDER, "rounds": 2}, privacy=CLIENTS),
}


def asked_by(model: Any) -> tuple[Program, list[Question]]:
    """Fit; return the program and all questions that were asked."""
    model.fit(*clients(6))
    federation = model.federation_
    algorithm = model.make_algorithm(model._training_)
    return Program.of(algorithm, federation.setting), [
        question_from_bytes(one.question) for one in federation.transcript.of(Asked)
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.few(4)
def test_every_question_of_a_run_is_the_programs(name: str) -> None:
    program, asked = asked_by(MODELS[name])
    state = state_after(program, asked)
    assert state.index == len(asked) - 1 <= program.max_sums
    assert refuses(program, state, asked[-1])


def test_clusters_changed_in_runs_that_were_followed() -> None:
    for name in ("CFL", "DCFL", "DCFL in slots", "CFL in slots"):
        fitted = MODELS[name].fit(*clients(6))
        assert any(one.changed for one in fitted.regrouped_) and len(fitted.models_) > 1


@pytest.fixture(scope="module")
def run() -> tuple[Program, list[Any]]:
    program, asked = asked_by(DCFL(**GATHERED, decay=0.9))
    return program, asked


def test_another_round_training_or_model_is_refused(run: Any) -> None:
    program, asked = run
    sketches, averages, following = asked[:3]
    step = averages.after if averages.after.n_clusters else Regrouping()
    others = [
        following,
        averages,
        replace(sketches, training=replace(sketches.training, learning_rate=9.0)),
        replace(sketches, training=replace(sketches.training, epochs=3)),
        replace(sketches, training=replace(sketches.training, max_update_norm=1e3)),
        replace(sketches, models=sketches.models + 1.0),
        replace(sketches, size=sketches.size - 1),
        replace(sketches, seed=sketches.seed + 1),
        replace(sketches, structure=1),
        # Without noise nothing calls for shorter means.
        replace(sketches, decay=0.6),
        replace(sketches, choice="lowest-loss"),
        replace(sketches, numbered=not sketches.numbered),
        Inertia(ranges=sketches.ranges, centers=np.zeros((2, 4))),
    ]
    for other in others:
        assert refuses(program, ProgramState(), other)
    state = state_after(program, [sketches])
    for other in (
        sketches,
        replace(averages, models=averages.models + 1e-3),
        replace(averages, structure=2),
        replace(averages, after=replace(step, round=7)),
        following,
    ):
        assert refuses(program, state, other)
    assert not refuses(program, state, averages)


def test_noise_is_checked_by_the_ledger_and_the_question_in_it_by_the_program() -> None:
    program, asked = asked_by(MODELS["IFCA, clients noised"])
    first = asked[0]
    assert isinstance(first, Noised)
    other = replace(first, inner=replace(first.inner, choice="kept"))
    assert refuses(program, ProgramState(), other)
