"""An error in code that runs at a client: who writes that code finds it at once, and nobody else sees it."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, Privacy, Simulation, WFKMeans, weighting
from privfed.cli.run_folder import is_full
from privfed.errors import RefusedError, RunFolderError, StateError
from privfed.numerics.kmeans import LocalUpdate
from tests.losing import losing
from tests.owners import mode

SENTINEL = "my rows are 0.1234567"
Clients = list[np.ndarray]


PRIVACY = Privacy(
    epsilon=4.0, delta=1e-6, unit="client", domain=Box(-5.0, 12.0, max_rows=64), neighbours="add-remove"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def failing_below(rows: float, update: LocalUpdate) -> np.ndarray:
    """Return the rows of each cluster, but not of clients of fewer rows."""
    # The update that is made up before a fit has counts of its own.
    if update.counts.sum() < rows and update.counts.tolist() != [2.0, 3.0, 4.0]:
        raise ArithmeticError(SENTINEL)
    return update.counts


@weighting(version=1)
def failing(update: LocalUpdate) -> np.ndarray:
    return failing_below(1e9, update)


@weighting(version=1)
def failing_for_few(update: LocalUpdate) -> np.ndarray:
    return failing_below(5, update)


def model(blobs: Clients, weights: Any = failing, **words: Any) -> WFKMeans:
    return WFKMeans(
        3,
        weights=weights,
        max_iter=2,
        tol=0,
        local_iter=1,
        init=blobs[0][:3],
        random_state=0,
        **words,
    )


def texts(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def test_where_all_fail_the_error_names_the_log_in_the_run_folder(
    blobs: Clients, tmp_path: Path, protocol: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        model(blobs, protocol=protocol, run_dir=tmp_path / "run").fit(blobs)
    log = tmp_path / "run" / "clients" / "0.log"
    assert f"{log} and 9 beside it" in str(caught.value) and SENTINEL not in str(caught.value)
    assert SENTINEL in log.read_text() and "in failing" in log.read_text()
    assert mode(log) == 0o600 and mode(log.parent) == 0o700
    assert SENTINEL not in (tmp_path / "run" / "transcript.jsonl").read_text()


def test_where_one_fails_the_run_goes_on_without_it_and_a_line_names_the_log(
    blobs: Clients, tmp_path: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = model(blobs, failing_for_few, protocol=losing(protocol), run_dir=tmp_path / "run").fit(blobs)
    few = next(i for i, rows in enumerate(blobs) if len(rows) < 5)
    totals = [total for asked, total in fitted.transcript_.totals() if asked.purpose == "round"]
    assert totals and all(set(range(10)) - set(total.contributors) == {few} for total in totals)
    logs = [path.name for path in (tmp_path / "run" / "clients").iterdir()]
    assert logs == [f"{few}.log"]
    assert len(caplog.records) == 1 and f"{few}.log" in caplog.text and SENTINEL not in caplog.text


def test_without_a_run_folder_the_log_is_a_temporary_file(blobs: Clients, temporary: Path) -> None:
    with pytest.raises(RefusedError, match="privfed-clients-") as caught:
        model(blobs).fit(blobs)
    (folder,) = temporary.iterdir()
    assert str(folder) in str(caught.value) and SENTINEL in (folder / "9.log").read_text()
    assert mode(folder) == 0o700 and mode(folder / "9.log") == 0o600


def test_logs_go_where_they_are_told_to(blobs: Clients, tmp_path: Path, temporary: Path) -> None:
    logs = tmp_path / "logs"
    with pytest.raises(RefusedError, match=str(logs)):
        model(blobs, engine=Simulation(logs=logs), run_dir=tmp_path / "run").fit(blobs)
    assert SENTINEL in (logs / "0.log").read_text()
    assert not (tmp_path / "run" / "clients").exists() and not any(temporary.iterdir())


def test_under_privacy_nothing_tells_of_the_error_but_the_clients_log(
    blobs: Clients,
    tmp_path: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = model(blobs, failing_for_few, privacy=PRIVACY, run_dir=tmp_path / "run").fit(blobs)
    few = next(i for i, rows in enumerate(blobs) if len(rows) < 5)
    totals = [total for _, total in fitted.transcript_.totals()]
    assert all(total.contributors == tuple(range(10)) for total in totals)
    assert "ArithmeticError" not in texts(tmp_path / "run") and not list(tmp_path.glob("run/**/*.log"))
    assert not caplog.records and capfd.readouterr() == ("", "")
    assert not [
        one for one in caught if "epsilon" not in str(one.message) and "delta" not in str(one.message)
    ]
    (folder,) = temporary.iterdir()
    assert [path.name for path in folder.iterdir()] == [f"{few}.log"]
    assert SENTINEL in (folder / f"{few}.log").read_text()


@pytest.mark.parametrize("damage", [b"0.2 of it", b"nan", b"-9"])
def test_a_ledger_that_cannot_be_read_stops_the_client_and_no_budget_begins_anew(
    blobs: Clients, tmp_path: Path, damage: bytes
) -> None:
    ledger = tmp_path / "run" / "clients" / "4.ledger"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(damage)
    with pytest.raises((StateError, RunFolderError)):
        model(blobs, privacy=PRIVACY, run_dir=tmp_path / "run").fit(blobs)
    assert ledger.read_bytes() == damage


def test_a_full_disk_under_a_ledger_is_said_as_what_it_is(
    blobs: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("privfed.party.state._write_through", full)
    with pytest.raises(StateError, match="No space left") as caught:
        model(blobs, privacy=PRIVACY, run_dir=tmp_path / "run").fit(blobs)
    assert is_full(caught.value)


def test_a_log_takes_no_more_than_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privfed.engines import in_process as module

    monkeypatch.setattr(module, "MOST_BYTES", 300)
    log = module.ClientLogs(tmp_path / "logs", silent=True).of(3)
    for _ in range(50):
        log.note(ValueError("x" * 100))
    assert 300 <= (tmp_path / "logs" / "3.log").stat().st_size < 600


def test_a_log_that_cannot_be_written_stops_nothing(blobs: Clients, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match=r"own log$"):
        model(blobs, engine=Simulation(logs=tmp_path / "file" / "logs")).fit(blobs)


def test_without_a_log_of_its_own_a_client_uses_that_of_its_process(caplog: pytest.LogCaptureFixture) -> None:
    from privfed.core.roles.engine import PythonLog

    try:
        raise ArithmeticError(SENTINEL)
    except ArithmeticError as error:
        PythonLog().note(error)
    assert caplog.records[0].name == "privfed.client" and caplog.records[0].levelno == logging.ERROR
    assert SENTINEL in caplog.text
