"""Labelled images as flat rows in [0, 1]: digits built in, files, and EMNIST by its public loader."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import fetch_openml, load_digits

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.deep.training.trainer import Labels
from privfed.errors import DataError

_UNSIGNED_BYTES = 8
"""Type of the values of an IDX file."""

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


def from_idx(images: str | Path, labels: str | Path, *, turned: bool = False) -> Images:
    """Return the images of a pair of IDX files, the format of MNIST's and EMNIST's own releases.

    Args:
        images: file of unsigned bytes of shape (n, side, side); with .gz compressed.
        labels: file of unsigned bytes of shape (n,).
        turned: whether rows and columns are exchanged in the files, as in EMNIST's.

    Raises:
        DataError: one is no such file, or they do not fit together.
    """
    pixels, classes = _idx(Path(images), 3), _idx(Path(labels), 1)
    stack = pixels.transpose(0, 2, 1) if turned else pixels
    return Images(stack.reshape(len(stack), -1) / 255.0, classes.astype(np.int64))


def _idx(path: Path, n_dimensions: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the array in an IDX file: two zeros, type, number of dimensions, sizes (big-endian), values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}).") from None
    begin = 4 + 4 * n_dimensions
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTES, n_dimensions]) or len(content) < begin:
        raise DataError(f"{path} is no IDX file of unsigned bytes with {n_dimensions} dimensions.")
    sizes = struct.unpack(f">{n_dimensions}I", content[4:begin])
    if len(content) - begin != math.prod(sizes):
        raise DataError(
            f"{path} has {len(content) - begin} values, its sizes {sizes} need {math.prod(sizes)}."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=begin).reshape(sizes)


def emnist(kind: str = "Balanced", folder: str | Path | None = None, part: str = "train") -> Images:
    """Return EMNIST (Cohen et al. 2017, arXiv 1702.05373), upright.

    Args:
        kind: "Balanced" (131,600 images of 47 classes), "Digits", "Letters", ...
        folder: with the files of the public release, emnist-balanced-train-images-idx3-ubyte.gz and such;
            None downloads the whole set from OpenML at the first call.
        part: "train" or "test" of the files.

    Raises:
        DataError: the files are not there, or damaged.
    """
    if folder is None:
        table = fetch_openml(f"EMNIST_{kind}", version=1, as_frame=False, parser="liac-arff")
        stack = table.data.reshape(-1, 28, 28).transpose(0, 2, 1)
        return Images(stack.reshape(len(stack), -1) / 255.0, table.target.astype(np.int64))
    name = f"emnist-{kind.lower()}-{part}-{{}}-ubyte.gz"
    images, labels = (Path(folder) / name.format(one) for one in ("images-idx3", "labels-idx1"))
    found = from_idx(images, labels, turned=True)
    # The labels of the letters begin at 1.
    return Images(found.rows, found.labels - (kind.lower() == "letters"))
