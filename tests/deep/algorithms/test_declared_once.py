"""What parties agree on has the estimators' parameters under their names: defaults and bounds are theirs."""

from dataclasses import fields
from typing import Any

import pytest

from privfed.core.agreed.program import from_agreed, to_agreed
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.algorithms.averaging import Averaging
from privfed.deep.algorithms.rules import BipartitionRule, PropagationRule
from privfed.deep.training.local import Training
from privfed.errors import ArgumentError
from privfed.estimators.declaring import parameters_of
from tests.deep.estimators.test_private import RECORDS
from tests.some import some

AGREED: dict[type[Any], type[Any]] = {
    Training: FedAvg,
    Averaging: IFCA,
    BipartitionRule: CFL,
    PropagationRule: DCFL,
}
WORDS: dict[type[Any], dict[str, Any]] = {
    Training: {"model": "softmax", "noise_multiplier": 1.0, "trainings": 1},
    Averaging: {"training": Training(model="softmax")},
}
OTHERWISE = {"model", "weighting", "noise_multiplier", "rows_per_client", "n_clusters", "empty", "decay"}
"""Fields whose default says more than the parameter's, or that have none."""


def declared(kind: type[Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: one for name, one in parameters_of(AGREED[kind]).items() if name in names}


@pytest.mark.parametrize("kind", AGREED)
def test_defaults_are_those_of_the_parameters(kind: type[Any]) -> None:
    own, known = {one.name: one.default for one in fields(kind)}, declared(kind)
    assert len(known) >= 2
    for name in some(known):
        assert name in OTHERWISE or own[name] == known[name].default


@pytest.mark.parametrize("kind", AGREED)
def test_what_the_parameters_bounds_exclude_is_no_part_of_an_agreement(kind: type[Any]) -> None:
    bounded = {name: one.bounds for name, one in declared(kind).items() if one.bounds}
    agreed = to_agreed(kind(**WORDS.get(kind, {})))
    for name, bounds in some(bounded.items()):
        low = float(bounds[1:].partition(",")[0])
        wrong = int(low) - 1 if type(agreed.fields[name]) is int else low - 1.0
        with pytest.raises(ArgumentError, match=name):
            from_agreed(type(agreed)(agreed.name, {**agreed.fields, name: wrong}))


def test_what_is_agreed_is_what_the_estimator_says() -> None:
    words: dict[str, Any] = {"rounds": 3, "epochs": 4, "learning_rate_decay": 0.9, "rows_per_client": 30}
    model = CFL(**words, sample_rate=0.3, noise_multiplier=4.0, gamma_max=0.2, split_after=7, privacy=RECORDS)
    training = model._training(5)
    rule = model.make_algorithm(training).rule  # type: ignore[attr-defined]
    for name in ("rounds", "epochs", "learning_rate_decay", "rows_per_client", "sample_rate"):
        assert vars(training)[name] == vars(model)[name]
    assert (training.seed, training.trainings, training.at(3).decayed_rate) == (5, 3, 0.1 * 0.9**2)
    assert (rule.gamma_max, rule.split_after, rule.decay) == (0.2, 7, 0.9)
    steps = training.sampled_steps
    assert (steps.steps, steps.trainings, steps.sample_rate) == (13, 3, 0.3)
