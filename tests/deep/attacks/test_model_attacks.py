from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import scale

from privfed.attacks import Prior, evaluate
from privfed.attacks.base.preparation import Target
from privfed.attacks.base.report import Status
from privfed.attacks.base.results import NotRun, Points, Truth
from privfed.attacks.membership.scores import area as area_between
from privfed.attacks.membership.scores import chance
from privfed.core.values.domain import Box
from privfed.deep import DCFL, FedAvg
from privfed.deep.attacks import inversion, membership
from privfed.deep.attacks.counts import ClassCounts
from privfed.deep.attacks.inversion import GradientInversion
from privfed.deep.attacks.linkage import LabelledTruth, SketchLinkage, linked
from privfed.deep.attacks.membership import ModelMembership
from privfed.deep.attacks.shadows import Shadow
from privfed.errors import ArgumentError
from privfed.privacy.claim import Privacy
from privfed.protocols import Masked, Slotted
from tests.deep.population import clients
from tests.some import some

WORDS: dict[str, Any] = {
    "n_classes": 3,
    "rounds": 4,
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.5,
    "domain": Box(0, 1),
}


def noisy(n: int, seed: int, rows: int = 12) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Many columns and labels by chance, which only memory can know."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(size=(rows, 60)) for _ in range(n)], [rng.integers(0, 3, rows) for _ in range(n)]


def area(privacy: Privacy | None, shadows: int = 0, statistic: Any = "lira", **words: Any) -> float:
    X, y = noisy(4, 0)
    other_X, other_y = noisy(4, 1)
    fitted = FedAvg(
        **{**WORDS, "rounds": 20, "domain": None if privacy else WORDS["domain"], **words},
        protocol="plain",
        privacy=privacy,
    ).fit(X, y)
    attack = ModelMembership(
        np.concatenate([*X, *other_X]), np.concatenate([*y, *other_y]), shadows, statistic
    )
    found = attack.run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    members = np.arange(96) < 48
    return evaluate(found, Truth(X, members=members)).recovered


def test_models_tell_which_rows_they_were_trained_on_and_dp_sgd_hides_it() -> None:
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
    )
    clear = area(None)
    hidden = area(privacy, noise_multiplier=40.0, rows_per_client=12, sample_rate=0.5)
    assert clear > 0.7 and hidden < clear - 0.15


