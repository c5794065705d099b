"""Training by DP-SGD draws from a budget what its steps come to, before anybody trains."""

from pathlib import Path

import pytest

from privfed import PrivacyBudget
from privfed.core.values.domain import Box
from privfed.deep import FedAvg
from privfed.errors import BudgetError, PrivacyError
from privfed.privacy.dp_sgd import epsilon_of
from privfed.privacy.filters import sampled_divergence, suggested_order
from tests.deep.population import clients

WORDS = {"n_classes": 3, "rounds": 2, "learning_rate": 1.0, "rows_per_client": 100, "sample_rate": 0.2}
WHOLE = {"epsilon": 12.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}


def test_a_training_by_dp_sgd_pays_for_its_steps_before_it_asks(tmp_path: Path) -> None:
    (X, y), order = clients(3, rows=100), suggested_order(12.0, 1e-6)
    budget = PrivacyBudget(**WHOLE, path=tmp_path / "b.db", order=order, domain=Box(0, 1))
    taken = budget.take(0.5, noise="local")
    fitted = FedAvg(**WORDS, protocol="plain", privacy=taken, run_dir=tmp_path / "run").fit(X, y)
    (paid,) = budget.log()
    assert paid.used and paid.purpose == "FedAvg"
    steps = fitted._plan_.training(1).sampled_steps
    cost = 2.0 * sampled_divergence(steps, order) / order
    assert paid.share == pytest.approx(cost / budget.mu_squared) and paid.share <= 0.5
    claim = fitted.privacy_spent_
    assert claim is not None and claim.epsilon == taken.epsilon and claim.curve.mu is None
    assert epsilon_of(steps.noise_multiplier, 0.2, steps.total, 1e-6) <= claim.epsilon
    assert [payment.share for payment in claim.payments] == pytest.approx([1 / 2] * 2)
    # The finished run goes on unpaid.
    FedAvg(**WORDS, protocol="plain", privacy=taken, run_dir=tmp_path / "run").resume(X, y)
    assert len(budget.log()) == 1
    # A given noise pays what it comes to, or is refused with what is left.
    given = {**WORDS, "noise_multiplier": 8.0}
    FedAvg(**given, protocol="plain", privacy=budget.take(0.2, noise="local")).fit(X, y)
    assert budget.log()[1].share < 0.1
    rest = budget.take(budget.remaining().share, noise="local", reserve=False)
    with pytest.raises(BudgetError):
        FedAvg(**WORDS, noise_multiplier=0.6, protocol="plain", privacy=rest).fit(X, y)
    assert len(budget.log()) == 2


def test_a_budget_for_gaussian_noise_alone_trains_nobody(tmp_path: Path) -> None:
    X, y = clients(2, rows=100)
    taken = PrivacyBudget(**WHOLE, path=tmp_path / "b.db", domain=Box(0, 1)).take(0.5, noise="local")
    with pytest.raises(PrivacyError, match="order="):
        FedAvg(**WORDS, protocol="plain", privacy=taken).fit(X, y)
