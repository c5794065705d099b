from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from privfed import load
from privfed.core.values.domain import Ball, Box
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.training.trainer import SoftmaxRegression
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, DataError
from privfed.federation.simulation import Simulation
from privfed.protocols import Masked, Slotted
from tests.deep.population import accuracy, clients, kinds, same
from tests.raised import parameter_refused
from tests.reference import dcfl_reference as reference

WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 4,
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.5,
    "domain": Box(0, 1),
}
GATHERED: dict[str, Any] = {**WORDS, "protocol": "plain", "merge": "gathered"}
SPLITS: dict[str, Any] = {"split_mean_norm": 0.6, "split_max_norm": 0.5, "split_after": 1}


def test_one_round_of_fedavg_is_a_step_down_the_mean_gradient() -> None:
    X, y = clients(3)
    fitted = FedAvg(**{**WORDS, "rounds": 1, "epochs": 1, "batch_size": None}, protocol="plain").fit(X, y)
    gradient = SoftmaxRegression(4, 3).gradient(fitted.history_[0][0], np.concatenate(X), np.concatenate(y))
    assert np.allclose(fitted.models_[0], fitted.history_[0][0] - 0.5 * gradient)


def test_clients_count_alike_or_by_their_rows() -> None:
    X, y = clients(2)
    X[0], y[0] = X[0][:10], y[0][:10]
    words = {**WORDS, "rounds": 1, "epochs": 1, "batch_size": None, "protocol": "plain"}
    start = FedAvg(**words).fit(X, y).history_[0][0]
    model = SoftmaxRegression(4, 3)
    one, other = (start - 0.5 * model.gradient(start, *pair) for pair in zip(X, y, strict=True))
    alike = FedAvg(**words, weighting="clients").fit(X, y)
    assert np.allclose(alike.models_[0], (one + other) / 2)
    for by_rows in (FedAvg(**words), FedAvg(**words, weighting="rows")):
        assert np.allclose(by_rows.fit(X, y).models_[0], (10 * one + 40 * other) / 50)
    assert np.allclose(IFCA(**words, n_clusters=1).fit(X, y).models_[0], (one + other) / 2)


def test_a_masked_sum_gives_the_models_of_a_plain_one() -> None:
    X, y = clients(4)
    masked, plain = (FedAvg(**WORDS, protocol=one).fit(X, y) for one in ("masked", "plain"))
    assert np.allclose(masked.models_, plain.models_, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [IFCA(n_clusters=3, protocol="plain", **WORDS), CFL(**GATHERED, **SPLITS), DCFL(**GATHERED)],
    ids=lambda one: type(one).__name__,
)
def test_clustered_learning_finds_the_kinds_of_clients_and_gains_by_it(model: Any) -> None:
    X, y = clients()
    fitted = clone(model).set_params(rounds=8).fit(X, y)
    single = FedAvg(**{**WORDS, "rounds": 8}, protocol="plain").fit(X, y)
    of_one_kind = [len(set(kinds()[fitted.labels_ == one])) == 1 for one in set(fitted.labels_)]
    assert all(of_one_kind) and (type(fitted) is CFL or same(fitted.labels_, kinds()))
    assert accuracy(fitted, X, y) > accuracy(single, X, y) + 0.3


def test_dcfl_is_algorithm_1_client_by_client() -> None:
    """Newcomers in round 3, one that is away in rounds 3 and 4, all compared with a second evaluation."""
    X, y = clients(8, seed=3)
    cohorts = [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 5, 6, 7],
        list(range(8)),
    ]
    fitted = DCFL(**{**GATHERED, "rounds": 5}, cohorts=cohorts, preference_quantile=0.5).fit(X, y)
    data = fitted.federation_
    assert data.finished

    def update(client: int, model: np.ndarray, number: int) -> np.ndarray:
        from privfed.core.asking.question import ClientData

        training = fitted._training_.at(number)
        own = ClientData(X[client], y[client])
        return training.update(own, model, np.random.default_rng(0))

    expected = reference.algorithm_1(update, fitted.history_[0][0], cohorts)
    for number, own in enumerate(expected, start=1):
        for client, model in own.items():
            label = fitted.labels_history_[number - 1, client]
            assert np.allclose(fitted.history_[number][label], model), (number, client)


