"""`privfed demo`: clusters hand-written digits at twenty clients over masked sums and over plain ones.

Then it runs the built-in study "digits": what each sum reveals, and what differential privacy costs.

scikit-learn's digits are split by k-means, so that clients have different shapes (the non-IID split of
Holzer, Jacob and Kavane 2023). In some rounds clients drop out. The plain sums leave out the same clients as
the masked ones, so that the runs differ only in the secure sum.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import click
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.table import Table
from sklearn.datasets import load_digits

from privfed.cli.commands.tradeoff import carry_out, load_study, tell
from privfed.cli.display.output import kilobytes, printed
from privfed.cli.display.picture import draw_convergence, save
from privfed.cli.display.progress import RoundProgress
from privfed.cli.display.unconverged import in_results
from privfed.cli.folder.result import Result, result_of
from privfed.cli.folder.run_folder import pretty
from privfed.cli.measuring import agree_on
from privfed.core.agreed.assumptions import SIGHTS
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import ROUND
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.stored.files import make_folder, replaced
from privfed.core.values.domain import Box
from privfed.data import partition
from privfed.engines.faults import Fault
from privfed.estimators.weighted import DWFKMeans
from privfed.experiments.running.planning import plan
from privfed.federation.clients import Clients, gather
from privfed.federation.simulation import Simulation
from privfed.privacy.claim import one_line
from privfed.protocols import Masked, Plain

N_CLIENTS, N_CLUSTERS, MAX_ITER, TOL = 20, 10, 100, 1e-6
DOMAIN = Box(0, 16)
_FIRST_ROUND, _LAST_LOSSES = 3, 14


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the contents of `demo.json`.

    Args:
        seed: seed of the split, the dropouts and the starts.
        largest_difference: largest difference between coordinates of the centroids over plain and over
            masked sums (pixels run from 0 to 16).
        seconds: run time of the whole demonstration.
        runs: result of each protocol.
    """

    seed: int
    largest_difference: float
    seconds: float
    runs: dict[str, Result]


@click.command(short_help="Cluster digits over plain and over masked sums.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder to write to.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--study/--no-study", default=True, show_default=True, help="Run the study of digits too.")
def demo(out: Path, seed: int, study: bool) -> None:
    """Cluster hand-written digits at 20 clients, some of which drop out: plain sums beside masked ones.

    Then run the built-in study "digits", and write its report.
    """
    began = time.monotonic()
    make_folder(out)
    clients = _digits(seed)
    drawn = losses(seed)
    # So many clients are lost here as no fit of real rows should allow: each may be counted three times.
    masked, seen = _run(Masked(losses=3 * len(drawn)), clients, drawn, seed)
    plain, _ = _run(Plain(), clients, same_losses(seen), seed)
    difference = float(np.abs(np.subtract(plain.centroids, masked.centroids)).max())
    shown = Demonstration(
        seed=seed,
        largest_difference=difference,
        seconds=time.monotonic() - began,
        runs={"plain": plain, "masked": masked},
    )
    with replaced(out / "demo.json") as path:
        path.write_bytes(pretty(shown))
    _draw(out / "demo.png", shown.runs)
    printed(_table(shown))
    lost = Counter(stage for row in masked.sums for stage in row.dropped.values())
    stages = ", ".join(f"{count} in {stage}" for stage, count in lost.most_common()) or "none"
    click.echo(f"Dropouts over masked: {stages}. The plain totals leave out the same clients.")
    click.echo(f"Largest difference between their centroids: {difference:.1e} (a pixel is 0 to 16).")
    click.echo(f"Of both runs: {one_line(None)}.")
    click.echo(f"Written: {out / 'demo.json'}, {out / 'demo.png'}")
    if study:
        click.echo("\nWhat does each sum give away? The study 'digits', in about a minute:")
        located, folder = load_study("digits")
        checked = plan(located, folder)
        rows = carry_out(checked, out / "study", os.cpu_count() or 1, retry=False, quiet=False)
        tell(checked, rows, out / "study")


def _digits(seed: int) -> Clients:
    images, digits = load_digits(return_X_y=True)
    parts = partition(images, N_CLIENTS, "non-iid", np.random.default_rng(seed))
    return gather([images[rows] for rows in parts], y=[digits[rows] for rows in parts], domain=DOMAIN)


