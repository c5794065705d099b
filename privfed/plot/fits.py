"""Displays of fits: how the centers moved, where they lie, and the tree that joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import dendrogram
from sklearn.utils.validation import check_is_fitted

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.plot.style import COLOURS, DASHES, MARKERS, Display, whole_rounds

LABELLED = 12
"""Most clusters whose numbers are written into a map."""


def moved(history: Sequence[FloatArray]) -> list[float]:
    """Return how far centers or models moved in each round, all together (root of the sum of squares).

    Where their number changes, each counts from the nearest one of the round before.
    """
    steps = [
        after - before
        if len(after) == len(before)
        else np.linalg.norm(after[:, None] - before[None], axis=2).min(axis=1)
        for before, after in pairwise(history)
    ]
    return [float(np.linalg.norm(one)) for one in steps]


class ConvergenceDisplay(Display):
    """How far all centers moved in each round, on a logarithmic axis; rounds without any are at its foot.

    Args:
        movements: name of each run -> its movements, one for each round, in units of the rows that were
            clustered (scaled rows, where the fit scaled them).
        tol: movement below which the runs stop; 0 draws no line.
    """

    def __init__(self, movements: Mapping[str, Sequence[float]], tol: float = 0.0) -> None:
        self.movements, self.tol = movements, tol

    @classmethod
    def from_estimator(cls, estimator: Any, ax: Axes | None = None) -> Self:
        """Draw a fitted estimator, or several: a dict of them by name."""
        return cls.of(estimator)._shown(ax)

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Return the display that `from_estimator` draws."""
        models = estimator if isinstance(estimator, Mapping) else {"movement": estimator}
        for one in models.values():
            check_is_fitted(one)
        tols = {float(one.get_params(deep=False).get("tol") or 0.0) for one in models.values()}
        return cls(
            {name: moved(one.history_) for name, one in models.items()}, tols.pop() if len(tols) == 1 else 0.0
        )

    def _draw(self, ax: Axes) -> None:
        for i, (name, movements) in enumerate(self.movements.items()):
            values, rounds = np.asarray(movements), np.arange(1, len(movements) + 1)
            style: dict[str, Any] = {
                "color": COLOURS[i % len(COLOURS)],
                "linestyle": DASHES[i % len(DASHES)],
                "marker": MARKERS[i % len(MARKERS)],
                "markersize": 3,
            }
            ax.plot(rounds, np.where(values > 0, values, np.nan), label=name, **style)
            if (values == 0).any():
                # A logarithmic axis has no zero, so these points are placed in units of the axes' height.
                style |= {"fillstyle": "none", "transform": ax.get_xaxis_transform(), "linestyle": "none"}
                ax.plot(
                    rounds, np.where(values == 0, 0.03 + 0.04 * i, np.nan), label=f"{name}: zero", **style
                )
        if any(value > 0 for one in self.movements.values() for value in one):
            ax.set_yscale("log")
            # Room below the values, for the rounds that have none.
            zeros = any(0.0 in one for one in self.movements.values())
            ax.set_ylim(bottom=min(ax.get_ylim()[0], self.tol or np.inf) / (30.0 if zeros else 1.5))
        else:
            ax.set_yticks([])
        if self.tol > 0:
            ax.axhline(self.tol, color="0.5", linewidth=1, linestyle=":", label=f"tol = {self.tol:g}")
        ax.set(xlabel="round", ylabel="movement of all centers")
        whole_rounds(ax)
        ax.legend()


def flat(history: FloatArray, columns: Sequence[str]) -> tuple[FloatArray, tuple[str, str]]:
    """Project centroids to the plane, by their features or by the principal axes of the final ones.

    Args:
        history: float64 of shape (n_rounds + 1, n_clusters, n_features).
        columns: names of the features.

    Returns:
        The points, float64 of shape (n_rounds + 1, n_clusters, 2), and the names of the axes.
    """
    if history.shape[2] == 1:
        return np.concatenate([history, np.zeros_like(history)], axis=2), (columns[0], "")
    if history.shape[2] == 2:
        return history, (columns[0], columns[1])
    last = history[-1]
    _, spread, axes = np.linalg.svd(last - last.mean(axis=0), full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, axes.shape[1]))])[:2]
    # The sign of a principal axis is arbitrary; the largest entry is made positive so that pictures repeat.
    axes = axes * np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    share = np.append(np.square(spread), 0.0)[:2] / max(float(np.square(spread).sum()), 1e-300)
    names = [f"principal axis {i + 1} ({share[i]:.0%})" for i in range(2)]
    return (history - last.mean(axis=0)) @ axes.T, (names[0], names[1])