@pytest.mark.parametrize("weighting", ["clients", "rows"])
@pytest.mark.parametrize("kind", [CFL, DCFL], ids=lambda one: one.__name__)
def test_slotted_and_masked_it_is_the_same_run(kind: Any, weighting: str) -> None:
    X, y = clients(6)
    X[0], y[0] = X[0][:30], y[0][:30]
    words = {**(SPLITS if kind is CFL else {}), "weighting": weighting}
    clear, hidden = kind(**GATHERED, **words).fit(X, y), kind(**WORDS, **words).fit(X, y)
    assert same(clear.labels_, hidden.labels_) and len(clear.models_) == len(hidden.models_) > 1
    for one in range(6):
        own = clear.models_[clear.labels_[one]], hidden.models_[hidden.labels_[one]]
        assert np.allclose(*own, atol=1e-5)
    assert all(total.contributions is None for _, total in hidden.transcript_.totals())


def test_the_server_averages_whole_updates_in_slots_itself() -> None:
    fitted = DCFL(**WORDS).fit(*clients(6))
    purposes = [asked.purpose for asked, _ in fitted.transcript_.totals()]
    assert purposes == ["sketches"] * WORDS["rounds"] + ["sizes"]


def test_sketches_find_the_same_clusters() -> None:
    X, y = clients(6)
    sketched = DCFL(**WORDS, sketch_error=0.9).fit(X, y)
    assert same(sketched.labels_, kinds(6))
    question = next(asked for asked, _ in sketched.transcript_.totals() if asked.purpose == "sketches")
    assert len(question.question) > 0


def test_averages_tell_clients_of_the_last_clustering_so_that_no_sum_is_asked_for_that_alone() -> None:
    fitted = DCFL(**WORDS, decay=0.1).fit(*clients(6))
    purposes = [asked.purpose for asked, _ in fitted.transcript_.totals()]
    assert purposes == ["sketches", "round"] * WORDS["rounds"] and (fitted.labels_ >= 0).all()


def test_a_newcomer_takes_the_nearest_model_and_one_that_was_away_finds_its_own() -> None:
    X, y = clients(8)
    cohorts = [list(range(6)), list(range(6)), [0, 1, 2, 6], [3, 4, 5, 7], list(range(8))]
    fitted = DCFL(**{**GATHERED, "rounds": 5}, cohorts=cohorts).fit(X, y)
    assert same(fitted.labels_, kinds(8))
    assert fitted.labels_history_[0, 6] == -1 and fitted.labels_history_[2, 6] == fitted.labels_[0]


def test_clients_drawn_for_each_round_will_do() -> None:
    X, y = clients(9)
    fitted = DCFL(**{**GATHERED, "rounds": 8}, clients_per_round=6, random_state=1).fit(X, y)
    took_part = (fitted.labels_history_ >= 0).sum(axis=1)
    assert took_part.tolist() == [6] * 8
    present = fitted.labels_ >= 0
    assert same(fitted.labels_[present], kinds(9)[present])


def test_a_client_whose_rows_change_moves_to_another_cluster() -> None:
    X, y = clients(9)
    other, labels = clients(9, seed=5)
    always = np.tile([0.0, 20.0], (40, 1))
    timed = [np.hstack([rows, always]) for rows in X]
    before, after = np.tile([0.0, 4.0], (40, 1)), np.tile([4.0, 20.0], (40, 1))
    timed[0] = np.vstack([np.hstack([X[0], before]), np.hstack([other[1], after])])
    fitted = DCFL(**{**GATHERED, "rounds": 10}, timed=True).fit(
        timed, [np.concatenate([y[0], labels[1]]), *y[1:]]
    )
    assert same(fitted.labels_history_[2], kinds())
    assert same(fitted.labels_, np.array([1, 1, 2, 0, 1, 2, 0, 1, 2]))


def test_without_a_domain_the_ranges_are_found_by_a_sum() -> None:
    X, y = clients(4)
    fitted = FedAvg(**{**WORDS, "domain": None}, protocol="plain").fit(X, y)
    assert [asked.purpose for asked, _ in fitted.transcript_.totals()] == ["range", *["round"] * 4]


