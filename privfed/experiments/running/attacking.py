"""Attacks on a cell: they get the real view of the chosen party, and are scored against the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from privfed.attacks import NotRun, Report, Truth, evaluate
from privfed.attacks.base.collusion import without_colluders
from privfed.attacks.base.oracle import CLIENTS_OPEN, CLIENTS_VERIFY, Oracle
from privfed.attacks.base.preparation import Prepared, Target
from privfed.attacks.registry import ATTACKS, attack_class
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.record.transcript import Transcript
from privfed.core.record.view import View
from privfed.core.roles.conversation import ROUND
from privfed.core.values.guarantee import Mechanism
from privfed.deep.estimators.base import FederatedModel
from privfed.experiments.study.cells import Privately, Setup
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.factories import estimator, estimator_class, secure_sum
from privfed.experiments.study.study import Attack
from privfed.federation.over import open_over
from privfed.privacy.accounting import gdp_mu

MOST_CANDIDATES = 400
"""Most candidates of a membership attack, half of which are members."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what an attack found in a cell.

    Args:
        report: report on the whole run, from `attacks.Report.to_dict`, with status and advantage, and with
            the reason if the attack was not run.
        rounds: numbers of rounds after which the attack was also run.
        recovered: the headline figure after each of these.
        precision: precision of the claims after each of these.
        bound: the report's bound after each of these.
    """

    report: dict[str, Any]
    rounds: list[int]
    recovered: list[float | None]
    precision: list[float | None]
    bound: list[float | None]


def attack_clients(attack: Attack, setup: Setup, scene: Scene, seed: int) -> Found:
    """Run an active attack, by a server that asks its own questions in place of the algorithm's.

    The clients are behind the cell's sum and under its guarantee: every question is paid from the budget
    that a fit would have spent.

    Args:
        attack: the attack.
        setup: configuration of the cell.
        scene: the clients, also for scoring.
        seed: seed of the cell.
    """
    model, protocol = estimator(setup, scene, seed), secure_sum(setup)
    verified = protocol.verified
    if protocol.opens_to != "server" or verified:
        # Checked before a federation is opened, which would fail under noise of the server.
        why = CLIENTS_VERIFY if verified else CLIENTS_OPEN
        return _found(NotRun(attack=ATTACKS.canonical(attack.kind), why=why).score(Truth(scene.clients)))
    federation = open_over(
        scene.clients,
        protocol=protocol,
        domain=model.domain,
        privacy=model.privacy,
        purpose="probing",
        random_state=seed,
        # Clients that check no program: what is measured is what sums, guards and noise alone leave.
        policy=ClientPolicy(undeclared=True),
    )
    made = prepared(attack, target_of(attack, scene, setup.privacy, seed))
    oracle = Oracle(federation, attack.budget)
    found = made.attack.run(oracle, made.prior, np.random.default_rng([seed, 2]))
    return _found(evaluate(found, made.truth))


def _found(report: Report) -> Found:
    return Found(report=report.to_dict(), rounds=[], recovered=[], precision=[], bound=[])


def attack_run(attack: Attack, setup: Setup, scene: Scene, transcript: Transcript, seed: int) -> Found:
    """Run a passive attack on the view of its party, after some rounds and on the whole run.

    Args:
        attack: the attack.
        setup: configuration of the cell.
        scene: the clients. The attacker gets the public rows, and totals without its colluders' answers.
        transcript: transcript of the run.
        seed: seed of the cell.

    Raises:
        ArgumentError: the attack needs something that the study does not provide.
    """
    view = transcript.view(attack.party, colluding=attack.colluding)
    if attack.party == "server":
        # Subtracted here once for all attacks, which then get a view without colluders.
        view = without_colluders(view, {i: scene.clients[i] for i in attack.colluding})
        view = replace(view, colluding=())
    target = target_of(attack, scene, setup.privacy, seed)
    if issubclass(estimator_class(setup.estimator), FederatedModel):
        # Only runs that train models show labels.
        target = replace(target, labels=scene.labels, public_labels=scene.public_labels)
    shown = any(one.answers for one in view.sums)
    made = prepared(attack, replace(target, helping=view.colluding, shows_answers=shown))
    whole = _report(made, view, seed)
    marks = [number for number in attack.rounds if number < _rounds(view)]
    along = [_report(made, _until(view, number), seed) for number in marks]
    return Found(
        report=whole.to_dict(),
        rounds=[*marks, _rounds(view)] if attack.rounds else [],
        recovered=_along(along, whole, "recovered") if attack.rounds else [],
        precision=_along(along, whole, "precision") if attack.rounds else [],
        bound=_along(along, whole, "bound") if attack.rounds else [],
    )


def _report(made: Prepared[Any], view: View, seed: int) -> Report:
    return evaluate(made.attack.run(view, made.prior, np.random.default_rng([seed, 2])), made.truth)


def _along(reports: list[Report], whole: Report, name: str) -> list[float | None]:
    return [one.to_dict()[name] for one in (*reports, whole)]


def _rounds(view: View) -> int:
    return sum(one.purpose == ROUND for one in view.sums)


def _until(view: View, number: int) -> View:
    """Cut a view off after its first rounds; the final model is removed too."""
    kept, seen = [], 0
    for one in view.sums:
        kept.append(one)
        seen += one.purpose == ROUND
        if seen == number:
            break
    return replace(view, sums=tuple(kept), result={})


def target_of(attack: Attack, scene: Scene, privacy: Privately | None, seed: int) -> Target:
    """Return the target that an attack is prepared with; its parameters may name a client."""
    ends = None if scene.domain is None else scene.domain.bounds(scene.clients[0].shape[1])
    # Only Gaussian noise has a Gaussian trade-off curve.
    curved = privacy is not None and privacy.mechanism == Mechanism.GAUSSIAN
    return Target(
        clients=scene.clients,
        colluding=tuple(attack.colluding),
        public=scene.public,
        ends=ends,
        gdp_mu=gdp_mu(privacy.epsilon, privacy.delta) if privacy is not None and curved else None,
        most_candidates=MOST_CANDIDATES,
        seed=seed,
    )


def prepared(attack: Attack, target: Target) -> Prepared[Any]:
    """Return an attack of a study, prepared to run.

    Raises:
        ArgumentError: there is no attack of this name, or a parameter or public rows are missing.
    """
    return attack_class(attack.kind).prepare(target, attack.words)
