"""Whatever a server asks, and whatever rows it asks about: bounds hold, or the question is refused.

Questions are drawn from the forms that algorithms declare. What a form leaves open is any (docs/values.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import ClientPolicy, DPKMeans, Privacy
from privfed.core.asking.phases import Form, Shape
from privfed.core.asking.question import _REGISTRY
from privfed.core.values.domain import Box, Ranges
from privfed.deep.training.dp_sgd import PLACES, _clipped_sum
from privfed.deep.training.trainer import trainer_of
from privfed.errors import ArgumentError, RefusedError
from privfed.privacy.bounds import RecordBounded
from privfed.questions.bounded.bounded_sums import SizeSums
from tests.declared import programs, values_of
from tests.default_run import examples
from tests.nodes.elsewhere import Elsewhere
from tests.privacy.any_parameters import (
    MOST_ROWS,
    N_LABELS,
    PHASED,
    Draw,
    answered,
    apart,
    forms,
    sent,
)

SEEDS = st.integers(0, 2**32 - 1)


def bounded(form: Form) -> bool:
    return issubclass(form.kind, RecordBounded)


def names(unit: str) -> list[str]:
    """Return the algorithms and metrics whose questions can be asked under a unit of protection."""
    found = {
        name
        for name, program in programs(unit)
        for value in values_of(program)
        if unit == "client" or issubclass(_REGISTRY[value.partition(".")[0]], RecordBounded)
    }
    return sorted(found)


RECORD, CLIENT = names("record"), names("client")


def test_every_question_with_a_bound_is_tried() -> None:
    ours = {name for name, kind in _REGISTRY.items() if kind.__module__.startswith("privfed.")}
    asked = {value.partition(".")[0] for _, program in programs("record") for value in values_of(program)}
    assert {name for name in ours if issubclass(_REGISTRY[name], RecordBounded)} <= asked
    assert {*RECORD, *CLIENT} == {*PHASED}


def holds_for_clients(name: str, seed: int) -> bool:
    """Check how long a client's answer is, whatever its rows; say whether the question could be asked."""
    draw = Draw(seed)
    domain, d = draw.domain()
    ranges, found = Ranges(*domain.bounds(d), MOST_ROWS), forms(name, "client", domain, d, draw)
    limits = [draw.length(ranges) for _ in range(8)]
    # What is computed of the parameters alone may overflow, and warn; an answer may not.
    with np.errstate(all="ignore"):
        form = found[draw.rng.integers(len(found))] if found else None
        asked = None if form is None else sent(form, draw, ranges, limits)
    if asked is None:
        return False
    n = int(draw.rng.integers(1, 9))
    own = answered(asked, draw.rows(asked.inner, n), draw.rng.integers(0, N_LABELS + 1, n), domain)
    assert max(apart(own, [np.zeros_like(one) for one in own], asked)) <= 1
    return True


def holds_for_records(name: str, seed: int) -> bool:
    """Check what one record adds, and what another in its place changes; say whether it could be asked."""
    draw = Draw(seed)
    domain, d = draw.domain()
    found = [one for one in forms(name, "record", domain, d, draw) if bounded(one)]
    with np.errstate(all="ignore"):
        form = found[draw.rng.integers(len(found))] if found else None
        asked = None if form is None else sent(form, draw, Ranges(*domain.bounds(d), MOST_ROWS))
    if asked is None:
        return False
    rows, labels = draw.rows(asked.inner, 7), draw.rng.integers(0, N_LABELS + 1, 7)
    one, other, base = ([0], [1], list(range(2, 7)))
    alone, beside, without, added, instead = (
        answered(asked, rows[of], labels[of], domain) for of in (one, other, base, one + base, other + base)
    )
    for record, total in ((alone, added), (beside, instead)):
        assert max(apart(total, without, asked)) <= 1
        # The other records add what they added without it, to the last step.
        assert all((a == b + c).all() for a, b, c in zip(total, record, without, strict=True))
    assert isinstance(asked.inner, RecordBounded)
    ends = [[getattr(bound, end) for bound in asked.inner.bounds.values()] for end in ("stay", "move")]
    assert sum(apart(added, instead, asked)) <= max(map(sum, ends)) * (1.0 + 1e-9)
    return True


