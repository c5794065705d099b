"""With the noised answers forced equal, nothing that anybody sees depends on the data (`tapes.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import WFKMeans, weighting
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Admitting
from privfed.core.values.domain import Domain
from privfed.numerics.kernels.dispatch import CHOICE, load
from privfed.numerics.kmeans import LocalUpdate
from privfed.privacy.ledger import ClientBudget
from tests.default_run import slow_but
from tests.privacy.audited import CLIENT, RECORD, K, Run, estimator
from tests.privacy.tapes import (
    BALL,
    BASE,
    BOX,
    MOST_ROWS,
    NEIGHBOURS,
    REPLACED,
    Tape,
    files_of,
    privacy_for,
    rows_of,
    seen,
)

FAR = "one more, far outside the domain"
OTHERS = {
    "few, far outside": 5.0 * rows_of(9, 3),
    "too many": rows_of(8, MOST_ROWS + 9),
    "none": BASE[:0],
}
"""Clients in the place of the first."""


@pytest.fixture
def identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return what fails where two tables of a client, alike noised, show in anything."""

    def compare(
        run: Run,
        one: np.ndarray,
        other: np.ndarray,
        protocol: str = "plain",
        domain: Domain = BOX,
        unit: str = "record",
        neighbours: str = "add-remove",
        **words: Any,
    ) -> None:
        privacy, tape = privacy_for(protocol, domain, unit, neighbours), Tape(monkeypatch)
        first = seen(run, tmp_path / "one", protocol, privacy, one, monkeypatch, **words)
        tape.replay()
        second = seen(run, tmp_path / "other", protocol, privacy, other, monkeypatch, **words)
        # All answers of the second run were made, with noise of its own, and none was sent.
        assert tape.differed == len(tape.answers) > 0
        for of_one, of_other in zip(first, second, strict=True):
            assert of_one == of_other

    return compare


@pytest.mark.parametrize(
    ("case", "protocol", "domain"),
    [
        pytest.param(
            case,
            protocol,
            domain,
            id=f"{case}-{protocol}-{type(domain).__name__}",
            marks=() if (protocol, domain) == ("plain", BOX) or case == FAR else pytest.mark.slow,
        )
        for case in NEIGHBOURS
        for protocol in ("plain", "masked")
        for domain in (BOX, BALL)
    ],
)
@pytest.mark.few(4)
def test_nothing_but_the_noised_answers_depends_on_the_data(
    case: str,
    protocol: str,
    domain: Domain,
    identical,  # type: ignore[no-untyped-def]
) -> None:
    identical(RECORD["DPKMeans"], *NEIGHBOURS[case], protocol, domain)


@pytest.mark.parametrize(
    ("case", "protocol", "domain"),
    [
        pytest.param(FAR, "plain", BOX, id="far"),
        pytest.param("one more than declared", "plain", BALL, id="declared-Ball", marks=pytest.mark.slow),
        pytest.param(FAR, "masked", BOX, id="far-masked", marks=pytest.mark.slow),
        *(
            pytest.param(case, "plain", domain, id=f"{case}-{i}", marks=pytest.mark.slow)
            for case in NEIGHBOURS
            for i, domain in enumerate((BOX, BALL))
        ),
    ],
)
@pytest.mark.parametrize("name", sorted(set(RECORD) - {"DPKMeans"}))
@pytest.mark.few(8)
def test_no_record_shows_in_anything(
    name: str,
    case: str,
    protocol: str,
    domain: Domain,
    identical,  # type: ignore[no-untyped-def]
) -> None:
    identical(RECORD[name], *NEIGHBOURS[case], protocol, domain)


