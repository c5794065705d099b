"""Federations whose nodes have labels, for estimators of models, and the same fits in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privfed import Box, Privacy
from privfed.deep.training.memory import TRAINED, Memory
from privfed.nodes.deploy.local import make_local, nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.nodes.journalled import JournalledFit
from privfed.party.state import Memories
from tests.deep.population import clients
from tests.nodes.flower.federations import OPEN
from tests.nodes.flower.networks import Folders

N = 6
NAMES = [f"c{i}" for i in range(N)]
DOMAIN = Box(0.0, 1.0)
WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 4, "epochs": 2, "batch_size": 8, "learning_rate": 0.5}
WORDS |= {"random_state": 1, "domain": DOMAIN}
CLAIM: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "unit": "record", "noise": "local"}
CLAIM |= {"neighbours": "add-remove", "domain": DOMAIN}
BY_DP_SGD: dict[str, Any] = {"privacy": Privacy(**CLAIM), "rows_per_client": 40, "domain": None}


def labelled(folder: Path, n: int = N, rows: list[np.ndarray] | None = None, **words: Any) -> Path:
    """Make a federation of n nodes with labels; `rows` are in place of the features."""
    X, y = clients(n)
    X = X if rows is None else rows
    tables, classes = dict(zip(NAMES, X, strict=False)), dict(zip(NAMES, y, strict=False))
    words = {"timeout": 5.0, "wait": 0.0, "approved": OPEN, **words}
    make_local(folder, tables, ["a", "b", "c", "d"], classes, **words)
    return folder


def over(folder: Path) -> tuple[FlowerEngine, Folders]:
    network = Folders(nodes_of(folder))
    return FlowerEngine(folder, network=network), network


def here(model: Any, n: int = N) -> Any:
    """Fit in this process, with the same names of clients."""
    X, y = clients(n)
    return model.fit(X, y, client_names=NAMES[:n])


def assert_same_models(over: Any, own: Any) -> None:
    """Assert that two fits have the same models after each round, to the last bit."""
    assert len(over.history_) == len(own.history_) > 2
    for theirs, ours in zip(over.history_, own.history_, strict=True):
        np.testing.assert_array_equal(theirs, ours)
    assert over.history_[-1].tobytes() != over.history_[0].tobytes()


def remembered(folder: Path) -> tuple[Memories, Memory]:
    """Return what a node remembers in its last fit."""
    journal = Journal(folder, read_identity(folder))
    fit = JournalledFit(journal._database, journal.fits[-1].number)
    with fit.store("memory").transaction() as kept:
        memories: Memories = kept.load() or Memories()
    found = memories.values.get("privfed.deep")
    return memories, Memory() if found is None else TRAINED.codec.from_bytes(found)