def member_view(seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = noisy(4, seed)
    others, classes = noisy(4, seed + 1)
    fitted = FedAvg(**{**WORDS, "rounds": 20}, protocol="plain").fit(X, y)
    return fitted.transcript_.view("server"), np.concatenate([*X, *others]), np.concatenate([*y, *classes])


@pytest.mark.parametrize(("words", "least"), [({"epochs": 1}, 0.97), ({"epochs": 2, "batch_size": 16}, 0.8)])
@pytest.mark.parametrize("n_clients", [3, 5])
def test_totals_of_updates_tell_who_trained_on_them(words: Any, least: float, n_clients: int) -> None:
    """The loss tells .57 of these, and the update of a step is a sum of its rows' gradients."""
    pixels, classes = load_digits(return_X_y=True)
    rows = scale(pixels[:, pixels.std(axis=0) > 0])[:400]
    labels, half = classes[:400].astype(np.int64), 200
    clients = np.array_split(rows[:half], n_clients), np.array_split(labels[:half], n_clients)
    model = FedAvg(n_classes=10, rounds=10, learning_rate=0.2, protocol="masked", random_state=0, **words)
    view = model.fit(*clients).transcript_.view("server")
    found = ModelMembership(rows, labels).run(view, Prior(), np.random.default_rng(0))
    assert area_between(found.scores[:half], found.scores[half:]) > least


@pytest.mark.parametrize("statistic", ["lira", "rmia"])
def test_shadow_fits_tell_more_of_membership_than_the_loss(statistic: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(membership, "shares_in_updates", lambda *_: None)
    view, rows, labels = member_view()
    truth = Truth([rows[:48]], members=np.arange(96) < 48)
    loss, shadowed = (
        evaluate(attack.run(view, Prior(), np.random.default_rng(0)), truth)
        for attack in (ModelMembership(rows, labels), ModelMembership(rows, labels, 16, statistic))
    )
    assert shadowed.recovered > loss.recovered + 0.02
    assert {"tpr at fpr 0.01", "tpr at fpr 0.001"} <= set(shadowed.details)


def test_fits_of_ones_own_are_taken_with_and_without_candidates_in_them() -> None:
    view, rows, labels = member_view()
    fits = []
    for seed in (1, 3, 5, 7):
        X, y = noisy(4, seed + 10)
        models = FedAvg(**{**WORDS, "rounds": 20}, protocol="plain").fit(X, y).models_
        fits.append(Shadow(models, np.zeros(96, dtype=np.bool_)))
    found = ModelMembership(rows, labels, fits).run(view, Prior(), np.random.default_rng(0))
    assert evaluate(found, Truth([rows], members=np.arange(96) < 48)).recovered > 0.7
    other = Shadow(fits[0].models, np.ones(3, dtype=np.bool_))
    for wrong, why in some([(fits[:1], "two shadow fits"), ([other], "of 96")]):
        with pytest.raises(ArgumentError, match=why):
            ModelMembership(rows, labels, wrong).run(view, Prior(), np.random.default_rng(0))


@pytest.mark.parametrize("statistic", [pytest.param("lira", marks=pytest.mark.slow), "rmia"])
def test_shadow_fits_stay_within_the_claim(statistic: Any) -> None:
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
    )
    most = np.e / (1.0 + np.e)
    found = area(privacy, rows_per_client=12, sample_rate=0.5, shadows=16, statistic=statistic)
    assert found <= most + chance(np.arange(96) < 48)


def test_one_round_and_other_runs_show_nothing_to_compare() -> None:
    X, y = clients(4)
    fitted = FedAvg(**{**WORDS, "rounds": 1}, protocol="plain").fit(X, y)
    view = fitted.transcript_.view("server")
    attack = ModelMembership(X[0], y[0])
    assert isinstance(attack.run(view, Prior(), np.random.default_rng(0)), NotRun)
    assert isinstance(SketchLinkage().run(view, Prior(), np.random.default_rng(0)), NotRun)
    with pytest.raises(ArgumentError, match="one label"):
        more = FedAvg(**WORDS, protocol="plain").fit(X, y).transcript_.view("server")
        ModelMembership(X[0], y[0][:3]).run(more, Prior(), np.random.default_rng(0))


def test_candidates_that_a_run_does_not_name_are_said_to_be_missing() -> None:
    """As from the command line of a run of nodes, whose folder names no labels."""
    X, y = noisy(4, 0)
    view = FedAvg(**{**WORDS, "rounds": 3}, protocol="plain").fit(X, y).transcript_.view("server")
    made = ModelMembership.prepare(Target(clients=X), {})
    found = made.attack.run(view, made.prior, np.random.default_rng(0))
    assert isinstance(found, NotRun) and "needs rows with labels" in found.why


@pytest.mark.parametrize("hidden", [True, False], ids=["slotted", "by-name"])
def test_sketches_of_one_client_are_linked_from_round_to_round(hidden: bool) -> None:
    X, y = clients(6)
    way: dict[str, Any] = {} if hidden else {"protocol": "plain", "merge": "gathered"}
    fitted = DCFL(**WORDS, **way).fit(X, y)
    found = SketchLinkage().run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(X, labels=y))
    assert report.claims == 6 * (WORDS["rounds"] - 1)
    assert report.recovered > 0.5 > 2 * report.baseline
    with pytest.raises(ArgumentError, match="LabelledTruth"):
        evaluate(found, Truth(X))


@pytest.mark.parametrize("per_round", [5, 8])
def test_who_took_part_when_names_the_sketches(per_round: int) -> None:
    X, y = clients(9)
    words: dict[str, Any] = {**WORDS, "rounds": 20, "clients_per_round": per_round, "compare": False}
    fitted = DCFL(**words, protocol=Slotted(Masked(), sums=20, contributors=3), random_state=0).fit(X, y)
    found = SketchLinkage().run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(X, labels=y))
    assert report.linked and report.claims == 20 * per_round
    assert report.recovered > 0.8 > 3 * report.baseline


def few_digits(sizes: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))[: sum(sizes)]
    ends = np.cumsum(sizes)[:-1]
    return np.split(features[order] / 16.0, ends), np.split(labels[order], ends)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (DCFL, {"compare": False}),
        (DCFL, {"protocol": "plain", "merge": "gathered", "compare": False}),
        (FedAvg, {"protocol": "plain"}),
    ],
    ids=["slotted", "by-name", "fedavg-plain"],
)
def test_updates_of_few_rows_are_the_rows(kind: Any, way: dict[str, Any]) -> None:
    X, y = few_digits((3, 7, 12, 5, 9))
    fitted = kind(n_classes=np.int64(10), rounds=10, domain=Box(0, 1), **way).fit(X, y)
    view = fitted.transcript_.view("server")
    found = GradientInversion().run(view, Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(X, tolerance=1e-9 if "protocol" in way else 0.01))
    # Slots are on a grid of 2^-30 of the longest update: of twelve rows that tells half.
    assert (
        report.precision == 1.0
        and report.claims == (36 if "protocol" in way else 24) == 36 * report.recovered
    )
    counted = evaluate(ClassCounts().run(view, Prior(), np.random.default_rng(0)), LabelledTruth(X, labels=y))
    assert counted.recovered == counted.precision == 1.0 and counted.claims == 5
    assert report.linked == counted.linked == ("protocol" in way)


