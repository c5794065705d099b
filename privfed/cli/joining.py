"""The work of `privfed merge`: clusters of any shape from the centers of a run; nobody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from privfed.cli.output import answer, table
from privfed.cli.result import to_json
from privfed.cli.run_folder import MERGED, pretty
from privfed.core.record.transcript import Transcript
from privfed.core.stored.files import rewrite
from privfed.estimators.merged import MergedClusters
from privfed.estimators.saving import load
from privfed.privacy.claim import one_line


def merge(
    run_folder: Path,
    n_clusters: int | None,
    linkage: Literal["single", "average", "complete", "ward"],
    picture: bool,
    as_json: bool,
) -> None:
    """Do the work of `privfed merge`.

    Raises:
        ArgumentError: there are fewer centers with rows than clusters.
        RunFolderError: the folder has no finished run of a clustering that is registered here.
    """
    model: Any = load(run_folder)
    model.transcript_ = Transcript.load(run_folder)
    merged = MergedClusters(linkage=linkage, n_clusters=n_clusters).join(model)
    counted = model.cluster_sizes_ is not None
    sizes = np.bincount(merged.joined_, merged.sizes_, merged.n_clusters_).tolist()
    found = {
        "n_clusters": merged.n_clusters_,
        "joined": merged.joined_.tolist(),
        "sizes": sizes if counted else None,
        "tree": merged.tree_.tolist(),
        "kept": merged.kept_.tolist(),
        "cut": merged.cut_,
        "doubtful": merged.doubtful_.tolist(),
        "privacy": to_json(model.privacy_spent_),
    }
    rewrite(run_folder / MERGED, pretty(found))
    answer(
        found,
        as_json,
        table(
            ("cluster", "rows", "centers"),
            (
                [
                    str(i),
                    f"{size:.0f}" if counted else "",
                    ", ".join(map(str, np.flatnonzero(merged.joined_ == i))),
                ]
                for i, size in enumerate(sizes)
            ),
            f"{len(merged.joined_)} centers joined by {linkage} linkage, cut at {merged.cut_:.3g}",
        ),
        one_line(model.privacy_claim_),
        f"Written: {run_folder / MERGED}",
    )
    if picture:
        # Imported here, as matplotlib takes long to load.
        from privfed.plot import ClusterMapDisplay, DendrogramDisplay, figure_of, save

        figure = figure_of(
            DendrogramDisplay(merged.tree_, merged.cut_, found["kept"]),
            ClusterMapDisplay.of(merged),
            claim=model.privacy_claim_,
        )
        save(figure, run_folder / "merged.png", model.privacy_claim_)
