"""Options that commands share: source of the rows, algorithm, secure sum, domain and privacy."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from privfed.cli.declared import Declared
from privfed.cli.folder.run_folder import Source, Word
from privfed.cli.measuring import MEASURES
from privfed.cli.registered import Registered
from privfed.cli.speaking import Part
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.data.writing import check_suffix
from privfed.deep.clustering.distances import METRICS
from privfed.deep.estimators.parameters import DPSGD, Comparing, Distances, LocalTraining
from privfed.deep.training.trainer import MODELS
from privfed.estimators.parameters.declaring import parameters_of
from privfed.estimators.parameters.shared import (
    Cohorts,
    LocalCenters,
    LocalSteps,
    Patience,
    Rounds,
    ServerSteps,
    Starts,
)
from privfed.estimators.registry import ESTIMATORS, SHORT, TRAINED
from privfed.protocols.registry import SECURE_SUMS

Command = Callable[..., Any]


def names(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Split names at commas; a name that contains a comma is put in double quotes."""
    if text is None:
        return ()
    found = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not found or not all(found):
        raise click.BadParameter(f"{text!r} has an empty name; write names with commas between them.")
    return found


def listed(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Split names at commas, or read the lines of a file whose path follows an @."""
    if text is None or not text.startswith("@"):
        return names(context, option, text)
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise click.BadParameter(f"{text[1:]} is no text that can be read; write one name a line.") from None
    found = tuple(name for line in lines if (name := line.strip()))
    if not found:
        raise click.BadParameter(f"{text[1:]} holds no names; write one name a line.")
    return found


def numbers(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    """Read one number, or one for each feature with commas between them."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, nor numbers with commas between them.") from None


def table_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse at once a table's file whose extension does not name a format."""
    if path is not None:
        check_suffix(path)
    return path


def json_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse at once a file for JSON whose extension is another."""
    if path is not None:
        check_suffix(path, (".json",))
    return path


quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")
picture_option = click.option(
    "--picture/--no-picture",
    default=True,
    show_default=True,
    help="Draw pictures of the results.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _stacked(*options: Command) -> Command:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


own_algorithm_option = click.option(
    "--algorithm", metavar="MODULE:NAME", help="Needed again if the run has an algorithm of yours."
)

truth_options = _stacked(
    click.option(
        "--truth",
        type=click.Path(path_type=Path),
        help="The clients' rows of the run, to score against.  [default: the data of the run]",
    ),
    click.option("--group", metavar="COLUMN", help="Column of the truth that says whose a row is."),
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=names,
        help="Feature columns of the truth.  [default: the run's; all but group if its folder names none]",
    ),
    own_algorithm_option,
)

source_options = _stacked(
    click.argument("data", type=click.Path(path_type=Path)),
    click.option("--group", metavar="COLUMN", help="Column that says which client a row belongs to."),
    click.option(
        "--clients",
        cls=Part,
        part_of=("client_names",),
        metavar="A,B,...|@FILE",
        callback=listed,
        help="All clients, or a file with one name a line; declares them if --epsilon and --group are given.",
    ),
    click.option(
        "--label",
        metavar="COLUMN",
        help="Column of true labels, to score against (not with --epsilon); never a feature.",
    ),
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=names,
        help="Feature columns.  [default: all but group and label]",
    ),
    click.option("--separator", metavar="CHAR", help="Between the fields of a CSV file.  [default: found]"),
)


classes_option = click.option(
    "--classes",
    cls=Part,
    part_of=("n_classes",),
    metavar="A,B,...|@FILE",
    callback=listed,
    help="Classes of the --label that a model tells apart; needed with --epsilon.  [default: found]",
)


def source_of(data: Path, given: dict[str, Any]) -> Source:
    """Remove the options of the source from those given, and return the source."""
    taken = {name: given.pop(name) for name in ("group", "label", "separator", "columns", "clients")}
    taken["classes"] = given.pop("classes", ())
    return Source(path=str(data.absolute()), **taken)


metrics_option = click.option(
    "--metrics",
    metavar="A,B,...",
    callback=names,
    help=f"Metrics that the clients agree to be asked after the fit: {', '.join(MEASURES)}.",
)


algorithm_option = click.option(
    "--algorithm",
    type=Registered(ESTIMATORS, (*SHORT, *TRAINED)),
    default="dwf",
    show_default=True,
    help="dp: k-means under differential privacy; dwf, ewf: dynamically or equally weighted federated "
    "k-means; lloyd: dwf with one local step; minibatch: federated mini-batch k-means; fkm, kfed; fuzzy: "
    "federated fuzzy c-means. Models of the --label: fedavg; ifca, cfl, dcfl, rdpcfl for "
    "clusters of clients.",
)


def _said(group: type, name: str) -> str:
    """Return the summary of a parameter in the estimators' docstrings."""
    return parameters_of(group)[name].summary


