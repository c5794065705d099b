"""From a study to the plan of its cells, checked whole before anything is fitted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.attacks import ActiveAttack
from privfed.errors import ArgumentError, PrivFedError
from privfed.estimators.base import FederatedClusterer
from privfed.experiments.running.attacking import LEAST_PUBLIC, wants_candidates
from privfed.experiments.study.cells import AXES, Privately, Setup, attack_label, data_label, privacy_label
from privfed.experiments.study.datasets import Scene, Table, load_table, split
from privfed.experiments.study.factories import ATTACKS, check_words, estimator, estimator_class, make
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.reading import Located
from privfed.experiments.study.study import Attack, Guarantee, Words
from privfed.federation.builder import cohort_rule, configuration_of
from privfed.federation.clients import gather


@dataclass(frozen=True)
class Plan:
    """A checked study: its setups, and the seeds of each.

    Args:
        located: the study.
        setups: in the order of the study's axes, the last axis fastest.
        seeds: of every setup.
        folder: where relative paths of data begin.
    """

    located: Located
    setups: list[Setup]
    seeds: list[int]
    folder: Path


def plan(located: Located, folder: Path) -> Plan:
    """Check a study whole and lay out its cells; nothing is fitted.

    Args:
        located: the study.
        folder: where relative paths of data begin.

    Raises:
        ArgumentError: something in it is unknown, wrong, or does not fit together; the message names where.
    """
    _check_names(located)
    tables = [_table(located, position, folder) for position in range(len(located.study.data))]
    seeds, setups, seen = located.study.seed_numbers, [], dict[str, dict[str, str]]()
    named = dict[tuple[str, ...], str]()
    for setup, paths in _product(located, tables):
        position = next(path[1] for path in paths if path[0] == "data")
        _check(setup, paths, located, tables[int(position)], seeds[0])
        if setup.id in seen:
            other = " / ".join(seen[setup.id].values())
            raise located.error(f"two configurations are the same: this one and {other}.", paths[1])
        label = tuple(setup.labels.values())
        if label in named:
            raise located.error(f"two configurations are called {' / '.join(label)}; name them.", paths[1])
        seen[setup.id], named[label] = setup.labels, setup.id
        setups.append(setup)
    if not setups:
        raise located.error("no guarantee and no defence is combined with any algorithm.", ("privacy", 0))
    return Plan(located, setups, seeds, folder)


def _table(located: Located, position: int, folder: Path) -> Table:
    try:
        return load_table(located.study.data[position], folder)
    except PrivFedError as error:
        raise located.error(error, ("data", position)) from None


def _check_names(located: Located) -> None:
    """Check that every name is known, and every word one of what it is said to."""
    study = located.study
    for i, one in enumerate(study.algorithm):
        _worded(located, ("algorithm", i), _class(located, i), one.words | dict(one.grid))
    for i, attack in enumerate(study.attack):
        _known(located, ("attack", i), "kind", [attack.kind], ATTACKS)
        _worded(located, ("attack", i), ATTACKS[attack.kind], attack.words)
        if issubclass(ATTACKS[attack.kind], ActiveAttack) and (attack.rounds or attack.colluding):
            word = "rounds" if attack.rounds else "colluding"
            raise located.error(f"{word} is for passive attacks; {attack.kind} asks.", ("attack", i))
    labels = [attack_label(one) for one in study.attack]
    for i, label in enumerate(labels):
        if label in labels[:i]:
            raise located.error(f"name must differ: another attack is called {label!r} too.", ("attack", i))
    algorithms = {one.name or one.estimator: _class(located, i) for i, one in enumerate(study.algorithm)}
    sums = [one.name or one.protocol for one in study.sum]
    data = [data_label(one) for one in study.data]
    for i, one in enumerate(study.algorithm):
        _known(located, ("algorithm", i), "data", one.data, data)
    for axis in ("privacy", "defence", "attack"):
        for i, one in enumerate(getattr(study, axis)):
            _known(located, (axis, i), "algorithms", one.algorithms, algorithms)
            _known(located, (axis, i), "sums", getattr(one, "sums", []), sums)
    for i, defence in enumerate(study.defence):
        for name in defence.algorithms or algorithms:
            _worded(located, ("defence", i), algorithms[name], defence.words)


def _class(located: Located, position: int) -> type[FederatedClusterer]:
    try:
        return estimator_class(located.study.algorithm[position].estimator)
    except ArgumentError as error:
        raise located.error(error, ("algorithm", position)) from None


def _known(located: Located, path: KeyPath, key: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise located.error(f"{key} must be one of {listed}; got {name!r}.", path)


def _worded(located: Located, path: KeyPath, kind: type, words: Words) -> None:
    try:
        check_words(kind, words)
    except ArgumentError as error:
        raise located.error(error, path, (*path, "grid")) from None


def _product(located: Located, tables: list[Table]) -> Iterator[tuple[Setup, list[KeyPath]]]:
    """Yield each setup, with the tables of the study that it comes from."""
    study = located.study
    axes = [list(enumerate(getattr(study, axis))) for axis in AXES]
    for (d, data), (p, how), (a, algorithm), (s, summed), (g, guarantee), (f, defence) in itertools.product(
        *axes
    ):
        name = algorithm.name or algorithm.estimator
        if algorithm.data and data_label(data) not in algorithm.data:
            continue
        if any(one.algorithms and name not in one.algorithms for one in (guarantee, defence)):
            continue
        paths: list[KeyPath] = [
            ("sum", s), ("algorithm", a), ("algorithm", a, "grid"), ("defence", f), ("privacy", g),
            ("partition", p), ("data", d),
        ]  # fmt: skip
        for point, privately in itertools.product(_grid(algorithm.grid), _guarantees(guarantee)):
            chosen = ", ".join(f"{word} {value}" for word, value in point.items())
            sum_name = summed.name or summed.protocol
            labels = {
                "data": data_label(data),
                "partition": how.name or (how.kind if how.kind == "given" else f"{how.clients} {how.kind}"),
                "algorithm": f"{name}, {chosen}" if chosen else name,
                "sum": sum_name,
                "privacy": privacy_label(privately),
                "defence": defence.name,
            }
            setup = Setup(
                labels=labels,
                data=data,
                digest=tables[d].digest,
                partition=how,
                estimator=algorithm.estimator,
                words=algorithm.words | point | defence.words,
                protocol=summed.protocol,
                protocol_words=summed.words,
                privacy=privately,
                attacks=[
                    one
                    for one in study.attack
                    if (not one.sums or sum_name in one.sums)
                    and (not one.algorithms or name in one.algorithms)
                ],
                audit=study.audit,
            )
            yield setup, paths


def _grid(grid: dict[str, list[Any]]) -> Iterator[Words]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _guarantees(guarantee: Guarantee) -> Iterator[Privately | None]:
    for epsilon in guarantee.epsilons:
        if not math.isfinite(epsilon) or guarantee.delta is None:
            yield None
        else:
            yield Privately(
                epsilon=float(epsilon),
                delta=guarantee.delta,
                unit=guarantee.unit,
                neighbours=guarantee.neighbours,
                noise=guarantee.noise,
                mechanism=guarantee.mechanism,
                rehearsal=guarantee.rehearsal,
            )


def _check(setup: Setup, paths: list[KeyPath], located: Located, table: Table, seed: int) -> None:
    """Go as far as a fit goes before it asks anything.

    Raises:
        ArgumentError: a word is wrong, or words do not fit together.
    """
    try:
        scene = split(setup.data, table, setup.partition, seed)
    except PrivFedError as error:
        where = next(path for path in paths if path[0] == "partition")
        # The study's word for it is shorter.
        raise located.error(str(error).replace("n_clients", "clients"), where) from None
    try:
        model = estimator(setup, scene, seed)
        clients = gather(scene.clients, names=None, domain=scene.domain)
        algorithm = model._algorithm(clients.n_features, seed)
        # Not every estimator has clients that sit a round out.
        sampled = getattr(model, "clients_per_round", None)
        configuration_of(
            clients,
            model.protocol,
            algorithm=setup.estimator,
            max_sums=algorithm.max_sums,
            rule=cohort_rule(len(clients.names), sampled, None, seed),
            seed=seed,
            domain=scene.domain if model.privacy is None else None,
            privacy=model.privacy,
            runs=algorithm,
        )
        if model.n_clusters > len(scene.pooled):
            n, got = len(scene.pooled), model.n_clusters
            raise ArgumentError(f"n_clusters must be at most the {n} rows that clients hold, got {got}.")
    except PrivFedError as error:
        raise located.error(error, *paths) from None
    for attack in setup.attacks:
        try:
            _check_attack(attack, scene)
        except PrivFedError as error:
            raise located.error(error, ("attack", located.study.attack.index(attack))) from None


def _check_attack(attack: Attack, scene: Scene) -> None:
    """Check that an attack can be made, and finds the clients and the public rows that it needs.

    Raises:
        ArgumentError: it cannot.
    """
    positions, n = range(len(scene.clients)), len(scene.clients)
    if not set(attack.colluding) <= set(positions):
        raise ArgumentError(f"colluding must be positions of the {n} clients, got {attack.colluding}.")
    client = attack.words.get("client")
    if client is not None and (isinstance(client, bool) or client not in positions):
        raise ArgumentError(f"client must be the position of one of the {n} clients, got {client!r}.")
    if not wants_candidates(ATTACKS[attack.kind]):
        make(ATTACKS[attack.kind], attack.words)
    elif scene.public is None or len(scene.public) < LEAST_PUBLIC:
        raise ArgumentError(
            f"kind {attack.kind!r} tells members from others: hold at least {LEAST_PUBLIC} rows back with "
            "public = ... in [[data]]."
        )
