"""Agreements: public, the same bytes for all, and bound to what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import CohortRule, Configuration, PrivacyTerms, Terms
from privfed.core.stored.encoding import Array
from privfed.errors import ArgumentError
from privfed.protocols.crypto.keys import Identity

SERVER, IDENTITIES = Identity.generate(), [Identity.generate() for _ in range(3)]


def agreement(**words: object) -> Agreement:
    configuration = Configuration(
        **{  # type: ignore[arg-type]
            "protocol": "masked",
            "algorithm": "tests",
            "clients": ("a", "b", "c"),
            "n_features": 2,
            "cohorts": CohortRule(kind="schedule", rounds=((0, 1), (1, 2))),
            "terms": Terms(min_clients=2, honest=2),
            "low": Array.from_numpy(np.zeros(2)),
            "high": Array.from_numpy(np.ones(2)),
            "max_rows": 7,
            "privacy": PrivacyTerms(
                epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", noise="local", budget=0.5
            ),
            **words,
        }
    )
    return Agreement(configuration, Registry(tuple(one.public for one in IDENTITIES), SERVER.public))


def test_it_comes_back_from_its_bytes() -> None:
    written = agreement()
    read = Agreement.from_bytes(written.to_bytes())
    assert read == written and read.digest == written.digest


@pytest.mark.parametrize("change", [{"seed": 1}, {"n_features": 3}, {"clients": ("a", "b", "d")}])
def test_whoever_agreed_on_something_else_has_another_digest(change: dict[str, object]) -> None:
    assert agreement(**change).digest != agreement().digest


def test_a_part_is_another_agreement_of_the_same_parties() -> None:
    whole = agreement()
    part = whole.of_part("slots")
    assert part.digest != whole.digest and (part.configuration, part.registry) == (
        whole.configuration,
        whole.registry,
    )
    assert Agreement.from_bytes(part.to_bytes()).digest == part.digest


def test_bytes_that_no_agreement_gives_are_an_error() -> None:
    data = agreement().to_bytes()
    for bad in (b"", data[:-1], data + b"\0", data.replace(b"masked", b"masked"[::-1][:0] + b"\xc1asked")):
        with pytest.raises(ArgumentError, match="these bytes are no agreement"):
            Agreement.from_bytes(bad)


def test_a_configuration_comes_back_from_its_bytes() -> None:
    configuration = agreement().configuration
    assert Configuration.from_bytes(configuration.to_bytes()) == configuration
    with pytest.raises(ArgumentError, match="these bytes are no configuration"):
        Configuration.from_bytes(agreement().to_bytes())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"clients": ("a", "b", "a")}, "3 clients of 2 names"),
        ({"n_features": 0}, "n_features=0"),
        ({"cohorts": CohortRule(kind="schedule", rounds=((0, 3),))}, "up to position 3"),
        ({"cohorts": CohortRule(kind="sampled", size=4)}, "4 clients drawn a round"),
    ],
)
def test_clients_that_do_not_fit_together_are_an_error(words: dict[str, object], error: str) -> None:
    for read, data in (
        (Agreement.from_bytes, agreement(**words).to_bytes()),
        (Configuration.from_bytes, agreement(**words).configuration.to_bytes()),
    ):
        with pytest.raises(ArgumentError, match=error):
            read(data)


def test_a_registry_of_other_clients_is_an_error() -> None:
    keys = tuple(one.public for one in IDENTITIES[:2])
    with pytest.raises(ArgumentError, match="a registry of 2 clients does not fit a configuration of 3"):
        Agreement(agreement().configuration, Registry(keys, SERVER.public))


def test_a_key_that_is_not_registered_is_an_error() -> None:
    agreed = agreement()
    agreed.check_client(1, IDENTITIES[1])
    agreed.check_coordinator(SERVER)
    for position, identity in ((0, IDENTITIES[1]), (3, IDENTITIES[0]), (-1, IDENTITIES[2])):
        with pytest.raises(ArgumentError, match=f"for position {position} of 3 clients"):
            agreed.check_client(position, identity)
    with pytest.raises(ArgumentError, match="for the coordinator"):
        agreed.check_coordinator(IDENTITIES[0])