_WORDS: dict[str, tuple[Any, str]] = {
    "--init": (
        click.Choice(["coreset", "nested", "kfed", "random", "k-means++"]),
        f"{_said(Starts, 'init')} Only fkm has k-means++.",
    ),
    "--n-init": (int, _said(Starts, "n_init")),
    "--local-iter": (int, _said(LocalSteps, "local_iter")),
    "--learning-rate": (float, _said(ServerSteps, "learning_rate")),
    "--momentum": (float, _said(ServerSteps, "momentum")),
    "--tol": (float, _said(Rounds, "tol")),
    "--max-iter": (int, _said(Rounds, "max_iter")),
    "--min-iter": (int, _said(Patience, "min_iter")),
    "--patience": (int, _said(Patience, "patience")),
    "--clients-per-round": (int, _said(Cohorts, "clients_per_round")),
    "--rounds": (int, f"{_said(LocalTraining, 'rounds')} For models."),
    "--epochs": (int, "Local epochs in a round (minibatch, models)."),
    "--batch-size": (int, "Rows of a local step (minibatch, models)."),
    "--model": (Registered(MODELS), "The model, or MODULE:NAME of a torch module (needs privfed[deep])."),
    "--max-update-norm": (float, _said(LocalTraining, "max_update_norm")),
    "--metric": (click.Choice(METRICS), f"{_said(Distances, 'metric')} For dcfl."),
    "--sketch-error": (float, _said(Comparing, "sketch_error")),
    "--sample-rate": (float, _said(DPSGD, "sample_rate")),
    "--max-grad-norm": (float, _said(DPSGD, "max_grad_norm")),
    "--noise-multiplier": (float, _said(DPSGD, "noise_multiplier")),
    "--rows-per-client": (int, _said(DPSGD, "rows_per_client")),
    "--min-cluster-size": (int, f"{_said(LocalCenters, 'min_cluster_size')} For fkm and kfed."),
    "--n-local-clusters": (int, "Clusters that each client looks for (kfed)."),
    "--merge": (
        click.Choice(["summed", "gathered", "slotted"]),
        f"{_said(LocalCenters, 'merge')} For fkm and kfed; cfl and dcfl have slotted and gathered.",
    ),
    "--fuzzifier": (float, "The exponent m of memberships (fuzzy)."),
    "--averaging": (click.Choice(["kmeans", "weighted"]), "How local centers are averaged (fuzzy)."),
}
"""Options that set estimators' parameters; where one is not given, the estimator's default holds."""


def _parameter(option: str) -> str:
    """Return the name of the estimator's parameter that an option sets."""
    return "m" if option == "--fuzzifier" else option.removeprefix("--").replace("-", "_")


sum_options = _stacked(
    click.option(
        "--protocol",
        type=Registered(SECURE_SUMS),
        default="masked",
        show_default=True,
        help="Secure sum: masked shows the server only totals; with masked-verified clients get and check "
        "them too; with group-masked and ckks the clients open the totals and the server sees none; plain "
        "shows the server every client's statistics.",
    ),
    click.option(
        "--seed",
        "random_state",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        show_default=True,
        help="Random seed.",
    ),
)

word_options = _stacked(
    *(click.option(name, _parameter(name), type=kind, help=text) for name, (kind, text) in _WORDS.items()),
    sum_options,
)


def words_of(given: dict[str, Any]) -> dict[str, Word]:
    """Remove the estimator's parameters, with protocol and seed, from the given options; return them."""
    words: dict[str, Word] = {name: given.pop(name) for name in ("protocol", "random_state")}
    taken = {name: given.pop(name) for name in map(_parameter, _WORDS)}
    return words | {name: value for name, value in taken.items() if value is not None}


declared_options = _stacked(
    click.option(
        "--low",
        cls=Part,
        part_of=("domain",),
        metavar="X[,Y,...]",
        callback=numbers,
        help="Declared lowest value of the features; with --high.",
    ),
    click.option(
        "--high",
        cls=Part,
        part_of=("domain",),
        metavar="X[,Y,...]",
        callback=numbers,
        help="Declared highest value of the features; with --low.",
    ),
    click.option("--max-rows", type=int, help="Declared most rows of a client; with --low and --high."),
    click.option(
        "--epsilon",
        cls=Part,
        part_of=("privacy",),
        type=float,
        help="Claim differential privacy; needs the next three options, --low and --high.",
    ),
    click.option(
        "--delta",
        cls=Part,
        part_of=("privacy",),
        type=float,
        help="Delta of the claim, far below one over the number of units.",
    ),
    click.option(
        "--unit",
        cls=Part,
        part_of=("privacy",),
        type=click.Choice(Unit.words()),
        help="The unit that is protected.",
    ),
    click.option(
        "--neighbours",
        cls=Part,
        part_of=("privacy",),
        type=click.Choice(Neighbours.words()),
        help="Which inputs count as neighbouring.",
    ),
    click.option(
        "--noise",
        type=click.Choice(Noise.words()),
        help="Who adds the noise: the clients of a sum together (unless told otherwise), each client alone, "
        "or the server, to sums that only clients open.",
    ),
    click.option(
        "--mechanism",
        type=click.Choice(Mechanism.words()),
        help="Distribution of the noise: discrete Gaussian unless told otherwise.",
    ),
    click.option(
        "--spare", type=float, help="Share of the budget kept for sums that have to be asked again."
    ),
)


def declared_of(given: dict[str, Any]) -> Declared:
    """Remove the declared domain and privacy from the given options, and return them."""
    return Declared(**{name: given.pop(name) for name in Declared.__struct_fields__})
