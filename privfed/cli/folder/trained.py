"""The machine-readable result of a run that trains models, `result.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from privfed import __version__
from privfed.cli.folder.result import SumRow, Traffic
from privfed.cli.folder.run_folder import RESULT, RESULT_FORMAT, RESULTS, read_result


class Decided(msgspec.Struct, frozen=True):
    """Holds what a round decided about clusters; `index` is the Dunn index before, or None."""

    round: int
    n_clusters: int
    index: float | None
    changed: bool


class TrainedResult(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the result of a run; the models themselves are in `model.npz`.

    `clusters` is each client's cluster, -1 for none, and `accuracy` the share of its own rows that its own
    model gets right; both are None under differential privacy, as no budget is spent on them.
    """

    format: int = RESULT_FORMAT
    kind: str = "models"
    privfed: str = __version__
    algorithm: str
    protocol: str
    opens_to: str
    reveals: str
    server_saw: str
    privacy: dict[str, Any] | None
    noised: tuple[str, ...]
    clients: tuple[str, ...]
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    n_parameters: int
    n_clusters: int
    n_iter: int
    clusters: dict[str, int] | None
    accuracy: dict[str, float] | None
    decided: list[Decided]
    traffic: Traffic
    sums: list[SumRow]


class _Kind(msgspec.Struct, frozen=True):
    format: int = 1
    kind: str = "clusters"


def holds_models(folder: Path) -> bool:
    """Say whether a finished run trained models.

    Raises:
        RunFolderError: there is no result yet, or it is damaged or written by a newer privfed.
    """
    found = read_result(folder, _Kind)
    RESULTS.check(found.format, folder / RESULT)
    return found.kind == "models"


def read_trained(folder: Path) -> TrainedResult:
    """Read the result of a finished run that trained models."""
    return read_result(folder, TrainedResult)
