"""Labelled images as flat rows in [0, 1]: digits built in, files, and EMNIST by its public loader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import fetch_openml, load_digits

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.deep.training.trainer import Labels
from privfed.errors import DataError

_ARRAYS = (("X", "y"), ("x_train", "y_train"))
"""Names that files give images and labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Square images and their labels.

    Args:
        rows: one image a row, float64 of shape (n_images, side * side), in [0, 1].
        labels: int64 of shape (n_images,), from 0 on.
    """

    rows: FloatArray
    labels: Labels

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", frozen_array(self.rows))
        if (
            self.rows.ndim != 2
            or self.side**2 != self.rows.shape[1]
            or self.labels.shape != self.rows.shape[:1]
        ):
            raise DataError(
                f"images need one row of side * side pixels and one label each, got shapes {self.rows.shape} "
                f"and {self.labels.shape}."
            )

    @property
    def side(self) -> int:
        """Height and width in pixels."""
        return math.isqrt(self.rows.shape[1])

    @property
    def n_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1

    def some(self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> Images:
        """Return the images with these numbers."""
        return Images(self.rows[chosen], self.labels[chosen])

    def smaller(self, factor: int) -> Images:
        """Return the images with squares of so many pixels a side as one pixel, their mean.

        Raises:
            DataError: the side is no multiple of the factor.
        """
        if factor < 1 or self.side % factor:
            raise DataError(f"images of {self.side} pixels a side cannot be made {factor} times smaller.")
        side = self.side // factor
        squares = self.rows.reshape(-1, side, factor, side, factor)
        return Images(squares.mean(axis=(2, 4)).reshape(-1, side * side), self.labels)

    def turned(self, degrees: float) -> FloatArray:
        """Return the rows with each image turned about its middle; what comes from outside is 0."""
        if degrees % 360.0 == 0.0:
            return self.rows
        stack = self.rows.reshape(-1, self.side, self.side)
        turned = rotate(stack, degrees, axes=(2, 1), reshape=False, order=1)
        return np.asarray(np.clip(turned, 0.0, 1.0).reshape(len(stack), -1))


def digits() -> Images:
    """Return scikit-learn's 1,797 images of ten digits, 8 by 8 pixels (UCI, no download)."""
    rows, labels = load_digits(return_X_y=True)
    return Images(rows / 16.0, labels.astype(np.int64))


def from_file(path: str | Path, classes: int | None = None) -> Images:
    """Return the images of an .npz file, such as MNIST or FEMNIST, with ink as 1.

    Args:
        path: with arrays `X` and `y`, or `x_train` and `y_train`; pixels from 0 to 255, images as rows or
            squares.
            Where paper is 255, as in FEMNIST, pixels are turned round.
        classes: keep the first so many labels; None for all.

    Raises:
        DataError: it is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            pixels, labels = next((file[x], file[y]) for x, y in _ARRAYS if x in file and y in file)
    except (OSError, ValueError, StopIteration):
        raise DataError(f"{path} is no .npz file with arrays X and y, or x_train and y_train.") from None
    rows = pixels.reshape(len(pixels), -1) / 255.0
    # Most of an image is paper.
    rows = 1.0 - rows if np.median(rows[:1000]) > 0.5 else rows
    kept = labels < (np.inf if classes is None else classes)
    return Images(rows[kept], labels[kept].astype(np.int64))


def emnist(kind: str = "Balanced") -> Images:
    """Return EMNIST from OpenML, downloaded at the first call (Cohen et al. 2017, arXiv 1702.05373).

    Args:
        kind: "Balanced" (131,600 images of 47 classes).
    """
    table = fetch_openml(f"EMNIST_{kind}", version=1, as_frame=False, parser="liac-arff")
    stack = table.data.reshape(-1, 28, 28).transpose(0, 2, 1)
    return Images(stack.reshape(len(stack), -1) / 255.0, table.target.astype(np.int64))
