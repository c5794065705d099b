"""Turns a study into a plan of its cells, which is checked before anything is fitted.

`privfed.experiments.reading` checks keys and values. Here all names are checked, then each configuration up
to the first question of its fit. Each of these steps begins only if the one before found no mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from privfed.attacks import ActiveAttack
from privfed.attacks.base.interface import attack_class
from privfed.core.values.origin import Origin
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError, PrivFedError
from privfed.experiments.attacking import prepared, target_of
from privfed.experiments.cells import (
    AXES,
    CellPrivacy,
    Setup,
    check_parameters,
    estimator,
    estimator_class,
    make,
    metric_function,
    privacy_title,
    secure_sum,
)
from privfed.experiments.datasets import Scene, Table, load_table, source_of, split
from privfed.experiments.reading import KeyPath, Mistakes, StudyFile
from privfed.experiments.study import Attack, Guarantee, Study
from privfed.federation.clients import gather
from privfed.federation.request import FederationRequest, cohort_rule
from privfed.protocols.secure_sums import SECURE_SUMS
from privfed.tables import read_schema


@dataclass(frozen=True)
class Plan:
    """Holds a checked study: its configurations and seeds.

    Args:
        file: the study.
        setups: configurations in the order of the study's axes, the last axis fastest.
        seeds: seeds of every configuration.
        folder: folder that relative paths of data start from.
    """

    file: StudyFile
    setups: list[Setup]
    seeds: list[int]
    folder: Path


def plan(file: StudyFile, folder: Path) -> Plan:
    """Check a whole study and list its configurations; nothing is fitted.

    Args:
        file: the study.
        folder: folder that relative paths of data start from.

    Raises:
        StudyError: something in the study is unknown, wrong or inconsistent; the error lists the mistakes,
            each with its place.
    """
    mistakes, study = Mistakes(file.name), file.study
    mistakes.convert(msgspec.to_builtins(study), Study)
    mistakes.check()
    tables = _named(study, folder, mistakes)
    mistakes.check()
    setups = _checked(study, tables, folder, mistakes)
    mistakes.check()
    return Plan(file, setups, study.seed_numbers, folder)


def _named(study: Study, folder: Path, mistakes: Mistakes) -> list[Table]:
    """Check that all names and parameters are known; return the rows of each data set."""
    tables, kinds = list[Table](), dict[str, type]()
    for name in study.named_metrics:
        with mistakes.of(("metrics",)):
            metric_function(name)
    for i, data in enumerate(study.data):
        with mistakes.of(("data", i, "source")):
            tables.append(load_table(data, folder))
    for i, algorithm in enumerate(study.algorithm):
        with mistakes.of(("algorithm", i)):
            kinds[algorithm.title] = estimator_class(algorithm.estimator)
            check_parameters(kinds[algorithm.title], [*algorithm.parameters, *algorithm.grid])
            if algorithm.row_joins and not study.fits:
                raise ArgumentError("row_joins is of the fits after the first: give fits = [...] at the top.")
            if algorithm.further_n_clusters and not (study.fits and "n_clusters" in algorithm.parameters):
                raise ArgumentError(
                    "further_n_clusters is of the fits after the first: give fits = [...] at the top, and "
                    "n_clusters for the first."
                )
    for i, summed in enumerate(study.sum):
        with mistakes.of(("sum", i)):
            make(SECURE_SUMS.resolve(summed.protocol), summed.parameters)
    for i, defence in enumerate(study.defence):
        for name in kinds.keys() & (defence.algorithms or kinds):
            with mistakes.of(("defence", i)):
                check_parameters(kinds[name], defence.parameters)
    titles = [attack.title for attack in study.attack]
    for i, attack in enumerate(study.attack):
        with mistakes.of(("attack", i)):
            _check_attack_class(attack)
        if titles[i] in titles[:i]:
            mistakes.add(f"name must differ: another attack is called {titles[i]!r} too.", ("attack", i))
    known = {
        "data": [one.title for one in study.data],
        "algorithms": [one.title for one in study.algorithm],
        "sums": [one.title for one in study.sum],
    }
    for axis in ("algorithm", "privacy", "defence", "attack"):
        for i, one in enumerate(getattr(study, axis)):
            for key, titled in known.items():
                mistakes.known(key, getattr(one, key, []), titled, (axis, i))
    return tables


def _check_attack_class(attack: Attack) -> None:
    """Check that an attack exists and takes its parameters.

    Raises:
        ArgumentError: one of these is not the case.
    """
    try:
        kind = attack_class(attack.kind)
    except ArgumentError as error:
        # The registry names what it holds, a study the key.
        raise ArgumentError(str(error).replace("attack must", "kind must", 1)) from None
    check_parameters(kind, attack.parameters)
    if issubclass(kind, ActiveAttack) and (attack.rounds or attack.colluding):
        raise ArgumentError(
            f"{'rounds' if attack.rounds else 'colluding'} is for passive attacks; {attack.kind} asks."
        )


def _check_schema(setup: Setup, folder: Path) -> None:
    """Check that no claim rests on a schema whose numbers exact sums gave."""
    if setup.privacy is None or setup.privacy.seeded or setup.data.schema is None:
        return
    columns = read_schema(folder / setup.data.schema).columns
    if exact := [name for name, own in columns.items() if own.provenance == Origin.EXACT]:
        raise ArgumentError(
            f"exact sums gave numbers of {', '.join(map(repr, exact))} in {setup.data.schema}, so that "
            "nothing is claimed: learn them under --epsilon, or take seeded = true."
        )


def _checked(study: Study, tables: list[Table], folder: Path, mistakes: Mistakes) -> list[Setup]:
    """Check every configuration and its attacks, and that no two are equal or have the same name."""
    setups, seed = list[Setup](), study.seed_numbers[0]
    scenes: dict[object, Scene] = {}
    seen: dict[str, tuple[Setup, tuple[KeyPath, ...]]] = {}
    for setup, table, places in _product(study, tables, folder):
        with mistakes.of(configuration=setup.title):
            if (key := (setup.data, setup.partition, setup.joining)) not in scenes:
                scenes[key] = _scene(setup, table, seed)
            for attack in setup.attacks:
                with mistakes.of(("attack", study.attack.index(attack))):
                    _check_attack(attack, scenes[key])
            _check_schema(setup, folder)
            if setup.joining and secure_sum(setup).reveals == "contributions":
                raise ArgumentError(
                    "row_joins is measured on totals: take a sum that does not show single answers."
                )
            for number in range(1 + len(setup.further_n_clusters)):
                _check_fit(setup.further(number) if number else setup, scenes[key], seed)
        for name, problem in (
            (setup.id, "two configurations are the same; remove one of them."),
            (setup.title, "two configurations have the same name; give their tables names."),
        ):
            first, before = seen.setdefault(name, (setup, places))
            if first is not setup:
                differing = [path for path in (*places, *before) if path not in places or path not in before]
                # If no table differs, they are two points of one grid.
                mistakes.add(problem, *(differing or [(*places[-1], "grid")]), configuration=setup.title)
                break
        setups.append(setup)
    if not setups:
        mistakes.add("no guarantee and no defence is combined with any algorithm.", ("privacy", 0))
    return setups


def _scene(setup: Setup, table: Table, seed: int) -> Scene:
    """Return the clients of a configuration; raises as `split`."""
    try:
        return split(setup.data, table, setup.partition, seed, setup.joining)
    except PrivFedError as error:
        # A study has other names for these parameters.
        said = str(error).replace("n_clients", "clients").replace("(y=)", "(label = ... in [[data]])")
        raise ArgumentError(said) from None


def _check_fit(setup: Setup, scene: Scene, seed: int) -> None:
    """Construct an estimator, and the agreement of its parties.

    Raises:
        PrivFedError: a parameter is wrong, or parameters do not fit together.
    """
    model = estimator(setup, scene, seed)
    clients = gather(scene.clients, y=scene.labels, names=None, domain=scene.domain)
    if isinstance(model, FederatedModel):
        model.request(clients, seed).agreed()
        return
    algorithm = model.make_algorithm(clients.n_features, seed)
    FederationRequest(
        clients=clients,
        description=setup.estimator,
        max_sums=algorithm.max_sums,
        protocol=model.protocol,
        algorithm=algorithm,
        rule=cohort_rule(len(clients.names), model.clients_per_round, None, seed),
        seed=seed,
        domain=scene.domain if model.privacy is None else None,
        privacy=model.privacy,
        policy=model.policy,
    ).agreed()
    if model.n_clusters > len(scene.pooled):
        raise ArgumentError(
            f"n_clusters must be at most the {len(scene.pooled)} rows that clients hold, got "
            f"{model.n_clusters}."
        )


def _check_attack(attack: Attack, scene: Scene) -> None:
    """Check that an attack can be constructed, and that the clients and public rows that it needs exist.

    Raises:
        ArgumentError: one of these is not the case.
    """
    positions, n = range(len(scene.clients)), len(scene.clients)
    if not set(attack.colluding) <= set(positions):
        raise ArgumentError(f"colluding must be positions of the {n} clients, got {attack.colluding}.")
    client = attack.parameters.get("client")
    if client is not None and (isinstance(client, bool) or client not in positions):
        raise ArgumentError(f"client must be the position of one of the {n} clients, got {client!r}.")
    least = attack_class(attack.kind).public_rows
    if least and (scene.public is None or len(scene.public) < least):
        raise ArgumentError(
            f"kind {attack.kind!r} compares with public rows: hold at least {least} back with public = ... "
            "in [[data]]."
        )
    prepared(attack, target_of(attack, scene, None, 0))


def _product(
    study: Study, tables: list[Table], folder: Path
) -> Iterator[tuple[Setup, Table, tuple[KeyPath, ...]]]:
    """Yield each configuration with its rows, and with the tables of the study that it comes from."""
    for chosen in itertools.product(*(enumerate(getattr(study, axis)) for axis in AXES)):
        (d, data), (p, partition), (a, algorithm), (s, summed), (g, guarantee), (f, defence) = chosen
        # A defence comes first, as its parameters replace those of an algorithm; the algorithm is last, as
        # what names no key is about it.
        places = ("defence", f), ("privacy", g), ("partition", p), ("sum", s), ("data", d), ("algorithm", a)
        if algorithm.data and data.title not in algorithm.data:
            continue
        if any(one.algorithms and algorithm.title not in one.algorithms for one in (guarantee, defence)):
            continue
        for values in itertools.product(*algorithm.grid.values()):
            point = dict(zip(algorithm.grid, values, strict=True))
            at = ", ".join(f"{name} {value}" for name, value in point.items())
            for privacy in _privacies(guarantee):
                setup = Setup(
                    labels={
                        "data": data.title,
                        "partition": partition.title,
                        "algorithm": f"{algorithm.title}, {at}" if at else algorithm.title,
                        "sum": summed.title,
                        "privacy": privacy_title(privacy),
                        "defence": defence.name,
                    },
                    data=data,
                    digest=tables[d].digest,
                    source=source_of(data, folder),
                    partition=partition,
                    estimator=algorithm.estimator,
                    parameters=algorithm.parameters | point | defence.parameters,
                    protocol=summed.protocol,
                    protocol_parameters=summed.parameters,
                    privacy=privacy,
                    attacks=[
                        attack
                        for attack in study.attack
                        if (not attack.sums or summed.title in attack.sums)
                        and (not attack.algorithms or algorithm.title in attack.algorithms)
                    ],
                    fits=study.fits,
                    further_n_clusters=algorithm.further_n_clusters if study.fits else [],
                    joining=study.fits[-1] - 1 if algorithm.row_joins else 0,
                    audit=study.audit,
                    metrics=study.named_metrics,
                )
                yield setup, tables[d], places


def _privacies(guarantee: Guarantee) -> Iterator[CellPrivacy | None]:
    """Yield a guarantee for each epsilon; None for infinity."""
    for epsilon in guarantee.epsilons:
        unbounded = not math.isfinite(epsilon) or guarantee.delta is None
        yield (
            None
            if unbounded
            else msgspec.convert({**msgspec.to_builtins(guarantee), "epsilon": float(epsilon)}, CellPrivacy)
        )