@pytest.mark.filterwarnings("ignore:.*models got right")
def test_rounds_in_which_clients_hold_rows_out_are_solved_by_themselves() -> None:
    """Of eight and twelve rows one and two are held out in four of six rounds: later ones tell all rows."""
    X, y = few_digits((8, 12))
    fitted = DCFL(n_classes=10, rounds=6, domain=Box(0, 1), protocol="plain", merge="gathered").fit(X, y)
    view = fitted.transcript_.view("server")
    found = GradientInversion().run(view, Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(X, tolerance=1e-6))
    assert report.precision == 1.0 and 17 <= report.claims == 20 * report.recovered


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "way", "sizes"),
    [(FedAvg, {}, (24,)), (DCFL, {"merge": "gathered", "compare": False}, (12, 24, 28))],
    ids=["fedavg", "dcfl"],
)
def test_all_rows_of_a_batch_of_24_are_found(kind: Any, way: dict[str, Any], sizes: tuple[int, ...]) -> None:
    X, y = few_digits(sizes)
    fitted = kind(n_classes=10, rounds=10, domain=Box(0, 1), protocol="plain", **way).fit(X, y)
    found = GradientInversion().run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(X, tolerance=1e-8))
    assert report.recovered == report.precision == 1.0 and report.linked


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "way"), [(DCFL, {}), (FedAvg, {"protocol": "plain"})], ids=["slotted", "fedavg-plain"]
)
def test_one_round_tells_how_many_rows_of_each_class_a_client_has(kind: Any, way: dict[str, Any]) -> None:
    X, y = few_digits((30,) * 24)
    fitted = kind(n_classes=10, rounds=3, domain=Box(0, 1), **way).fit(X, y)
    found = ClassCounts().run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(X, labels=y))
    assert report.recovered == report.precision == 1.0 and report.claims == 24
    # Rows weigh updates in FedAvg, and are shown; in DCFL their number is found, too.
    assert report.linked == bool(way)
    other = evaluate(found, LabelledTruth(X, labels=[*y[1:], y[0] * 0]))
    assert other.recovered < 1.0
    with pytest.raises(ArgumentError, match="LabelledTruth"):
        evaluate(found, Truth(X))


def test_counts_of_few_classes_are_claimed_where_the_rows_are_known() -> None:
    features, labels = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))[:150]
    X, y = np.split(features[order] / features.max(axis=0), 5), np.split(labels[order], 5)
    view = DCFL(n_classes=3, rounds=3, domain=Box(0, 1)).fit(X, y).transcript_.view("server")
    shares = evaluate(ClassCounts().run(view, Prior(), np.random.default_rng(0)), LabelledTruth(X, labels=y))
    assert shares.recovered < 1.0
    found = ClassCounts(30).run(view, Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(X, labels=y))
    assert report.recovered == report.precision == 1.0


@pytest.mark.filterwarnings("ignore:the last updates of")
@pytest.mark.parametrize("attack", [GradientInversion(), ClassCounts()], ids=["rows", "counts"])
def test_nothing_is_claimed_of_updates_that_are_clipped(attack: Any) -> None:
    X, y = few_digits((3, 7, 12))
    fitted = FedAvg(n_classes=10, rounds=5, max_update_norm=1e-3, protocol="plain").fit(X, y)
    found = attack.run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, LabelledTruth(X, labels=y))
    assert report.claims == 0 and report.status is not Status.FOUND


def test_rows_of_two_epochs_are_found() -> None:
    X, y = few_digits((3, 20))
    fitted = FedAvg(n_classes=10, rounds=10, epochs=2, protocol="plain").fit(X, y)
    found = GradientInversion().run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(X, tolerance=1e-6))
    assert report.recovered == report.precision == 1.0 and report.linked