def test_a_client_that_is_lost_is_left_out_of_a_round_and_goes_on() -> None:
    X, y = clients(6)
    faults = [Fault(client=5, sums=frozenset({2}))]
    fitted = DCFL(**GATHERED, engine=Simulation(faults=faults)).fit(X, y)
    assert (fitted.labels_history_[:, 5] == -1).sum() == 1
    assert same(fitted.labels_, kinds(6))


@pytest.mark.parametrize("kind", [FedAvg, DCFL], ids=lambda one: one.__name__)
def test_a_run_that_is_resumed_is_the_run(kind: Any, tmp_path: Path) -> None:
    X, y = clients(6)
    protocol = "masked" if kind is FedAvg else Slotted(Masked(), sums=4)
    whole = kind(**WORDS, protocol=protocol).fit(X, y)

    def stop(index: int, ask: Any, total: Any) -> None:
        if index == 3:
            raise KeyboardInterrupt

    broken = kind(**WORDS, protocol=protocol, run_dir=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        broken.fit_clients(broken._gather(X, y, None), watch=stop)
    again = kind(**WORDS, protocol=protocol, run_dir=tmp_path / "run").resume(X, y)
    assert np.allclose(again.models_[again.labels_], whole.models_[whole.labels_], atol=1e-6)
    assert same(again.labels_, whole.labels_)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg(n_classes=1), "n_classes"),
        (lambda: FedAvg(model="resnet"), "model must be one of"),
        (lambda: FedAvg(loss=abs, **WORDS), "loss goes with a torch module"),
        (lambda: FedAvg(**{**WORDS, "rounds": 0}), "rounds"),
        (lambda: FedAvg(**WORDS, weighting="time"), "weighting"),
        (lambda: IFCA(**WORDS, n_clusters=0), "n_clusters"),
        (lambda: DCFL(**{**GATHERED, "protocol": "masked"}), "does not show them"),
        (lambda: DCFL(**WORDS, protocol=Masked()), "needs slots"),
        (lambda: DCFL(**WORDS, merge="summed"), "merge must be"),
        (lambda: DCFL(**WORDS, clients_per_round=4), "slots hide no names"),
        (lambda: CFL(**WORDS, cohorts=[[0, 1, 2, 3, 4]] * 4), "slots hide no names"),
        (lambda: DCFL(**GATHERED, metric="manhattan"), "metric must be"),
        (lambda: DCFL(**GATHERED, sketch_error=1.0), "sketch_error"),
        (lambda: DCFL(**GATHERED, damping=0.2), "damping"),
        (lambda: CFL(**GATHERED, linkage="ward"), "linkage"),
        (lambda: CFL(**GATHERED, gamma_max=1.5), "gamma_max must be"),
        (lambda: FedAvg(**{**WORDS, "domain": Ball(9.0)}, timed=True), "Box"),
    ],
)
def test_words_out_of_bounds_are_said(make: Any, message: str) -> None:
    X, y = clients(6)
    with pytest.raises(ArgumentError, match=message):
        make().fit(X, y)


def test_cfl_does_not_split_halves_that_are_nearer_than_gamma_max() -> None:
    X, y = clients(6)
    found = [len(CFL(**GATHERED, **SPLITS, gamma_max=one).fit(X, y).models_) for one in (0.0, 1.0)]
    assert found[0] > 1 == found[1]


def test_what_is_not_fitted_or_has_no_labels_is_said() -> None:
    X, y = clients(4)
    with pytest.raises(ArgumentError, match="pass y"):
        FedAvg(**WORDS).fit(X, None)
    with pytest.raises(Exception, match="not fitted"):
        FedAvg(**WORDS).predict(X[0])
    fitted = FedAvg(**WORDS, protocol="plain").fit(X, y)
    for cluster in (3, -1, 0.5, False):
        with parameter_refused("cluster"):
            fitted.predict(X[0], cluster=cluster)
    odd = [int((own > 1).sum()) for own in y]
    first = next(i for i, n in enumerate(odd) if n)
    with pytest.raises(
        DataError, match=f"client {first} has {odd[first]} rows whose labels are none of .* 0 to 1"
    ):
        FedAvg(**{**WORDS, "n_classes": 2}, protocol="plain").fit(X, y)


