"""The work of `privfed audit`; and the truth about a run, which audits and attacks are scored against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from privfed.attacks import without_known
from privfed.attacks.audits import (
    Audit,
    Claim,
    RunAudit,
    audit_one_run,
    audit_run,
    audit_samples,
    audit_units,
)
from privfed.attacks.audits.truth import unlike
from privfed.attacks.base.preparation import Target
from privfed.attacks.commands.several_runs import without_rows
from privfed.cli.declared import Declared
from privfed.cli.described import clipped, know_questions, labels_of, load, models, other_columns
from privfed.cli.result import claim_of_run
from privfed.cli.run_folder import RUN, Source, read_run, values_of
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import ClientData
from privfed.core.names import PARTS
from privfed.core.record.records import CLIENTS, LOCAL, View
from privfed.core.record.transcript import Transcript
from privfed.core.stored.files import rewrite
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism, Unit
from privfed.data import ClientTables, load_clients, load_features
from privfed.data.table import ERROR, missing_rule
from privfed.errors import ArgumentError, DataError
from privfed.estimators.scaling import scaled_as
from privfed.federation.simulation import USERS, user_key
from privfed.party.answerer import of_users
from privfed.privacy.claim import PrivacySpent

STATED = (
    "the claim is what was stated (--epsilon, --delta); what is protected (record or client, added or "
    "replaced), by which noise and against whom, is what the releases were made for: the file does not say"
)
NOT_COVERED = "this audit is computed from the clients' rows: the claim does not cover what it prints"


def audit(
    subject: Path,
    truth: Path | None,
    group: str | None,
    columns: tuple[str, ...],
    label: str | None,
    missing: float | str | None,
    algorithm: str | None,
    model: str | None,
    trials: int,
    out: Path | None,
    as_json: bool,
    my_rows: Path | None,
    client: str | None,
    id: str | None,
    journal: Path | None,
    **given: Any,
) -> None:
    """Do the work of `privfed audit`."""
    if my_rows is None and (client, id, journal) != (None, None, None):
        raise ArgumentError("--client, --id and --journal are of your own rows: name their file, --my-rows.")
    if my_rows is not None and not subject.is_dir():
        raise ArgumentError(f"--my-rows needs the folder of a run, and {subject} is none.")
    if my_rows is not None and (truth is not None or out is not None):
        raise ArgumentError(
            "--my-rows prints what it finds, for whoever has the rows: leave out --truth and --out."
        )
    found: list[Audit | RunAudit]
    if subject.is_dir():
        transcript = Transcript.load(subject)
        claim = _claim(subject, transcript)
        know_questions(subject, algorithm, "audit", model)
        given_rows = truth if my_rows is None else my_rows
        source = source_of_rows(subject, transcript, given_rows, group, columns, label, missing)
        if my_rows is not None:
            source = msgspec.structs.replace(source, id=id or source.id)
            several = group is not None
            PARTS.find("own rows").audit_own_rows(
                transcript, claim, source, client, several, journal, as_json
            )
            return
        rows, _, labels = true_rows(subject, transcript, truth, source, counted=True)
        options: dict[str, Any] = values_of({"confidence": given["confidence"]})
        noise = audit_run(transcript, rows, labels, **options)
        found = [noise, audit_units(transcript, trials=trials, **options)]
        plain = found[0].to_dict() | {"unit": found[1].to_dict(), "privacy": claim.to_dict()}
        lines = [str(claim), NOT_COVERED]
    else:
        found = [_audit_file(subject, **given)]
        plain = found[0].to_dict() | {"privacy": {"summary": STATED}}
        lines = [STATED]
    violated = any(one.verdict == "violated" for one in found)
    plain["verdict"] = "violated" if violated else "not refuted"
    if out is not None:
        rewrite(out, (json.dumps(plain, indent=2) + "\n").encode())
    click.echo(json.dumps(plain, indent=2) if as_json else "\n".join([*lines, *map(str, found)]))
    if violated:
        raise click.exceptions.Exit(1)


def _claim(folder: Path, transcript: Transcript) -> PrivacySpent:
    """Return the claim of the run in a folder.

    Raises:
        ArgumentError: the run has no claim, or noise was not added to its totals.
    """
    claim = claim_of_run(folder, transcript)
    if claim is None:
        raise ArgumentError(
            f"the run in {folder} claims no differential privacy: there is nothing to audit; name a run of "
            "'privfed fit --epsilon', or a file of releases."
        )
    if transcript.configuration.privacy is not None and transcript.configuration.noising_terms is None:
        raise ArgumentError(
            f"the totals of the run in {folder} carry no noise: each client trained by DP-SGD, with noise in "
            f"each of its steps. A transcript does not hold those, and this command cannot audit them. "
            f"{claim.line}."
        )
    if transcript.configuration.privacy is None:
        raise ArgumentError(
            f"the totals of the run in {folder} carry no noise: each client noised the centers that it "
            f"showed in a run of its own ({folder / LOCAL}), which this command cannot audit. {claim.line}."
        )
    return claim


def _audit_file(
    path: Path, *, epsilon: float | None, delta: float | None, noise: Any, confidence: float | None
) -> Audit:
    if epsilon is None or delta is None:
        raise ArgumentError("releases in a file are audited against a claim: give --epsilon and --delta.")
    claim = Claim(epsilon=epsilon, delta=delta, noise=noise)
    arrays = _arrays(path)
    options: dict[str, Any] = values_of({"confidence": confidence})
    if {"inside", "outside"} <= set(arrays):
        return audit_samples(arrays["inside"], arrays["outside"], claim=claim, **options)
    if {"scores", "included"} <= set(arrays):
        return audit_one_run(arrays["scores"], arrays["included"], claim=claim, **options)
    raise DataError(f'{path} needs arrays "inside" and "outside", or "scores" and "included".')


def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError):
        raise DataError(f"{path} is no .npz file of numbers.") from None


def target_of(
    folder: Path,
    transcript: Transcript,
    *,
    truth: Path | None,
    group: str | None,
    columns: tuple[str, ...],
    label: str | None,
    missing: float | str | None,
    sample: Path | None,
    low: tuple[float, ...] | None,
    high: tuple[float, ...] | None,
    party: str,
    colluding: tuple[str, ...],
    client: str | None,
    known: Path | None = None,
    known_by: str | None = None,
    candidates: Path | None = None,
) -> tuple[View, Target, str | None]:
    """Read what attacks on a run's folder need: the view of the party, the target, and a doubt about it.

    Args:
        folder: folder of the run.
        transcript: transcript of the run.
        truth: file with the clients' rows; None for the data that the run's folder names.
        group: column that names each row's client; None for that of the run's folder.
        columns: feature columns of the truth; empty for those of the run's folder, or all but the group.
        label: column of classes, where the run's folder names none; None for that of the run's folder.
        missing: what becomes of rows of the truth without a number; None for what the run's folder says.
        sample: table of public rows; None without.
        low: lowest value of all features, or one for each; None without.
        high: highest value of all features, or one for each; None without.
        party: "server", "observer", or "clients": those that collude.
        colluding: names of clients that share all they know with the party.
        client: name of the target of attacks on one client; None for the first honest client.
        known: table of clients' rows that the attacker knows; they are taken out of all totals.
        known_by: its column that names the group of each row, where clients answer from groups of rows; None
            if the attacker does not know which are in one group.
        candidates: table of rows of which some took part; None takes the clients' rows and public ones.

    Raises:
        ArgumentError: a client is not in the run, or no client is left to attack.
        DataError: the rows are not those of the run's clients.
        RunFolderError: the folder names no data, and none was given.
    """
    domain = Declared(low=low, high=high).domain()
    source = source_of_rows(folder, transcript, truth, group, columns, label, missing)
    rows, features, labels = true_rows(folder, transcript, truth, source)
    doubt, agreed = doubt_of(folder, transcript, rows), transcript.configuration
    positions = [_position(name, agreed.clients) for name in colluding]
    if party == "clients" and not positions:
        raise ArgumentError("clients attack by what they see: name them with --colluding.")
    if len(set(positions)) == len(agreed.clients):
        raise ArgumentError("all clients collude: nobody is left to attack; name fewer with --colluding.")
    view = transcript.view(party, colluding=positions)
    scaled, told = scaled_as(transcript), list[FloatArray]()
    if known is not None:
        told = [load_features(known, features)]
        if known_by is not None:
            told = list(load_clients(known, group=known_by, columns=features).arrays)
        told = [scaled(own) for own in told]
        rows, labels = without_rows(rows, np.concatenate(told)), None
        if known_by is None and not in_groups(folder):
            view, told = without_known(view, told[0]), []
    honest = [i for i in range(len(rows)) if i not in positions]
    first = next((i for i in honest if len(rows[i])), honest[0])
    wanted = first if client is None else _position(client, agreed.clients)
    if wanted in positions:
        raise ArgumentError(f"client {client!r} colludes: its rows are the attacker's own; name another.")
    if not len(rows[wanted]):
        raise ArgumentError(
            f"client {agreed.clients[wanted]!r} has no rows that an attack could find; name another."
        )
    public, public_labels = _public(source, sample, features, labels is not None)
    public = None if public is None else scaled(public)
    ends = None if domain is None else scaled(np.stack(domain.bounds(len(features))))
    target = Target(
        clients=rows,
        labels=labels,
        colluding=view.colluding,
        helping=view.colluding,
        shows_answers=any(one.answers for one in view.sums),
        client=wanted,
        public=public,
        public_labels=public_labels,
        candidates=None if candidates is None else scaled(load_features(candidates, features)),
        ends=None if ends is None else (ends[0], ends[1]),
        # Only Gaussian noise has a Gaussian trade-off curve.
        gdp_mu=None
        if agreed.noising_terms is None or agreed.noising_terms.mechanism != Mechanism.GAUSSIAN
        else agreed.noising_terms.budget**0.5,
        known=told,
    )
    return view, target, doubt


def in_groups(folder: Path) -> bool:
    """Say whether the clients of a run are known to have answered from groups of rows."""
    around = fit_of(folder)
    return (around / RUN).exists() and read_run(around).parameters.values.get("group_size", 1) != 1


def doubt_of(folder: Path, transcript: Transcript, rows: list[FloatArray]) -> str | None:
    """Return why rows may be others than those that a run's sums are of; None where they give these sums.

    Args:
        folder: of the run.
        transcript: of the run.
        rows: of every client, by position.

    Raises:
        DataError: they give others, in a run of single rows.
    """
    around, terms = fit_of(folder), transcript.configuration.privacy
    run = read_run(around) if (around / RUN).exists() else None
    if in_groups(folder):
        return "clients answered from groups of rows; whether these are the run's was not checked"
    if (folder / LOCAL).exists():
        return "clients answered from their own noised centers; whether these are of the rows was not checked"
    differs = unlike(transcript, rows)
    if differs is None:
        return None
    if run is not None and (terms is None or terms.unit != Unit.USER):
        raise DataError(
            f"the rows are not those of the run in {folder}: they would give other totals, first of "
            f"{differs}. Their file has changed since, or --truth names another; name one that is as it was. "
            "A value whose absence was counted in bins is there twice the first edge less the last one."
        )
    return (
        f"the rows do not give the run's totals, first of {differs}: nodes answered from groups of rows, "
        "users have more rows than count, or these are other rows"
    )


def _public(
    source: Source, sample: Path | None, columns: tuple[str, ...], labelled: bool
) -> tuple[FloatArray | None, Any | None]:
    """Return public rows, and of a run that trained models their labels."""
    if sample is None or not labelled:
        return None if sample is None else load_features(sample, columns), None
    tables = load_clients(
        sample,
        label=source.label,
        columns=columns,
        missing=ERROR if source.missing is None else missing_rule(source.missing),
    )
    labels = np.concatenate(labels_of(tables, source.classes))
    return np.concatenate(tables.arrays)[labels >= 0], labels[labels >= 0]


def fit_of(folder: Path) -> Path:
    """Return the folder that says of which rows a run is: what was asked after a fit lies in the fit's."""
    return folder if (folder / RUN).exists() or not (folder.parent / RUN).exists() else folder.parent


