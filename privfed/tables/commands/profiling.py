"""The work of `privfed profile`: what the clusters are, column by column in the columns' units."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import clipped, declared_with, load, surroundings_of, with_rows
from privfed.cli.output import answer, table
from privfed.cli.reading import day_of
from privfed.cli.result import ROWS, claim_from
from privfed.cli.run_folder import RESULT, Centroids, Run, pretty, read_result, read_run
from privfed.core.stored.files import rewrite
from privfed.core.values.domain import FloatArray
from privfed.core.values.origin import Origin
from privfed.data.table import LEAVE_OUT
from privfed.data.table_files import AnyArray, write_table
from privfed.errors import ArgumentError, DataError, RunFolderError
from privfed.estimators.scaling import Scaling
from privfed.federation.opening import OPTIONS, PAYMENT
from privfed.metrics.profiles import Profiles, clients_per_cluster, profiles
from privfed.privacy.budget_file import check_run
from privfed.privacy.claim import one_line
from privfed.questions.histograms import MOST_BINS
from privfed.tables.beside import columns_by_cluster
from privfed.tables.checking import Check, check_tables
from privfed.tables.commands.surviving import SURVIVAL, check_exact
from privfed.tables.described_clients import units_of
from privfed.tables.outcomes import survival_from
from privfed.tables.page import Facts, claims_of, page
from privfed.tables.profiled import Line, apart_lines, differences, edges_of, lines_of
from privfed.tables.schema import DATE, ERROR, NUMBER, Column, Schema, parse, read_schema, to_toml

PICTURE = "profile.png"
DRAWN = (".png", ".svg", ".pdf")
SUMS, BESIDE = ("profile", "profile_clients"), "profile_beside"
"""Folders of a run with the transcripts of what was asked after it."""


FEW_BINS = 16


class Profiled(Centroids, frozen=True):
    """Holds the part of `result.json` that `privfed profile` needs."""

    privacy: Any = None
    algorithm: str = ""
    protocol: str = ""
    server_saw: str = ""
    clients: tuple[str, ...] = ()
    rows: float | None = None
    n_iter: int = 0
    converged: bool | None = None
    of: str = ROWS
    intervals: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    beside: dict[str, Any] | None = None
    between: dict[str, float | None] | None = None


def profile(
    run_folder: Path,
    out: Path | None,
    names: tuple[str, ...],
    title: str,
    ask: bool,
    beside: Path | None,
    picture: bool,
    as_json: bool,
    clients: tuple[str, ...] = (),
    **given: Any,
) -> None:
    """Do the work of `privfed profile`.

    Raises:
        ArgumentError: `names` are not as many as the clusters.
        PrivacyError: exact sums would follow a run whose rows are protected by noise or by groups.
        RunFolderError: the run has no profile, or none that can be drawn.
    """
    run, result = read_run(run_folder), read_result(run_folder, Profiled)
    if clients:
        run = msgspec.structs.replace(run, source=msgspec.structs.replace(run.source, clients=clients))
    schema = None if run.source.schema is None else parse(run.source.schema)
    declared = declared_of(given)
    if beside is not None:
        check_exact(run_folder, result.privacy is not None, declared)
        result = _asked_beside(run_folder, run, result, beside, _claimed(run_folder, run, declared))
    elif declared.claims or (ask and result.profile is None and result.privacy is None):
        result = _asked(run_folder, run, result, _claimed(run_folder, run, declared))
    if result.profile is None and result.intervals is None and result.beside is None:
        raise RunFolderError(
            f"{run_folder} has no profile: its clients were not asked for it; ask them now with --ask."
        )
    if names and len(names) != len(result.centroids):
        raise ArgumentError(
            f"--names has {len(names)} names for {len(result.centroids)} clusters; name each."
        )
    known = None if result.profile is None else Profiles.from_dict(result.profile)
    result, known = _in_units(result, known, schema)
    # Means of groups vary less than rows do.
    exact = known is not None and known.claim is None and result.of == ROWS
    between = differences(known, result.columns, schema) if known is not None and exact else {}
    lines, ends, others, further = list[Line](), result.intervals, None, None
    if result.beside is not None:
        others, further = parse(result.beside["schema"]), Profiles.from_dict(result.beside["profile"])
        between |= differences(further, others.features, others) if further.claim is None else {}
    if known is not None or ends is not None:
        lines = lines_of(result.columns, known, ends, schema, between)
    if further is not None and others is not None:
        lines += lines_of(others.features, further, None, others, between)[bool(lines) :]
    result = msgspec.structs.replace(
        result, between={name: one if np.isfinite(one) else None for name, one in between.items()} or None
    )
    what = (
        f"mean (joint intervals at level {ends['level']:g})"
        if known is None and ends is not None
        else "mean ± standard deviation"
    )
    head = ("column", *(names or [f"cluster {i}" for i in range(len(result.centroids))]), "all")
    head = (*head, *["between"] * bool(between))
    kind = "" if out is None else out.suffix.lower()
    if kind in DRAWN and known is None:
        raise RunFolderError(f"{run_folder} has no exact profile to draw in {out}; name a table with --out.")
    if out is not None and kind == ".html":
        checked, curves = _checked(run, result, schema), _curves(run_folder, names)
        facts = Facts(result, run, schema, known, checked, between, curves)
        rewrite(out, page(facts, lines, head, what, title).encode())
    elif out is not None and kind not in DRAWN:
        found = [_long(result, known, schema, between)] if known is not None or ends is not None else []
        if further is not None and others is not None:
            named = msgspec.structs.replace(result, columns=others.features, intervals=None)
            found.append(_long(named, further, others, between))
        write_table(out, _joined(found))
    elif known is not None and (out is not None or (picture and not as_json)):
        # Imported here, as matplotlib takes long to load.
        from privfed.plot import ProfileDisplay, figure_of, save

        out = out or run_folder / PICTURE
        save(figure_of(ProfileDisplay(known.apart, known.sizes, result.columns, names)), out)
    answer(
        result,
        as_json,
        table(
            head, ([one.name, *one.cells, one.all, *one.between] for one in lines), f"{what}, of {result.of}"
        ),
        *([one_line(claim_from(result.privacy))] if result.privacy is not None or known is None else []),
        *(one_line(claim_from(one)) for one in claims_of(result)),
        *([] if known is None else apart_lines(known, result.columns, schema, head[1:])),
        *([] if out is None else [f"Written: {out}"]),
    )


def _claimed(folder: Path, run: Run, declared: Declared) -> Declared:
    """Return what clients are asked under: the ranges of the run, where no others are given."""
    before = run.parameters.declared
    if not declared.claims:
        return before
    if run.source.schema is None and declared.low is None and declared.high is None:
        declared = msgspec.structs.replace(
            declared, low=before.low, high=before.high, max_rows=before.max_rows
        )
    # What the schema said of columns and gaps stands in the run, and is no option here.
    source = msgspec.structs.replace(run.source, columns=(), drop=(), separator=None, missing=None)
    declared = declared_with(source, declared)
    declared.check_claim(*run.source.undeclared)
    if declared.budget is not None:
        check_run(Path(declared.budget), folder / PAYMENT)
    return declared


def _options(run: Run, declared: Declared, scaling: Scaling | None, width: int) -> dict[str, Any]:
    """Return the options of a sum: those of the run, and a claim or a domain."""
    values = {**run.parameters.values, "privacy": None, "domain": None, **declared.parameters()}
    options = {name: one for name, one in surroundings_of(values).items() if name in OPTIONS}
    if scaling is not None:
        options["domain"] = None
    if scaling is not None and options["privacy"] is not None:
        # The numbers of the scale are as public as the centers.
        options["privacy"] = replace(
            options["privacy"],
            domain=replace(scaling, origin=Origin.DECLARED).domain(options["privacy"].domain, width),
        )
    return options


def _asked(folder: Path, run: Run, result: Profiled, declared: Declared) -> Profiled:
    """Ask the simulated clients of a run for its profile, and add it to the result.

    The same secure sum and group size hold as at the fit. Each sum is a run of its own, whose transcript lies
    beside that of the fit (`SUMS`): attacks read them together with it. Under a claim of its own it is one.
    """
    scaling, centers = Scaling.from_dict(result.scaling), np.array(result.centroids)
    options = _options(run, declared, scaling, len(result.columns))
    clients = clipped(load(run.source, private=declared.claims), declared)
    if scaling is not None:
        clients, centers = with_rows(clients, scaling.scaled), scaling.scaled(centers)
    if declared.claims:
        radius = (result.intervals or {}).get("radius")
        known = profiles(clients, centers, radius=radius, run_dir=_place(folder, SUMS[0]), **options)
    else:
        known = replace(
            profiles(clients, centers, run_dir=folder / SUMS[0], **options),
            clients=clients_per_cluster(clients, centers, run_dir=folder / SUMS[1], **options),
        )
    if scaling is not None:
        known = known.mapped(np.array(scaling.shift), np.array(scaling.scale))
    return _kept(folder, result, profile=known.to_dict())


def _place(folder: Path, name: str) -> Path:
    """Return a folder of that name, or with a number, in which no run is."""
    places = (folder / f"{name}{'' if i == 1 else f'_{i}'}" for i in count(1))
    return next(one for one in places if not one.exists())


def _kept(folder: Path, result: Profiled, **found: Any) -> Profiled:
    """Write what was found into the result of a run, and return that."""
    rewrite(folder / RESULT, pretty({**read_result(folder, dict[str, Any]), **found}))
    return msgspec.structs.replace(result, **found)


def _asked_beside(folder: Path, run: Run, result: Profiled, path: Path, declared: Declared) -> Profiled:
    """Ask the simulated clients of a run what further columns are like in its clusters.

    Raises:
        ArgumentError: a schema has no further columns, or one without a range.
    """
    schema, others = _with_others(run, result.columns, path, declared)
    asked = {name: msgspec.structs.replace(own, missing=LEAVE_OUT) for name, own in others.items()}
    whole = msgspec.structs.replace(schema, columns=schema.columns | asked)
    fields: dict[str, Any] = {"columns": (), "drop": (), "separator": None, "missing": None, "label": None}
    source = msgspec.structs.replace(run.source, schema=to_toml(whole), **fields)
    tables, p = load(source, private=declared.claims, gaps=others), len(result.columns)
    scaling, centers = Scaling.from_dict(result.scaling), np.array(result.centroids)
    options = _options(run, declared, scaling, p)
    if scaling is not None:
        tables = with_rows(tables, lambda rows: np.hstack([scaling.scaled(rows[:, :p]), rows[:, p:]]))
        centers = scaling.scaled(centers)
    shift, factor = (one[p:] for one in units_of(whole))
    # Noise is in each bin, and few rows are in each of many.
    n_bins = FEW_BINS if declared.claims else MOST_BINS
    each = (ends for one in others.values() for ends in [edges_of(one, n_bins)] * one.width)
    edges = [(ends - shift[j]) / factor[j] for j, ends in enumerate(each)]
    known = columns_by_cluster(
        tables, centers, edges=edges, run_dir=_place(folder, BESIDE), **options
    ).mapped(shift, factor)
    text = to_toml(Schema(columns=others))
    return _kept(folder, result, beside={"schema": text, "profile": known.to_dict()})


def _with_others(
    run: Run, columns: Sequence[str], path: Path, declared: Declared
) -> tuple[Schema, dict[str, Column]]:
    """Return the schema by which a run's rows are read, and the further columns of a file's schema."""
    mine = read_schema(path)
    if run.source.schema is not None:
        own = parse(run.source.schema)
    else:
        rule, domain = run.source.missing, declared.domain()
        words: dict[str, Any] = {"missing": LEAVE_OUT if declared.claims and rule is None else rule or ERROR}
        ends: list[dict[str, Any]] = [{}] * len(columns)
        if domain is not None and (declared.claims or declared.clip):
            both = zip(*(one.tolist() for one in domain.bounds(len(columns))), strict=True)
            ends = [{"low": low, "high": high, "outside": "clip"} for low, high in both]
        each = {name: Column(kind=NUMBER, **words, **one) for name, one in zip(columns, ends, strict=True)}
        own = Schema(columns=each)
    others = {name: one for name, one in mine.columns.items() if one.is_feature and name not in own.columns}
    lacking = [name for name, one in others.items() if one.range is None]
    if not others or lacking:
        raise ArgumentError(
            f"{path} has no column besides those that the clusters were found by; add others."
            if not others
            else f"{path}: {', '.join(lacking)} have no range; declare low and high, between which bins lie."
        )
    return msgspec.structs.replace(own, files={**own.files, **mine.files}), others


def _in_units(
    result: Profiled, known: Profiles | None, schema: Schema | None
) -> tuple[Profiled, Profiles | None]:
    """Return the numbers of a run in the columns' units: of a date in days, of a category its share."""
    if schema is None:
        return result, known
    shift, factor = units_of(schema)
    ends = result.intervals and {
        name: (shift + np.array(one) * factor).tolist() if name in ("means", "low", "high") else one
        for name, one in result.intervals.items()
    }
    known = None if known is None else known.mapped(shift, factor)
    centers = (shift + np.array(result.centroids) * factor + 0.0).tolist()
    return msgspec.structs.replace(
        result, centroids=centers, intervals=ends, profile=known and known.to_dict()
    ), known


