"""Images from files in the formats in which MNIST and EMNIST are released."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from examples.dcfl.images import emnist, from_idx
from privfed.errors import DataError


def write_idx(path: Path, values: np.ndarray) -> Path:
    """Write bytes as the public release does."""
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with 5 images of 28 by 28 pixels, as EMNIST has them: rows and columns exchanged."""
    upright = np.zeros((5, 28, 28), dtype=np.uint8)
    upright[:, 3, 20] = 255
    for kind, first in (("balanced", 0), ("letters", 1)):
        for part in ("train", "test"):
            name = f"emnist-{kind}-{part}-{{}}-ubyte.gz"
            write_idx(tmp_path / name.format("images-idx3"), upright.transpose(0, 2, 1))
            write_idx(tmp_path / name.format("labels-idx1"), np.arange(first, first + 5))
    return tmp_path


@pytest.mark.parametrize("kind", ["Balanced", "Letters"])
@pytest.mark.parametrize("part", ["train", "test"])
def test_emnist_is_read_upright_from_its_own_files(folder: Path, kind: str, part: str) -> None:
    images = emnist(kind, folder, part)
    assert images.rows.shape == (5, 784) and images.n_classes == 5 and images.side == 28
    assert np.argwhere(images.rows.reshape(5, 28, 28)[2] > 0).tolist() == [[3, 20]]
    assert images.rows.max() == 1.0 and images.labels.tolist() == [0, 1, 2, 3, 4]


def test_mnist_has_the_same_format_upright_and_plain(tmp_path: Path) -> None:
    pixels = np.arange(2 * 4 * 4).reshape(2, 4, 4)
    files = write_idx(tmp_path / "images", pixels), write_idx(tmp_path / "labels", np.array([7, 1]))
    images = from_idx(*files)
    assert np.array_equal(images.rows * 255.0, pixels.reshape(2, 16)) and images.labels.tolist() == [7, 1]


@pytest.mark.parametrize(
    "harm", ["missing", "short", "no gzip", "other type", "labels for images", "fewer labels"]
)
def test_a_damaged_file_is_said(folder: Path, harm: str) -> None:
    images = folder / "emnist-balanced-train-images-idx3-ubyte.gz"
    labels = folder / "emnist-balanced-train-labels-idx1-ubyte.gz"
    content = gzip.decompress(images.read_bytes())
    changes = {
        "short": gzip.compress(content[:-1]),
        "no gzip": content,
        "other type": gzip.compress(content[:2] + b"\x0d" + content[3:]),
        "labels for images": labels.read_bytes(),
    }
    if harm == "missing":
        images.unlink()
    elif harm == "fewer labels":
        write_idx(labels, np.arange(4))
    else:
        images.write_bytes(changes[harm])
    with pytest.raises(DataError):
        emnist("Balanced", folder)
