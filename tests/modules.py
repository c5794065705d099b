"""Modules of privfed that a process can import where no extra is installed."""

from __future__ import annotations

import pkgutil

import privfed

NEED_EXTRAS = frozenset(
    {
        "privfed.deep.training.rows",
        "privfed.deep.training.torch_trainer",
        "privfed.deploy.superlink",
        "privfed.deploy.supernode",
        "privfed.engines.flower.apps",
    }
)
"""They hold no question, no registry and no stored format."""


def importable() -> list[str]:
    """Return the names of all modules but those that need an extra."""
    found = {one.name for one in pkgutil.walk_packages(privfed.__path__, "privfed.")}
    assert found >= NEED_EXTRAS
    return sorted(found - NEED_EXTRAS)
