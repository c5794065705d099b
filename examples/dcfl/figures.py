"""DCFL of Augello, Falzone and Lo Re (2023), beside CFL and FedAvg: Figures 4 to 6, Tables I and II.

    python -m examples.dcfl.figures [--quick] [--out DIR] [--data DIR] [--clear]

The setting is the paper's (section III): labels spread over clients by a Dirichlet distribution with alpha =
1, images turned by an angle of each client's own; every ten rounds a newcomer; from the fifth round on, every
ten rounds a client whose angle changes; 60 rounds of one epoch; DP-SGD at each client with epsilon = 10 and
delta = 1e-5. Accuracies are of each client's own model on its own images that it was not trained on.

What differs: the paper uses EMNIST, and does not say its model, learning rate or number of clients. Here
softmax regression is trained on MNIST (mnist.npz in the folder of --data, or EMNIST where its released files
lie there; made smaller to 14 by 14 pixels, 20 clients at first), or without --data on scikit-learn's 1,797
digits (10 clients), of which so few are left to a client that noise drowns them: there DP-SGD is left out of
the tables, and --clear leaves it out anyway.
CFL's thresholds depend on data and model, and are given below.

Figure 5 has four settings: neither newcomers nor drift nor DP; both, without DP; newcomers and DP; drift and
DP. It also says what hiding costs: bytes and seconds of DCFL over "plain" and over slots and masks, where the
server holds no client's update. It writes dcfl.csv, .md and .png. --quick is 12 rounds of digits, one seed.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from examples.dcfl.images import Images, digits, emnist, from_file
from examples.dcfl.scenario import Curves, Scenario, curves, dynamic, skewed
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, FedAvg
from privfed.deep.estimators.base import FederatedModel
from privfed.privacy.claim import Privacy
from privfed.protocols import Masked, Slotted

GATHERED: dict[str, Any] = {"protocol": "plain", "merge": "gathered"}
SPLITS: dict[str, Any] = {"split_mean_norm": 0.4, "split_max_norm": 0.8}
NOISED_SPLITS: dict[str, Any] = {"split_mean_norm": 1.6, "split_max_norm": 2.0}
"""CFL's thresholds, tried out without and with DP-SGD, whose updates are longer."""

QUANTILE = 0.95
"""Preference of affinity propagation, which the paper does not tell: by the median too few clusters stay."""

METRICS = {"DCFL": "complete", "divergence": "divergence", "cosine": "cosine", "euclidean": "euclidean"}
TABLE_I = ("DCFL", "CFL", "FedAvg")
SETTINGS = {
    "static": (False, False, False),
    "newcomers, drift": (True, True, False),
    "newcomers, DP": (True, False, True),
    "drift, DP": (False, True, True),
}
"""Name -> newcomers, drift, DP (Figure 5)."""


