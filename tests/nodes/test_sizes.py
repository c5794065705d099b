"""Huge numbers in an agreement cost who joins it nothing: they are refused before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import privfed.party.program as program_module
from privfed import (
    FKM,
    KFED,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
)
from privfed.core.agreed.agreement import (
    MOST_CLUSTERS,
    MOST_DIRECTIONS,
    MOST_NUMBER,
    MOST_RESTARTS,
    Agreement,
    Registry,
    check_size,
)
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.agreed.program import AgreedProgram, Listed, Of
from privfed.core.asking.question import ClientData
from privfed.deep.algorithms.averaging import Averaging
from privfed.deep.training.local import Training
from privfed.errors import ArgumentError
from privfed.nodes.party import Party
from privfed.party.program import agreed_program
from privfed.party.replay import own_run
from privfed.party.state import MemoryStore
from privfed.protocols import Masked, Plain
from tests.nodes.journals import DOMAIN, SERVER, new_party
from tests.raised import forbidden_by

ROWS = ClientData(np.random.default_rng(0).normal(size=(9, 2)))
CLAIM = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")
MODELS: dict[str, Any] = {
    "dwf": DWFKMeans(3),
    "dwf kfed": DWFKMeans(3, init="kfed"),
    "minibatch": FederatedMiniBatchKMeans(3),
    "fkm": FKM(3, merge="summed"),
    "kfed": KFED(3, merge="summed"),
    "fuzzy": FederatedFuzzyCMeans(3),
    "dp": DPKMeans(3, privacy=CLAIM),
}
FREE = ("seed",)


def whole(of: Of, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where whole numbers stand in an agreed algorithm."""
    for name, value in of.fields.items():
        if isinstance(value, Of):
            yield from whole(value, (*path, name))
        elif type(value) is int and name not in FREE:
            yield (*path, name)


def put(of: Of, path: tuple[str, ...], value: Any) -> Of:
    """Return an agreed algorithm with another value in one place."""
    name, *rest = path
    inner = of.fields[name]
    changed = put(inner, tuple(rest), value) if rest and isinstance(inner, Of) else value
    return msgspec.structs.replace(of, fields={**of.fields, name: changed})


def agreed(model: Any, **words: Any) -> Configuration:
    program = AgreedProgram.of(model.make_algorithm(2, 0))
    known: dict[str, Any] = {"protocol": "plain", "algorithm": "", "clients": ("a",), "n_features": 2}
    return Configuration(**{**known, "n_clusters": 3, "program": program, **words})


def with_algorithm(configuration: Configuration, algorithm: Of) -> Configuration:
    program = msgspec.structs.replace(configuration.program, algorithm=algorithm)  # type: ignore[type-var]
    return msgspec.structs.replace(configuration, program=program)


def algorithm_of(configuration: Configuration) -> Of:
    assert configuration.program is not None and configuration.program.algorithm is not None
    return configuration.program.algorithm


PLACES = [(name, path) for name, model in MODELS.items() for path in whole(algorithm_of(agreed(model)))]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """List what is built of agreements."""
    seen: list[object] = []
    own = program_module.from_agreed  # type: ignore[attr-defined]

    def counted(of: Of) -> object:
        seen.append(of.name)
        return own(of)

    monkeypatch.setattr(program_module, "from_agreed", counted)
    return seen


def joins(folder: Path, configuration: Configuration, protocol: Any) -> Party:
    own, _ = new_party(folder)
    party = Party(folder)
    agreement = Agreement(configuration, Registry((own.key.public,), SERVER.public))
    agreement = Agreement.from_bytes(agreement.to_bytes())
    party.join(agreement, protocol, ROWS, data_set="rows", policy=ClientPolicy(), domain=None)
    return party


@pytest.mark.parametrize(("name", "path"), PLACES, ids=[f"{one} {'.'.join(path)}" for one, path in PLACES])
def test_no_number_of_an_agreement_is_built_that_is_beyond_all_bounds(
    name: str, path: tuple[str, ...], built: list[object]
) -> None:
    plain = agreed(MODELS[name])
    for number in (10**12, 2**63 - 1, -(10**12)):
        huge = with_algorithm(plain, put(algorithm_of(plain), path, number))
        for build in (agreed_program, lambda one: own_run(one, MemoryStore())):
            with forbidden_by("agreement:size"):
                build(huge)
    assert built == []


def test_a_party_neither_builds_nor_begins_what_is_too_large(built: list[object], tmp_path: Path) -> None:
    plain = agreed(MODELS["dwf"])
    huge = with_algorithm(plain, put(algorithm_of(plain), ("n_init",), 10**12))
    with forbidden_by("agreement:size"):
        joins(tmp_path / "huge", huge, Plain())
    assert built == [] and Party(tmp_path / "huge").journal.fits == ()
    # With its own numbers it is built, and the client joins: the counter counts.
    assert len(joins(tmp_path / "own", plain, Plain()).journal.fits) == 1 and {*built} == {"WeightedKMeans"}


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("words", [{"n_features": 3}, {"n_features": 10**9}, {"n_features": 2**62}])
def test_columns_that_the_rows_do_not_have_are_not_built(
    words: dict[str, int], verified: bool, built: list[object], tmp_path: Path
) -> None:
    protocol: Any = Masked(verified=True) if verified else Plain()
    huge = agreed(DWFKMeans(3), protocol=protocol.name, **words)
    with pytest.raises(ArgumentError, match="the rows have 2 columns, the agreement says"):
        joins(tmp_path, huge, protocol)
    assert built == []


def test_candidates_count_together(built: list[object]) -> None:
    candidates = Listed(tuple(range(2, 400)))
    plain = agreed(DPKMeans(3, privacy=CLAIM))
    selection = Of("PrivateSelection", {"candidates": candidates})
    assert sum(candidates.items) > MOST_CLUSTERS  # type: ignore[arg-type]
    with forbidden_by("agreement:size"):
        agreed_program(with_algorithm(plain, selection))
    assert built == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"n_init": MOST_RESTARTS + 1}, f"n_init must be at most {MOST_RESTARTS} .* got {MOST_RESTARTS + 1}"),
        ({"n_clusters": MOST_CLUSTERS + 1}, f"numbers of clusters together must be at most {MOST_CLUSTERS}"),
        ({"max_iter": MOST_NUMBER + 1}, f"max_iter must be at most {MOST_NUMBER}"),
    ],
)
def test_whoever_proposes_it_is_told_which_number_and_how_large_it_may_be(
    words: dict[str, int], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        DWFKMeans(**{"n_clusters": 3, **words}, protocol="plain").fit([ROWS.features])


def test_restarts_times_columns_are_bounded_together() -> None:
    most = MOST_DIRECTIONS // 2
    check_size(agreed(DWFKMeans(3, n_init=2), n_features=most))
    with pytest.raises(ArgumentError, match="n_init times n_features must be at most"):
        check_size(agreed(DWFKMeans(3, n_init=3), n_features=most))


@pytest.mark.parametrize("field", ["rounds", "n_classes", "epochs", "batch_size", "trainings"])
def test_the_plan_of_a_training_is_bounded(field: str, built: list[object]) -> None:
    words = {"model": "softmax", field: 1 << 21}
    program = AgreedProgram.of(Averaging(training=Training(**words)))  # type: ignore[arg-type]
    with forbidden_by("agreement:size"):
        agreed_program(agreed(DWFKMeans(3), program=program))
    assert built == []
