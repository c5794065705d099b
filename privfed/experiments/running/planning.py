"""Turns a study into a plan of its cells, which is checked completely before anything is fitted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.errors import PrivFedError
from privfed.experiments.running.blame import faults
from privfed.experiments.running.checking import Trial, check_attack, check_names
from privfed.experiments.study.cells import AXES, Privately, Setup, data_label, privacy_label
from privfed.experiments.study.datasets import Table, load_table
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.located import Located, Mistakes
from privfed.experiments.study.salvage import fitting
from privfed.experiments.study.study import (
    Algorithm,
    Data,
    Defence,
    Guarantee,
    Partition,
    Study,
    Sum,
    Word,
    Words,
)


@dataclass(frozen=True)
class Plan:
    """Holds a checked study: its configurations and seeds.

    Args:
        located: the study.
        setups: configurations in the order of the study's axes, the last axis fastest.
        seeds: seeds of every configuration.
        folder: folder that relative paths of data start from.
    """

    located: Located
    setups: list[Setup]
    seeds: list[int]
    folder: Path


def plan(located: Located, folder: Path) -> Plan:
    """Check a whole study and list its configurations; nothing is fitted.

    Args:
        located: the study.
        folder: folder that relative paths of data start from.

    Raises:
        StudyError: something in the study is unknown, wrong or inconsistent; the error lists all mistakes,
            each with its line.
    """
    mistakes = Mistakes(located)
    study = check_names(located, mistakes)
    study, tables = _loaded(study, folder, mistakes)
    checks = _Checks(study, mistakes, [Trial(table, study.seed_numbers[0]) for table in tables])
    setups = []
    for setup, paths in _product(study, tables):
        checks.check(setup, paths)
        setups.append(setup)
    if not setups and not mistakes:
        mistakes.add("no guarantee and no defence is combined with any algorithm.", ("privacy", 0))
    mistakes.check()
    return Plan(located, setups, study.seed_numbers, folder)


def _loaded(study: Study, folder: Path, mistakes: Mistakes) -> tuple[Study, list[Table]]:
    """Load the data; sets that cannot be loaded are replaced by one that fits everything."""
    data, tables = list(study.data), list[Table]()
    for i, one in enumerate(data):
        try:
            tables.append(load_table(one, folder))
        except PrivFedError as error:
            mistakes.add(str(error), ("data", i))
            mistakes.broken.add(("data", i))
            data[i] = fitting("data")
            tables.append(load_table(data[i], folder))
        if ("data", i) in mistakes.broken:
            # What stands in for it fits a partition by its column of clients, too.
            tables[i] = replace(tables[i], owners=np.arange(len(tables[i].rows)) // 3)
    return msgspec.structs.replace(study, data=data), tables


MOST = 40
"""Configurations that are analysed even if their first mistake is known, as others may be hidden by it."""

_Known = dict[object, tuple[Setup, tuple[KeyPath, ...]]]
"""Id or labels -> the first configuration with these, and its tables."""


class _Checks:
    """Checks configurations one after the other, and reports each mistake once.

    Args:
        study: the study.
        mistakes: collects what is found.
        trials: one for each data set, by position.
    """

    def __init__(self, study: Study, mistakes: Mistakes, trials: list[Trial]) -> None:
        self._study, self._mistakes, self._trials = study, mistakes, trials
        self._told: list[tuple[str, frozenset[KeyPath]]] = []
        self._n_taken_apart = 0
        self._seen: _Known = {}
        self._named: _Known = {}

    def check(self, setup: Setup, paths: tuple[KeyPath, ...]) -> None:
        """Check a configuration and its attacks, and that no other one is equal or has the same name."""
        trial = self._trials[next(int(path[1]) for path in paths if path[0] == "data")]
        problem = trial(setup)
        if problem is not None and (self._n_taken_apart < MOST or not self._known(problem, paths)):
            self._n_taken_apart += 1
            for fault in faults(self._study, setup, paths, trial):
                self._tell(fault.problem, fault.problem, fault.keys)
        self._check_attacks(setup, trial)
        label = tuple(setup.labels.values())
        same = "two configurations are the same: this one and {}."
        if not self._is_repeated(self._seen, setup.id, same, setup, paths):
            self._is_repeated(
                self._named, label, "two configurations are called {}; name them.", setup, paths
            )

    def _known(self, problem: str, paths: Sequence[KeyPath]) -> bool:
        """Say whether this problem was already reported for tables of this configuration."""
        tables = {path[:2] for path in paths}
        return any(problem == told and own <= tables for told, own in self._told)

    def _tell(self, problem: str, text: str, keys: Sequence[KeyPath]) -> None:
        """Report a problem once for the same tables; `text` is what is shown, `problem` identifies it."""
        if not self._known(problem, keys):
            self._told.append((problem, frozenset(path[:2] for path in keys)))
            self._mistakes.add_at(text, keys)

    def _check_attacks(self, setup: Setup, trial: Trial) -> None:
        if (scene := trial.scene_or_none(setup)) is None:
            return
        for attack in setup.attacks:
            path = ("attack", self._study.attack.index(attack))
            try:
                check_attack(attack, scene)
            except PrivFedError as error:
                if path not in self._mistakes.broken:
                    self._mistakes.add(str(error), path)

    def _is_repeated(
        self, known: _Known, key: object, problem: str, setup: Setup, paths: tuple[KeyPath, ...]
    ) -> bool:
        """Register a configuration, or report which tables make it the same as an earlier one."""
        other, before = known.setdefault(key, (setup, paths))
        if other is setup:
            return False
        differing = [path for path in (*paths, *before) if path not in paths or path not in before]
        # If no table differs, they are two points of one grid.
        keys = differing or [(*path, "grid") for path in paths if path[0] == "algorithm"]
        self._tell(problem, problem.format(" / ".join(other.labels.values())), keys)
        return True


def _product(study: Study, tables: list[Table]) -> Iterator[tuple[Setup, tuple[KeyPath, ...]]]:
    """Yield each configuration with the tables of the study that it comes from."""
    axes = [list(enumerate(getattr(study, axis))) for axis in AXES]
    for chosen in itertools.product(*axes):
        one = Combination(*(value for _, value in chosen))
        d, p, a, s, g, f = (place for place, _ in chosen)
        paths: tuple[KeyPath, ...] = (
            *(("defence", f), ("algorithm", a), ("privacy", g)),
            *(("partition", p), ("sum", s), ("data", d)),
        )
        if one.wanted:
            for point, privately in itertools.product(_grid(one.algorithm.grid), _guarantees(one.guarantee)):
                yield _setup(study, one, tables[d], point, privately), paths


class Combination(NamedTuple):
    """One value of each axis of a study, in the order of `AXES`."""

    data: Data
    partition: Partition
    algorithm: Algorithm
    summed: Sum
    guarantee: Guarantee
    defence: Defence

    @property
    def name(self) -> str:
        """Name of the algorithm."""
        return self.algorithm.name or self.algorithm.estimator

    @property
    def sum_name(self) -> str:
        """Name of the secure sum."""
        return self.summed.name or self.summed.protocol

    @property
    def wanted(self) -> bool:
        """Whether the algorithm is for these data, and the guarantee and the defence for the algorithm."""
        if self.algorithm.data and data_label(self.data) not in self.algorithm.data:
            return False
        return all(
            not one.algorithms or self.name in one.algorithms for one in (self.guarantee, self.defence)
        )


def _setup(study: Study, one: Combination, table: Table, point: Words, privately: Privately | None) -> Setup:
    return Setup(
        labels=_labels(one, point, privately),
        data=one.data,
        digest=table.digest,
        partition=one.partition,
        estimator=one.algorithm.estimator,
        words=one.algorithm.words | point | one.defence.words,
        protocol=one.summed.protocol,
        protocol_words=one.summed.words,
        privacy=privately,
        attacks=[
            attack
            for attack in study.attack
            if (not attack.sums or one.sum_name in attack.sums)
            and (not attack.algorithms or one.name in attack.algorithms)
        ],
        audit=study.audit,
        metrics=study.named_metrics,
    )


def _labels(one: Combination, point: Words, privately: Privately | None) -> dict[str, str]:
    chosen, how = ", ".join(f"{word} {value}" for word, value in point.items()), one.partition
    return {
        "data": data_label(one.data),
        "partition": how.name or (how.kind if how.kind == "given" else f"{how.clients} {how.kind}"),
        "algorithm": f"{one.name}, {chosen}" if chosen else one.name,
        "sum": one.sum_name,
        "privacy": privacy_label(privately),
        "defence": one.defence.name,
    }


def _grid(grid: dict[str, list[Word]]) -> Iterator[Words]:
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
                unit=Unit(guarantee.unit),
                neighbours=Neighbours(guarantee.neighbours),
                noise=Noise(guarantee.noise),
                mechanism=Mechanism(guarantee.mechanism),
                rehearsal=guarantee.rehearsal,
            )
