"""A client in no list of one fit, and in that of another: what the server gains, and what counts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Exchange
from privfed.errors import RefusedError
from privfed.nodes.party import Party
from tests.nodes.journals import question
from tests.nodes.test_peers import NAMES, Parties, silent
from tests.undeclared import ANYTHING


def own_answer() -> np.ndarray:
    """Return what each of these clients answers, whose rows are equal."""
    rows = ClientData(np.random.default_rng(0).normal(size=(9, 2)))
    within, _ = rows.within(question().ranges)
    return question().answer(within, np.random.default_rng(0))["sum"]


@pytest.mark.parametrize("order", ["in the second", "in the first"])
def test_two_fits_show_a_client_that_one_of_them_left_out(order: str, tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    changes = [lambda one: one, silent(1, "advertise")]
    totals = [
        parties.fit(nonce, change)
        for nonce, change in enumerate(changes if "second" in order else changes[::-1])
    ]
    assert sorted(len(total.contributors) for total in totals) == [3, 4]
    whole, without = sorted(totals, key=lambda total: -len(total.contributors))
    found = np.asarray(whole.statistics["sum"]) - np.asarray(without.statistics["sum"])
    np.testing.assert_allclose(found, own_answer(), atol=1e-6)
    # Each journal has counted it, over all fits on the rows.
    for name in NAMES:
        given = Party(tmp_path / name).journal.usage("rows")
        assert given.losses == (name != "b")


@pytest.mark.parametrize("order", ["in the second", "in the first"])
def test_a_policy_on_losses_over_all_fits_stops_that(order: str, tmp_path: Path) -> None:
    parties = Parties(tmp_path, policy=replace(ANYTHING, max_losses=0))

    def whole(one: Exchange) -> Exchange:
        return one

    changes = [whole, silent(1, "advertise")]
    if "first" in order:
        changes.reverse()
    with pytest.raises(RefusedError) as caught:
        for nonce, change in enumerate(changes):
            parties.fit(nonce, change)
    assert set(caught.value.codes.values()) == {"policy:max_losses"}
    kinds = [one["kind"] for one in Party(tmp_path / "a").journal.entries()]
    assert kinds.count("sum") == ("second" in order)
