"""Sums whose answers are not proven send what they sent before there were proofs, to the last bit."""

from __future__ import annotations

import hashlib

import numpy as np

from privfed.core.stored.encoding import encode
from privfed.core.values.domain import Ranges
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.masked.bindings import masking, upload_data
from privfed.protocols.masked.masked_messages import CollectRequest, UnmaskRequest, Upload
from privfed.protocols.setup.rules import cohort_digest, sum_header
from privfed.questions.lloyd import LloydSums

UPLOAD = "3023ac949e77ade99b29c21e1632fc7f66e309b67858b8d93848d487ef636e6f"
"""SHA-256 of what a client sends and is sent, from fixed secrets, as the version before proofs made it."""


def made() -> str:
    """Return the digest of a sum's messages, from fixed secrets."""
    ranges, rng = Ranges(np.array([-1.0, 5.0]), np.array([1.0, 9.0]), 100), np.random.default_rng(0)
    question = LloydSums(ranges=ranges, centers=np.array([[0.0, 6.0], [0.5, 8.0]]))
    vector = rng.uniform(question.spec.low, question.spec.high)
    prepared, cohort = bytes([1, 1, 0, 1]), cohort_digest(0, (0, 1, 2, 3))
    header = sum_header(b"s" * 32, 7, 3, question.to_bytes(), cohort, prepared, b"h" * 32)
    grid = Grid(question.spec, 4)
    words = grid.encode(vector, 2)
    masks = masking(b"s" * 32, 7, 1, header, b"b" * 32, (0, 3), b"k" * 64, grid.size)
    Masker(grid.checked(0)).apply(words, masks.masks, np.array(masks.adds))
    sent = words.astype("<u8").data.cast("B")
    messages = (
        Upload(sent, masks.made, bytes(64), ()),
        CollectRequest(0, 3, (), b"h" * 32, question.to_bytes(), prepared, bytes(2), b"", ()),
        UnmaskRequest(b"\0\1", masks.expected, ()),
    )
    return hashlib.sha256(b"".join(map(encode, messages)) + upload_data(header, 1)).hexdigest()


def test_a_sum_without_proofs_is_what_it_was() -> None:
    assert made() == UPLOAD
