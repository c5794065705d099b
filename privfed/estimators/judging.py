"""What a fit says of its own result: findings from the totals that it has, the most severe first.

Nothing is asked for them. The score's total counts the rows of each cluster, and adds up how far they lie
from their center along one direction (`privfed.questions.lloyd.Inertia`). From this follows by how much
exact means would lower the inertia at once:

    sum_j n_j |mean_j - center_j|^2 / inertia

Along one direction of several features it is an estimate without bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from privfed.core.record.records import question_of
from privfed.core.values.domain import FloatArray
from privfed.estimators.doubts import intervals_of
from privfed.questions.lloyd import Inertia, LloydSums

MOST = 5
"""Most findings of a fit that are said."""

GAP = 0.02
"""Share of the inertia that exact means would save, above which a fit says so."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the owner of a fit should know, and what to do about it.

    Args:
        code: what it is: "changed", "few-rows", "coarse", "empty", "unconverged", "off-means" or "clipped".
        text: in one sentence, with what to do.
        category: class of its warning; None where it is only shown, since somebody chose it.
        clusters: positions of the centers that it is about; empty for all.
    """

    code: str
    text: str
    category: type[Warning] | None = ConvergenceWarning
    clusters: tuple[int, ...] = ()


def sizes_and_gap(model: Any) -> tuple[FloatArray | None, float]:
    """Return the rows of each cluster, float64 of shape (n_clusters,), and the gap to the exact means.

    Where no score counted the rows, they are those of the last exact round, before its centers moved, and the
    gap is 0. None where nothing counted them.
    """
    for asked, total in reversed(model.transcript_.totals()):
        question: Any = question_of(asked)
        if type(question) is LloydSums and np.array_equal(question.centers, model.history_[-2]):
            return total.statistics["count"], 0.0
        scored = type(question) is Inertia and question.directions is not None
        if scored and np.array_equal(question.centers, model.cluster_centers_):
            count, along, (inertia,) = (total.statistics[one] for one in ("count", "along", "inertia"))
            saved = (np.square(along).sum(axis=1) / np.maximum(count, 0.5)).sum()
            return count, float(saved / inertia) if inertia > 0.0 else 0.0
    return None, 0.0


def released_sizes(fitted: Any) -> tuple[FloatArray | None, FloatArray]:
    """Return the rows of each cluster as a fit released them, and the length of the noise in each center.

    The first is None where no total counted them, or the model has no transcript, as one that was loaded. Of
    a mixture it is by the components' weights. Noise of unknown length is infinite.
    """
    transcript, centers = vars(fitted).get("transcript_"), fitted.cluster_centers_
    found = None if transcript is None else intervals_of(transcript, centers, 0.95)
    if found is not None:
        return np.maximum(found.sizes, 0.0), found.noise
    noise = np.full(len(centers), 0.0 if fitted.privacy_claim_ is None else np.inf)
    if "weights_" in vars(fitted):
        return fitted.weights_ * fitted.n_rows_ if fitted.n_rows_ else None, noise
    return None if transcript is None else sizes_and_gap(fitted)[0], noise


MOST_CHANGED = 0.05
"""Share of the rows, left out or changed for one column, above which a fit says so."""


def of_changed(changed: Mapping[str, int], rows: int) -> Iterator[Finding]:
    """Yield that many rows were left out, filled or clipped before the fit, on the machine where they lie.

    Args:
        changed: column -> rows, as `privfed.data.ClientTables` counts them; under "" those left out.
        rows: rows of the fit.
    """
    left_out = changed.get("", 0)
    columns = sorted(((n, name) for name, n in changed.items() if name and n), reverse=True)[:3]
    most = MOST_CHANGED * (rows + left_out)
    if max(left_out, *(n for n, _ in columns), 0) > most:
        by_column = ", ".join(f"{name}: {n:,}" for n, name in columns)
        yield Finding(
            "changed",
            f"{left_out:,} of {rows + left_out:,} rows were left out before the fit. Rows left out, filled "
            f"or clipped by column: {by_column or 'none'}. Drop such a column, fill it (missing=, "
            "FederatedImputer), or say in the text for whom the clusters hold.",
            UserWarning if left_out > most else None,
        )


def findings(model: Any) -> Iterator[Finding]:
    """Yield what a fitted estimator should say of its result, the most severe first.

    Of centers with noise it is no more than whether they came to rest (`privfed.estimators.doubts` has the
    rest). Other averages than DWF k-means offers to finish are off the means of their rows by definition.
    """
    totals, k = [total for _, total in model.transcript_.totals()], len(model.cluster_centers_)
    exact = model.privacy is None
    sizes, gap = sizes_and_gap(model) if exact else (None, 0.0)
    empty = () if sizes is None else tuple(np.flatnonzero(np.rint(sizes) < 1).tolist())
    if exact and (coarse := model.federation_.near_grid(totals[-1].statistics, ["inertia"])) is not None:
        yield Finding("coarse", f"inertia_ is not known: {coarse}", UserWarning)
    if empty:
        yield Finding(
            "empty" if model.inertia_ else "few-rows",
            f"no row lies at {len(empty)} of {k} centers (positions {', '.join(map(str, empty[:9]))}"
            + f"{', ...' * (len(empty) > 9)}). "
            + (
                "Take fewer clusters, or more restarts (n_init=)."
                if model.inertia_
                else f"The rows take {k - len(empty)} distinct values: take so many clusters at most."
            ),
            clusters=empty,
        )
    if model.converged_ is False:
        yield Finding(
            "unconverged",
            f"{type(model).__name__}(n_clusters={k}) did not converge in {model.n_iter_} "
            f"round{'s' * (model.n_iter_ != 1)}: {model.remedy()}",
        )
    if model.converged_ and gap > GAP and "finish" in model.get_params(deep=False):
        yield Finding(
            "off-means",
            f"the centers are not the means of their rows, which have about {gap:.0%} less inertia, and "
            f"exact rounds from there still less. Take {model._settling()}{' or ' * bool(model._settling())}"
            'finish="lloyd".',
        )
    if exact and (clipped := sum(one.clipped for one in totals)):
        yield Finding(
            "clipped",
            f"clients clipped {clipped} rows or numbers to ranges that were found without them. Fit when all "
            "clients are there, or declare a domain.",
            UserWarning,
        )