def _checked(run: Run, result: Profiled, schema: Schema | None) -> Check | None:
    """Return what becomes of the rows of a simulation without a claim, where its tables are still there."""
    with suppress(DataError):
        if schema is not None and result.privacy is None and Path(run.source.path).exists():
            return check_tables(run.source.path, schema)
    return None


def _curves(folder: Path, names: tuple[str, ...]) -> str:
    """Return the picture of what `privfed survival` asked last of a run, "" if it asked nothing."""
    if not (folder / SURVIVAL).exists():
        return ""
    # Imported here, as matplotlib takes long to load.
    from privfed.plot import SurvivalDisplay, figure_of, save

    said = read_result(folder, dict[str, Any], SURVIVAL)
    claim = claim_from(said["privacy"])
    shown = SurvivalDisplay(survival_from(said), names, said.get("time", "time"))
    path = save(figure_of(shown, claim=claim), folder / "survival.svg", claim)
    return "<svg" + path.read_text(encoding="utf-8").partition("<svg")[2]


def _joined(tables: Sequence[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    """Return tables one below the other; what one has and another has not is empty there."""
    each = [(one, len(one["cluster"])) for one in tables]
    return {
        name: np.concatenate([one.get(name, np.full(n, "" if name == "date" else np.nan)) for one, n in each])
        for name in dict.fromkeys(name for one in tables for name in one)
    }


def _long(
    result: Profiled, known: Profiles | None, schema: Schema | None, between: dict[str, float]
) -> dict[str, AnyArray]:
    """Return a table of numbers with one row for each cluster and column, in the columns' units.

    Where the schema has dates, whose numbers are days since their origin, a column has their means as dates.
    """
    k, names = len(result.centroids), list(result.columns)
    plain = result.intervals or {}
    values: dict[str, FloatArray] = (
        {"mean": known.means, "std": known.stds, "apart": known.apart}
        if known is not None
        else {"mean" if one == "means" else one: np.array(plain[one]) for one in ("means", "low", "high")}
    )
    found = {
        "cluster": np.repeat(np.arange(k), len(names)),
        "rows": np.repeat(np.array(plain["sizes"]) if known is None else known.sizes, len(names)),
        "column": np.array(names * k),
        **{name: one.ravel() + 0.0 for name, one in values.items()},
    }
    if known is not None and known.missing is not None and known.quartiles is not None:
        three = zip(
            ("first quartile", "median", "third quartile"),
            np.where(np.array(["=" in one for one in names]), np.nan, known.quartiles),
            strict=True,
        )
        found |= {"missing": known.missing.ravel(), **{name: one.ravel() for name, one in three}}
    if between:
        columns = names if schema is None else [a for a, b in schema.places.items() for _ in b]
        found["between"] = np.tile([between.get(one, np.nan) for one in columns], k)
    if schema is not None and (origins := {one: schema.columns[one].origin for one in schema.of(DATE)}):
        days = zip(names * k, values["mean"].ravel(), strict=True)
        found["date"] = np.array(
            [day_of(origins[one], day) if one in origins and np.isfinite(day) else "" for one, day in days]
        )
    return found
