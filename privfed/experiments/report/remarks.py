"""What is to be known of a configuration beside its figures, in a few words for tables."""

from __future__ import annotations

from collections.abc import Sequence

from privfed.experiments.report.summary import Row


def remarks(row: Row) -> list[str]:
    """Return what is to be known of a configuration."""
    return [f"{len(row.unconverged)} of {len(row.cells)} fits did not converge"] if row.unconverged else []


def unconverged(rows: Sequence[Row]) -> list[tuple[int, Row, list[int], str]]:
    """Return configuration by configuration why fits did not converge, and what helps.

    Returns:
        Number of the row in the report, the row, seeds, why.
    """
    return [
        (i, row, [seed for seed, own in row.unconverged.items() if own == why], why)
        for i, row in enumerate(rows, start=1)
        for why in dict.fromkeys(row.unconverged.values())
    ]
