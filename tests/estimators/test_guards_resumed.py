"""What a client's guard counts is remembered beyond a crash: who resumes a run gets no second helping."""

from pathlib import Path

import numpy as np
import pytest

from privfed import Box, ClientPolicy, DWFKMeans
from privfed.core.asking.question import Question
from privfed.errors import RefusedError
from privfed.federation.clients import gather
from privfed.questions.lloyd import LloydSums

ROWS = [np.random.default_rng(seed).uniform(-1, 1, (40, 2)) for seed in range(3)]
START = np.array([[-0.5, 0.0], [0.5, 0.0]])


class Stopped(Exception):
    """Stands for a crash."""


def model(folder: Path, policy: ClientPolicy) -> DWFKMeans:
    return DWFKMeans(
        2,
        init=START,
        local_iter=1,
        max_iter=20,
        tol=0,
        protocol="plain",
        domain=Box(-1, 1, max_rows=100),
        policy=policy,
        run_dir=folder,
    )


def stopping(*after: int):  # type: ignore[no-untyped-def]
    """Return a watcher that ends the run after so many sums."""

    def watch(index: int, *_: object) -> None:
        if index in after:
            raise Stopped

    return watch


def answered(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """Note each question that a client looks at its rows for."""
    asked: list[Question] = []
    known = LloydSums.answer_all

    def answer_all(self, clients, generators):  # type: ignore[no-untyped-def]
        asked.extend([self] * len(clients))
        return known(self, clients, generators)

    monkeypatch.setattr(LloydSums, "answer_all", answer_all)
    return asked


def test_caps_of_answers_hold_over_all_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answered(monkeypatch)
    policy = ClientPolicy(max_answers=8)
    with pytest.raises(Stopped):
        model(tmp_path, policy).fit_clients(gather(ROWS), watch=stopping(4))
    for _ in range(3):
        with pytest.raises(RefusedError, match="policy:max_answers"):
            model(tmp_path, policy).resume(ROWS)
    assert len(asked) <= 8 * len(ROWS)


def test_a_run_within_its_cap_is_resumed_to_the_same_centers(tmp_path: Path) -> None:
    policy = ClientPolicy(max_answers=40, max_jumps=0, probing_guard=True)
    with pytest.raises(Stopped):
        model(tmp_path / "a", policy).fit_clients(gather(ROWS), watch=stopping(4))
    resumed = model(tmp_path / "a", policy).resume(ROWS)
    whole = model(tmp_path / "b", policy).fit(ROWS)
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
