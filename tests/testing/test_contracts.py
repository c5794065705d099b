"""Contracts find what is broken: each of these parts breaks one law, and is told so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, metrics
from privfed.attacks import Linkage, PassiveAttack
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Total
from privfed.privacy.bounds import Bound, RecordBounded, counted
from privfed.privacy.contributions import Contribution
from privfed.protocols import Plain
from privfed.protocols.plain import PlainSession
from privfed.testing import (
    AttackContract,
    BoundedQuestionContract,
    EstimatorContract,
    MetricContract,
    PartitionContract,
    SecureSumContract,
)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BrokenCount(RecordBounded):
    """Ask for the number of rows, in one broken way."""

    additive_over = AdditiveOver.RECORDS
    how: str

    @property
    def declaration(self) -> Declaration:
        return Declaration(("count",))

    @property
    def bounds(self) -> Any:
        return {"count": Bound(0.5, stay=0.0, move=0.0) if self.how == "off the grid" else counted()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        most = self.ranges.rows / 2 if self.how == "beyond its ranges" else 4.0 * self.ranges.rows
        return StatisticsSpec(Entry("count", (1,), 0.0, most, 1.0))

    def contributions(self, rows: Any, labels: Any) -> dict[str, Contribution]:
        factor = 2.0 if self.how == "beyond its bound" else 1.0
        added = factor * (np.arange(len(rows)) < (3 if self.how == "of others" else np.inf))
        return {"count": Contribution(added[:, None])}


def question(how: str) -> Any:
    class Broken(BoundedQuestionContract):
        def make(self, ranges: Any, centers: Any) -> Any:
            return BrokenCount(ranges=ranges, how=how)

    return Broken()


class ForgetfulSession(PlainSession):
    """Leaves one answer out of the total, and says that it is in it."""

    def _total(self, question: Any, *rest: Any) -> Total:
        total = super()._total(question, *rest)
        assert total.contributions is not None
        first = total.contributions[total.contributors[0]]
        left = {name: total.statistics[name] - first[name] for name in total.statistics}
        return Total(Statistics(**left), total.contributors, total.dropped, total.clipped)


class Forgetful(Plain):
    def parties(self, configuration: Any, policies: Any) -> Any:
        return ForgetfulSession(configuration), super().parties(configuration, policies)[1]


class Secretive(Plain):
    reveals: Any = "sums"


class BrokenSum(SecureSumContract):
    def __init__(self, kind: Callable[[], Any]) -> None:
        self.make = kind  # type: ignore[method-assign]


class Restless(DWFKMeans):
    """Draws from nobody knows where."""

    def make_algorithm(self, n_features: int, seed: int) -> Any:
        return super().make_algorithm(n_features, int(np.random.default_rng().integers(1 << 30)))


class RestlessEstimator(EstimatorContract):
    kind = Restless
    parameters = {"n_clusters": 3, "init": "random", "max_iter": 2, "tol": 0}  # noqa: RUF012


class OneForAll(PartitionContract):
    def split(self, X: Any, n_clients: int, rng: Any, y: Any) -> Sequence[Any]:
        return [np.arange(len(X)), *[np.arange(0)] * (n_clients - 1)]


class FirstClient(MetricContract):
    def metric(self, clients: Any, centers: Any, **options: Any) -> float:
        return metrics.inertia(clients[:1], centers, **options)


class Nameless(Linkage):
    name = "Link Age"


class NamelessAttack(AttackContract):
    kind: type[PassiveAttack[Any]] = Nameless


@pytest.mark.parametrize(
    ("contract", "law"),
    [
        (question("beyond its bound"), "test_one_record_moves_no_entry_beyond_its_bound"),
        (question("of others"), "test_all_clients_at_once_are_answered_as_each_alone"),
        (question("off the grid"), "test_answers_lie_on_the_grid"),
        (question("beyond its ranges"), "test_answers_keep_to_the_ranges_that_are_declared"),
        (BrokenSum(Forgetful), "test_multiples_of_the_resolution_add_up_exactly"),
        (BrokenSum(Forgetful), "test_totals_of_different_questions_in_one_session"),
        (BrokenSum(Secretive), "test_what_a_sum_reveals_is_what_it_shows"),
        (RestlessEstimator(), "test_the_same_random_state_repeats_the_fit"),
        (OneForAll(), "test_each_row_goes_to_one_client_and_no_client_is_empty"),
        (FirstClient(), "test_the_order_of_the_clients_and_of_the_centers_changes_nothing"),
        (NamelessAttack(), "test_it_declares_what_reports_say_of_it"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_part_that_breaks_a_law_does_not_pass(contract: Any, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(contract, law)()


def test_the_laws_that_a_part_keeps_pass() -> None:
    question("").test_one_record_moves_no_entry_beyond_its_bound()
    BrokenSum(Plain).test_multiples_of_the_resolution_add_up_exactly()
