"""Sparse graphs over a few clients: real ones need hundreds, where no test could try many stories."""

from __future__ import annotations

import pytest

from privfed.core.agreed.configuration import Terms
from privfed.protocols.masked import masked_client, preparing
from privfed.protocols.setup import rules
from privfed.protocols.setup.graph import Sizes
from tests.protocols.hostile import world


def small_graphs(patch: pytest.MonkeyPatch, degree: int | None = None) -> None:
    """Let cohorts of more than five share on a sparse graph, with the thresholds that hold on it.

    `colluders` of the terms are then those among the neighbours of any client.
    """

    def sizes(n: int, terms: Terms) -> Sizes:
        d = min(n - 1, degree or max(4, 2 * (n // 3)))
        t = max((d + terms.colluders) // 2 + 1, min(d, terms.threshold - 1))
        opened = t - terms.colluders + 1
        return Sizes(n, d, terms.colluders, t, opened, max(opened, t + 1, terms.threshold))

    for module in (rules, world):
        patch.setattr(module, "sizes", sizes)
    # Keys are then agreed on when they are needed, as in large fits.
    for module in (masked_client, preparing):
        patch.setattr(module, "FULL_GRAPH", 0)
