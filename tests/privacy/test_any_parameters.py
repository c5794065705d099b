"""Whatever a server asks, and whatever rows it asks about: bounds hold, or the question is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.question import _REGISTRY, Question
from privfed.core.values.domain import Ranges
from privfed.privacy.bounds import RecordBounded
from tests.core.question_examples import EXAMPLES, Make
from tests.default_run import examples
from tests.privacy.any_parameters import BOUNDED, MOST_ROWS, N_LABELS, Draw, answered, apart, sent

AT_CLIENTS = sorted(set(EXAMPLES) - {"Noised"})
SEEDS = st.integers(0, 2**32 - 1)


def test_every_question_with_a_bound_is_tried() -> None:
    ours = {kind for kind in _REGISTRY.values() if kind.__module__.startswith("privfed.")}
    assert set(BOUNDED) == {kind for kind in ours if issubclass(kind, RecordBounded)}


def holds_for_clients(make: Make, seed: int) -> bool:
    """Check how long a client's answer is, whatever its rows; say whether the question could be asked."""
    draw = Draw(seed)
    domain, d = draw.domain()
    ranges = Ranges(*domain.bounds(d), MOST_ROWS)
    limits = [draw.length(ranges) for _ in range(8)]
    # What is computed of the parameters alone may overflow, and warn; an answer may not.
    with np.errstate(all="ignore"):
        asked = sent(lambda draw, ranges: make(ranges, draw.centers(ranges)), draw, ranges, limits)
    if asked is None:
        return False
    n = int(draw.rng.integers(1, 9))
    found = answered(asked, draw.rows(asked.inner, n), draw.rng.integers(0, N_LABELS + 1, n), domain)
    assert max(apart(found, [np.zeros_like(one) for one in found], asked)) <= 1
    return True


def holds_for_records(kind: type[Question], seed: int) -> bool:
    """Check what one record adds, and what another in its place changes; say whether it could be asked."""
    draw = Draw(seed)
    domain, d = draw.domain()
    asked = sent(BOUNDED[kind], draw, Ranges(*domain.bounds(d), MOST_ROWS))
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


@pytest.mark.parametrize("kind", BOUNDED, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(25))
@given(seed=SEEDS)
@pytest.mark.few(6)
def test_no_parameter_lets_a_record_beyond_its_bound(kind: type[Question], seed: int) -> None:
    holds_for_records(kind, seed)


@pytest.mark.parametrize("name", AT_CLIENTS)
@settings(max_examples=examples(6))
@given(seed=SEEDS)
@pytest.mark.few(20)
def test_no_parameter_lets_a_client_beyond_its_limits(name: str, seed: int) -> None:
    holds_for_clients(EXAMPLES[name], seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_CLIENTS)
def test_no_parameter_of_many_lets_a_client_beyond_its_limits(name: str) -> None:
    assert 0.2 < np.mean([holds_for_clients(EXAMPLES[name], seed) for seed in range(400)]) < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOUNDED, ids=lambda kind: kind.__name__)
def test_no_parameter_of_many_lets_a_record_beyond_its_bound(kind: type[Question]) -> None:
    asked = [holds_for_records(kind, seed) for seed in range(1500)]
    # Enough of these questions could be asked at all, and not all of them.
    assert 0.2 < np.mean(asked) < 0.99