def losses(seed: int) -> list[Fault]:
    """Draw which clients drop out when: before their upload arrives, or after it."""
    rng = np.random.default_rng(seed)
    faults: list[Fault] = []
    for number in range(_FIRST_ROUND, _LAST_LOSSES + 1, 2):
        for stage, n_lost in (("collect", 2), ("unmask", 1)):
            lost = rng.choice(N_CLIENTS, n_lost, replace=False)
            faults += [Fault(int(client), stage, sums=frozenset({number})) for client in lost]
    return faults


def same_losses(transcript: Transcript) -> list[Fault]:
    """Return faults that make plain sums leave out exactly the clients that a transcript's totals lack."""
    return [
        Fault(client, "collect", sums=frozenset({asked.index + 1}))
        for asked, total in transcript.totals()
        for client in sorted(set(asked.clients) - set(total.contributors))
    ]


def _run(protocol: SecureSum, clients: Clients, faults: list[Fault], seed: int) -> tuple[Result, Transcript]:
    """Fit over one protocol; return the result, scored against the digits, and the transcript."""
    simulation = Simulation(faults=faults)
    model = DWFKMeans(
        N_CLUSTERS,
        tol=TOL,
        max_iter=MAX_ITER,
        protocol=protocol,
        engine=simulation,
        domain=DOMAIN,
        random_state=seed,
    )
    agree_on(model, (), n_labels=10)
    began = time.monotonic()
    with RoundProgress(protocol.name, MAX_ITER) as progress, in_results():
        model.fit_clients(clients, watch=progress)
    seconds = time.monotonic() - began
    pixels = [f"pixel {row},{column}" for row in range(8) for column in range(8)]
    result = result_of(model, algorithm="dwf", columns=pixels, n_labels=10, seconds=seconds)
    return result, model.transcript_


def _table(shown: Demonstration) -> Table:
    n_rows = shown.runs["plain"].rows
    title = f"{n_rows} digits at {N_CLIENTS} clients (non-IID), dwf, {N_CLUSTERS} clusters"
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in ("", "score", "v-measure", "rounds", "a client", "seconds", "dropouts"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    table.add_column("the server saw", no_wrap=True)
    for protocol, result in shown.runs.items():
        table.add_row(protocol, *_cells(result))
    return table


def _cells(result: Result) -> list[str]:
    agreed = result.agreement
    return [
        f"{result.score:.2f}",
        "" if agreed is None else f"{agreed.v_measure:.4f}",
        f"{result.n_iter}{' (not converged)' * (result.converged is False)}",
        kilobytes(result.traffic.bytes_per_client),
        f"{result.traffic.seconds:.2f}",
        str(sum(len(row.dropped) for row in result.sums)),
        SIGHTS[result.reveals].short,
    ]


def _draw(path: Path, runs: dict[str, Result]) -> None:
    """Draw the centroids of each run as images, above the convergence of all."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[1, 1.4])
    above, below = (figure.add_subfigure(rows[i]) for i in range(2))
    grid = above.subplots(len(runs), N_CLUSTERS)
    for row, (name, result) in enumerate(runs.items()):
        for cluster, centroid in enumerate(result.centroids):
            axes = grid[row, cluster]
            axes.imshow(np.reshape(centroid, (8, 8)), cmap="gray_r", vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
        grid[row, 0].set_ylabel(name)
    above.suptitle("Centroids of the ten clusters")
    axes = below.subplots()
    draw_convergence(axes, {name: result.movements for name, result in runs.items()}, TOL)
    _mark_losses(axes, runs["masked"])
    save(figure, path)


def _mark_losses(axes: Axes, result: Result) -> None:
    """Shade the rounds in which clients were missing from the total."""
    rounds = [row for row in result.sums if row.purpose == ROUND]
    label = "clients missing"
    for number, row in enumerate(rounds, start=1):
        if row.contributors < row.clients:
            axes.axvspan(number - 0.5, number + 0.5, color="#eeeeee", zorder=0, label=label)
            label = "_"
    axes.set_xlim(left=0.5)
    axes.legend(loc="lower left")
