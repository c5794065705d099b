"""A budget over many releases: what they come to, who may choose when, and what a crash leaves."""

import copy
import itertools
import math
import os
import shutil
import signal
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import (
    KFED,
    Box,
    DPKMeans,
    FederatedImputer,
    FederatedScaler,
    Privacy,
    PrivacyBudget,
    metrics,
    select_n_clusters,
)
from privfed.core.agreed.policy import Claim
from privfed.core.values.guarantee import Mechanism, SampledSteps
from privfed.errors import ArgumentError, BudgetError, PrivacyError, StateError
from privfed.privacy.accounting import budget_of, gdp_epsilon
from privfed.privacy.filters import sampled_divergence
from privfed.privacy.ledger import composed_epsilon
from tests.default_run import slow
from tests.party.killing import KILLED, SURVIVED, killed_at
from tests.raised import parameter_refused

BOX = Box(-1.0, 1.0, max_rows=400)
CENTERS = np.array([[-0.5, 0.5], [0.5, -0.5]])


def budget_in(folder: Path, epsilon: float = 1.0, **options: Any) -> PrivacyBudget:
    return PrivacyBudget(epsilon, 1e-6, "record", "add-remove", folder / "budget.db", domain=BOX, **options)


def clients() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [CENTERS[rng.integers(2, size=60)] + 0.1 * rng.standard_normal((60, 2)) for _ in range(3)]


def fit(privacy: Privacy, **options: Any) -> DPKMeans:
    return DPKMeans(2, protocol="plain", privacy=privacy, **options).fit(clients())


def claim_of(privacy: Privacy) -> Claim:
    return Claim(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        unit="record",
        neighbours="add-remove",
        mechanism="gaussian",
    )


