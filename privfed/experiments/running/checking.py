"""Checks of a study: names and parameters first, then each configuration up to a fit's first question."""

from __future__ import annotations

import msgspec

from privfed.attacks import ActiveAttack
from privfed.attacks.registry import attack_class
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError, PrivFedError
from privfed.experiments.running.attacking import prepared, target_of
from privfed.experiments.study.cells import Setup, attack_label, data_label
from privfed.experiments.study.datasets import Scene, Table, split
from privfed.experiments.study.factories import check_words, estimator, estimator_class, metric_function
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.located import Located, Mistakes
from privfed.experiments.study.salvage import fitting
from privfed.experiments.study.study import Attack, Partition, Study, Words
from privfed.federation.builder import FederationRequest, cohort_rule
from privfed.federation.clients import gather


def check_names(located: Located, mistakes: Mistakes) -> Study:
    """Check that every name is known, and that every parameter belongs to what it is given to.

    Returns:
        The study, in which tables of unknown estimators and attacks are replaced by ones that fit.
    """
    study = _with_known_kinds(located.study, mistakes)
    for name in study.named_metrics:
        _check_metric(name, mistakes)
    for i, one in enumerate(study.algorithm):
        _check_parameters(
            mistakes, ("algorithm", i), estimator_class(one.estimator), one.words | dict(one.grid)
        )
    for i, attack in enumerate(study.attack):
        kind = attack_class(attack.kind)
        _check_parameters(mistakes, ("attack", i), kind, attack.words)
        if issubclass(kind, ActiveAttack) and (attack.rounds or attack.colluding):
            word = "rounds" if attack.rounds else "colluding"
            mistakes.add(f"{word} is for passive attacks; {attack.kind} asks.", ("attack", i))
    _check_labels(study, mistakes)
    algorithms = {one.name or one.estimator: estimator_class(one.estimator) for one in study.algorithm}
    for i, defence in enumerate(study.defence):
        for name in defence.algorithms or algorithms:
            if name in algorithms:
                _check_parameters(mistakes, ("defence", i), algorithms[name], defence.words)
    return study


def _check_metric(name: str, mistakes: Mistakes) -> None:
    try:
        metric_function(name)
    except ArgumentError as error:
        # What cannot be imported is told by its place, without the key that it stands under.
        told = str(error)
        mistakes.add(told if told.startswith("metrics") else f"metrics: {told}", ())


def _with_known_kinds(study: Study, mistakes: Mistakes) -> Study:
    algorithms, attacks = list(study.algorithm), list(study.attack)
    for i, one in enumerate(algorithms):
        try:
            estimator_class(one.estimator)
        except ArgumentError as error:
            mistakes.add(str(error), ("algorithm", i))
            mistakes.broken.add(("algorithm", i))
            algorithms[i] = fitting("algorithm")
    for i, attack in enumerate(attacks):
        try:
            attack_class(attack.kind)
        except ArgumentError as error:
            mistakes.add(str(error).replace("attack must", "kind must", 1), ("attack", i))
            mistakes.broken.add(("attack", i))
            attacks[i] = fitting("attack")
    return msgspec.structs.replace(study, algorithm=algorithms, attack=attacks)


def _check_labels(study: Study, mistakes: Mistakes) -> None:
    """Check that the names by which tables refer to others exist, and that labels of attacks differ."""
    labels = [attack_label(one) for one in study.attack]
    for i, label in enumerate(labels):
        if label in labels[:i] and not mistakes.broken & {("attack", i), ("attack", labels.index(label))}:
            mistakes.add(f"name must differ: another attack is called {label!r} too.", ("attack", i))
    known = {
        "data": [data_label(one) for one in study.data],
        "algorithms": [one.name or one.estimator for one in study.algorithm],
        "sums": [one.name or one.protocol for one in study.sum],
    }
    # The name of a table that cannot be read is not known, so references to its axis are not checked.
    unread = {str(axis).rstrip("s") + "s" if axis != "data" else "data" for axis, *_ in mistakes.broken}
    for axis in ("algorithm", "privacy", "defence", "attack"):
        for i, one in enumerate(getattr(study, axis)):
            for key in known.keys() - unread:
                mistakes.known(key, getattr(one, key, []), known[key], (axis, i))


def _check_parameters(mistakes: Mistakes, path: KeyPath, kind: type, words: Words) -> None:
    for word, value in words.items():
        try:
            check_words(kind, {word: value})
        except ArgumentError as error:
            mistakes.add(str(error), path, (*path, "grid"))


class Trial:
    """Tries configurations of one data set up to the point where a fit would ask its first question.

    Args:
        table: the rows.
        seed: seed of the split.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self._table, self._seed = table, seed
        self._scenes: dict[Partition, Scene] = {}

    def scene(self, setup: Setup) -> Scene:
        """Return the clients of a configuration; raises as `split`."""
        if setup.partition not in self._scenes:
            self._scenes[setup.partition] = split(setup.data, self._table, setup.partition, self._seed)
        return self._scenes[setup.partition]

    def scene_or_none(self, setup: Setup) -> Scene | None:
        """Return the clients of a configuration, or None if the rows cannot be split in this way."""
        try:
            return self.scene(setup)
        except PrivFedError:
            return None

    def __call__(self, setup: Setup) -> str | None:
        """Return what is wrong with a configuration, or None."""
        try:
            scene = self.scene(setup)
        except PrivFedError as error:
            # A study has other names for these parameters.
            return str(error).replace("n_clients", "clients").replace("(y=)", "(label = ... in [[data]])")
        try:
            _agree(setup, scene, self._seed)
        except PrivFedError as error:
            return str(error)
        return None


def _agree(setup: Setup, scene: Scene, seed: int) -> None:
    """Construct an estimator, and the agreement of its parties.

    Raises:
        ArgumentError: a parameter is wrong, or parameters do not fit together.
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
    ).agreed()
    if model.n_clusters > len(scene.pooled):
        n, got = len(scene.pooled), model.n_clusters
        raise ArgumentError(f"n_clusters must be at most the {n} rows that clients hold, got {got}.")


def check_attack(attack: Attack, scene: Scene) -> None:
    """Check that an attack can be constructed, and that the clients and public rows that it needs exist.

    Raises:
        ArgumentError: one of these is not the case.
    """
    positions, n = range(len(scene.clients)), len(scene.clients)
    if not set(attack.colluding) <= set(positions):
        raise ArgumentError(f"colluding must be positions of the {n} clients, got {attack.colluding}.")
    client = attack.words.get("client")
    if client is not None and (isinstance(client, bool) or client not in positions):
        raise ArgumentError(f"client must be the position of one of the {n} clients, got {client!r}.")
    kind = attack_class(attack.kind)
    check_words(kind, attack.words)
    least = kind.public_rows
    if least and (scene.public is None or len(scene.public) < least):
        raise ArgumentError(
            f"kind {attack.kind!r} compares with public rows: hold at least {least} back with public = ... "
            "in [[data]]."
        )
    prepared(attack, target_of(attack, scene, None, 0))
