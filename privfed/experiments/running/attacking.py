"""Attacks on a cell: what the chosen party really saw of it, scored against the truth that it never saw."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec
import numpy as np

from privfed.attacks import NotRun, PassiveAttack, Prior, Report, Truth, evaluate
from privfed.attacks.base.collusion import without_colluders
from privfed.attacks.base.oracle import CLIENTS_OPEN, Oracle
from privfed.core.transcript import Transcript
from privfed.core.view import View
from privfed.errors import ArgumentError
from privfed.experiments.study.cells import Setup
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.factories import ATTACKS, estimator, make, secure_sum
from privfed.experiments.study.study import Attack
from privfed.federation.simulation import open_over
from privfed.privacy.accounting import gdp_mu

MOST_CANDIDATES = 400
"""Candidates of a membership attack: half of them members."""

LEAST_PUBLIC = 4
"""Fewest rows held back for a membership attack: candidates that took no part, and what it knows."""


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
        return _found(NotRun(attack=attack.kind, why=CLIENTS_OPEN).score(Truth(scene.clients)))
    federation = open_over(
        scene.clients,
        protocol=protocol,
        domain=model.domain,
        privacy=model.privacy,
        purpose="probing",
        random_state=seed,
    )
    made, truth = _prepared(attack, setup, scene, seed)
    oracle = Oracle(federation, attack.budget)
    found = made.run(oracle, _prior(scene), np.random.default_rng([seed, 2]))
    return _found(evaluate(found, truth))


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
    prior = _prior(scene)
    made, truth = _prepared(attack, setup, scene, seed)
    whole = _report(made, view, prior, truth, seed)
    marks = [number for number in attack.rounds if number < _rounds(view)]
    along = [_report(made, _until(view, number), prior, truth, seed) for number in marks]
    return Found(
        report=whole.to_dict(),
        rounds=[*marks, _rounds(view)] if attack.rounds else [],
        recovered=_along(along, whole, "recovered") if attack.rounds else [],
        precision=_along(along, whole, "precision") if attack.rounds else [],
        bound=_along(along, whole, "bound") if attack.rounds else [],
    )


def _report(made: PassiveAttack[Any], view: View, prior: Prior, truth: Truth, seed: int) -> Report:
    return evaluate(made.run(view, prior, np.random.default_rng([seed, 2])), truth)


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


def _prior(scene: Scene) -> Prior:
    low = high = None
    if scene.domain is not None:
        low, high = scene.domain.bounds(scene.clients[0].shape[1])
    return Prior(sample=scene.public, low=low, high=high, n_clients=len(scene.clients))


def _prepared(attack: Attack, setup: Setup, scene: Scene, seed: int) -> tuple[Any, Truth]:
    """Return the attack and the truth it is scored with; membership gets candidates to tell apart."""
    kind: Any = ATTACKS[attack.kind]
    truth = Truth(scene.clients, colluding=tuple(attack.colluding))
    if not wants_candidates(kind):
        return make(kind, attack.words), truth
    if scene.public is None or len(scene.public) < LEAST_PUBLIC:
        raise ArgumentError(
            f"{attack.kind} tells members from others: hold rows back with public = ... in [[data]]."
        )
    # Half of the public rows are candidates that took no part, the others are what the attacker knows.
    others, known = np.array_split(scene.public[: 2 * MOST_CANDIDATES], 2)
    n = min(len(others), MOST_CANDIDATES // 2, len(scene.pooled))
    chosen = np.random.default_rng([seed, 3]).choice(len(scene.pooled), n, replace=False)
    words: dict[str, Any] = {
        **attack.words,
        "candidates": np.concatenate([scene.pooled[chosen], others[:n]]),
        "reference": known,
    }
    if setup.privacy is not None and setup.privacy.mechanism == "gaussian":  # Only this has such a curve.
        words["gdp_mu"] = gdp_mu(setup.privacy.epsilon, setup.privacy.delta)
    return make(kind, words), replace(truth, members=np.arange(2 * n) < n)


def wants_candidates(kind: type) -> bool:
    """Say whether an attack tells candidates apart."""
    return is_dataclass(kind) and any(one.name == "candidates" for one in fields(kind))
