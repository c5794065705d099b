"""Generators of simulated clients in a seeded run, whose noise repeats."""

from __future__ import annotations

from typing import Any

import numpy as np

from privfed.privacy.sampler import SeededGenerator


def seeded(seed: Any) -> SeededGenerator:
    """Return a generator that noise is drawn from, too."""
    return SeededGenerator(np.random.default_rng(seed).bit_generator)