class ClusterMapDisplay(Display):
    """Centers in the plane, with areas by the rows of their clusters, and the paths that they took.

    Args:
        history: centers at the start and after each round, float64 of shape (n_rounds + 1, n_clusters, 2).
        axes: names of the two axes.
        sizes: rows of each cluster, (n_clusters,); None where they are not known.
        joined: what colours the centers, integers of shape (n_clusters,); None colours each by itself.
        edges: pairs of centers that are joined, integers of shape (n_edges, 2).
        doubtful: of each edge, whether noise may undo it; such edges are dashed.
    """

    def __init__(
        self,
        history: FloatArray,
        axes: tuple[str, str],
        sizes: FloatArray | None = None,
        joined: Any = None,
        edges: Any = (),
        doubtful: Any = (),
    ) -> None:
        self.history, self.axes, self.sizes = history, axes, sizes
        self.joined = np.arange(history.shape[1]) if joined is None else joined
        self.edges, self.doubtful = edges, doubtful

    @classmethod
    def from_estimator(
        cls, estimator: Any, ax: Axes | None = None, columns: Sequence[int | str] | None = None
    ) -> Self:
        """Draw the centers of a fitted clustering, or of `MergedClusters` with the edges that join them.

        Args:
            estimator: fitted. Sizes are those that it released, without noise or with it.
            ax: axes to draw into.
            columns: two columns, by position or name, in the columns' units; None takes those of two, and
                else the principal axes of the centers, after scaling.
        """
        return cls.of(estimator, columns)._shown(ax)

    @classmethod
    def of(cls, estimator: Any, columns: Sequence[int | str] | None = None) -> Self:
        """Return the display that `from_estimator` draws."""
        check_is_fitted(estimator)
        model, more = vars(estimator).get("estimator_", estimator), {}
        if model is not estimator:
            below = estimator.tree_[:, 2] < estimator.cut_
            more = {
                "joined": estimator.joined_,
                "edges": estimator.edges_[below],
                "doubtful": estimator.doubtful_[below],
            }
        history, wide = np.stack(model.history_), model.n_features_in_
        names = [
            str(one) for one in vars(model).get("feature_names_in_", [f"column {i}" for i in range(wide)])
        ]
        if columns is not None or wide < 3:
            history = history if model.scaling_ is None else model.scaling_.original(history)
            at: Any = [names.index(one) if one in names else one for one in columns or range(wide)]
            if len(at) != min(wide, 2) or not {*at} <= {*range(wide)}:
                raise ArgumentError(f"columns must be two of {', '.join(names)}; got {columns}.")
            history, names = history[..., at], [names[i] for i in at]
        return cls(*flat(history, names), model.cluster_sizes_, **more)

    def _draw(self, ax: Axes) -> None:
        last, sizes = self.history[-1], np.ones(len(self.joined)) if self.sizes is None else self.sizes
        # Areas are smaller where there are many, so that the lines between them are seen.
        most, crowd = max(float(sizes.max()), 1e-300), min(1.0, LABELLED / len(last))
        areas = crowd * (15.0 + 135.0 * np.clip(sizes, 0.0, None) / most)
        for edge, doubtful in zip(self.edges, self.doubtful, strict=True):
            ax.plot(*last[edge].T, color="0.6", zorder=0, linestyle="--" if doubtful else "-")
        for i, cluster in enumerate(self.joined):
            colour = COLOURS[cluster % len(COLOURS)]
            if not len(self.edges):
                ax.plot(*self.history[:, i].T, color=colour, linewidth=0.8, alpha=0.6)
                ax.plot(*self.history[0, i], "o", color=colour, markerfacecolor="white", markersize=3)
            marker = MARKERS[cluster // len(COLOURS) % len(MARKERS)]
            ax.scatter(
                last[i, 0], last[i, 1], s=areas[i], color=colour, marker=marker, alpha=0.85, linewidth=0
            )
            if len(last) <= LABELLED:
                rows = "" if self.sizes is None else f" ({sizes[i]:,.0f})"
                ax.annotate(f"{i}{rows}", last[i], (5, 5), textcoords="offset points", fontsize="small")
        known = "area: rows" if len(last) > LABELLED else "area and (number): rows"
        said = [known] * (self.sizes is not None) + ["small circle: start"] * (not len(self.edges))
        ax.set_title("; ".join(said), fontsize="small")
        ax.set(xlabel=self.axes[0], ylabel=self.axes[1])
        ax.margins(0.15)
        if not self.axes[1]:
            ax.set_yticks([])


class DendrogramDisplay(Display):
    """The tree that joins centers to clusters, and the height at which it is cut.

    Args:
        tree: SciPy's linkage matrix.
        cut: height of the cut.
        labels: names of the leaves.
    """

    def __init__(self, tree: FloatArray, cut: float, labels: Sequence[Any] | None = None) -> None:
        self.tree, self.cut, self.labels = tree, cut, labels

    @classmethod
    def from_estimator(cls, estimator: Any, ax: Axes | None = None) -> Self:
        """Draw fitted `MergedClusters`."""
        return cls(estimator.tree_, estimator.cut_, estimator.kept_)._shown(ax)

    def _draw(self, ax: Axes) -> None:
        if len(self.tree):
            dendrogram(
                self.tree,
                ax=ax,
                color_threshold=self.cut,
                labels=self.labels,
                above_threshold_color="0.5",
                leaf_rotation=90,
                leaf_font_size=max(4, 9 - len(self.tree) // 8),
            )
        else:
            # Centers that are all alike, as noise can make them, are one leaf, which SciPy refuses.
            ax.set_xticks([0.0], self.labels)
        ax.axhline(self.cut, linestyle="--", color="0.5", linewidth=1, label=f"cut at {self.cut:.3g}")
        ax.set(xlabel="center", ylabel="distance between centers")
        ax.grid(False)
        ax.legend()