def source_of_rows(
    folder: Path,
    transcript: Transcript,
    rows: Path | None,
    group: str | None,
    columns: tuple[str, ...],
    label: str | None,
    missing: float | str | None,
) -> Source:
    """Return where the rows of a run's clients lie, and how they are read; None leaves it to its folder.

    A folder of a run of nodes, or from Python, names none. Classes are then the nodes' whole numbers, as many
    as the run trained on.

    Raises:
        RunFolderError: the folder names no data, and none was given.
    """
    known = Source(path="", group=None, label=None, columns=(), separator=None)
    if rows is None or (fit_of(folder) / RUN).exists():
        known = read_run(fit_of(folder)).source
    classes = known.classes
    if label is not None and not classes:
        classes = models().classes_trained(transcript)
    return msgspec.structs.replace(
        known,
        path=known.path if rows is None else str(rows.absolute()),
        group=group or known.group,
        columns=columns or known.columns,
        label=label or known.label,
        classes=classes,
        missing=known.missing if missing is None else missing,
    )


def true_rows(
    folder: Path, transcript: Transcript, truth: Path | None, source: Source, *, counted: bool = False
) -> tuple[list[FloatArray], tuple[str, ...], list[Any] | None]:
    """Return the rows of every client of a run, by position, the names of their columns, and labels.

    Rows are scaled as those of the run were. Labels are those that a run trained on; None for other runs.

    Args:
        folder: of the run.
        transcript: of the run.
        truth: file with the rows; None for the data that the folder names.
        source: where they lie, and how they are read.
        counted: at unit "user", only those rows of a user that its client answered from.

    Raises:
        DataError: the rows are not those of the run's clients, or of other columns than the run's.
    """
    around = fit_of(folder)
    run = read_run(around) if truth is None or (around / RUN).exists() else None
    # The run names its clients. Only under differential privacy may some of them have no rows.
    private = transcript.configuration.privacy is not None or (
        run is not None and run.parameters.declared.epsilon is not None
    )
    # Columns that are no features were found when the run began.
    names = transcript.configuration.clients
    tables = load(msgspec.structs.replace(source, clients=names if private else (), drop=()), private=private)
    tables = tables if run is None else clipped(tables, run.parameters.declared)
    # Of runs that trained models, the model says how many columns there are.
    _check_rows(tables, transcript.configuration, trained=bool(source.classes))
    # Noise may leave room for rows of other columns, which tell nothing of the run.
    if (others := other_columns(transcript, tuple(tables.columns))) is not None:
        raise DataError(others)
    place = {name: i for i, name in enumerate(tables.names)}
    labels = labels_of(tables, source.classes) if source.classes else None
    scaled, terms = scaled_as(transcript), transcript.configuration.privacy
    rows = [scaled(np.asarray(tables.arrays[place[name]])) for name in names]
    own_labels = [None] * len(names) if labels is None else [labels[place[name]] for name in names]
    kept = terms is not None and (terms.seeded or (folder / CLIENTS / USERS).exists())
    if counted and terms is not None and terms.unit == Unit.USER and kept:
        key = user_key(folder, transcript.configuration)
        each = zip(rows, own_labels, [tables.tables[place[name]].ids for name in names], strict=True)
        data = [of_users(ClientData(own, known, users=whose), terms, key) for own, known, whose in each]
        rows, own_labels = [one.features for one in data], [one.labels for one in data]
    return rows, tuple(tables.columns), None if labels is None else own_labels


def _check_rows(tables: ClientTables, agreed: Configuration, *, trained: bool) -> None:
    """Check that rows are those of a run's clients, and have its number of columns unless it trained."""
    names, n_features = agreed.clients, agreed.n_features
    if set(tables.names) != set(names):
        raise DataError(
            f"the rows are of {len(tables.names)} clients that are not the run's {len(names)} "
            f"(the run has {names[0]!r}, the rows have {tables.names[0]!r}); name their column with --group."
        )
    if not trained and len(tables.columns) != n_features:
        which = "" if agreed.columns is None else f" ({', '.join(agreed.columns)})"
        raise DataError(
            f"the rows have {len(tables.columns)} columns, the run has {n_features}{which}; name those with "
            "--columns, or attack what was asked of columns beside the clusters' from Python."
        )


def _position(name: str, clients: tuple[str, ...]) -> int:
    if name not in clients:
        raise ArgumentError(f"client {name!r} is not in this run; it has {', '.join(clients[:8])}.")
    return clients.index(name)
