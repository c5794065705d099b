"""Studies: grids of algorithms, sums, guarantees and attacks, with seeds, and one report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.experiments.plot import read

__all__ = ["read"]

__getattr__ = lazily(__name__, {"read": "privfed.experiments.plot"})