@pytest.mark.parametrize("case", NEIGHBOURS)
@pytest.mark.few(3)
def test_nothing_shows_where_the_compiled_kernel_remembers_bounds(
    case: str,
    identical,  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(CHOICE, "_loaded", True)
    monkeypatch.setattr(CHOICE, "_compiled", load())
    identical(RECORD["DPKMeans"], *NEIGHBOURS[case])


@pytest.mark.parametrize("name", slow_but(RECORD, *list(RECORD)[::3]))
@pytest.mark.few(3)
def test_no_clients_only_record_shows_in_one_table_of_declared_clients(name: str, identical) -> None:  # type: ignore[no-untyped-def]
    identical(RECORD[name], *NEIGHBOURS["its only one"], mixed=True)


@pytest.mark.parametrize(
    ("name", "mixed"),
    [("DPKMeans", True), ("KFED", False), *((name, False) for name in ("FederatedScaler", "score"))],
)
def test_the_only_record_of_all_clients_does_not_show(name: str, mixed: bool, identical) -> None:  # type: ignore[no-untyped-def]
    identical(RECORD[name], *NEIGHBOURS["its only one"], others=[BASE[:0]] * 2, mixed=mixed)


@pytest.mark.slow
@pytest.mark.parametrize("case", REPLACED)
@pytest.mark.parametrize("name", RECORD)
def test_no_replaced_record_shows_in_anything(name: str, case: str, identical) -> None:  # type: ignore[no-untyped-def]
    identical(RECORD[name], *NEIGHBOURS[case], neighbours="replace-one")


@pytest.mark.parametrize(
    ("case", "protocol"),
    [
        ("few, far outside", "plain"),
        pytest.param("none", "plain", marks=pytest.mark.slow),
        pytest.param("too many", "plain", marks=pytest.mark.slow),
        pytest.param("few, far outside", "masked", marks=pytest.mark.slow),
        pytest.param("none", "masked", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CLIENT)
@pytest.mark.few(7)
def test_no_client_shows_in_anything(
    name: str,
    case: str,
    protocol: str,
    identical,  # type: ignore[no-untyped-def]
) -> None:
    identical(CLIENT[name], BASE, OTHERS[case], protocol, unit="client")


@weighting(version=1)
def with_an_error(update: LocalUpdate) -> Any:
    return 1.0 // 0 if update.counts.sum() < 5 else update.counts


@weighting(version=1)
def of_another_shape(update: LocalUpdate) -> Any:
    return np.ones(K + 1) if update.counts.sum() < 5 else update.counts


@weighting(version=1)
def of_text(update: LocalUpdate) -> Any:
    return ["much"] * K if update.counts.sum() < 5 else update.counts


@weighting(version=1)
def infinite_with_a_warning(update: LocalUpdate) -> Any:
    return 1.0 / np.zeros(K) if update.counts.sum() < 5 else update.counts


@pytest.mark.parametrize("weights", [with_an_error, of_another_shape, of_text, infinite_with_a_warning])
def test_a_weighting_that_fails_for_some_rows_does_not_show(
    weights: Callable[[LocalUpdate], Any],
    identical,  # type: ignore[no-untyped-def]
) -> None:
    run = estimator(WFKMeans(K, weights=weights, local_iter=2, max_iter=2))
    identical(run, BASE, OTHERS["few, far outside"], unit="client")


@pytest.mark.parametrize("name", RECORD)
@pytest.mark.few(8)
def test_refusals_do_not_depend_on_the_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy, tape, shown = privacy_for("plain", BOX, "record"), Tape(monkeypatch), []
    load = ClientBudget.__init__

    def poor(budget, configuration, store):  # type: ignore[no-untyped-def]
        # The clients have spent nearly all that they grant, and refuse after the first questions, or at once.
        with store.transaction() as transaction:
            transaction.save(0.97)
        load(budget, configuration, store)

    monkeypatch.setattr(ClientBudget, "__init__", poor)
    for side, rows in zip(("one", "other"), NEIGHBOURS[FAR], strict=True):
        shown.append(seen(RECORD[name], tmp_path / side, "plain", privacy, rows, monkeypatch))
        tape.replay()
    assert "policy:budget" in str(shown[0][0])
    assert shown[0] == shown[1]


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_a_count_of_clipped_rows_would_be_found(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy, tape, silent = privacy_for(protocol, BOX, "record"), Tape(monkeypatch), Admitting.__init__

    def talking(self, answerer, checks, **words):  # type: ignore[no-untyped-def]
        silent(self, answerer, checks)

    # Rows are moved into the domain before they are counted; here only when a question is answered.
    monkeypatch.setattr(ClientData, "inside", lambda data, domain: data)
    monkeypatch.setattr(Admitting, "__init__", talking)
    one, other = NEIGHBOURS[FAR]
    first = seen(RECORD["DPKMeans"], tmp_path / "one", protocol, privacy, one, monkeypatch)
    tape.replay()
    second = seen(RECORD["DPKMeans"], tmp_path / "other", protocol, privacy, other, monkeypatch)
    assert first[0] == second[0]
    assert files_of(tmp_path / "one", protocol) != files_of(tmp_path / "other", protocol)
