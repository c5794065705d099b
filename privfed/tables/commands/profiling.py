"""The work of `privfed profile`: what the clusters are, column by column in the columns' units."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.cli.described import clipped, load, surroundings_of, with_rows
from privfed.cli.output import answer, table
from privfed.cli.reading import day_of
from privfed.cli.result import ROWS, claim_from
from privfed.cli.run_folder import RESULT, Centroids, Run, pretty, read_result, read_run
from privfed.core.stored.files import rewrite
from privfed.core.values.domain import FloatArray
from privfed.data.table_files import AnyArray, write_table
from privfed.errors import ArgumentError, DataError, RunFolderError
from privfed.estimators.scaling import Scaling
from privfed.federation.opening import OPTIONS
from privfed.metrics.profiles import Profiles, clients_per_cluster, profiles
from privfed.privacy.claim import one_line
from privfed.tables.checking import Check, check_tables
from privfed.tables.commands.surviving import SURVIVAL
from privfed.tables.described_clients import units_of
from privfed.tables.outcomes import survival_from
from privfed.tables.page import Facts, page
from privfed.tables.profiled import apart_lines, differences, lines_of
from privfed.tables.schema import DATE, Schema, parse

PICTURE = "profile.png"
DRAWN = (".png", ".svg", ".pdf")
SUMS = ("profile", "profile_clients")
"""Folders of a run with the transcripts of what was asked after it."""


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
    between: dict[str, float | None] | None = None


def profile(
    run_folder: Path,
    out: Path | None,
    names: tuple[str, ...],
    title: str,
    ask: bool,
    picture: bool,
    as_json: bool,
) -> None:
    """Do the work of `privfed profile`.

    Raises:
        ArgumentError: `names` are not as many as the clusters.
        RunFolderError: the run has no profile, or none that can be drawn.
    """
    run, result = read_run(run_folder), read_result(run_folder, Profiled)
    schema = None if run.source.schema is None else parse(run.source.schema)
    if ask and result.profile is None and result.privacy is None:
        result = _asked(run_folder, run, result)
    if result.profile is None and result.intervals is None:
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
    between = differences(known, result.columns, schema) if known and result.of == ROWS else {}
    result = msgspec.structs.replace(
        result, between={name: one if np.isfinite(one) else None for name, one in between.items()} or None
    )
    lines, ends = lines_of(result.columns, known, result.intervals, schema, between), result.intervals
    what = (
        "mean ± standard deviation" if known else f"mean (joint intervals at level {(ends or {})['level']:g})"
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
        write_table(out, _long(result, known, schema, between))
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
        *([one_line(claim_from(result.privacy))] if known is None else []),
        *([] if known is None else apart_lines(known, result.columns, schema, head[1:])),
        *([] if out is None else [f"Written: {out}"]),
    )


def _asked(folder: Path, run: Run, result: Profiled) -> Profiled:
    """Ask the simulated clients of a run without a claim for its profile, and add it to the result.

    The same secure sum and group size hold as at the fit. The two sums are runs of their own, whose
    transcripts lie beside that of the fit (`SUMS`): attacks read them together with it.
    """
    options = {
        name: one
        for name, one in surroundings_of(
            {**run.parameters.declared.parameters(), **run.parameters.values}
        ).items()
        if name in OPTIONS and (name != "domain" or result.scaling is None)
    }
    scaling, centers = Scaling.from_dict(result.scaling), np.array(result.centroids)
    clients = clipped(load(run.source, private=False), run.parameters.declared)
    if scaling is not None:
        clients, centers = with_rows(clients, scaling.scaled), scaling.scaled(centers)
    known = replace(
        profiles(clients, centers, run_dir=folder / SUMS[0], **options),
        clients=clients_per_cluster(clients, centers, run_dir=folder / SUMS[1], **options),
    )
    if scaling is not None:
        known = known.mapped(np.array(scaling.shift), np.array(scaling.scale))
    rewrite(folder / RESULT, pretty({**read_result(folder, dict[str, Any]), "profile": known.to_dict()}))
    return msgspec.structs.replace(result, profile=known.to_dict())


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
    if between:
        widths = [1] * len(names) if schema is None else [schema.columns[one].width for one in between]
        found["between"] = np.tile(np.repeat(list(between.values()), widths), k)
    if schema is not None and (origins := {one: schema.columns[one].origin for one in schema.of(DATE)}):
        days = zip(names * k, values["mean"].ravel(), strict=True)
        found["date"] = np.array(
            [day_of(origins[one], day) if one in origins and np.isfinite(day) else "" for one, day in days]
        )
    return found
