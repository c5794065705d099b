"""A client on its own machine: from its own rows, stores and policy alone, the answers of the simulation."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from privfed import Ball, Box, ClientPolicy, Privacy
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.asking.question import ClientData
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import Ranges
from privfed.engines.in_process import Pool
from privfed.errors import ArgumentError
from privfed.nodes.signed import SignedSide
from privfed.party.answerer import own_answerer
from privfed.party.client import Stores, own_client, rows_in_domain
from privfed.protocols.plain import PlainClient
from privfed.questions.lloyd import LloydSums
from tests.raised import forbidden_by
from tests.some import some
from tests.undeclared import ANYTHING

NAMES = ("a", "b", "c")


def data() -> list[ClientData]:
    rng = np.random.default_rng(3)
    return [ClientData(rng.normal(0, 2, (10 + i, 2))) for i in range(3)]


def question(low: float = -3.0) -> LloydSums:
    return LloydSums(ranges=Ranges([low, low], [3.0, 3.0], 64), centers=np.array([[0.0, 0.0], [1.0, 1.0]]))


def configuration(**words: object) -> Configuration:
    known = {"protocol": "plain", "algorithm": "", "clients": NAMES, "n_features": 2, "terms": Terms()}
    return Configuration(**{**known, **words})  # type: ignore[arg-type]


def private(domain: Box | Ball) -> Configuration:
    privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=domain, neighbours="add-remove")
    low, high = domain.bounds(2)
    bounds = {"low": Array.from_numpy(low), "high": Array.from_numpy(high), "max_rows": domain.max_rows}
    return configuration(privacy=privacy.terms(), **bounds)


def test_a_client_alone_answers_as_in_the_pool_of_all() -> None:
    pool = Pool(data(), NAMES, seed=7)
    pool.expect(range(3))
    for index in range(3):
        asked = question()
        for i, own in some(enumerate(data())):
            alone, moved = own_answerer(NAMES[i], own, 7)(asked, index)
            pooled, moved_there = pool.answerer(i)(asked, index)
            assert moved == moved_there > 0
            for name in alone:
                np.testing.assert_array_equal(alone[name], pooled[name])


def test_under_privacy_rows_are_moved_into_the_agreed_domain_and_no_other() -> None:
    ball = Ball(1.0)
    moved = rows_in_domain(data()[0], private(ball), ball)
    assert np.linalg.norm(moved.features, axis=1).max() <= 1.0 < np.abs(data()[0].features).max()
    with pytest.raises(ArgumentError, match="a client needs the agreed domain: pass domain="):
        rows_in_domain(data()[0], private(ball), None)
    with pytest.raises(ArgumentError, match="is not the one in the agreement"):
        rows_in_domain(data()[0], private(ball), Ball(2.0))
    assert rows_in_domain(data()[0], configuration(), None).features is not None


def test_a_client_of_its_own_rows_takes_no_part_in_a_seeded_run() -> None:
    claimed = private(Ball(1.0))
    assert claimed.privacy is not None
    for seeded in (False, True):
        terms = msgspec.structs.replace(claimed.privacy, seeded=seeded)
        agreed = msgspec.structs.replace(claimed, privacy=terms)
        words = (PlainClient(agreed, ANYTHING), 0, data()[0], agreed, ANYTHING, Stores())
        if seeded:
            with forbidden_by("agreement:seeded"):
                own_client(*words, domain=Ball(1.0))
        else:
            own_client(*words, domain=Ball(1.0))


def test_rows_with_other_columns_are_an_error() -> None:
    agreed = configuration(n_features=3)
    side, agreement = (
        PlainClient(agreed, ClientPolicy()),
        Agreement(agreed, Registry(tuple(bytes([i]) * 32 for i in range(3)), bytes(32))),
    )
    with pytest.raises(ArgumentError, match="the rows have 2 columns, the agreement says 3"):
        own_client(SignedSide(side, agreement, 0), 0, data()[0], agreed, ClientPolicy(), Stores())
