"""Unit "user": at most so many rows of a user count, and a user moves a total by no more than is charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DPKMeans, DWFKMeans, FederatedScaler, Privacy, metrics
from privfed.attacks.audits import audit_rows, audit_units
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.data import ClientTable, ClientTables
from privfed.deep import FedAvg
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.party import answerer as users
from privfed.party.answerer import KEY_BYTES, chosen
from privfed.party.state import MemoryStore
from privfed.privacy.accounting import gdp_mu
from privfed.privacy.budget import PrivacyBudget
from privfed.privacy.ledger import ClientBudget
from privfed.privacy.pricing import agreed_budget
from tests.nodes.elsewhere import Elsewhere
from tests.privacy.tapes import BOX, Tape, privacy_for, rows_of, seen
from tests.raised import parameter_refused

MOST = 3
KEY = bytes(range(KEY_BYTES))
SIZES = (1, 2, MOST, MOST + 4, 12)
"""Rows of the users of a client."""


CLAIMED_MU = gdp_mu(4.0, 1e-6)


def ids_of(sizes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"u{i}" for i in range(len(sizes)) for _ in range(sizes[i]))


def privacy(neighbours: str = "add-remove", **other: Any) -> Privacy:
    words = {"unit": "user", "rows_per_user": MOST, "noise": "local"} | other
    return replace(privacy_for("plain", BOX, "record", neighbours), **words)


def tables(*sizes: tuple[int, ...], corner: bool = False) -> ClientTables:
    """Return clients whose users have so many rows, all of one user in one corner if asked."""
    found = []
    for number, own in enumerate(sizes):
        rows = rows_of(number, sum(own))
        if corner:
            rows = np.repeat(np.where(rows[: len(own)] > 0.0, 1.0, -1.0), own, axis=0)
        found.append(ClientTable(f"c{number}", rows, None, ids_of(own)))
    return ClientTables(tuple(found), ("x", "y", "z"), private=True)


def fitted(claim: Privacy, data: ClientTables, kind: Any = None) -> Any:
    model = DPKMeans(2) if kind is None else kind
    return model.set_params(privacy=claim, protocol="plain", random_state=3).fit(data)


THREE = (SIZES, (4, 4, 1), (2, 5))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_of_a_user_follows_from_its_rows_and_the_key_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids, rows = ids_of(SIZES), rows_of(seed, sum(SIZES))
    rows[5] = rows[6]
    whole = ClientData(rows, users=ids)
    kept = chosen(whole, MOST, KEY)
    names, counts = np.unique(np.array(ids)[kept], return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        f"u{i}": min(size, MOST) for i, size in enumerate(SIZES)
    }
    order = rng.permutation(len(rows))
    mixed = chosen(ClientData(rows[order], users=tuple(ids[i] for i in order)), MOST, KEY)
    assert sorted(map(tuple, rows[order][mixed])) == sorted(map(tuple, rows[kept]))
    for gone in names.tolist():
        others = np.array(ids) != gone
        left = chosen(ClientData(rows[others], users=tuple(np.array(ids)[others])), MOST, KEY)
        assert np.array_equal(left, kept[others])
    assert not np.array_equal(chosen(whole, 1, KEY), chosen(whole, 1, KEY[::-1]))


def test_spellings_of_an_id_are_one_user_and_rows_without_id_are_nobodys() -> None:
    data = ClientData(rows_of(0, 6), users=("7", "7.0", " 07", "7", "", " "))
    assert chosen(data, 2, KEY).sum() == 2 and not chosen(data, 2, KEY)[4:].any()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", [DPKMeans(2), DWFKMeans(2, local_iter=1, max_iter=2)])
def test_no_user_moves_a_total_by_more_than_is_charged(neighbours: str, kind: Any) -> None:
    data = tables(*THREE, corner=True)
    model = fitted(privacy(neighbours), data, kind)
    own = data.tables[0]
    found = audit_rows(model.transcript_, ClientData(own.features, users=own.ids), KEY)
    assert found.verdict == "not refuted" and found.together.shift > 0.2 * found.together.bound
    assert found.together.row is not None and "at most 3" in str(model.privacy_spent_)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_claim_for_users_is_one_for_records_of_as_many_rows(neighbours: str) -> None:
    for_user, for_record = privacy(neighbours), privacy_for("plain", BOX, "record", "add-remove")
    apart = MOST * (2 if neighbours == "replace-one" else 1)
    assert for_user.terms().budget == pytest.approx(for_record.terms().budget / apart**2)
    audit = audit_units(fitted(for_user, tables(*THREE)).transcript_, trials=20_000)
    assert audit.verdict == "not refuted" and audit.mu is not None and audit.mu > 0.6 * CLAIMED_MU


def test_a_client_refuses_a_budget_of_single_rows() -> None:
    terms = privacy().terms()
    model = fitted(privacy(), tables(*THREE))
    agreed = model.transcript_.configuration
    too_much = agreed_budget(terms.mechanism, terms.noise, terms.epsilon, terms.delta)
    loose = msgspec.structs.replace(agreed, privacy=msgspec.structs.replace(terms, budget=too_much))
    ClientBudget(agreed, MemoryStore())
    with pytest.raises(PrivacyError, match="do not take part"):
        ClientBudget(loose, MemoryStore())


def everything_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(users, "chosen", lambda data, most, key: np.ones(data.n_rows, dtype=bool))


def one_too_many(patch: pytest.MonkeyPatch) -> None:
    kept = users.chosen
    patch.setattr(users, "chosen", lambda data, most, key: kept(data, most + 1, key))


def one_row_is_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrivacyTerms, "rows_apart", 1)


@pytest.mark.parametrize("bug", [everything_counts, one_too_many, one_row_is_charged])
def test_a_user_with_more_rows_than_are_charged_is_caught(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in which a client keeps too many rows: its own replay shows a shift beyond what was charged."""
    data = tables((12,), *THREE[1:], corner=True)
    bug(monkeypatch)
    monkeypatch.setattr("privfed.attacks.audits.rows.chosen", users.chosen)
    model = fitted(privacy(), data, DWFKMeans(2, local_iter=1, max_iter=1))
    own = data.tables[0]
    assert audit_rows(model.transcript_, ClientData(own.features, users=own.ids), KEY).verdict == "violated"


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_parties_choose_by_their_own_keys(neighbours: str, tmp_path: Path) -> None:
    data = tables(*THREE, corner=True)
    rows, ids = data.arrays, [one.ids or () for one in data.tables]
    claim = privacy(neighbours, noise="distributed")
    parties = Elsewhere(tmp_path, rows, users=ids)
    model = DPKMeans(2, privacy=claim, engine=parties, random_state=3).fit()
    keys = [parties.party(i).own.user_key for i in range(len(rows))]
    assert len(set(keys)) == len(rows)
    for own, users_, key in zip(rows, ids, keys, strict=True):
        found = audit_rows(model.transcript_, ClientData(own, users=users_), key)
        assert found.verdict == "not refuted" and found.together.shift > 0.1 * found.together.bound
    without = Elsewhere(tmp_path / "other", rows)
    with pytest.raises(ArgumentError, match="whose each row is"):
        DPKMeans(2, privacy=replace(claim), engine=without, random_state=3).fit()


