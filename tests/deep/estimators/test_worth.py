"""Whether clusters are worth it, by rows that clients hold out."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Privacy, load
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, FedAvg
from privfed.deep.training.held_out import WAYS, Comparison, HeldOut
from privfed.errors import ArgumentError, PrivacyError
from tests.core.question_examples import EXAMPLES
from tests.deep.population import accuracy, clients, kinds, same

WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 9,
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.5,
    "domain": Box(0, 1),
}
GATHERED: dict[str, Any] = {**WORDS, "protocol": "plain", "merge": "gathered"}
UNTIL = 6
LOSING = pytest.mark.filterwarnings("ignore:.*models got right")
"""On few rows, what clusters are worth is chance."""

NEVER: dict[str, Any] = {"split_mean_norm": 9.0, "split_max_norm": 0.0, "split_after": 0}


def alike(n: int = 9, rows: int = 25) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Clients of one kind, and labels of much noise."""
    X, y = clients(n, rows)
    rng = np.random.default_rng(1)
    return X, [
        np.where(rng.random(rows) < 0.3, rng.integers(3, size=rows), own - i) % 3 for i, own in enumerate(y)
    ]


def test_clusters_that_are_worth_it_stay_and_figures_are_those_outside_of_the_fit() -> None:
    X, y = clients()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = DCFL(**GATHERED, fine_tune=2).fit(X, y)
    assert same(fitted.labels_, kinds()) and fitted.comparison_.best[0] == "cluster"
    training, rng = fitted._training_.at(UNTIL), np.random.default_rng(0)
    own, alone = np.zeros((9, 3)), np.zeros(9)
    for i, data in enumerate(map(ClientData, X, y)):
        rows, labels = training.rows_of(data, held=True)
        assert len(rows) == 8
        model = fitted.history_[UNTIL][fitted.labels_history_[UNTIL - 1, i]]
        for passes in range(3):
            tuned = training.tuned(data, model, rng, [UNTIL] * passes)
            own[i, passes] = (fitted.classify(tuned, rows) == labels).mean()
        model = training.tuned(data, fitted.history_[0][0], rng, range(1, UNTIL + 1))
        alone[i] = (fitted.classify(model, rows) == labels).mean()
    found = fitted.comparison_.accuracy
    assert np.allclose(found[0], own.mean(axis=0)) and np.allclose(found[2], alone.mean())
    # One model beside the clusters is FedAvg where clients were clustered after the first round.
    one = FedAvg(**{**WORDS, "rounds": UNTIL}, protocol="plain", weighting="clients")
    ends = one.fit(
        [training.rows_of(ClientData(*two))[0] for two in zip(X, y, strict=True)],
        [training.rows_of(ClientData(*two))[1] for two in zip(X, y, strict=True)],
    )
    assert abs(found[1, 0] - 1 / 3) < 0.25 > abs(accuracy(ends, X, y) - 1 / 3)


def test_clusters_of_alike_clients_give_way_to_one_model_which_all_clients_have() -> None:
    X, y = alike()
    words = {"preference_quantile": 0.9}
    model = DCFL(**GATHERED, **words)
    with pytest.warns(UserWarning, match="not worth it"):
        model.fit(X, y)
    assert max(len(models) for models in model.history_) > 1 == len(model.models_)
    assert model.labels_.tolist() == [0] * 9 and model.comparison_.best[0] != "cluster"
    assert len(model.history_[UNTIL]) == 1 and model.regrouped_[UNTIL - 1].n_clusters == 1
    sizes = [len(models) for models in model.history_[1:]]
    assert (model.labels_history_.max(axis=1) < sizes).all() and model.labels_history_.min() >= 0
    kept = DCFL(**GATHERED, **words, compare=False).fit(X, y)
    assert len(kept.models_) > 1 and kept.comparison_ is None


@LOSING
def test_held_out_rows_choose_the_splits_of_cfl_where_its_thresholds_split_nothing() -> None:
    X, y = clients()
    words = {**GATHERED, "split_after": 20}
    fitted, published = CFL(**words).fit(X, y), CFL(**words, compare=False).fit(X, y)
    assert len(published.models_) == 1 and same(fitted.labels_, kinds())
    assert accuracy(fitted, X, y) > accuracy(published, X, y) + 0.1
    X, y = alike()
    assert len(CFL(**GATHERED, **NEVER, compare=False).fit(X, y).models_) > 1
    assert len(CFL(**GATHERED, **NEVER).fit(X, y).models_) == 1


@pytest.mark.parametrize(
    ("cluster", "one", "alone", "best", "said"),
    [
        ([0.90, 0.88], [0.60, 0.79], 0.75, ("cluster", 0), False),
        ([0.90, 0.91], [0.60, 0.79], 0.75, ("cluster", 0), False),
        ([0.80, 0.83], [0.60, 0.79], 0.75, ("cluster", 1), False),
        ([0.85, 0.85], [0.89, 0.88], 0.80, ("one model", 1), True),
        ([0.85, 0.85], [0.89, 0.86], 0.80, ("one model", 0), True),
        ([0.80, 0.88], [0.75, 0.88], 0.75, ("one model", 1), True),
        ([0.80, 0.88], [0.60, 0.88], 0.75, ("cluster", 1), False),
        ([0.88, 0.88], [0.60, 0.87], 0.75, ("cluster", 0), False),
        ([0.80, 0.81], [0.80, 0.81], 0.75, ("one model", 1), False),
        ([0.80, 0.83], [0.80, 0.83], 0.75, ("one model", 1), False),
        ([0.56, 0.57], [0.55, 0.57], 0.60, ("alone", 0), True),
    ],
)
def test_the_way_to_take_is_what_does_best_beyond_chance(
    cluster: list[float], one: list[float], alone: float, best: tuple[str, int], said: bool
) -> None:
    found = Comparison(np.array([cluster, one, [alone, alone]]))
    assert found.best == best and found.one_is_better == (best[0] != "cluster")
    assert found.loses == said


