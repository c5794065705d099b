"""One payment is for one run: older copies release nothing more, nor is paid what cannot be asked."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import (
    FKM,
    KFED,
    Box,
    ClientPolicy,
    DPKMeans,
)
from privfed.core.record.records import LOCAL
from privfed.errors import ArgumentError, BudgetError, PrivacyError, RefusedError
from privfed.privacy.budget_file import enter, left_in, opened, recording
from privfed.privacy.noised import Noised
from tests.privacy.test_budget import budget_in, clients, fit


def test_an_older_copy_of_a_run_releases_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put a copy of its folder back had rounds answered again, with other noise, for one payment."""
    budget, folder, answered = budget_in(tmp_path), tmp_path / "run", []
    honest = Noised.answer_all

    def copying(question: Noised, *arguments: Any) -> Any:
        answered.append(question)
        if len(answered) == 3:
            shutil.copytree(folder, tmp_path / "copy")
        return honest(question, *arguments)

    monkeypatch.setattr(Noised, "answer_all", copying)
    fit(budget.take(0.5, spare=0.4), run_dir=folder)
    before = len(answered)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    again = budget.take(0.5, spare=0.4, reserve=False)
    for _ in range(before):
        # However often it is tried: a refused question is not in the record.
        with pytest.raises(BudgetError, match="it is an older copy"):
            DPKMeans(2, protocol="plain", privacy=again, run_dir=folder).resume(clients())
    assert len(answered) == before > 3


@pytest.mark.parametrize("kept", [True, False])
def test_one_payment_asks_no_client_twice_where_each_clusters_its_own_rows(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first client's run was paid; whoever took away another's folder had it answered again, unpaid."""
    budget, own, answered = budget_in(tmp_path), tmp_path / "run" / LOCAL / "1", []
    honest = Noised.answer_all

    def copying(question: Noised, *arguments: Any) -> Any:
        answered.append(question)
        if own.exists() and not (tmp_path / "copy").exists():
            shutil.copytree(own, tmp_path / "copy")
        return honest(question, *arguments)

    def model(reserve: bool = True) -> KFED:
        privacy = budget.take(0.5, reserve=reserve)
        return KFED(2, protocol="plain", privacy=privacy, run_dir=tmp_path / "run")

    monkeypatch.setattr(Noised, "answer_all", copying)
    model().fit(clients())
    before = len(answered)
    shutil.rmtree(own)
    if kept:
        shutil.copytree(tmp_path / "copy", own)
    for _ in range(before):
        with pytest.raises(BudgetError, match="it is an older copy"):
            model(reserve=False).resume(clients())
    assert len(answered) == before and len(budget.log()) == 1
    # The whole again is another payment, also where the first client's run alone is begun anew.
    shutil.rmtree(tmp_path / "run" / LOCAL)
    model(reserve=False).resume(clients())
    assert len(answered) > before and budget.remaining().share == 0.0


@pytest.mark.parametrize(
    "kind, words",
    [
        (KFED, {"max_iter": 0}),
        (KFED, {"clients_per_round": 99}),
        (KFED, {"protocol": "ckks", "cohorts": [[0]]}),
        (KFED, {"domain": Box(-1, 1)}),
        (FKM, {"init": "kfed"}),
    ],
)
def test_a_fit_over_own_centers_that_cannot_be_is_refused_before_it_is_paid(
    tmp_path: Path, kind: type[KFED | FKM], words: dict[str, Any]
) -> None:
    budget = budget_in(tmp_path)
    model = kind(2, privacy=budget.take(0.5, reserve=False), **{"protocol": "plain"} | words)
    with pytest.raises((ArgumentError, PrivacyError)):
        model.fit(clients())
    assert not budget.log()


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"min_clients": 50}, "policy:min_clients"),
        ({"max_sums": 2}, "policy:max_sums"),
        ({"domain": Box(-2, 2)}, "policy:ranges"),
        ({"max_epsilon": 1e-4, "max_delta": 1e-9}, "policy:max_epsilon"),
    ],
)
def test_a_fit_that_clients_policy_forbids_is_refused_before_it_is_paid(
    limits: dict[str, Any], code: str, tmp_path: Path
) -> None:
    budget = budget_in(tmp_path)
    model = DPKMeans(2, privacy=budget.take(0.5, reserve=False), policy=ClientPolicy(**limits))
    with pytest.raises(RefusedError, match="nothing was paid") as refused:
        model.fit(clients())
    assert set(refused.value.codes.values()) == {code}
    assert not budget.log()


def test_an_older_copy_of_a_budget_does_not_go_on_with_a_run_that_it_did_not_pay(tmp_path: Path) -> None:
    budget, copy_of_it = budget_in(tmp_path), tmp_path / "copy.db"
    fit(budget.take(0.1))
    shutil.copy(budget.path, copy_of_it)
    first = fit(budget.take(0.2), run_dir=tmp_path / "run")
    shutil.copy(budget.path, tmp_path / "newer.db")
    shutil.copy(copy_of_it, budget.path)
    again = DPKMeans(2, protocol="plain", run_dir=tmp_path / "run")
    for _ in range(2):
        # Also where another run has meanwhile taken the number of the payment.
        with pytest.raises(BudgetError, match=r"lacks payment 2, .* it is an older copy"):
            again.set_params(privacy=budget.take(0.2, reserve=False)).resume(clients())
        fit(budget.take(0.2))
    shutil.copy(tmp_path / "newer.db", budget.path)
    again.resume(clients())
    np.testing.assert_array_equal(again.cluster_centers_, first.cluster_centers_)
    assert [one.share for one in budget.log()] == [0.1, 0.2]
    # Another budget is none of its copies: who goes on with that pays there.
    (tmp_path / "other").mkdir()
    other = budget_in(tmp_path / "other")
    again.set_params(privacy=other.take(0.2, reserve=False)).resume(clients())
    assert [one.share for one in other.log()] == [0.2]


def test_a_record_that_lacks_one_question_alone_is_an_older_copy(tmp_path: Path) -> None:
    path = budget_in(tmp_path).path
    for asked in (1, 2):
        with recording(path, "run", asked):
            pass
    with pytest.raises(BudgetError, match="has 1 questions, and 2 were sent"), recording(path, "run", 2):
        pass
    with recording(path, "another run", 1), recording(path, "run", 3):
        pass


def test_of_two_copies_that_record_the_same_question_at_once_one_sends_it(tmp_path: Path) -> None:
    path = budget_in(tmp_path).path
    sent = list[str]()
    with pytest.raises(BudgetError, match="it is an older copy"):
        with recording(path, "run", 1):
            with recording(path, "run", 1):
                pass
            sent.append("the copy's")
        sent.append("this one's")
    assert sent == ["the copy's"]


def test_who_draws_while_another_does_waits_for_what_is_left(tmp_path: Path) -> None:
    budget, begun = budget_in(tmp_path), threading.Event()

    def draw() -> None:
        begun.set()
        budget.take(0.6)

    with ThreadPoolExecutor(1) as pool:
        with opened(budget.path) as database:
            assert left_in(database) == 1.0
            other = pool.submit(draw)
            begun.wait()
            # It has begun; where nothing holds it up it would have read what is left by now.
            assert not wait([other], 0.3).done
            enter(database, 0.6, "the first", "", None)
        with pytest.raises(BudgetError, match=r"0\.4 is left"):
            other.result()
    assert [one.purpose for one in budget.log()] == ["the first"]