@pytest.mark.parametrize("share", [1e-4, 0.01, 0.3, 1 / 3, 0.999, 1.0])
def test_a_claim_spends_no_more_than_was_paid_and_hardly_less(share: float, tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    taken, paid = budget.take(share, reserve=False), share * budget.mu_squared
    assert (1 - 1e-9) * paid < budget_of(Mechanism.GAUSSIAN, taken.epsilon, taken.delta) <= paid


def test_a_process_that_moves_to_another_folder_draws_from_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", "b.db", domain=BOX)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    budget.take(0.3)
    assert budget.remaining().share == pytest.approx(0.7) and not list(Path().iterdir())


def test_a_year_of_releases_spends_what_one_release_would(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    taken = [budget.take(0.01) for _ in range(100)]
    assert budget.remaining().share == 0.0
    with pytest.raises(BudgetError, match=r"0\.01 of the budget .* 0 is left"):
        budget.take(0.01)
    # The parties' journals, which add claims up by themselves, come to the same figure.
    together = composed_epsilon([claim_of(one) for one in taken], 1e-6)
    assert 0.99 < together <= 1.0
    # Basic composition of the same claims would have been many times as much.
    assert sum(one.epsilon for one in taken) > 4.0


def test_all_that_takes_privacy_pays_before_it_asks(tmp_path: Path) -> None:
    budget, rows = budget_in(tmp_path, epsilon=4.0), clients()
    model = fit(budget.take(0.3, purpose="the clusters"))
    FederatedScaler(privacy=budget.take(0.1), protocol="plain").fit(rows)
    index = metrics.davies_bouldin
    index(rows, model.cluster_centers_, privacy=budget.take(0.1), protocol="plain")
    chosen = DPKMeans(2, privacy=budget.take(0.2), protocol="plain")
    select_n_clusters(rows, estimator=chosen, range=(2, 3))
    paid = budget.log()
    assert [one.share for one in paid] == [0.3, 0.1, 0.1, 0.2] and all(one.used for one in paid)
    purposes = [one.purpose for one in paid]
    assert purposes == ["the clusters", "FederatedScaler", "metrics", "DPKMeans"]
    assert "epsilon 2." in paid[0].claim and paid[0].date.endswith("+00:00")
    left = budget.remaining()
    assert left.share == pytest.approx(0.3) and left.mu_squared == pytest.approx(0.3 * budget.mu_squared)
    assert left.epsilon == gdp_epsilon(math.sqrt(left.mu_squared), 1e-6) and "0.3 of the budget" in str(left)
    # What the fit's own ledger may spend is no more than was paid.
    assert model.federation_.configuration.privacy.budget <= 0.3 * budget.mu_squared


def test_who_uses_a_privacy_twice_pays_twice(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    taken = budget.take(0.4)
    fit(taken)
    fit(copy.deepcopy(taken))
    assert [one.share for one in budget.log()] == [0.4, 0.4]
    with pytest.raises(BudgetError, match=r"0\.4 of the budget in budget\.db was asked for, 0\.2 is left"):
        fit(taken)
    assert len(budget.log()) == 2


def test_a_folder_that_cannot_be_written_to_costs_nothing(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    # A folder in the way of the payment's file, as a folder without the right to write: root has it in any.
    (tmp_path / "r" / ".new-payment").mkdir(parents=True)
    with pytest.raises(OSError, match=r"\.new-payment"):
        fit(budget.take(1.0, reserve=False), run_dir=tmp_path / "r")
    assert budget.log() == []


def test_what_is_not_reserved_is_paid_when_a_run_begins(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    later = budget.take(1.0, reserve=False)
    assert budget.log() == []
    with pytest.raises(ArgumentError):
        DPKMeans(0, protocol="plain", privacy=later).fit(clients())
    assert budget.log() == []
    fit(later)
    assert budget.remaining().share == 0.0


@pytest.mark.parametrize("what", ["clients_per_cluster", "select_n_clusters"])
def test_what_no_claim_covers_is_refused_before_it_is_paid(what: str, tmp_path: Path) -> None:
    budget = PrivacyBudget(1.0, 1e-6, "client", "add-remove", tmp_path / "b", domain=BOX)
    later = budget.take(0.5, reserve=False)
    with pytest.raises(PrivacyError, match=r'no proven bound|at unit "record" only'):
        if what == "select_n_clusters":
            chosen = DPKMeans(2, privacy=later, protocol="plain")
            select_n_clusters(clients(), estimator=chosen, range=(2, 3))
        else:
            getattr(metrics, what)(clients(), CENTERS, privacy=later, protocol="plain")
    assert budget.log() == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("accuracy", {"n_labels": 0, "labels": [np.zeros(60, dtype=np.int64)] * 3}),
        ("accuracy", {"n_labels": 2}),
        ("fuzzy_davies_bouldin", {"m": 1.0}),
        ("fuzzy_davies_bouldin", {"q": 65.0}),
        ("davies_bouldin", {"centers": CENTERS * 1e100}),
        ("inertia", {"centers": CENTERS * np.nan}),
        ("mean_distance", {"centers": np.zeros((2, 3))}),
        ("simplified_silhouette", {"centers": CENTERS[:1]}),
    ],
)
def test_a_metric_that_cannot_be_asked_is_refused_before_it_is_paid(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    budget = budget_in(tmp_path)
    later, asked = budget.take(0.5, reserve=False), {"centers": CENTERS, **options}
    for ask in (getattr(metrics, name), partial(metrics.with_interval, name)):
        with pytest.raises(ArgumentError):
            ask(clients(), privacy=later, protocol="plain", **asked)
    assert budget.log() == []


def test_a_resumed_run_is_paid_once(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    taken = budget.take(0.5)
    first = fit(taken, run_dir=tmp_path / "run")
    again = DPKMeans(2, protocol="plain", privacy=taken, run_dir=tmp_path / "run").resume(clients())
    np.testing.assert_array_equal(again.cluster_centers_, first.cluster_centers_)
    assert len(budget.log()) == 1
    # Another run in the same folder is paid; who has no `Privacy` any more goes on with that of the share.
    shutil.rmtree(tmp_path / "run")
    fit(taken, run_dir=tmp_path / "run")
    assert budget.remaining().share == 0.0
    later = budget.take(0.5, reserve=False)
    DPKMeans(2, protocol="plain", privacy=later, run_dir=tmp_path / "run").resume(clients())
    assert len(budget.log()) == 2


@pytest.mark.parametrize("folder", ["run", "another"])
def test_a_run_without_a_budget_does_not_go_on_as_one_that_was_paid(tmp_path: Path, folder: str) -> None:
    """Not even in the folder of a run that was paid: that was another run."""
    taken = budget_in(tmp_path).take(0.6)
    fit(taken, run_dir=tmp_path / "run")
    paid, alone = (
        DPKMeans(2, protocol="plain", privacy=one) for one in (taken, replace(taken, paid_by=None))
    )
    with pytest.raises(PrivacyError, match="was begun on a budget"):
        alone.set_params(run_dir=tmp_path / "run").resume(clients())
    shutil.rmtree(tmp_path / "run")
    alone.set_params(run_dir=tmp_path / folder).fit(clients())
    with pytest.raises(BudgetError, match="is left"):
        paid.set_params(run_dir=tmp_path / folder).resume(clients())
    alone.resume(clients())
    assert len(budget_in(tmp_path).log()) == 1


@pytest.mark.parametrize(
    "changed", [{"unit": "client"}, {"neighbours": "replace-one"}, {"noise_seed": 1}, {"epsilon": 1.0}]
)
def test_what_was_not_taken_is_refused_unpaid(tmp_path: Path, changed: dict[str, Any]) -> None:
    budget = budget_in(tmp_path)
    taken = budget.take(0.1)
    with pytest.raises(PrivacyError):
        fit(replace(taken, **changed))
    assert [one.used for one in budget.log()] == [False]


def test_a_file_keeps_its_guarantee(tmp_path: Path) -> None:
    budget_in(tmp_path).take(0.25)
    assert budget_in(tmp_path).remaining().share == PrivacyBudget.of(tmp_path / "budget.db").remaining().share
    for other in ({"epsilon": 2.0}, {"order": 16}):
        with pytest.raises(PrivacyError, match=r"is a budget of epsilon=1,"):
            budget_in(tmp_path, **other)
    with pytest.raises(PrivacyError, match=r'unit="record", .* not of .* unit="client"'):
        PrivacyBudget(1.0, 1e-6, "client", "add-remove", tmp_path / "budget.db")
    (tmp_path / "broken.db").write_bytes(b"no database, but as long as one" * 40)
    for name in ("missing.db", "broken.db"):
        with pytest.raises(StateError, match=name):
            PrivacyBudget.of(tmp_path / name)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, math.nan, True, "half"])
def test_a_share_is_a_part_of_one(tmp_path: Path, share: Any) -> None:
    with parameter_refused("share"):
        budget_in(tmp_path).take(share)


def test_any_adaptive_order_of_shares_stays_within_the_budget(tmp_path: Path) -> None:
    """Whoever looks at what is left and asks for as much as possible never gets more than all."""
    rng = np.random.default_rng(3)
    for epsilon in (0.01, 1.0, 20.0):
        folder = tmp_path / str(epsilon)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            budget, taken = budget_in(folder, epsilon), []
            while (left := budget.remaining().share) > 0.0 and len(taken) < 12:
                share = left if len(taken) == 11 else min(left, float(rng.uniform(0.0, 0.5)) + 1e-3)
                taken.append(claim_of(budget.take(share)))
        assert budget.remaining().share == 0.0
        assert 0.99 * epsilon < composed_epsilon(taken, 1e-6) <= epsilon


def test_skellam_and_sampled_steps_need_a_renyi_filter(tmp_path: Path) -> None:
    budget = budget_in(tmp_path)
    with pytest.raises(PrivacyError, match=r"Skellam .*order="):
        budget.take(0.1, mechanism="skellam")
    steps = SampledSteps(noise_multiplier=1.0, sample_rate=0.05, max_grad_norm=1.0, steps=5, trainings=4)
    with pytest.raises(PrivacyError, match=r"DP-SGD .*order="):
        paid(budget.take(0.1, noise="local"), steps)
    (tmp_path / "renyi").mkdir()
    filtered = budget_in(tmp_path / "renyi", order=30)
    taken = filtered.take(0.1, noise="local")
    assert taken.paid_by is not None
    enough = msgspec.structs.replace(steps, noise_multiplier=taken.paid_by.noise(0.5, steps))
    paid(taken, enough)
    skellam = filtered.take(0.2, mechanism="skellam")
    first, second = filtered.log()
    # Of steps what they come to is paid, here just below what was reserved.
    assert first.share * filtered.mu_squared == pytest.approx(2.0 * sampled_divergence(enough, 30) / 30)
    assert 0.09 < first.share <= 0.1 and second.share == 0.2 and skellam.epsilon < 1.0
    # Steps with a noise of the user's own pay more, or are refused.
    with pytest.raises(BudgetError, match=r"is left"):
        paid(taken, steps)
    assert len(filtered.log()) == 2


def paid(taken: Privacy, steps: SampledSteps | None = None) -> None:
    assert taken.paid_by is not None
    taken.paid_by.pay(taken, steps, "what is asked")


def spent_by(path: Path, rows: list[np.ndarray]) -> bytes:
    """Take a share and release a count with it, as any fit does; return what was released."""
    budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", path, domain=BOX)
    paid(budget.take(0.35))
    return str(sum(map(len, rows))).encode()


@pytest.mark.parametrize("stride", [4, slow(1)])
def test_killed_before_any_statement_nothing_is_released_unpaid(tmp_path: Path, stride: int) -> None:
    codes, rows = [], clients()
    for step in itertools.count(0, stride):
        path = tmp_path / f"{step}.db"
        code, released = killed_at(step, partial(spent_by, path, rows))
        budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", path, domain=BOX)
        paid = budget.log()
        assert bool(released) <= (len(paid) == 1 and paid[0].used)
        assert [one.share for one in paid] in ([], [0.35])
        # The file goes on.
        assert budget.take(0.3).epsilon > 0.0
        codes.append(code)
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and stride * len(codes) > 15


def test_two_processes_never_take_more_than_there_is(tmp_path: Path) -> None:
    budget, children = budget_in(tmp_path), []
    for _ in range(3):
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(60)
            taken = 0
            try:
                for _ in range(10):
                    PrivacyBudget.of(budget.path).take(0.07, domain=BOX)
                    taken += 1
            except BudgetError:
                pass
            os._exit(taken)
    assert sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children) == 14
    assert len(budget.log()) == 14 and budget.remaining().share == pytest.approx(0.02)


def test_a_privacy_used_twice_without_a_budget_warns() -> None:
    alone = Privacy(epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=BOX)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "this Privacy")
        fit(alone)
        fit(replace(alone))
    with pytest.warns(UserWarning, match="this Privacy was used before"):
        fit(alone)


@pytest.mark.parametrize("kind", ["scaled", "imputed", "of each client"])
def test_a_claim_in_another_form_is_the_claim_that_was_passed(kind: str) -> None:
    """Over scaled rows a second table had the domain of the first; as each client's own nothing warned."""
    alone = Privacy(epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=BOX)

    def used(width: int) -> Any:
        rows = [np.random.default_rng(i).uniform(-1, 1, (40, width)) for i in range(3)]
        if kind == "imputed":
            return FederatedImputer(privacy=alone).fit(rows).statistics_
        words = {"protocol": "plain", "privacy": alone}
        model = KFED(2, **words) if kind == "of each client" else DPKMeans(2, scale="range", **words)
        return model.fit(rows).cluster_centers_[0]

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "this Privacy")
        assert len(used(2)) == 2
    with pytest.warns(UserWarning, match="this Privacy was used before"):
        assert len(used(3)) == 3
