"""A study that is over in seconds, and its text as a table to change; and what its folder holds."""

import sqlite3
from contextlib import closing
from pathlib import Path

from privfed.experiments.running import FILE

SMALL = """\
name = "Small"
about = "Three flowers <of> iris & co."
seeds = 2

[[data]]
source = "iris"
low = 0.0
high = 8.0
public = 0.3

[[partition]]
clients = 5

[[algorithm]]
name = "DWF"
estimator = "DWFKMeans"
n_clusters = 3
max_iter = 6
tol = 0
grid = { n_init = [1, 2] }

[[sum]]
protocol = "plain"

[[sum]]
protocol = "masked"

[[attack]]
kind = "Membership"
rounds = [1, 2]

[want]
leakage = 0.2
score_ratio = 1.5
"""


def silent(done: int, of: int, job: object, well: bool) -> None:
    """Watch nothing."""


def results(folder: Path) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return everything that is stored of a study but seconds: (cell, part) -> words, values, error."""
    with closing(sqlite3.connect(folder / FILE)) as database:
        rows = database.execute("SELECT cell, part, content, result, error FROM parts").fetchall()
    return {(cell, part): (content, values, error) for cell, part, content, values, error in rows}
