"""Chooses the attacks on a run's folder, and reads the view and the truth for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privfed.attacks import PassiveAttack, Report, evaluate
from privfed.attacks.base.preparation import Target
from privfed.attacks.registry import ATTACKS, attack_class
from privfed.cli.declared import Declared
from privfed.cli.folder.run_folder import RUN, Source, read_run
from privfed.cli.runs.fitting import load
from privfed.cli.runs.training import labels_of
from privfed.core.record.transcript import Transcript
from privfed.core.record.view import View
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism
from privfed.data import ClientTables, load_clients, load_features
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError, DataError


def known() -> dict[str, type[PassiveAttack[Any]]]:
    """Return the registered attacks that work on a recorded run, by name."""
    kinds = {name: attack_class(name) for name in ATTACKS}
    return {name: kind for name, kind in kinds.items() if issubclass(kind, PassiveAttack)}


def chosen(names: tuple[str, ...]) -> dict[str, type[PassiveAttack[Any]]]:
    """Return the chosen attacks by name; a user's own is named "module:Class".

    Raises:
        ArgumentError: a name is unknown, or an attack asks questions of its own.
    """
    if not names or names == ("all",):
        return known()
    found: dict[str, type[PassiveAttack[Any]]] = {}
    for name in names:
        if name not in ATTACKS and ":" not in name:
            raise ArgumentError(
                f"no attack {name!r}; use all, {', '.join(known())}, or module:Class for your own."
            )
        kind = attack_class(name)
        if not issubclass(kind, PassiveAttack):
            raise ArgumentError(
                f"{name} asks questions of its own, which a recorded run cannot answer: name it in an "
                "[[attack]] of a study (privfed tradeoff)."
            )
        found[ATTACKS.canonical(name)] = kind
    return found


def run_one(
    view: View, target: Target, kind: type[PassiveAttack[Any]], seed: int
) -> tuple[PassiveAttack[Any], Report]:
    """Run one attack; return it with its report.

    Raises:
        ArgumentError: the view or the public rows lack something that the attack needs.
    """
    made = kind.prepare(target, {})
    result = made.attack.run(view, made.prior, np.random.default_rng(seed))
    return made.attack, evaluate(result, made.truth)


def target_of(
    folder: Path,
    transcript: Transcript,
    *,
    truth: Path | None,
    group: str | None,
    columns: tuple[str, ...],
    sample: Path | None,
    low: tuple[float, ...] | None,
    high: tuple[float, ...] | None,
    most_rows: int,
    party: str,
    colluding: tuple[str, ...],
    client: str | None,
) -> tuple[View, Target]:
    """Read what attacks on a run's folder need: the view of the party, and the target.

    Args:
        folder: folder of the run.
        transcript: transcript of the run.
        truth: file with the clients' rows; None for the data that the run's folder names.
        group: column that names each row's client; None for that of the run's folder.
        columns: feature columns of the truth; empty for those of the run's folder, or all but the group.
        sample: table of public rows; None without.
        low: lowest value of all features, or one for each; None without.
        high: highest value of all features, or one for each; None without.
        most_rows: most rows of a target of noisy differencing.
        party: "server", "observer", or "clients": those that collude.
        colluding: names of clients that share all they know with the party.
        client: name of the target of attacks on one client; None for the first honest client.

    Raises:
        ArgumentError: a client is not in the run, or no client is left to attack.
        DataError: the rows are not those of the run's clients.
        RunFolderError: the folder names no data, and none was given.
    """
    domain = Declared(low=low, high=high).domain()
    rows, features, labels = true_rows(folder, transcript, truth, group, columns)
    agreed = transcript.configuration
    positions = [_position(name, agreed.clients) for name in colluding]
    if party == "clients" and not positions:
        raise ArgumentError("clients attack by what they see: name them with --colluding.")
    if len(set(positions)) == len(agreed.clients):
        raise ArgumentError("all clients collude: nobody is left to attack; name fewer with --colluding.")
    honest = [i for i in range(len(rows)) if i not in positions]
    first = next((i for i in honest if len(rows[i])), honest[0])
    wanted = first if client is None else _position(client, agreed.clients)
    if wanted in positions:
        raise ArgumentError(f"client {client!r} colludes: its rows are the attacker's own; name another.")
    if not len(rows[wanted]):
        raise ArgumentError(
            f"client {agreed.clients[wanted]!r} has no rows that an attack could find; name another."
        )
    view = transcript.view(party, colluding=positions)
    public, public_labels = _public(folder, sample, features, labels is not None)
    return view, Target(
        clients=rows,
        labels=labels,
        colluding=view.colluding,
        helping=view.colluding,
        shows_answers=any(one.answers for one in view.sums),
        client=wanted,
        public=public,
        public_labels=public_labels,
        ends=None if domain is None else domain.bounds(len(features)),
        most_rows=most_rows,
        # Only Gaussian noise has a Gaussian trade-off curve.
        gdp_mu=None
        if agreed.noising_terms is None or agreed.noising_terms.mechanism != Mechanism.GAUSSIAN
        else agreed.noising_terms.budget**0.5,
    )


def _public(
    folder: Path, sample: Path | None, columns: tuple[str, ...], labelled: bool
) -> tuple[FloatArray | None, Labels | None]:
    """Return public rows, and of a run that trained models their labels."""
    if sample is None or not labelled:
        return None if sample is None else load_features(sample, columns), None
    source = read_run(folder).source
    tables = load_clients(sample, label=source.label, columns=columns)
    labels = np.concatenate(labels_of(tables, source.classes))
    return np.concatenate(tables.arrays)[labels >= 0], labels[labels >= 0]


def true_rows(
    folder: Path,
    transcript: Transcript,
    truth: Path | None,
    group: str | None,
    columns: tuple[str, ...] = (),
) -> tuple[list[FloatArray], tuple[str, ...], list[Labels] | None]:
    """Return the rows of every client of a run, by position, the names of their columns, and labels.

    Labels are those that a run trained on; None for other runs.

    Raises:
        DataError: the rows are not those of the run's clients.
        RunFolderError: the folder names no data, and none was given.
    """
    run = read_run(folder) if truth is None or (folder / RUN).exists() else None
    known = None if run is None else run.source
    source = Source(path="", group=None, label=None, columns=(), separator=None) if known is None else known
    # The run names its clients. Only under differential privacy may some of them have no rows.
    private = transcript.configuration.privacy is not None
    private |= run is not None and run.parameters.declared.epsilon is not None
    tables = load(
        Source(
            path=source.path if truth is None else str(truth.absolute()),
            group=group or source.group,
            label=source.label,
            columns=columns or source.columns,
            separator=source.separator,
            clients=transcript.configuration.clients if private else (),
        ),
        private=private,
    )
    names = transcript.configuration.clients
    # Of runs that trained models, the model says how many columns there are.
    _check_rows(tables, names, None if source.classes else transcript.configuration.n_features)
    place = {name: i for i, name in enumerate(tables.names)}
    labels = labels_of(tables, source.classes) if source.classes else None
    return (
        [np.asarray(tables.arrays[place[name]]) for name in names],
        tuple(tables.columns),
        None if labels is None else [labels[place[name]] for name in names],
    )


def _check_rows(tables: ClientTables, names: tuple[str, ...], n_features: int | None) -> None:
    """Check that rows are those of a run's clients, and have its number of columns, where that is given."""
    if set(tables.names) != set(names):
        raise DataError(
            f"the rows are of {len(tables.names)} clients that are not the run's {len(names)} "
            f"(the run has {names[0]!r}, the rows have {tables.names[0]!r}); name their column with --group."
        )
    if n_features is not None and len(tables.columns) != n_features:
        raise DataError(
            f"the rows have {len(tables.columns)} columns, the run has {n_features}; name those of the run "
            "with --columns."
        )


def _position(name: str, clients: tuple[str, ...]) -> int:
    if name not in clients:
        raise ArgumentError(f"client {name!r} is not in this run; it has {', '.join(clients[:8])}.")
    return clients.index(name)