@dataclass(frozen=True)
class Experiment:
    """What is run: images, clients at first, rounds, seeds, and whether DP-SGD is used where asked for."""

    images: Images
    n_clients: int
    rounds: int
    seeds: tuple[int, ...]
    private: bool
    after: int

    def scenario(self, seed: int, newcomers: bool = True, drift: bool = True) -> Scenario:
        every = max(3, self.rounds // 6)
        return dynamic(
            self.n_clients,
            self.rounds,
            np.random.default_rng(seed),
            newcomer_every=every if newcomers else None,
            drift_from=max(2, every // 2) if drift else None,
            drift_every=every,
        )

    def parameters(self, scenario: Scenario, seed: int, private: bool) -> dict[str, Any]:
        shared = {
            "n_classes": self.images.n_classes,
            "rounds": self.rounds,
            "timed": True,
            "cohorts": scenario.cohorts(),
            "random_state": seed,
        }
        if not private:
            return {**shared, "learning_rate": 0.3, "batch_size": 16, "domain": Box(0, 1)}
        privacy = Privacy(
            epsilon=10.0, delta=1e-5, unit="record", domain=Box(0, 1), neighbours="add-remove", noise="local"
        )
        rows = round(0.75 * len(self.images.rows) / scenario.n_clients)
        return {
            **shared,
            "learning_rate": 1.0,
            "max_grad_norm": 4.0,
            "sample_rate": 0.2,
            "privacy": privacy,
            "rows_per_client": rows,
        }

    def models(
        self, parameters: dict[str, Any], names: tuple[str, ...]
    ) -> Iterator[tuple[str, FederatedModel]]:
        for name in names:
            if name == "FedAvg":
                yield name, FedAvg(**parameters, weighting="clients", protocol="plain")
            elif name == "CFL":
                splits = NOISED_SPLITS if "privacy" in parameters else SPLITS
                yield name, CFL(**parameters, **GATHERED, **splits, split_after=self.after, compare=False)
            else:
                # The paper's rounds are of all rows: none are held out to compare with other models.
                own = {"metric": METRICS[name], "preference_quantile": QUANTILE, "compare": False}
                yield name, DCFL(**parameters, **GATHERED, **own)


@dataclass(frozen=True)
class Line:
    """One fit: setting, seed, technique, its curves, seconds and bytes that clients sent."""

    setting: str
    seed: int
    name: str
    curves: Curves
    seconds: float
    sent: int


def fitted(
    experiment: Experiment, setting: str, seed: int, names: tuple[str, ...], switches: tuple[bool, bool, bool]
) -> Iterator[Line]:
    newcomers, drift, private = switches
    scenario = experiment.scenario(seed, newcomers, drift)
    train, test = skewed(experiment.images, scenario.n_clients, 1.0, np.random.default_rng(seed))
    X, y = scenario.tables(train)
    parameters = experiment.parameters(scenario, seed, private and experiment.private)
    for name, model in experiment.models(parameters, names):
        began = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - began
        sent = sum(model.federation_.traffic.up.values())
        yield Line(setting, seed, name, curves(model, scenario, test), seconds, sent)


def overhead(experiment: Experiment, seed: int) -> list[list[str]]:
    """Bytes that clients send and receive, seconds and accuracy, of DCFL in the clear and hidden."""
    scenario = experiment.scenario(seed)
    train, test = skewed(experiment.images, scenario.n_clients, 1.0, np.random.default_rng(seed))
    X, y = scenario.tables(train)
    parameters = experiment.parameters(scenario, seed, False)
    # Clients come and go: slots are named, as public lists say whose a linked update is.
    slots = {"protocol": Slotted(Masked(), sums=parameters["rounds"])}
    ways: dict[str, dict[str, Any]] = {
        "plain, whole updates": GATHERED,
        "masked, slots, whole updates": slots,
        "masked, slots, sketches (error 0.5)": {"sketch_error": 0.5, **slots},
    }
    lines = []
    for name, way in ways.items():
        model, began = DCFL(**parameters, **way), time.perf_counter()
        model.fit(X, y)
        seconds, traffic = time.perf_counter() - began, model.federation_.traffic
        final = curves(model, scenario, test).final[0]
        sizes = [sum(one.values()) / 1e6 for one in (traffic.up, traffic.down)]
        lines.append([name, f"{sizes[0]:.1f}", f"{sizes[1]:.1f}", f"{seconds:.1f}", f"{final:.2f}"])
    return lines


def table(lines: list[Line], setting: str, names: tuple[str, ...]) -> list[list[str]]:
    """Rows of Tables I and II: means over the seeds."""
    rows = []
    for name in names:
        own = [line.curves for line in lines if (line.setting, line.name) == (setting, name)]
        found = np.mean([[*one.final, *one.average] for one in own], axis=0)
        rows.append([name, *(f"{value:.2f}" for value in found)])
    return rows


def markdown(title: str, head: list[str], rows: list[list[str]]) -> str:
    shown = [head, ["---"] * len(head), *rows]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in shown) + "\n"


def draw(axes: Axes, line: Line, title: str) -> None:
    """One panel of Figures 4 to 6: each client's accuracy in gray, the mean in black."""
    rounds = np.arange(1, len(line.curves.accuracy) + 1)
    axes.plot(rounds, line.curves.accuracy, color="0.75", linewidth=0.8)
    axes.plot(rounds, np.nanmean(line.curves.accuracy, axis=1), color="black")
    axes.set_ylim(0, 1)
    axes.set_title(title, fontsize=8)


def pictures(lines: list[Line], path: Path) -> None:
    """Figure 4 and 6 in the first two rows, Figure 5 below, a setting a row; of the first seed."""
    first = [line for line in lines if line.seed == lines[0].seed]
    rows = [
        [line for line in first if line.setting == "dynamic" and line.name in ("FedAvg", "CFL", "DCFL")],
        [line for line in first if line.setting == "dynamic" and line.name not in ("FedAvg", "CFL", "DCFL")],
        *([line for line in first if line.setting == setting] for setting in SETTINGS),
    ]
    figure = Figure(figsize=(9, 2.2 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), 3, squeeze=False)
    for shown, row in zip(grid, rows, strict=True):
        for axes, line in zip(shown, row, strict=False):
            draw(axes, line, f"{line.name} ({line.setting})")
    figure.savefig(path, dpi=100)


def run(experiment: Experiment, out: Path) -> list[Line]:
    """Run everything and write it to a folder."""
    out.mkdir(parents=True, exist_ok=True)
    compared, alone = ("FedAvg", "CFL", "DCFL"), ("divergence", "cosine", "euclidean")
    lines: list[Line] = []
    for seed in experiment.seeds:
        lines += fitted(experiment, "dynamic", seed, (*compared, *alone), (True, True, True))
        for setting, switches in SETTINGS.items():
            lines += fitted(experiment, setting, seed, compared, switches)
    head = ["technique", "final mean", "final std", "average mean", "average std"]
    parts = [
        markdown("Table I", head, table(lines, "dynamic", TABLE_I)),
        markdown("Table II", head, table(lines, "dynamic", ("DCFL", *alone))),
        *(
            markdown(f"Figure 5: {one}", head, table(lines, one, ("DCFL", "CFL", "FedAvg")))
            for one in SETTINGS
        ),
        markdown(
            "What hiding costs",
            ["DCFL over", "MB up", "MB down", "seconds", "final mean"],
            overhead(experiment, experiment.seeds[0]),
        ),
    ]
    if not experiment.private:
        parts.insert(0, "DP-SGD was left out everywhere, also where a setting names it.\n")
    (out / "dcfl.md").write_text("\n".join(parts), encoding="utf-8")
    with (out / "dcfl.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "seed", "technique", "round", "client", "accuracy"])
        for line in lines:
            for (t, client), value in np.ndenumerate(line.curves.accuracy):
                writer.writerow([line.setting, line.seed, line.name, t + 1, client, f"{value:.4f}"])
    pictures(lines, out / "dcfl.png")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="12 rounds of digits, one seed")
    parser.add_argument("--out", type=Path, default=Path("dcfl"), help="folder for the results")
    parser.add_argument("--data", type=Path, help="folder with mnist.npz, or EMNIST's files")
    parser.add_argument("--clear", action="store_true", help="without DP-SGD")
    asked = parser.parse_args(arguments)
    if asked.quick:
        experiment = Experiment(digits(), 6, 12, (0,), private=False, after=4)
    elif asked.data is None:
        experiment = Experiment(digits(), 10, 60, (0, 1, 2), private=False, after=10)
    else:
        released = asked.data / "emnist-balanced-train-images-idx3-ubyte.gz"
        images = emnist(folder=asked.data) if released.exists() else from_file(asked.data / "mnist.npz")
        images = images.smaller(2)
        experiment = Experiment(images, 20, 60, (0, 1, 2), private=not asked.clear, after=10)
    run(experiment, asked.out)
    print((asked.out / "dcfl.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
