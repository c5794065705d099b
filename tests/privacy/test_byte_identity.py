"""With the noised answers forced equal, nothing that anybody sees depends on the data.

A first run writes down what each client's answers were, noise included. A second run on neighbouring
data goes the whole way too, reads its rows, and is then made to send the answers of the first. All that
leaves must be the same to the byte: whatever differs would be a way around the noise.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from privfed.core.domain import Ball, Box, Domain
from privfed.core.statistics import Statistics
from privfed.errors import RefusedError
from privfed.face.dp import DPKMeans
from privfed.privacy.ledger import PayingAnswerer
from privfed.privacy.noised import Noised
from privfed.privacy.privacy import Privacy
from privfed.protocols import Masked

D = 3
MOST_ROWS = 64
SHA = re.compile(rb'"sha256":"[0-9a-f]{64}"')


def rows_of(seed: int, n: int) -> np.ndarray:
    """Return rows in the unit ball."""
    rows: np.ndarray = np.random.default_rng(seed).uniform(-0.55, 0.55, (n, D))
    return rows


BASE = rows_of(0, 50)
FULL = rows_of(1, MOST_ROWS)
NEIGHBOURS = {
    "one more": (BASE, np.vstack([BASE, rows_of(2, 1)])),
    "one fewer": (BASE, BASE[:-1]),
    "one more, far outside the domain": (BASE, np.vstack([BASE, np.full((1, D), 1e200)])),
    "one outside the domain": (BASE, np.vstack([BASE[:-1], [[3.0, -3.0, 0.0]]])),
    "one that repeats another": (BASE, np.vstack([BASE[:-1], BASE[:1]])),
    "one more than declared": (FULL, np.vstack([FULL, rows_of(2, 1)])),
    "all of them": (BASE[:1], BASE[1:2]),
    "one column then constant": (
        np.hstack([BASE[:, :2], np.zeros((50, 1))]),
        np.hstack([BASE[:, :2], np.r_[np.zeros(49), 0.5][:, None]]),
    ),
}


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


def files_of(folder: Path, protocol: str) -> dict[str, bytes]:
    """Return a run folder's files; of masked bytes the transcript keeps a hash, which is new in each run."""
    return {
        str(path.relative_to(folder)): SHA.sub(b"", path.read_bytes())
        if protocol == "masked"
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def seen(
    folder: Path,
    protocol: str,
    domain: Domain,
    rows: np.ndarray,
    unit: Literal["record", "client"] = "record",
) -> tuple[object, ...]:
    """Return everything that a fit shows to others: files, model, claims, traffic, warnings."""
    clients = [rows, rows_of(3, 40), rows_of(4, 30)]
    privacy = Privacy(
        epsilon=4.0,
        delta=1e-6,
        unit=unit,
        domain=domain,
        neighbours="add-remove",
        noise="local" if protocol == "plain" else "distributed",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DPKMeans(
            3,
            protocol="plain" if protocol == "plain" else Masked(colluders=0),
            privacy=privacy,
            run_dir=folder,
            random_state=1,
        ).fit(clients)
    traffic = model.federation_.traffic
    return (
        files_of(folder, protocol),
        model.cluster_centers_.tobytes(),
        [centers.tobytes() for centers in model.history_],
        (model.n_iter_, model.inertia_, model.n_rows_, model.converged_),
        model.privacy_spent_,
        (traffic.exchanges, traffic.down, traffic.up),
        [str(one.message) for one in caught],
    )


BOX, BALL = Box(-1.0, 1.0, max_rows=MOST_ROWS), Ball(1.0, max_rows=MOST_ROWS)
SURROUNDINGS = [("plain", BOX), ("plain", BALL), ("masked", BOX), ("masked", BALL)]
AT_ONCE = {"one more", "one more, far outside the domain"}
CASES = [
    pytest.param(
        name,
        protocol,
        domain,
        id=f"{name}-{protocol}-{type(domain).__name__}",
        marks=() if name in AT_ONCE or (protocol, domain) == ("plain", BOX) else pytest.mark.slow,
    )
    for name in NEIGHBOURS
    for protocol, domain in SURROUNDINGS
]


@pytest.mark.parametrize(("name", "protocol", "domain"), CASES)
def test_nothing_but_the_noised_answers_depends_on_the_data(
    name: str, protocol: str, domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape(monkeypatch)
    one, other = NEIGHBOURS[name]
    first = seen(tmp_path / "one", protocol, domain, one)
    tape.recording = False
    second = seen(tmp_path / "other", protocol, domain, other)
    assert tape.differed == len(tape.answers)
    for of_one, of_other in zip(first, second, strict=True):
        assert of_one == of_other


def test_nothing_but_the_noised_answers_depends_on_a_whole_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape(monkeypatch)
    first = seen(tmp_path / "one", "plain", BOX, BASE, "client")
    tape.recording = False
    second = seen(tmp_path / "other", "plain", BOX, 5.0 * rows_of(9, 3), "client")
    assert tape.differed == len(tape.answers)
    assert first == second


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_refusals_do_not_depend_on_the_data(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape, shown = Tape(monkeypatch), []
    for side, rows in zip(("one", "other"), NEIGHBOURS["one more, far outside the domain"], strict=True):
        # The clients have spent nearly all that they grant, and refuse after the first questions.
        ledgers = tmp_path / side / "clients"
        ledgers.mkdir(parents=True)
        for client in range(3):
            (ledgers / f"{client}.ledger").write_text("0.95")
        with pytest.raises(RefusedError) as refused:
            seen(tmp_path / side, protocol, BOX, rows)
        shown.append((str(refused.value), files_of(tmp_path / side, protocol)))
        tape.recording = False
    assert "policy:budget" in shown[0][0]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_a_count_of_clipped_rows_would_be_found(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape(monkeypatch)
    silent = PayingAnswerer.__call__

    def talking(self, question, index):  # type: ignore[no-untyped-def]
        statistics, _ = silent(self, question, index)
        return statistics, self._answerer(question, index)[1]

    monkeypatch.setattr(PayingAnswerer, "__call__", talking)
    one, other = NEIGHBOURS["one more, far outside the domain"]
    first = seen(tmp_path / "one", protocol, BOX, one)
    tape.recording = False
    second = seen(tmp_path / "other", protocol, BOX, other)
    assert first[0] != second[0]
    assert first[1:3] == second[1:3]
