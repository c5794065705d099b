"""Short remarks on configurations, for tables."""

from __future__ import annotations

from collections.abc import Sequence

from privfed.experiments.report.summary import Row

NOTHING_TO_WORK_ON = "where no attack of this study had anything to work on"


def listed(numbers: Sequence[int]) -> str:
    """Return row numbers as the report shows them."""
    return ", ".join(f"#{i}" for i in numbers)


def unmeasured(rows: Sequence[tuple[int, Row]]) -> list[int]:
    """Return the numbers of configurations whose leakage is unknown, as no attack could be run."""
    return [i for i, row in rows if row.not_applicable and "leakage" not in row.stats]


def remarks(row: Row) -> list[str]:
    """Return the remarks on a configuration."""
    told = [] if row.same_as is None else [str(row.same_as)]
    told += [f"not applicable: {name}" for name in row.not_applicable if name not in row.attacks]
    if row.unconverged:
        told.append(f"{len(row.unconverged)} of {len(row.cells)} fits did not converge")
    return told


def ran(rows: Sequence[Row]) -> list[tuple[str, list[int]]]:
    """Return the algorithms that actually ran, each with the numbers of its rows."""
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows, start=1):
        if row.ran:
            found.setdefault(row.ran, []).append(i)
    return list(found.items())


def not_applicable(rows: Sequence[Row]) -> list[tuple[str, str, list[int]]]:
    """Return which attacks had nothing to work on, why, and in which configurations.

    Returns:
        For each: label of the attack, the reason, and the numbers of the rows in the report.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(rows, start=1):
        for name, reasons in row.not_applicable.items():
            for why in reasons:
                found.setdefault((name, why), []).append(i)
    return [(name, why, numbers) for (name, why), numbers in found.items()]


def unconverged(rows: Sequence[Row]) -> list[tuple[int, Row, list[int], str]]:
    """Return for each configuration why fits did not converge, and what helps.

    Returns:
        For each: number of the row in the report, the row, the seeds, and the reason.
    """
    return [
        (i, row, [seed for seed, own in row.unconverged.items() if own == why], why)
        for i, row in enumerate(rows, start=1)
        for why in dict.fromkeys(row.unconverged.values())
    ]
