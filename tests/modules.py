"""Modules of privfed that a process can import where no extra is installed."""

from __future__ import annotations

import pkgutil

import privfed

NEED_EXTRAS = frozenset(
    {
        "privfed.deep.training.rows",
        "privfed.deep.training.torch_trainer",
        "privfed.nodes.deploy.superlink",
        "privfed.nodes.deploy.supernode",
        "privfed.nodes.flower.apps",
        "privfed.nodes.flower.mod",
    }
)
"""They hold no registry, no stored format, and one question, of apps that import its module."""


def importable() -> list[str]:
    """Return the names of all modules but those that need an extra."""
    found = {one.name for one in pkgutil.walk_packages(privfed.__path__, "privfed.")}
    assert found >= NEED_EXTRAS
    return sorted(found - NEED_EXTRAS)
