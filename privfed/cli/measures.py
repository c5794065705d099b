"""The commands `privfed measure` and `privfed flower measure`: private metrics of centers that were found."""

from __future__ import annotations

from privfed.cli import options
from privfed.cli.parties import clients_option, flower
from privfed.cli.program import command


@command(
    None,
    "privfed.cli.measuring:measure",
    "Ask private metrics of a run's clusters, with intervals.",
    options.run_argument,
    options.source_options,
    options.config_option,
    options.schema_option,
    options.classes_option,
    options.metrics_option,
    options.sum_options,
    options.declared_options,
    options.json_option,
)
def measure() -> None:
    """Ask the clients of DATA for metrics of the centroids in folder RUN, under a claim of their own.

    Each is printed with the interval that its noise leaves open, and added to metrics.json of RUN. Scores of
    labels, such as accuracy, need --label and --classes; all of them are asked at once.
    """


@command(
    flower,
    "privfed.cli.federations:measure",
    "Ask private metrics of a run's clusters, with intervals.",
    options.folder_argument,
    options.run_argument,
    clients_option,
    options.schema_option,
    options.classes_option,
    options.metrics_option,
    options.sum_options,
    options.declared_options,
    options.json_option,
)
def measure_() -> None:
    """Ask the nodes of the federation in FOLDER for metrics of the centroids in RUN, like privfed measure."""
