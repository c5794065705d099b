"""A claim is said in one way, with everything that makes it one; a seeded run says that it is none."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, DPKMeans, Privacy
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.privacy.accounting import Payment
from privfed.privacy.claim import (
    PrivacySpent,
    claimed,
    facts_of,
    noised_fields,
    noised_mark,
    one_line,
    rows_mark,
    unless_seeded,
)
from privfed.protocols import Masked

KNOWN: dict[str, Any] = {
    "epsilon": 1.5,
    "delta": 1e-6,
    "unit": "record",
    "domain": Box(-1, 1),
    "neighbours": "add-remove",
}


def configuration(honest: int = 4, colluders: int = 2, **words: Any) -> Configuration:
    return Configuration(
        protocol="masked",
        algorithm="test",
        clients=tuple("abcdef"),
        n_features=1,
        terms=Terms(honest=honest, colluders=colluders),
        privacy=Privacy(**(KNOWN | words)).terms(),
    )


def claim_of(**words: Any) -> PrivacySpent:
    found = claimed(configuration(**words), (Payment("round", "Sums", 0.5, {"count": 2.0}),), one_key=False)
    assert found is not None
    return found


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("noise", "mechanism"),
    [("distributed", "gaussian"), ("local", "skellam"), ("distributed", "skellam"), ("server", "gaussian")],
)
def test_everything_that_makes_a_claim_is_said(
    unit: str, neighbours: str, noise: str, mechanism: str
) -> None:
    claim = claim_of(unit=unit, neighbours=neighbours, noise=noise, mechanism=mechanism)
    said = str(claim)
    for word in ("epsilon 1.5", "delta 1e-06", unit, neighbours, noise, mechanism, *claim.against):
        assert word in said, word
    for what in claim.against.values():
        assert what in said
    assert "not private" not in said
    assert said.splitlines() == [f"{name}: {what}" for name, what in claim.facts().items()]
    assert claim.line == one_line(claim) == said.replace("\n", "; ")


def test_a_seeded_run_says_that_it_is_not_private_and_holds_against_nobody() -> None:
    seeded = claim_of(noise_seed=3)
    assert seeded.seeded
    assert seeded.facts()["differential privacy"].startswith("not private: a seeded run of epsilon 1.5")
    assert "against anybody: none: a seeded run" in str(seeded) and "(1.5, 1e-06)" not in str(seeded)
    assert len(seeded.against) == 4
    assert all(what.startswith("none") for what in seeded.against.values())
    assert unless_seeded(claimed(configuration(noise_seed=3), (), one_key=False)) is None
    assert unless_seeded(claimed(configuration(), (), one_key=False)) is not None


def test_without_privacy_nothing_is_claimed_and_nothing_is_marked() -> None:
    agreed = Configuration(protocol="plain", algorithm="test", clients=("a",), n_features=1)
    assert claimed(agreed, (), one_key=False) is None
    assert facts_of(None) == {"differential privacy": "none claimed"}
    assert one_line(None) == "differential privacy: none claimed"
    assert (noised_mark(None), noised_mark(claim_of())) == ("", " (noised)")
    assert rows_mark(None) == "" and noised_fields(None, "rows") == ()


@pytest.mark.parametrize(
    ("unit", "neighbours", "mark"),
    [
        ("record", "add-remove", " (noised)"),
        ("record", "replace-one", " (public: neighbours replace a row)"),
        ("client", "replace-one", " (noised)"),
    ],
)
def test_a_number_of_rows_that_is_public_is_not_called_noised(unit: str, neighbours: str, mark: str) -> None:
    claim = claim_of(unit=unit, neighbours=neighbours)
    assert rows_mark(claim) == mark
    assert ("rows" in noised_fields(claim, "rows", "centroids")) == (mark == " (noised)")
    assert "centroids" in noised_fields(claim, "rows", "centroids")


@pytest.mark.parametrize("seed", [None, 3])
def test_a_claim_survives_json(seed: int | None) -> None:
    claim = claim_of(noise_seed=seed)
    plain = json.loads(json.dumps(claim.to_dict()))
    assert plain["summary"] == claim.line
    assert PrivacySpent.from_dict(plain) == claim
    with pytest.raises(msgspec.ValidationError, match="epsilon"):
        PrivacySpent.from_dict({**plain, "epsilon": "low"})


def test_the_page_of_claims_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "privacy" / "who-is-protected.md").read_text()
    words = KNOWN | {"epsilon": 1.0}
    agreed = Configuration(
        protocol="masked",
        algorithm="test",
        clients=tuple("abcdefghij"),
        n_features=2,
        terms=Masked().terms(10, 10, 100),
        privacy=Privacy(**words).terms(),
    )
    found = claimed(agreed, (), one_key=False)
    seeded = claimed(
        msgspec.structs.replace(agreed, privacy=Privacy(**words, noise_seed=7).terms()), (), one_key=False
    )
    assert found is not None and seeded is not None
    assert "\n".join(f"    {line}" for line in str(found).splitlines()) in page
    assert f"    {str(seeded).splitlines()[0]}\n" in page


@pytest.mark.parametrize(("protocol", "alone"), [("plain", True), ("masked", False), ("ckks", False)])
def test_who_adds_the_noise_is_said_as_it_was(protocol: str, alone: bool) -> None:
    rng = np.random.default_rng(0)
    clients = [rng.uniform(-1, 1, (50, 2)) for _ in range(4)]
    model = DPKMeans(2, privacy=Privacy(**KNOWN), protocol=protocol).fit(clients)
    claim = model.privacy_spent_
    assert claim is not None and claim.alone is alone
    assert ("each client adds all of it" in claim.facts()["noise"]) is alone
    assert model.federation_.transcript.configuration.noising == 1 or not alone
    assert PrivacySpent.from_dict(json.loads(json.dumps(claim.to_dict()))) == claim
