"""Whose each recorded contribution is, where noise moved what all clients answer alike."""

import numpy as np

from privfed.attacks.base.results import Truth
from privfed.attacks.cohorts.linkage import Unlinked, _owners
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from tests.core.question_examples import EXAMPLES


def test_an_entry_that_all_answer_alike_tells_no_owner() -> None:
    """Noise over a spread of nothing was infinite, and no matching was found."""
    rng, ranges = np.random.default_rng(0), Ranges([-1.0] * 2, [1.0] * 2, 40)
    question = EXAMPLES["RelativeSums"](ranges, np.zeros((1, 2)))
    clients = [rng.uniform(-1.0, 1.0, (20, 2)) * [1.0, 0.0] for _ in range(4)]
    data = [ClientData(rows) for rows in clients]
    exact = question.answer_all(data, [rng] * 4)
    order = [2, 0, 3, 1]
    noised = [question.spec.flatten(exact[i]) + 1e-3 * rng.standard_normal(question.spec.size) for i in order]
    answers = [question.spec.unflatten(one) for one in noised]
    assert _owners(Unlinked(question, answers), Truth(clients)).tolist() == order