PAIRS = {
    "one user more": (SIZES, (*SIZES, 9)),
    "a user with more rows": (SIZES, (*SIZES[:-1], 40)),
    "no user": ((5,), ()),
}


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_nothing_but_noised_answers_depends_on_a_user(pair: str, tmp_path: Path) -> None:
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        tape = Tape(patch)
        patch.setattr("privfed.federation.simulation.secrets.token_bytes", lambda n: bytes(n))
        for side, sizes in zip(("one", "two"), PAIRS[pair], strict=True):

            def run(clients: Any, sizes: Any = sizes, **words: Any) -> Any:
                data = tables(sizes, *THREE[1:])
                return DPKMeans(2).set_params(random_state=3, **words).fit(data)

            found.append(seen(run, tmp_path / side, "plain", privacy(), rows_of(0, 3), patch))
            tape.replay()
    assert found[0] == found[1] and tape.answers


def test_metrics_and_scaling_are_for_users_too() -> None:
    data, centers = tables(*THREE), np.array([[0.2, 0.1, 0.0], [-0.2, 0.1, 0.3]])
    inertia = metrics.inertia(data, centers, privacy=privacy(), protocol="plain")
    assert np.isfinite(inertia)
    scaler = FederatedScaler(privacy=privacy(), protocol="plain").fit(data)
    assert scaler.privacy_spent_.rows_per_user == MOST


def test_what_cannot_be_offered_says_why() -> None:
    with parameter_refused("rows_per_user"):
        privacy(rows_per_user=None)
    with parameter_refused("rows_per_user"):
        privacy(unit="record")
    with pytest.raises(ArgumentError, match="whose each row is"):
        DPKMeans(2, privacy=privacy(), protocol="plain").fit([rows_of(0, 9), rows_of(1, 9)])
    nameless = tables(*THREE)
    first = replace(nameless.tables[0], ids=("", *nameless.tables[0].ids[1:]))  # type: ignore[index]
    with pytest.raises(DataError, match="client c0: rows without an id"):
        fitted(privacy(), replace(nameless, tables=(first, *nameless.tables[1:])))
    model = FedAvg(n_classes=2, privacy=privacy(), rows_per_client=10, protocol="plain")
    with pytest.raises(PrivacyError, match="several batches"):
        model.fit([rows_of(0, 9), rows_of(1, 9)], [np.zeros(9, int), np.ones(9, int)])


def test_a_budget_for_users_pays_for_users_only(tmp_path: Path) -> None:
    budget = PrivacyBudget(4.0, 1e-6, "user", "add-remove", tmp_path / "budget", domain=BOX)
    share = budget.take(0.25, noise="local", rows_per_user=MOST)
    fitted(share, tables(*THREE))
    assert budget.remaining().share == pytest.approx(0.75)
    with pytest.raises(PrivacyError, match="keep a budget for each"):
        records = privacy_for("plain", BOX, "record")
        fitted(replace(records, epsilon=share.epsilon, paid_by=share.paid_by), tables(*THREE))


def test_planned_noise_grows_with_the_rows_of_a_user() -> None:
    one, three = (privacy(rows_per_user=most).plan(50_000, 3, 3).size_noise for most in (1, 3))
    assert three > 2.0 * one
