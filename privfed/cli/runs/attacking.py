"""Which attacks are run on a run's folder, on what view, and what they are scored against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from privfed import attacks
from privfed.attacks import PassiveAttack, Prior, Report, Truth, evaluate
from privfed.cli.declared import Declared
from privfed.cli.folder.run_folder import RUN, Source, read_run
from privfed.cli.runs.fitting import load
from privfed.core.domain import FloatArray
from privfed.core.transcript import Transcript
from privfed.core.view import View
from privfed.data import load_features
from privfed.errors import ArgumentError, DataError


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is attacked, and what attacks are scored against.

    Args:
        view: what the party saw.
        clients: rows of every client, by position.
        client: position of the client that attacks on one client go for; None where they show nothing.
        public: public rows of the same kind; None without.
        ends: lowest and highest value of each feature, where they are known; None without.
        most_rows: of a target that `NoisyDifferencing` takes on.
        gdp_mu: mu of the run's differential privacy; None without.
    """

    view: View
    clients: list[FloatArray]
    client: int
    public: FloatArray | None
    ends: tuple[FloatArray, FloatArray] | None
    most_rows: int
    gdp_mu: float | None

    @property
    def shows_answers(self) -> bool:
        """Whether the view holds the answers of single clients."""
        return any(one.answers for one in self.view.sums)

    @property
    def prior(self) -> Prior:
        """What the attacker brings."""
        rows = {i: self.clients[i] for i in self.view.colluding}
        low, high = self.ends or (None, None)
        return Prior(sample=self.public, low=low, high=high, n_clients=len(self.clients), colluders=rows)

    @property
    def truth(self) -> Truth:
        """What attacks are scored against."""
        return Truth(self.clients, colluding=self.view.colluding)


Prepared = tuple[PassiveAttack[Any], Prior, Truth]


def _on_client(kind: Callable[[int | None], PassiveAttack[Any]]) -> Callable[[Target], Prepared]:
    """Attack one client where its answers are seen, else the totals."""

    def prepare(target: Target) -> Prepared:
        return kind(target.client if target.shows_answers else None), target.prior, target.truth

    return prepare


def _whole(kind: Callable[[], PassiveAttack[Any]]) -> Callable[[Target], Prepared]:
    return lambda target: (kind(), target.prior, target.truth)


def _membership(target: Target) -> Prepared:
    """Take half of the public rows for candidates that took no part, the other half as the population."""
    if target.public is None:
        raise ArgumentError("membership compares with public rows; give them with --public.")
    others = [rows for i, rows in enumerate(target.clients) if i not in target.view.colluding]
    inside, outside = np.concatenate(others), target.public[::2]
    candidates = np.concatenate([inside, outside])
    attack = attacks.Membership(candidates, gdp_mu=target.gdp_mu)
    members = np.arange(len(candidates)) < len(inside)
    return (
        attack,
        replace(target.prior, sample=target.public[1::2]),
        replace(target.truth, members=members),
    )


CATALOGUE: dict[str, Callable[[Target], Prepared]] = {
    "differencing": _on_client(attacks.Differencing),
    "disaggregation": _whole(attacks.Disaggregation),
    "equal-weight-counts": lambda target: (
        attacks.EqualWeightCounts(target.client),
        target.prior,
        target.truth,
    ),
    "fuzzy-inversion": _on_client(lambda client: attacks.FuzzyInversion(client)),
    "cluster-membership": _whole(attacks.ClusterMembership),
    "linkage": _whole(attacks.Linkage),
    "membership": _membership,
    "noisy-differencing": lambda target: _on_client(
        partial(attacks.NoisyDifferencing, most_rows=target.most_rows)
    )(target),
    "tomography": _on_client(attacks.Tomography),
}
"""Attacks on a recorded run, by their names on the command line."""