@LOSING
def test_in_slots_it_is_the_same_comparison_and_every_question_keeps_to_the_program() -> None:
    X, y = clients(6)
    clear, hidden = DCFL(**GATHERED).fit(X, y), DCFL(**WORDS).fit(X, y)
    assert np.allclose(clear.comparison_.accuracy, hidden.comparison_.accuracy, atol=1e-6)
    assert all(total.contributions is None for _, total in hidden.transcript_.totals())
    sketched = DCFL(**WORDS, sketch_error=0.9).fit(X, y)
    assert set(sketched.comparison_.summary) == {*WAYS, "cluster, fine-tuned", "one model, fine-tuned"}


def test_a_clients_own_model_is_the_best_way_and_is_the_same_after_loading(tmp_path: Path) -> None:
    X, y = alike(6)
    fitted = DCFL(**GATHERED).fit(X, y)
    fitted.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.comparison_.best == fitted.comparison_.best
    assert np.array_equal(again.tuned(X[0], y[0], 0), fitted.tuned(X[0], y[0], 0))
    one = FedAvg(**WORDS, protocol="plain", fine_tune=3).fit(X, y)
    numbers = [WORDS["rounds"]] * 3
    outside = one._training_.tuned(ClientData(X[0], y[0]), one.models_[0], np.random.default_rng(0), numbers)
    assert np.allclose(one.tuned(X[0], y[0]), outside)
    assert np.array_equal(FedAvg(**WORDS, protocol="plain").fit(X, y).tuned(X[0], y[0]), one.models_[0])


@LOSING
def test_fewer_than_six_rounds_and_private_fits_do_not_compare() -> None:
    X, y = clients(6)
    assert DCFL(**{**GATHERED, "rounds": 5}).fit(X, y).comparison_ is None
    assert DCFL(**{**GATHERED, "rounds": 3}, compare=True).fit(X, y).comparison_ is not None
    privacy = Privacy(epsilon=2.0, delta=1e-6, unit="client", domain=Box(0, 1), neighbours="add-remove")
    with pytest.raises(PrivacyError, match="compare=True"):
        DCFL(**{**WORDS, "domain": None}, privacy=privacy, compare=True).fit(X, y)


def test_clients_without_held_rows_are_not_counted_and_few_rows_will_do() -> None:
    X, y = clients(6, rows=12)
    X[0], y[0] = X[0][:3], y[0][:3]
    y[1] = np.zeros_like(y[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = DCFL(**GATHERED).fit(X, y)
    held = [asked for asked, _ in fitted.transcript_.totals() if b"HeldOut" in asked.question]
    assert held and np.isfinite(fitted.comparison_.accuracy).all()
    assert ((fitted.comparison_.accuracy >= 0) & (fitted.comparison_.accuracy <= 1)).all()


def test_models_to_compare_have_the_clusters_parameters() -> None:
    from privfed.core.values.domain import Ranges

    made = EXAMPLES["HeldOut"](Ranges(np.zeros(4), np.ones(4), 8), np.zeros((2, 4)))
    assert isinstance(made, HeldOut)
    with pytest.raises(ArgumentError, match="as many parameters"):
        HeldOut(ranges=made.ranges, training=made.training, models=made.models, one=np.zeros((1, 2)))


@LOSING
def test_what_a_fit_says_of_bad_input() -> None:
    """Two rows a client; training that diverges; a client that never returns; one that has one class."""
    X, y = clients(6)
    with pytest.warns(UserWarning, match="not compared"):
        few = DCFL(**GATHERED).fit([own[:2] for own in X], [own[:2] for own in y])
    assert few.comparison_ is None and np.isfinite(few.models_).all()
    with pytest.warns(UserWarning, match="of 6 clients were clipped"):
        FedAvg(**{**WORDS, "learning_rate": 1e6}, protocol="plain").fit(X, y)
    cohorts = [list(range(6))] + [list(range(5))] * 8
    with pytest.warns(UserWarning, match="1 of 6 clients are in no cluster"):
        away = DCFL(**GATHERED, compare=False, cohorts=cohorts).fit(X, y)
    assert away.labels_[5] == -1 and (away.labels_[:5] >= 0).all()
    alike_y = [np.zeros_like(y[0]), *y[1:]]
    model = DCFL(**GATHERED).fit(X, alike_y)
    assert (model.predict(X[0], int(model.labels_[0])) == 0).mean() > 0.5
    with pytest.raises(ArgumentError):
        DCFL(**WORDS).fit(X[:1], y[:1])


def test_models_that_no_round_moves_are_said() -> None:
    torch = pytest.importorskip("torch")
    X, y = clients(4)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    words = {**WORDS, "learning_rate": 1e30, "rounds": 2}
    with pytest.warns(UserWarning, match="moved no model"):
        FedAvg(**words, model=module, protocol="plain").fit(X, y)
