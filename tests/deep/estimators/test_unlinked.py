"""What a client and the server learn of each other, where sketches come in slots."""

import numpy as np

from privfed.core.asking.question import question_from_bytes
from privfed.core.values.domain import Box
from privfed.deep import DCFL
from privfed.deep.clustering.sketch import TAG_SIZE
from privfed.deep.training.rounds import Round
from privfed.questions.slots import Slots
from tests.deep.population import clients


def test_the_server_holds_no_update_by_name_and_no_update_at_all_outside_slots() -> None:
    X, y = clients(6)
    fitted = DCFL(n_classes=3, rounds=3, learning_rate=0.5, domain=Box(0, 1), sketch_error=0.9).fit(X, y)
    view = fitted.transcript_.view("server")
    assert [len(one.answers) for one in view.sums] == [0] * len(view.sums)
    n_parameters = fitted.models_.shape[1]
    slotted = [one.question for one in view.sums if isinstance(one.question, Slots)]
    sizes = [question.inner.spec.size for question in slotted if isinstance(question.inner, Round)]
    assert len(sizes) == 3 and all(size <= n_parameters + 6 for size in sizes)


def test_questions_name_no_client() -> None:
    """Every client is sent the same: the models and tags, and nobody's update, position or name."""
    X, y = clients(6)
    X = [np.hstack([rows, rows**2]) for rows in X]
    fitted = DCFL(n_classes=3, rounds=4, learning_rate=0.5, domain=Box(0, 1)).fit(X, y)
    sent = [question_from_bytes(asked.question) for asked, _ in fitted.transcript_.totals()]
    inner = [question.inner if isinstance(question, Slots) else question for question in sent]
    rounds = [one for one in inner if isinstance(one, Round)]
    landmarks = [one.before.landmarks for one in rounds]
    assert max(len(rows) for rows in landmarks) == 6
    assert fitted.models_.shape[1] > TAG_SIZE == max(rows.shape[1] for rows in landmarks)
    assert all(not len(question.before.models) for question in rounds)
    assert all(np.isfinite(rows).all() for rows in landmarks)
