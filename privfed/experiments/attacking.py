"""Attacks on a cell: they get the real view of the chosen party, and are scored against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.attacks import (
    Differencing,
    NotRun,
    Points,
    Prior,
    Report,
    Truth,
    evaluate,
    joined,
    pooled,
    without_known,
)
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.names import ATTACKS
from privfed.attacks.base.oracle import CLIENTS_OPEN, CLIENTS_VERIFY, Oracle
from privfed.attacks.base.preparation import Prepared, Target, without_colluders
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.record.records import View
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import ROUND
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError
from privfed.experiments.cells import CellPrivacy, Setup, estimator, estimator_class, secure_sum
from privfed.experiments.datasets import Scene
from privfed.experiments.study import Attack
from privfed.federation.clients import gather
from privfed.federation.opening import open_over
from privfed.privacy.accounting import gdp_mu

MOST_CANDIDATES = 400
"""Most candidates of a membership attack, half of which are members."""


def attack_clients(attack: Attack, setup: Setup, scene: Scene, seed: int) -> dict[str, Any]:
    """Run an active attack, by a server that asks its own questions in place of the algorithm's.

    The clients are behind the cell's sum and under its policy and guarantee: every question is paid from the
    budget that a fit would have spent. Without a guarantee they agree on a program that the server crafts.

    Args:
        attack: the attack.
        setup: configuration of the cell.
        scene: the clients, also for scoring.
        seed: seed of the cell.
    """
    model, protocol = estimator(setup, scene, seed), secure_sum(setup)
    verified = protocol.verified
    if protocol.recipient != "server" or verified:
        # Checked before a federation is opened, which would fail under noise of the server.
        why = CLIENTS_VERIFY if verified else CLIENTS_OPEN
        return _found([NotRun(attack=ATTACKS.canonical(attack.kind), why=why).score(Truth(scene.clients))])
    made = prepared(attack, target_of(attack, scene, setup.privacy, seed))
    program = made.attack.program(attack.budget) if model.privacy is None else None
    federation = open_over(
        scene.tables(),
        protocol=protocol,
        domain=model.domain,
        privacy=model.privacy,
        purpose="probing",
        random_state=seed,
        algorithm=program,
        n_clusters=None if program is None else program.n_clusters,
        # Without a program clients check none: what is measured is what sums, guards and noise alone leave.
        policy=replace(model.policy or ClientPolicy(), undeclared=program is None),
    )
    found = made.attack.run(Oracle(federation, attack.budget), made.prior, np.random.default_rng([seed, 2]))
    return _found([evaluate(found, made.truth)])


def _found(reports: list[Report], rounds: Sequence[int] = ()) -> dict[str, Any]:
    """Return what is stored of an attack.

    Args:
        reports: its reports after each of some rounds; the last one is on the whole run.
        rounds: numbers of these rounds; none if it was run on the whole run only.

    Returns:
        `report` on the whole run, `rounds`, and its headline after each of these as `recovered`.
    """
    plain = [one.to_dict() for one in reports]
    along = [one["recovered"] for one in plain] if rounds else []
    return {"report": plain[-1], "rounds": list(rounds), "recovered": along}


def attack_run(
    attack: Attack, setup: Setup, scene: Scene, transcript: Transcript, seed: int
) -> dict[str, Any]:
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
    view, made = _seen(attack, setup, scene, transcript, seed)
    marks = [number for number in attack.rounds if number < _rounds(view)]
    reports = [_report(made, one, seed) for one in (*(_until(view, number) for number in marks), view)]
    return _found(reports, [*marks, _rounds(view)] if attack.rounds else [])


def attack_fits(
    attack: Attack, setup: Setup, scene: Scene, transcripts: Sequence[Transcript], seed: int
) -> dict[str, Any]:
    """Run a passive attack on its party's views of the first fits together, for each number of `setup.fits`.

    Args:
        attack: the attack.
        setup: configuration of the cell.
        scene: as of `attack_run`.
        transcripts: those of as many fits of the same rows as the largest of these numbers.
        seed: seed of the cell.

    Returns:
        `fits`, the numbers, and `reports`, one for each, without their seconds; where a row joins before each
        fit, `joined` of attacks on rows: the share of these rows that was found.
    """
    seen = [_seen(attack, setup, scene, one, seed) for one in transcripts]
    views, made = [view for view, _ in seen], seen[0][1]
    views, shares = (views, []) if scene.joining is None else _of_the_same_rows(views, scene.joining)
    plain = [_report(made, pooled(views[:number]), seed).to_dict() for number in setup.fits]
    found = {"fits": setup.fits, "reports": [{**one, "seconds": None} for one in plain]}
    if shares and isinstance(made.attack, Differencing):
        found["joined"] = [float(np.mean(shares[: n - 1])) if n > 1 else None for n in setup.fits]
    return found


def _of_the_same_rows(views: Sequence[View], joining: FloatArray) -> tuple[list[View], list[float]]:
    """Take rows that joined one by one out of the later totals, as far as two totals show them.

    Args:
        views: what a party saw of each fit.
        joining: the row that joined before each fit after the first, for scoring.

    Returns:
        The views, and for each of these rows 1.0 if it was found, else 0.0.
    """
    known, kept, shares = np.empty((0, joining.shape[1])), [views[0]], list[float]()
    for before, after, row in zip(views, views[1:], joining, strict=False):
        found = Differencing().run(joined(before, after), Prior(), np.random.default_rng(0))
        if isinstance(found, Points):
            known = np.concatenate([known, found.points])
        try:
            kept.append(without_known(after, known) if len(known) else after)
        except ArgumentError:  # Where rows are in groups, totals hold means in place of the rows.
            kept.append(after)
        shares.append(float(np.nan_to_num(evaluate(found, Truth([row[None]])).recovered)))
    return kept, shares


def _seen(
    attack: Attack, setup: Setup, scene: Scene, transcript: Transcript, seed: int
) -> tuple[View, Prepared[Any]]:
    """Return what an attack's party saw of a run, and the attack, prepared for it."""
    models = issubclass(estimator_class(setup.estimator), FederatedModel)
    view = transcript.view(attack.party, colluding=attack.colluding)
    if attack.party == "server":
        # Subtracted here once for all attacks, which then get a view without colluders.
        policy = estimator(setup, scene, seed).policy
        seen = gather(scene.tables(labelled=models)).answering(policy) or ()
        view = without_colluders(view, {i: seen[i].features for i in attack.colluding})
        view = replace(view, colluding=())
    target = target_of(attack, scene, setup.privacy, seed)
    if models:
        # Only runs that train models show labels.
        target = replace(target, labels=scene.labels, public_labels=scene.public_labels)
    shown = any(one.answers for one in view.sums)
    return view, prepared(attack, replace(target, helping=view.colluding, shows_answers=shown))


def _report(made: Prepared[Any], view: View, seed: int) -> Report:
    return evaluate(made.attack.run(view, made.prior, np.random.default_rng([seed, 2])), made.truth)


def _rounds(view: View) -> int:
    return sum(one.purpose == ROUND for one in view.sums)


def _until(view: View, number: int) -> View:
    """Cut a view off after its first rounds; the final model is removed too."""
    rounds = [i for i, one in enumerate(view.sums, start=1) if one.purpose == ROUND]
    return replace(view, sums=view.sums[: rounds[number - 1]], result={})


def target_of(attack: Attack, scene: Scene, privacy: CellPrivacy | None, seed: int) -> Target:
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
    return attack_class(attack.kind).prepare(target, attack.parameters)
