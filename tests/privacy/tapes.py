"""What anybody sees of a run under differential privacy, with its noised answers forced to be another's.

A first run writes down what each client's answers were, noise included. A second run on neighbouring
data goes the whole way too, reads its rows, and is then made to send the answers of the first. All that
leaves must be the same to the byte: whatever differs would be a way around the noise.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.base import BaseEstimator

from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import Ball, Box, Domain
from privfed.errors import PrivFedError
from privfed.federation.driver import Federation
from privfed.privacy.claim import Privacy
from privfed.privacy.noised import Noised
from privfed.protocols import Masked
from tests.privacy.audited import Run
from tests.privacy.shifts import odd_rows

D = 3
MOST_ROWS = 64
BOX, BALL = Box(-1.0, 1.0, max_rows=MOST_ROWS), Ball(1.0, max_rows=MOST_ROWS)
SHA = re.compile(rb'"sha256":"[0-9a-f]{64}"')
HISTORY = re.compile(rb'("type":"Relayed","index":\d+,"data":)"([^"]*)"')


def rows_of(seed: int, n: int) -> np.ndarray:
    """Return rows in the unit ball."""
    rows: np.ndarray = np.random.default_rng(seed).uniform(-0.55, 0.55, (n, D))
    return rows


BASE = rows_of(0, 50)
ODD = np.vstack([BASE[:40], odd_rows(BALL, D)])
FULL = rows_of(1, MOST_ROWS)
NEIGHBOURS = {
    "one more": (BASE, np.vstack([BASE, rows_of(2, 1)])),
    "one fewer": (BASE, BASE[:-1]),
    "one more, far outside the domain": (BASE, np.vstack([BASE, np.full((1, D), 1e200)])),
    "one more, beside rows on the border": (ODD, np.vstack([ODD, np.full((1, D), 10.0)])),
    "one outside the domain": (BASE, np.vstack([BASE[:-1], [[3.0, -3.0, 0.0]]])),
    "one that repeats another": (BASE, np.vstack([BASE[:-1], BASE[:1]])),
    "one more than declared": (FULL, np.vstack([FULL, rows_of(2, 1)])),
    "all of them": (BASE[:1], BASE[1:2]),
    "its only one": (BASE[:1], BASE[:0]),
    "one column then constant": (
        np.hstack([BASE[:, :2], np.zeros((50, 1))]),
        np.hstack([BASE[:, :2], np.r_[np.zeros(49), 0.5][:, None]]),
    ),
}
REPLACED = ("one outside the domain", "one that repeats another", "all of them", "one column then constant")
"""Those with as many rows, which are public where neighbours replace a record."""


class Tape:
    """Noised answers of a first run, played back in a second one that computes its own as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recording, self.answers, self.differed = True, list[list[Statistics]](), 0
        honest, self._at = Noised.answer_all, 0

        def planted(question, clients, generators):  # type: ignore[no-untyped-def]
            own = honest(question, clients, generators)
            if self.recording:
                self.answers.append(own)
                return own
            played, self._at = self.answers[self._at], self._at + 1
            self.differed += any(
                not np.array_equal(one[name], other[name])
                for one, other in zip(own, played, strict=True)
                for name in one
            )
            return played

        monkeypatch.setattr(Noised, "answer_all", planted)

    def replay(self) -> None:
        """Play back from now on."""
        self.recording = False


def stripped(text: bytes, protocol: str) -> bytes:
    """Return a transcript without the hashes of masked bytes: masks are new in each run.

    Of the sums' history, which is chained from a session's random bytes, the length is left.
    """
    if protocol != "masked":
        return text
    return HISTORY.sub(lambda found: found[1] + b"%d" % len(found[2]), SHA.sub(b"", text))


def files_of(folder: Path, protocol: str) -> dict[str, bytes]:
    """Return a run folder's files."""
    return {
        str(path.relative_to(folder)): stripped(path.read_bytes(), protocol)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shown(found: Any) -> Any:
    """Return what a user reads from a result, in terms that compare; labels stay where the rows are."""
    if isinstance(found, BaseEstimator):
        hidden = {"labels_", "federation_", "transcript_"}
        kept = {name: value for name, value in vars(found).items() if name.endswith("_")}
        return {name: shown(value) for name, value in kept.items() if name not in hidden}
    if hasattr(found, "models"):
        return (found.to_dict(), [shown(model) for model in found.models])
    if isinstance(found, np.ndarray):
        # Bytes of objects are their addresses.
        return (found.shape, found.tolist() if found.dtype == object else found.tobytes())
    if isinstance(found, list | tuple):
        return [shown(one) for one in found]
    return repr(asdict(found) if is_dataclass(found) and not isinstance(found, type) else found)


def privacy_for(protocol: str, domain: Domain, unit: str, neighbours: str = "add-remove") -> Privacy:
    """Return a claim, not a seeded run: noise is the operating system's."""
    return Privacy(
        epsilon=4.0,
        delta=1e-6,
        unit=unit,  # type: ignore[arg-type]
        domain=domain,
        neighbours=neighbours,  # type: ignore[arg-type]
        noise="local" if protocol == "plain" else "distributed",
    )


OTHERS = (rows_of(3, 40), rows_of(4, 30))
"""Rows of the other two clients."""


def in_one_table(clients: list[np.ndarray]) -> dict[str, Any]:
    """Return the words for clients whose rows are mixed in one table."""
    names = ["c", "a", "b"]
    order = np.random.default_rng(7).permutation(sum(map(len, clients)))
    groups = np.repeat(names, [len(own) for own in clients])
    return {"clients": np.concatenate(clients)[order], "groups": groups[order], "client_names": names}


def seen(
    run: Run,
    folder: Path,
    protocol: str,
    privacy: Privacy,
    rows: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    *,
    others: Sequence[np.ndarray] = OTHERS,
    mixed: bool = False,
) -> list[object]:
    """Return everything that a run shows to others: files, records, traffic, result or error, warnings."""
    opened: list[Federation] = []
    begin = Federation.__init__

    def begun(self: Federation, *args: Any, **words: Any) -> None:
        begin(self, *args, **words)
        opened.append(self)

    clients = [rows, *others]
    given = in_one_table(clients) if mixed else {"clients": clients}
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        patch.setattr(Federation, "__init__", begun)
        warnings.simplefilter("always")
        secure_sum = "plain" if protocol == "plain" else Masked(colluders=0)
        try:
            # A claim of its own: the second use of one warns.
            own = replace(privacy)
            found = shown(run(**given, privacy=own, protocol=secure_sum, run_dir=folder))
        except PrivFedError as error:
            found = repr(error)
    records = [
        [stripped(msgspec.json.encode(record), protocol) for record in federation.transcript.records]
        for federation in opened
    ]
    traffic = [
        (federation.traffic.exchanges, federation.traffic.down, federation.traffic.up)
        for federation in opened
    ]
    return [found, records, traffic, files_of(folder, protocol), [str(one.message) for one in caught]]
