"""The work of `privfed attack`: attacks on a run, and their reports in `attacks.json`.

Reports are stored after each attack, so that none runs twice. Each adversary (a party with those who collude
with it) has a file and pictures of its own.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import privfed
from privfed.attacks import PassiveAttack, Report, Status, evaluate
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.names import ATTACKS
from privfed.attacks.base.preparation import Target
from privfed.attacks.base.reading import in_words, read_by, unread
from privfed.attacks.commands.auditing import target_of
from privfed.attacks.commands.several_runs import together
from privfed.cli.described import know_questions
from privfed.cli.output import echo, table
from privfed.cli.program import in_options
from privfed.cli.progress import Progress
from privfed.cli.result import claim_of_run, to_json
from privfed.cli.run_folder import values_of
from privfed.cli.settings import Setting
from privfed.core.record.records import FILE as TRANSCRIPT
from privfed.core.record.records import SCALING, View
from privfed.core.record.transcript import Transcript
from privfed.core.stored.files import Format, make_folder, rewrite
from privfed.errors import ArgumentError, RunFolderError
from privfed.estimators.scaling import Scaling, scaling_of_run

REPORT = "attacks.json"
FORMAT = 3
"""Format of the report; before 3, reports did not say what was read, and are made again."""

REPORTS = Format(name=REPORT, version=FORMAT, again="name another folder with --out")

_FIGURES = {
    "recovered": "recovered",
    "precision": "precision",
    "claims": "claims",
    "no access": "baseline",
    "bound": "bound",
}
"""Heads of the table's columns, with the names of the figures in a report."""

SCORED = "these figures are scored against the clients' rows: the claim does not cover what is printed here"


