"""What attacks declare: their names, the algorithms that they read, and how they are set up on a run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed import Box, Privacy
from privfed.attacks import Attack, PassiveAttack, Prior, Probing, evaluate
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.names import ATTACKS
from privfed.attacks.base.preparation import Target
from privfed.attacks.base.reading import missing
from privfed.core.record.records import View
from privfed.errors import ArgumentError
from privfed.estimators.registry import ESTIMATORS, SHORT, TRAINED
from privfed.metrics import fuzzy_davies_bouldin
from tests.attacks.populations import mixture

POPULATION = mixture(0, n_clients=4, n_rows=15)
LABELS = [np.arange(len(rows)) % 2 for rows in POPULATION.clients]
PRIVATE = Privacy(
    epsilon=2.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25), noise_seed=0
)


@pytest.fixture(scope="module")
def views() -> dict[str, View]:
    """Views of a server on one short fit of each algorithm over a sum that shows every answer."""
    found = {}
    for name in SHORT:
        words: dict[str, Any] = {"privacy": PRIVATE} if name == "dp" else {"max_iter": 2, "tol": 0}
        model = ESTIMATORS.find(name)(3, protocol="plain", random_state=0, **words).fit(POPULATION.clients)
        if name != "dp":
            fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)
        found[name] = model.transcript_.view("server")
    for name in TRAINED:
        kind = ESTIMATORS.find(name)
        compared = {"merge": "gathered"} if name in ("cfl", "dcfl") else {}
        trained = kind(n_classes=2, rounds=3, protocol="plain", domain=PRIVATE.domain, **compared)
        found[name] = trained.fit(POPULATION.clients, LABELS).transcript_.view("server")
    return found


def target(**words: Any) -> Target:
    return Target(clients=POPULATION.clients, public=POPULATION.draw(40), **words)


@pytest.mark.parametrize("name", ATTACKS.names())
def test_the_registered_name_is_the_declared_one(name: str) -> None:
    assert attack_class(name).name == name


TOTALS = ("dwf", "ewf", "lloyd", "minibatch", "fkm", "kfed", "fuzzy", "mixture", "fedavg")
READ: dict[str, tuple[str, ...]] = {
    "probing": (),
    "enumerated-domain": TOTALS,
    "differencing": TOTALS,
    "tomography": ("dwf", "ewf", "lloyd", "minibatch", "fuzzy", "mixture"),
    "equal-weight-counts": ("ewf",),
    "fuzzy-inversion": ("dwf", "ewf", "lloyd", "minibatch", "fkm", "kfed", "fuzzy", "mixture"),
    "disaggregation": ("dwf", "lloyd", "minibatch", "mixture"),
    "linkage": ("dp", *TOTALS, "ifca", "cfl", "dcfl"),
    "membership": ("dp", *TOTALS),
    "attribute-inference": TOTALS,
    "noisy-differencing": ("dp",),
    "sketch-linkage": ("cfl", "dcfl"),
    "model-membership": ("fedavg", "ifca", "cfl", "dcfl"),
    "gradient-inversion": ("fedavg", "ifca", "cfl", "dcfl"),
    "class-counts": ("fedavg", "ifca", "cfl", "dcfl"),
}
"""Estimators whose questions an attack reads, with default parameters, over a sum that shows every answer,
and with the fuzzy index asked after the fit."""


@pytest.mark.parametrize("name", ATTACKS.names())
def test_an_attack_reads_just_these_algorithms(name: str, views: dict[str, View]) -> None:
    kind = attack_class(name)
    known = (*SHORT, *TRAINED)
    if not issubclass(kind, PassiveAttack):
        return  # It asks questions of its own, whatever the algorithm is.
    made = kind.prepare(target(client=0, shows_answers=True), {}).attack
    assert tuple(one for one in known if not missing(made.reads, views[one])) == tuple(
        one for one in known if one in READ[name]
    )


def test_one_client_is_attacked_where_its_answers_are_shown() -> None:
    shown, hidden = target(client=2, shows_answers=True), target(client=2)
    for name, in_totals in (("differencing", None), ("equal-weight-counts", 2)):
        kind: Any = attack_class(name)
        assert kind.prepare(shown, {}).attack.client == 2
        assert kind.prepare(hidden, {}).attack.client == in_totals
        assert kind.prepare(shown, {"client": 1}).attack.client == 1


def test_rows_of_colluders_are_no_candidates_and_public_ones_are_known_or_tried_never_both() -> None:
    whole = target(colluding=(1,), most_candidates=20)
    made = attack_class("membership").prepare(whole, {})
    candidates: Any = made.attack.candidates  # type: ignore[attr-defined]
    assert made.truth.members is not None and made.truth.members.sum() == 10 == len(candidates) - 10

    def held(rows: Any, among: Any) -> int:
        return sum(bool((row == np.asarray(among)).all(axis=1).any()) for row in rows)

    assert held(candidates, POPULATION.clients[1]) == 0
    assert held(candidates, np.concatenate(POPULATION.clients)) == 10
    assert held(candidates, made.prior.sample) == 0 and held(made.prior.sample, whole.public) == 20
    with pytest.raises(ArgumentError, match="at least 4"):
        attack_class("membership").prepare(replace(whole, public=None), {})


def test_words_that_an_attack_does_not_take_are_an_error_that_names_it() -> None:
    with pytest.raises(ArgumentError, match="tomography cannot be made of these parameters"):
        attack_class("tomography").prepare(target(), {"colour": 3})
    with pytest.raises(ArgumentError, match="equal-weight-counts cannot be made"):
        attack_class("equal-weight-counts").prepare(target(), {})


class Nameless(Probing):
    """An attack that is registered under its own name, and inherits what it declares."""

    name = "nameless"


class Silent(Attack):
    """An attack that declares nothing."""


def test_an_attack_of_ones_own_is_registered_by_name_or_module(monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"{__name__}:Nameless"
    monkeypatch.setitem(ATTACKS._things, "nameless", Nameless)
    assert attack_class("nameless") is Nameless and "nameless" in ATTACKS.added()
    monkeypatch.setattr("privfed.core.names.import_module", lambda name: __import__("sys").modules[__name__])
    assert attack_class(own) is Nameless
    with pytest.raises(ArgumentError, match="must declare name, paper, adversary, view, prior"):
        attack_class(f"{__name__}:Silent")
    with pytest.raises(ArgumentError, match="class of attacks"):
        attack_class(f"{__name__}:POPULATION")


def test_reports_are_called_by_the_declared_name(views: dict[str, View]) -> None:
    made = attack_class("tomography").prepare(target(), {"n_particles": 50})
    assert isinstance(made.attack, PassiveAttack)
    found = made.attack.run(views["dwf"], Prior(sample=POPULATION.draw(9)), np.random.default_rng(0))
    assert evaluate(found, made.truth).attack == found.attack == "tomography"