@pytest.mark.filterwarnings("ignore:.*in no cluster")
@pytest.mark.parametrize("metric", ["complete", "euclidean"])
def test_joining_after_a_fit_is_joining_in_its_next_round(metric: str) -> None:
    """From raw rows: who joins in round 4 of a run gets the cluster that `join` names after three rounds."""
    X, y = clients(12, seed=2)
    words = {**GATHERED, "batch_size": None, "metric": metric, "random_state": 0, "preference_quantile": 0.5}
    known = list(range(9))
    after = DCFL(**{**words, "rounds": 3}, cohorts=[known] * 3).fit(X, y)
    later = DCFL(**{**words, "rounds": 4}, cohorts=[known] * 3 + [list(range(12))]).fit(X, y)
    assert np.array_equal(after.models_, later.history_[3]) and not later.regrouped_[3].changed
    joined = [after.join(X[i], y[i]) for i in range(9, 12)]
    assert joined == later.labels_history_[3, 9:].tolist() and len(set(joined)) == 3


@pytest.mark.parametrize(
    "model",
    [
        FedAvg(**WORDS, protocol="plain"),
        IFCA(n_clusters=3, protocol="plain", **{**WORDS, "rounds": 8}),
        CFL(**{**GATHERED, "rounds": 8}, **SPLITS),
        DCFL(**WORDS, timed=True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_newcomer_joins_clients_of_its_kind_after_a_fit_and_after_loading(
    model: Any, tmp_path: Path
) -> None:
    X, y = clients()
    new, labels = clients(6, seed=9)
    always = np.tile([0.0, 100.0], (40, 1))
    fitted = model.fit([np.hstack([rows, always]) for rows in X] if model.timed else X, y)
    fitted.save(tmp_path / "model.npz")
    joined = [fitted.join(*pair) for pair in zip(new, labels, strict=True)]
    again = load(tmp_path / "model.npz")
    assert [again.join(*pair) for pair in zip(new, labels, strict=True)] == joined
    for i, own in enumerate(joined):
        assert own in fitted.labels_[kinds() == i % 3]


def test_who_joins_is_told_what_is_wrong_with_its_rows() -> None:
    X, y = clients(6)
    fitted = DCFL(**GATHERED).fit(X, y)
    with pytest.raises(DataError, match="newcomer has 40 rows whose labels are none"):
        fitted.join(X[0], y[0] + 3)
    with pytest.raises(DataError, match="outside the domain"):
        fitted.join(X[0] + 9.0, y[0])
    with pytest.raises(DataError, match="rows"):
        fitted.join(X[0][:0], y[0][:0])
    with pytest.raises(ArgumentError, match="of shape"):
        fitted.join(X[0][:, :3], y[0])
    with pytest.raises(Exception, match="not fitted"):
        DCFL(**GATHERED).join(X[0], y[0])


def rotated_digits(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Twenty clients, whose photos are turned by 0, 1, 2 and 3 quarters."""
    features, labels = load_digits(return_X_y=True)
    rng, X, y = np.random.default_rng(seed), [], []
    for i in range(20):
        own = rng.choice(len(labels), 60, replace=False)
        X.append(np.stack([np.rot90(row.reshape(8, 8), i % 4).ravel() for row in features[own] / 16]))
        y.append(labels[own])
    return X, y


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [11, 21, 30])
def test_ifca_loses_no_cluster_where_models_that_nobody_takes_are_put_beside_others(seed: int) -> None:
    X, y = rotated_digits(seed)
    words: dict[str, Any] = {
        "n_clusters": 4,
        "n_classes": 10,
        "rounds": 12,
        "epochs": 2,
        "learning_rate": 0.5,
    }
    words |= {"domain": Box(0, 1), "protocol": "plain", "random_state": seed}
    kept, divided = (IFCA(**words, empty=empty).fit(X, y).labels_ for empty in ("keep", "divide"))
    assert len(set(kept)) < len(set(divided)) == 4
    assert all(len(set(divided[group::4])) == 1 for group in range(4))


def test_a_word_for_empty_models_is_one_of_two() -> None:
    with parameter_refused("empty"):
        IFCA(n_clusters=2, empty="restart", protocol="plain").fit([np.zeros((4, 2))] * 3, [[0, 1, 0, 1]] * 3)