def attack(
    run_folders: tuple[Path, ...],
    wanted: tuple[str, ...],
    algorithm: str | None,
    model: str | None,
    random_state: int,
    out: Path | None,
    curve: bool,
    quiet: bool,
    picture: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Do the work of `privfed attack`."""
    context = click.get_current_context()
    settings = {str(one.name) for one in context.command.get_params(context) if isinstance(one, Setting)}
    parameters = values_of({name: given.pop(name) for name in (*settings, "most_rows", "listed")})
    transcripts = [Transcript.load(folder) for folder in run_folders]
    for folder in run_folders:
        know_questions(folder, algorithm, "attack", model)
    read = [target_of(*one, **given) for one in zip(run_folders, transcripts, strict=True)]
    seen = [(view, target) for view, target, _ in read]
    scalings = [scaling_of_run(transcript) for transcript in transcripts]
    view, target = together(seen, scalings)
    which = chosen(wanted)
    several = len(run_folders) > 1
    out = run_folders[0] / "attacks" if out is None else out
    folder = folder_of(out / f"runs-{_digest_of(run_folders)[:8]}" if several else out, view)
    claims = [claim_of_run(*one) for one in zip(run_folders, transcripts, strict=True)]
    protocols = [transcript.configuration.protocol for transcript in transcripts]
    keys = keys_of(run_folders, view, target, known() | which, random_state, parameters, curve=curve)
    found: dict[str, Any] = {
        "format": FORMAT,
        "runs": [one.name for one in run_folders],
        "protocol": protocols if several else protocols[0],
        "privacy": [to_json(claim) for claim in claims] if several else to_json(claims[0]),
        "party": view.party,
        "colluding": [view.clients[i] for i in view.colluding],
        "doubts": list(dict.fromkeys(doubt for *_, doubt in read if doubt is not None)),
        "attacks": stored(folder, keys, pictured=picture),
        "left_out": {},
    }
    before = [name for name in which if name in found["attacks"]]
    if before:
        echo(f"privfed: stored already: {', '.join(before)}", err=True)
    for name in _shown([name for name in which if name not in before], quiet):
        try:
            used, report = run_one(view, target, which[name], random_state, parameters)
        except ArgumentError as error:
            found["left_out"][name] = in_options(str(error), error.parameters).removesuffix(".")
            continue
        # A picture that lies there shows an earlier report.
        picture_of(folder, name).unlink(missing_ok=True)
        if picture and not report.why:
            make_folder(folder)
            report.picture(picture_of(folder, name))
        over_runs = _over_runs(seen, scalings, which[name], random_state, parameters) if curve else []
        found["attacks"][name] = {
            "key": keys[name],
            **{one: getattr(used, one) for one in ("paper", "adversary", "view", "prior", "defence")},
            **report.to_dict(),
            **({"over_runs": [*over_runs, report.to_dict()["recovered"]]} if curve else {}),
        }
        keep(folder, found)
    found["left_out"] |= {name: one["why"] for name, one in found["attacks"].items() if one["why"]}
    # The file also lists what was left out, even if nothing was run.
    keep(folder, found)
    beside = others(out, folder)
    if as_json:
        click.echo(json.dumps({**found, "others": beside}, indent=2))
        return
    for one in (found, *beside):
        _tell(one)
    for own in [one / SCALING for one in run_folders if (one / SCALING).exists()]:
        echo(f"The scaling was learnt in another run, not attacked here: privfed attack {own} --truth DATA")
    said = [str(claim) for claim in claims if claim is not None]
    if said:
        echo("\n".join([*dict.fromkeys(said), SCORED]))
    drawn = picture and any(not one["why"] for one in found["attacks"].values())
    echo(f"Written: {folder / REPORT}{', and a picture of each attack' * drawn}.")


def _over_runs(
    seen: Sequence[tuple[View, Target]],
    scalings: Sequence[Scaling | None],
    kind: type[PassiveAttack[Any]],
    seed: int,
    own: Mapping[str, Any],
) -> list[float | None]:
    """Return what an attack recovers from the first run, the first two, and so on, without all of them."""
    found = []
    for n in range(1, len(seen)):
        try:
            found.append(
                run_one(*together(seen[:n], scalings[:n]), kind, seed, own)[1].to_dict()["recovered"]
            )
        except ArgumentError:
            found.append(None)
    return found


def _tell(found: dict[str, Any]) -> None:
    """Print the reports of one adversary."""
    ran = {name: one for name, one in found["attacks"].items() if not one["why"]}
    helped = f" with {', '.join(found['colluding'])}" if found["colluding"] else ""
    runs = found.get("runs", [])
    echo(f"What the {found['party']}{helped} could learn{f' from {len(runs)} runs' * (len(runs) > 1)}:")
    if ran:
        figures = {name: [one[figure] for figure in _FIGURES.values()] for name, one in ran.items()}
        lines = (
            (name, one["goal"], *("" if x is None else f"{x:.3g}" for x in figures[name]), one["status"])
            for name, one in ran.items()
        )
        echo(table(("attack", "of", *_FIGURES, ""), lines))
    for name, one in ran.items():
        if more := " ".join(_remarks(one)):
            echo(f"{name}: {more}")
        if one.get("over_runs"):
            shares = ", ".join("not run" if share is None else f"{share:.3g}" for share in one["over_runs"])
            echo(f"{name}: recovered with the first run, the first two, ...: {shares}.")
    for doubt in found.get("doubts", ()):
        echo(f"What these figures are scored against is in doubt: {doubt}.")
    for why, names in _reasons(found["left_out"]).items():
        echo(f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} left out: {in_options(why)}.")
    left = unread(found["shown"])
    if left:
        echo(f"Shown, and read by no attack: {in_words(left)}.")


def _reasons(left_out: dict[str, str]) -> dict[str, list[str]]:
    """Return reasons with the attacks of each; of those that lack the same the file says what each reads."""
    kinds = Counter(why.rpartition("; ")[2] for why in left_out.values())
    found: dict[str, list[str]] = {}
    for name, why in left_out.items():
        kind = why.rpartition("; ")[2]
        shared = f"{kind} ({REPORT} says what each reads)"
        found.setdefault(shared if kinds[kind] > 1 else why, []).append(name)
    return found


def _shown(which: list[str], quiet: bool) -> Iterator[str]:
    """Yield the attacks, and show which one runs."""
    with Progress("attacks", quiet) as progress:
        for done, name in enumerate(which):
            progress.count(f"{name}: done", done, len(which))
            yield name


def _remarks(report: dict[str, Any]) -> Iterator[str]:
    """Yield what the figures of a report do not say: what the bound is of, and what was not read."""
    if report.get("bound_of"):
        yield f"The bound is {report['bound_of']}."
    if report.get("remark"):
        yield "Here the attack used more, and found more."
    if report.get("given"):
        yield f"The attacker was given {report['given']}."
    if report["status"] == Status.NOT_READ:
        yield f"It did not read {in_words(report['not_read'])}."
    if report["status"] == Status.OPEN:
        yield "No other rows that give the same totals were shown: another attack may find more."


def known() -> dict[str, type[PassiveAttack[Any]]]:
    """Return the registered attacks that work on a recorded run, by name."""
    return {name: kind for name in ATTACKS if issubclass(kind := attack_class(name), PassiveAttack)}


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
    view: View, target: Target, kind: type[PassiveAttack[Any]], seed: int, own: Mapping[str, Any]
) -> tuple[PassiveAttack[Any], Report]:
    """Run one attack with those of the given parameters that it has; return it with its report.

    Raises:
        ArgumentError: the view or the public rows lack something that the attack needs.
    """
    made = kind.prepare(target, _taken(kind, own))
    return made.attack, evaluate(made.attack.run(view, made.prior, np.random.default_rng(seed)), made.truth)


def _taken(kind: type, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given parameters that an attack has."""
    return {name: own[name] for name in inspect.signature(kind).parameters if name in own}


def folder_of(out: Path, view: View) -> Path:
    """Return the folder of the reports on what one adversary saw: `out` itself for the server alone.

    Clients' names are no file names, so a folder has a digest of those who collude.
    """
    if view.party == "server" and not view.colluding:
        return out
    helping = json.dumps([view.clients[i] for i in view.colluding]).encode()
    return out / f"{view.party}{f'-{hashlib.sha256(helping).hexdigest()[:8]}' * bool(view.colluding)}"


def others(out: Path, folder: Path) -> list[dict[str, Any]]:
    """Return what is stored beside `folder` of further adversaries, the server alone first.

    Raises:
        RunFolderError: a file is damaged, or written by a newer privfed.
    """
    beside = [path for path in (out / REPORT, *sorted(out.glob(f"*/{REPORT}"))) if path.exists()]
    return [_read(path) for path in beside if path.parent != folder]


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        REPORTS.check(found.get("format"), path)
        if not all(isinstance(report, dict) for report in found["attacks"].values()):
            raise TypeError
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunFolderError(
            f"{path} is damaged; remove it to run the attacks again, or name another folder with --out."
        ) from None


def picture_of(folder: Path, name: str) -> Path:
    """Return the path of an attack's picture."""
    return folder / f"{name.replace(':', '.')}.png"


def keys_of(
    run_folders: Sequence[Path],
    view: View,
    target: Target,
    kinds: Mapping[str, type],
    seed: int,
    own: Mapping[str, Any],
    *,
    curve: bool = False,
) -> dict[str, str]:
    """Return for each attack a hash of all that its report depends on: run, view, target, parameters.

    Args:
        run_folders: folders whose transcripts are attacked.
        view: what the party saw.
        target: what is attacked, and what attacks are scored against.
        kinds: attacks by name. For one that is not privfed's own the hash includes its module's source.
        seed: seed of the attacks' random choices.
        own: parameters of attacks that the user gave.
        curve: whether reports also hold what fewer of the runs give.
    """
    digest = hashlib.sha256(_digest_of(run_folders).encode())
    given = (target.public, target.public_labels, target.candidates)
    every = (*target.clients, *(target.labels or ()), *target.known, *given)
    for rows in (one for one in every if one is not None):
        digest.update(f"{rows.shape}".encode() + np.ascontiguousarray(rows).tobytes())
    settings = [privfed.__version__, view.party, view.colluding, target.client, seed, curve]
    settings += [end.tolist() for end in target.ends or ()]
    digest.update(json.dumps([*settings, *(one is None for one in given)]).encode())
    told = {name: json.dumps(_taken(kind, own), sort_keys=True) for name, kind in kinds.items()}
    return {
        name: hashlib.sha256(
            digest.digest() + name.encode() + told[name].encode() + _code(name, kind)
        ).hexdigest()[:16]
        for name, kind in kinds.items()
    }


def _digest_of(run_folders: Sequence[Path]) -> str:
    """Return a digest of several runs' transcripts, in order."""
    each = (hashlib.sha256((folder / TRANSCRIPT).read_bytes()).digest() for folder in run_folders)
    return hashlib.sha256(b"".join(each)).hexdigest()


def _code(name: str, kind: type) -> bytes:
    """Return the source of a user's own attack, which may change while privfed's version stays."""
    own = name not in ATTACKS or name in ATTACKS.added()
    return inspect.getsource(sys.modules[kind.__module__]).encode() if own else b""


def stored(folder: Path, keys: dict[str, str], *, pictured: bool) -> dict[str, dict[str, Any]]:
    """Return the reports that a folder already holds under the same keys.

    Args:
        folder: folder of the reports.
        keys: key of each attack.
        pictured: whether only reports with a picture count, as pictures are wanted.

    Raises:
        RunFolderError: the file is damaged, or written by a newer privfed.
    """
    path = folder / REPORT
    if not path.exists():
        return {}
    return {
        name: report
        for name, report in _read(path)["attacks"].items()
        if name in keys
        and report["key"] == keys[name]
        and (report["why"] or picture_of(folder, name).exists() or not pictured)
    }


def keep(folder: Path, found: dict[str, Any]) -> None:
    """Write all that was found so far, with what the adversary saw and who read it, atomically."""
    found["shown"] = read_by(found["attacks"])
    make_folder(folder)
    rewrite(folder / REPORT, (json.dumps(found, indent=2) + "\n").encode())
