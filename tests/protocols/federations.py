"""Small federations for tests of privfed's own secure sums: what they open is exact on their own grids."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest

from privfed.core.roles.conversation import EVERYONE, Total
from privfed.protocols.ckks.grid import SlotGrid
from privfed.protocols.crypto import keys
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keys import KEY_BYTES, Identity
from privfed.protocols.masked.statements import ProvenGrid
from privfed.protocols.setup import advertising, hybrid
from privfed.testing import sum_runs as testing
from privfed.testing.sum_runs import ANY_DATA, Recorder, Vectors, names, vectors, wide_vectors

__all__ = ["ANY_DATA", "Recorder", "Sums", "Vectors", "names", "seeded", "vectors", "wide_vectors"]


@dataclass
class Sums(testing.Sums):
    """A federation whose clients hold vectors, over one of privfed's sums."""

    def assert_exact(self, total: Total, question: Vectors, cohort: int = EVERYONE) -> None:
        """Assert that a total is the sum of its contributors' vectors, on the sum's own grid."""
        answers = [self.values[i] for i in total.contributors]
        inside = [np.clip(one, question.low, question.high) for one in answers]
        expected = np.zeros(len(question.low))
        if self.protocol.name == "plain":
            for one in inside:
                expected = expected + one
        else:
            n = len(self.configuration.cohort(cohort))
            if self.protocol.name == "masked-proven":
                step = ProvenGrid(question, n).step
            else:
                step = (SlotGrid if self.protocol.name == "ckks" else Grid)(question.spec, n).step
            # Python's integers know no rounding; a step is a power of two.
            steps = sum(np.array([int(v) for v in np.rint(one / step)], dtype=object) for one in inside)
            expected = np.array([float(s) for s in steps]) * step
        np.testing.assert_array_equal(question.spec.flatten(total.statistics), expected)
        entries = sum(int(np.count_nonzero(a != b)) for a, b in zip(answers, inside, strict=True))
        assert total.clipped == entries + sum(self.moved[i] for i in total.contributors)


_ENCAPSULATED: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw keys and identities from a generator with a seed.

    What is encapsulated comes from the library's own generator; the same the second time for the same key.
    """
    rng, made = np.random.default_rng(seed), Counter[bytes]()

    def encapsulate(public: bytes) -> tuple[bytes, bytes]:
        made[public] += 1
        which = public, made[public]
        if which not in _ENCAPSULATED:
            _ENCAPSULATED[which] = keys.encapsulate(public)
        return _ENCAPSULATED[which]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hybrid, "encapsulate", encapsulate)
        patch.setattr(advertising, "time_ns", count(1 << 60).__next__)
        patch.setattr(secrets, "token_bytes", rng.bytes)
        patch.setattr(Identity, "generate", lambda: Identity(rng.bytes(KEY_BYTES)))
        yield
