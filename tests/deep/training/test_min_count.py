"""Minimum counts over trained models: what few rows of a round would move is answered as nothing."""

from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy
from privfed.core.asking.question import question_from_bytes
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.training.rounds import Round
from tests.deep.population import clients

WORDS: dict[str, Any] = {
    **{"n_classes": 3, "rounds": 4, "epochs": 1, "batch_size": 8, "learning_rate": 0.5},
    **{"domain": Box(0, 20), "timed": True, "protocol": "plain"},
}


def timed() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return clients of 40 rows; of the first, three are there in rounds 2 and 3, and the others before."""
    X, y = clients(6)
    times = [np.tile([0.0, 20.0], (40, 1)) for _ in X]
    times[0][:3, 0] = 2.0
    times[0][3:, 1] = 2.0
    return [np.hstack(pair) for pair in zip(X, times, strict=True)], y


@pytest.mark.parametrize(
    "model",
    [
        FedAvg(**WORDS),
        FedAvg(**WORDS, weighting="rows"),
        IFCA(n_clusters=2, **WORDS),
        CFL(**WORDS, merge="gathered"),
        DCFL(**WORDS, merge="gathered"),
    ],
    ids=lambda one: f"{type(one).__name__}-{one.weighting}",
)
@pytest.mark.parametrize("least", [1, 10])
def test_an_update_by_few_rows_does_not_leave_the_client(model: Any, least: int) -> None:
    fitted = model.set_params(policy=ClientPolicy(min_count=least)).fit(*timed())
    seen = []
    for asked, total in fitted.transcript_.totals():
        question = question_from_bytes(asked.question)
        inner = getattr(question, "inner", question)
        if isinstance(inner, Round) and inner.training.round >= 2:
            assert total.contributions is not None
            seen.append(any(values.any() for values in total.contributions[0].values()))
    assert seen and all(shown == (least == 1) for shown in seen)
