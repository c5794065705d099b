"""Attacks on a cell: what the chosen party really saw of it, scored against the truth that it never saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from privfed.attacks import NotRun, Report, Truth, evaluate
from privfed.attacks.base.collusion import without_colluders
from privfed.attacks.base.oracle import CLIENTS_OPEN, Oracle
from privfed.attacks.base.preparation import Prepared, Target
from privfed.attacks.registry import ATTACKS, attack_class
from privfed.core.transcript import Transcript
from privfed.core.view import View
from privfed.experiments.study.cells import Privately, Setup
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.factories import estimator, secure_sum
from privfed.experiments.study.study import Attack
from privfed.federation.over import open_over
from privfed.privacy.accounting import gdp_mu

MOST_CANDIDATES = 400
"""Candidates of a membership attack: half of them members."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What an attack found in a cell.

    Args:
        report: of the whole run, as `attacks.Report.to_dict` gives it: its status and advantage, and why an
            attack was not run.
        rounds: numbers of rounds after which it was run too.
        recovered: the headline after each of them.
        precision: of the claims after each of them.
        bound: the report's bound after each of them.
    """

    report: dict[str, Any]
    rounds: list[int]
    recovered: list[float | None]
    precision: list[float | None]
    bound: list[float | None]


def attack_clients(attack: Attack, setup: Setup, scene: Scene, seed: int) -> Found:
    """Run an active attack: a server that asks its own questions in place of the algorithm's.

    The clients are behind the cell's sum, and under its guarantee: every question is paid for out of the
    budget that a fit would have spent.

    Args:
        attack: which one.
        setup: of the cell.
        scene: the clients, for scoring.
        seed: of the cell.
    """
    model, protocol = estimator(setup, scene, seed), secure_sum(setup)
    if protocol.opens_to != "server":
        # Known before anything is opened, as a fit under the server's noise could not even be.
        return _found(
            NotRun(attack=ATTACKS.canonical(attack.kind), why=CLIENTS_OPEN).score(Truth(scene.clients))
        )
    federation = open_over(
        scene.clients,
        protocol=protocol,
        domain=model.domain,
        privacy=model.privacy,
        purpose="probing",
        random_state=seed,
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
        attack: which one.
        setup: of the cell.
        scene: the clients. An attacker gets the public rows, and totals without its colluders' part.
        transcript: of the run.
        seed: of the cell.

    Raises:
        ArgumentError: the attack needs what the study does not give it.
    """
    view = transcript.view(attack.party, colluding=attack.colluding)
    if attack.party == "server":
        # Taken out here, once, whatever the attack does: what is left is a view without colluders.
        view = without_colluders(view, {i: scene.clients[i] for i in attack.colluding})
        view = replace(view, colluding=())
    target = target_of(attack, scene, setup.privacy, seed)
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
    return sum(one.purpose == "round" for one in view.sums)


def _until(view: View, number: int) -> View:
    """Cut a view off after its first rounds; what the final model would tell is cut off too."""
    kept, seen = [], 0
    for one in view.sums:
        kept.append(one)
        seen += one.purpose == "round"
        if seen == number:
            break
    return replace(view, sums=tuple(kept), result={})


def target_of(attack: Attack, scene: Scene, privacy: Privately | None, seed: int) -> Target:
    """Return what an attack is set up with; whom it goes for stands in its words."""
    ends = None if scene.domain is None else scene.domain.bounds(scene.clients[0].shape[1])
    # Only Gaussian noise has such a curve.
    curved = privacy is not None and privacy.mechanism == "gaussian"
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
    """Return an attack of a study, set up.

    Raises:
        ArgumentError: there is none of this name, or it lacks a word or public rows.
    """
    return attack_class(attack.kind).prepare(target, attack.words)