@pytest.mark.parametrize("name", RECORD)
@settings(max_examples=examples(30))
@given(seed=SEEDS)
@pytest.mark.few(6)
def test_no_parameter_lets_a_record_beyond_its_bound(name: str, seed: int) -> None:
    holds_for_records(name, seed)


@pytest.mark.parametrize("name", CLIENT)
@settings(max_examples=examples(14))
@given(seed=SEEDS)
@pytest.mark.few(12)
def test_no_parameter_lets_a_client_beyond_its_limits(name: str, seed: int) -> None:
    holds_for_clients(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENT)
def test_no_parameter_of_many_lets_a_client_beyond_its_limits(name: str) -> None:
    assert np.mean([holds_for_clients(name, seed) for seed in range(400)]) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORD)
def test_no_parameter_of_many_lets_a_record_beyond_its_bound(name: str) -> None:
    asked = [holds_for_records(name, seed) for seed in range(1500)]
    # Enough of these questions could be asked at all, and not all of them.
    assert 0.05 < np.mean(asked) < 0.999


@settings(max_examples=examples(40))
@given(seed=SEEDS)
def test_no_model_lets_a_record_beyond_its_part_of_a_step_of_dp_sgd(seed: int) -> None:
    """Law: one row more moves a step's sum by that row's own truncated gradient, and by C at most."""
    draw = Draw(seed)
    domain, d = draw.domain()
    trainer, limit = trainer_of("softmax", d, N_LABELS), draw.among([2.0**-100, 1e-3, 1.0, 2.0**90])
    step = 2.0 ** (np.frexp(limit / 2.0**38)[1] - 1)
    model = draw.array(Shape(trainer.n_parameters), Ranges(*domain.bounds(d), MOST_ROWS))
    rows = domain.clip(draw.rows(None, 6, Ranges(*domain.bounds(d), MOST_ROWS)))
    labels, places = draw.rng.integers(0, N_LABELS, 6), draw.rng.integers(0, PLACES, 6)

    def total(of: list[int]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return _clipped_sum(trainer, model, rows[of], labels[of], places[of], limit, step)

    alone, without, added = total([0]), total([1, 2, 3, 4, 5]), total([0, 1, 2, 3, 4, 5])
    assert (added == alone + without).all()
    assert float(np.linalg.norm(alone.astype(np.float64))) * step <= limit


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_nodes_answer_or_refuse_what_is_drawn_alike_whatever_their_rows(seed: int, tmp_path: Path) -> None:
    """A lying coordinator asks questions of the program's forms, with any centers and points."""
    rng, lies = np.random.default_rng(0), list[type]()
    tables = [rng.uniform(-1.0, 1.0, (n, 2)) for n in (9, 1)] + [np.full((6, 2), 1e300)]
    draw, domain = Draw(seed), Box(-1.0, 1.0, max_rows=16)

    def lied(session: Any) -> None:
        honest = session.sum

        def sum_of(question: Any, *more: Any) -> Any:
            if isinstance(question.inner, SizeSums):
                # Its point is derived.
                return honest(question, *more)
            with np.errstate(all="ignore"):
                drawn = draw.value(Form.like(question.inner), Ranges(*domain.bounds(2), 16), {})
            lies.append(type(drawn))
            return honest(replace(question, inner=drawn).at(question.position), *more)

        session.sum = sum_of

    engine = Elsewhere(tmp_path, tables, ClientPolicy(require_privacy=True, max_epsilon=9.0))
    engine.lies = lied
    claim = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=domain, neighbours="add-remove")
    model = DPKMeans(2, privacy=claim, engine=engine, protocol="masked", random_state=0)
    try:
        model.fit()
    except RefusedError as error:
        assert len(error.codes) == len(tables) and len({*error.codes.values()}) == 1
    except ArgumentError:
        # What was drawn could not be asked at all.
        pass
    assert lies