def test_shares_of_classes_are_told_after_several_steps_in_slots() -> None:
    """Twelve clients of 70 digits train in batches of 16, for two epochs; shares by Dirichlet draws."""
    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    drawn = [rng.choice(10, 70, p=rng.dirichlet(np.full(10, 0.5))) for _ in range(12)]
    own = [np.array([rng.choice(np.flatnonzero(labels == one)) for one in y]) for y in drawn]
    X, y = [features[i] / 16.0 for i in own], [labels[i] for i in own]
    words: dict[str, Any] = {"n_classes": 10, "batch_size": 16, "epochs": 2, "domain": Box(0, 1)}
    view = DCFL(**words, rounds=2).fit(X, y).transcript_.view("server")
    report = evaluate(ClassCounts(70).run(view, Prior(), rng), LabelledTruth(X, labels=y))
    assert report.claims == 12 and not report.linked and report.status is Status.FOUND
    assert report.details["total variation"] < 0.08 < 0.3 < report.details["total variation, guessed"]
    truth = LabelledTruth(X, labels=[9 - one for one in y])
    other = evaluate(ClassCounts(70).run(view, Prior(), rng), truth)
    assert other.recovered < 0.3


@pytest.mark.parametrize("hidden", [True, False], ids=["slotted", "by-name"])
def test_linked_updates_tell_at_which_client_a_row_is(hidden: bool) -> None:
    features, labels = load_digits(return_X_y=True)
    X, y = np.split(features[:320] / 16.0, 8), np.split(labels[:320], 8)
    way: dict[str, Any] = {} if hidden else {"protocol": "plain", "merge": "gathered"}
    model = DCFL(n_classes=10, rounds=5, batch_size=16, domain=Box(0, 1), **way)
    view = model.fit(X, y).transcript_.view("server")
    rows, inside = np.concatenate([*(own[:20] for own in X), features[320:480] / 16.0]), np.arange(320) < 160
    truth = LabelledTruth(X, labels=y, members=inside)
    attack = ModelMembership(rows, np.concatenate([*(own[:20] for own in y), labels[320:480]]))
    report = evaluate(attack.run(view, Prior(), np.random.default_rng(0)), truth)
    assert report.recovered > 0.8 and report.linked is not hidden
    assert report.details["auc, at any client"] > 0.6


def linked_under_noise(**words: Any) -> float:
    """Return how many sketches of later rounds are linked to the right ones of the first; all have names."""
    fitted = DCFL(
        **{**WORDS, "rounds": 8, "domain": None, "learning_rate": 1.0, **words},
        privacy=Privacy(
            epsilon=4.0, delta=1e-6, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
        ),
        rows_per_client=40,
        protocol="plain",
        merge="gathered",
    ).fit(*clients(9))
    shown = [one.answers for one in fitted.transcript_.view("server").sums]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(9) for answers in shown if "sketch" in answers[0]]
    seen = [answers for answers in shown if "sketch" in answers[0]]
    tables = [np.stack([own[i]["sketch"] for i in order]) for own, order in zip(seen, orders, strict=True)]
    found = linked(tables)
    whose = dict(zip(found[0].tolist(), orders[0].tolist(), strict=True))
    right = [
        whose[track] == owner
        for own, order in zip(found[1:], orders[1:], strict=True)
        for track, owner in zip(own.tolist(), order.tolist(), strict=True)
    ]
    return float(np.mean(right))


def test_noise_hides_whose_an_update_is_and_not_whose_a_running_mean_is() -> None:
    """What the attack names as defences: it named DP-SGD, whose running means it links."""
    # The noise is the system's, so that a fit in six links .6 to .8 of them: six have a mean of .95 and .14.
    assert np.mean([linked_under_noise() for _ in range(6)]) > 0.6
    assert np.mean([linked_under_noise(decay=0.0) for _ in range(6)]) < 0.4
    assert "not on running means" in SketchLinkage.defence


def test_a_search_for_rows_that_explain_little_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 rows a client, two batches, all searches went to the end: a hundred times the work."""
    searches, solve = list[int](), inversion._accelerated

    def counting(residuals: Any, jacobian: Any, *words: Any) -> Any:
        searches.append(0)

        def counted(values: np.ndarray) -> np.ndarray:
            searches[-1] += 1
            return np.asarray(jacobian(values))

        return solve(residuals, counted, *words)

    monkeypatch.setattr(inversion, "_accelerated", counting)
    X, y = clients(2, rows=60)
    fitted = FedAvg(n_classes=3, rounds=20, weighting="clients", protocol="plain").fit(X, y)
    found = GradientInversion(6).run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    assert isinstance(found, Points) and not len(found.points)
    assert searches and max(searches) <= inversion.EARLY + 1


@pytest.mark.parametrize("attack", [GradientInversion(), ClassCounts()], ids=["rows", "counts"])
def test_a_secure_sum_shows_no_update_to_invert(attack: Any) -> None:
    X, y = few_digits((3, 7, 12))
    fitted = FedAvg(n_classes=10, rounds=3, domain=Box(0, 1)).fit(X, y)
    found = attack.run(fitted.transcript_.view("server"), Prior(), np.random.default_rng(0))
    assert isinstance(found, NotRun) and "totals only" in found.why