def chosen(names: tuple[str, ...]) -> list[str]:
    """Return the attacks that are asked for.

    Raises:
        ArgumentError: an unknown name.
    """
    if not names or names == ("all",):
        return list(CATALOGUE)
    unknown = [name for name in names if name not in CATALOGUE]
    if unknown:
        raise ArgumentError(f"no attack {unknown[0]!r}; there are all, {', '.join(CATALOGUE)}.")
    return list(names)


def run_one(target: Target, name: str, seed: int) -> tuple[PassiveAttack[Any], Report]:
    """Run one attack; return it with its report.

    Raises:
        ArgumentError: the view or the public rows do not hold what it needs.
    """
    attack, prior, truth = CATALOGUE[name](target)
    result = attack.run(target.view, prior, np.random.default_rng(seed))
    return attack, evaluate(result, truth)


def target_of(
    folder: Path,
    transcript: Transcript,
    *,
    truth: Path | None,
    group: str | None,
    sample: Path | None,
    low: tuple[float, ...] | None,
    high: tuple[float, ...] | None,
    most_rows: int,
    party: str,
    colluding: tuple[str, ...],
    client: str | None,
) -> Target:
    """Read what attacks on a run's folder need.

    Args:
        folder: of the run.
        transcript: of the run.
        truth: the clients' rows; None for the data that the run's folder names.
        group: column that tells clients apart; None for that of the run's folder.
        sample: table of public rows; None without.
        low: lowest value of all features, or one for each; None without.
        high: highest value.
        most_rows: of a target that noisy differencing takes on.
        party: "server" or "observer".
        colluding: names of clients that tell the party all they know.
        client: name of the client that attacks on one client go for; None for the first that is honest.

    Raises:
        ArgumentError: a client that is not in the run, or no one left to attack.
        DataError: the rows are not those of the run's clients.
        RunFolderError: the folder names no data, and none was given.
    """
    domain = Declared(low=low, high=high).domain()
    rows, columns = true_rows(folder, transcript, truth, group)
    agreed = transcript.configuration
    positions = [_position(name, agreed.clients) for name in colluding]
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
    return Target(
        view=transcript.view(party, colluding=positions),
        clients=rows,
        client=wanted,
        public=None if sample is None else load_features(sample, columns),
        ends=None if domain is None else domain.bounds(len(columns)),
        most_rows=most_rows,
        # Only Gaussian noise has such a curve.
        gdp_mu=None
        if agreed.privacy is None or agreed.privacy.mechanism != "gaussian"
        else agreed.privacy.budget**0.5,
    )


def true_rows(
    folder: Path, transcript: Transcript, truth: Path | None, group: str | None
) -> tuple[list[FloatArray], tuple[str, ...]]:
    """Return the rows of every client of a run, by position, and the names of their columns.

    Raises:
        DataError: they are not those of the run's clients.
        RunFolderError: the folder names no data, and none was given.
    """
    run = read_run(folder) if truth is None or (folder / RUN).exists() else None
    known = None if run is None else run.source
    source = Source(path="", group=None, label=None, columns=(), separator=None) if known is None else known
    # Who took part is known from the run; without rows they may have been under differential privacy only.
    private = transcript.configuration.privacy is not None
    private |= run is not None and run.parameters.declared.epsilon is not None
    tables = load(
        Source(
            path=source.path if truth is None else str(truth.absolute()),
            group=group or source.group,
            label=source.label,
            columns=source.columns,
            separator=source.separator,
            clients=transcript.configuration.clients if private else (),
        ),
        private=private,
    )
    names = transcript.configuration.clients
    if set(tables.names) != set(names):
        raise DataError(
            f"the rows are of {len(tables.names)} clients that are not the run's {len(names)} "
            f"(the run has {names[0]!r}, the rows have {tables.names[0]!r}); name their column with --group."
        )
    by_name = dict(zip(tables.names, tables.arrays, strict=True))
    return [np.asarray(by_name[name]) for name in names], tuple(tables.columns)


def _position(name: str, clients: tuple[str, ...]) -> int:
    if name not in clients:
        raise ArgumentError(f"client {name!r} is not in this run; it has {', '.join(clients[:8])}.")
    return clients.index(name)
