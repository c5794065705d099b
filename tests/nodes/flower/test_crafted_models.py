"""A dishonest coordinator crafts fits and questions of models: nodes refuse them before they read a row."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.agreed.program import Of, Value
from privfed.core.connection import Connection, Opening
from privfed.core.roles.conversation import Ask
from privfed.deep import DCFL, IFCA, FedAvg
from privfed.deep.estimators import base
from privfed.deep.estimators.training_plan import noised_training_of
from privfed.deep.training.rounds import AveragedUpdates
from privfed.errors import RefusedError
from privfed.federation.clients import Clients
from privfed.federation.opening import open_federation
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.settings import NodeSettings
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.privacy.dp_sgd import SteppedLedger
from tests.nodes.flower.models import BY_DP_SGD, WORDS, labelled
from tests.nodes.flower.networks import Folders
from tests.some import some

ONE = {**WORDS, "rounds": 2, "protocol": "plain"}
PRIVATE = {**ONE, **BY_DP_SGD}
STOLEN = "privfed_never_imported"
"""A module that is there, and that nobody names but the coordinator."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("crafted") / "fed", 3)


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{STOLEN}.py").write_text("thing = print\n")
    monkeypatch.syspath_prepend(tmp_path)
    return Path(shutil.copytree(made, tmp_path / "fed"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return whose rows were read."""
    found, raw = list[Path](), NodeSettings.raw

    def reading(self: NodeSettings, *args: Any) -> Any:
        found.append(self.folder)
        return raw(self, *args)

    monkeypatch.setattr(NodeSettings, "raw", reading)
    return found


def put(agreed: Of, path: str, value: Value) -> Of:
    """Return what is agreed with another value of a field, by its path."""
    name, _, rest = path.partition(".")
    inner: Any = agreed.fields[name] if rest else None
    own = {**agreed.fields, name: put(inner, rest, value) if rest else value}
    return msgspec.structs.replace(agreed, fields=own)


class Crafting(FlowerEngine):
    """A coordinator whose agreements are other ones than its own software makes."""

    craft: Callable[[Of], Of] = staticmethod(lambda algorithm: algorithm)

    def connect(self, opening: Opening) -> Connection:
        program = opening.configuration.program
        assert program is not None and program.algorithm is not None
        crafted = msgspec.structs.replace(program, algorithm=self.craft(program.algorithm))
        configuration = msgspec.structs.replace(opening.configuration, program=crafted)
        return super().connect(replace(opening, configuration=configuration))


def crafting(folder: Path) -> Crafting:
    return Crafting(folder, network=Folders(nodes_of(folder)))


NUMBERS: dict[str, tuple[Value, ...]] = {
    "rounds": (0, -1, 10**9, 2**62, 1.0, True, None),
    "epochs": (0, 10**9, 2**62),
    "batch_size": (0, -1, 10**12),
    "learning_rate": (math.nan, math.inf, 0.0, -0.1, 1e308),
    "learning_rate_decay": (math.nan, math.inf, 0.0, 1e308),
    "max_update_norm": (math.nan, math.inf, 0.0, -1.0, 1e300, 5e-324),
    "n_classes": (0, 1, -1, 10**9, 2**62),
    "model": (STOLEN, f"{STOLEN}:thing", "os:system", "", "../../parties", "softmax\0"),
    "start": (f"{STOLEN}:thing", "given"),
    "weighting": (f"{STOLEN}:thing", "none"),
    "loss": (f"{STOLEN}:thing",),
    "optimizer": (f"{STOLEN}:thing",),
    "seed": (-1,),
}
OF_DP_SGD: dict[str, tuple[Value, ...]] = {
    "noise_multiplier": (math.nan, math.inf, -1.0, 1e-9),
    "sample_rate": (math.nan, 0.0, -1.0, 2.0, 1e-300),
    "max_grad_norm": (math.nan, math.inf, 0.0, -1.0),
    "trainings": (0, -1, 10**9, 2**62),
    "rows_per_client": (0, -1),
    "first_rate": (math.nan, -1.0, 2.0),
    "choice_noise": (math.nan, -1.0),
}
MADE: list[tuple[Any, dict[str, Any], str, tuple[Value, ...]]] = [
    *((FedAvg, ONE, f"training.{name}", values) for name, values in NUMBERS.items()),
    *((FedAvg, PRIVATE, f"training.{name}", values) for name, values in OF_DP_SGD.items()),
    (FedAvg, ONE, "training", (Of(f"{STOLEN}:thing", {}), Of("WeightedKMeans", {}), 1)),
    (IFCA, ONE, "n_clusters", (0, -1, 10**9)),
    (DCFL, {**ONE, "merge": "gathered"}, "rule", (Of(f"{STOLEN}:thing", {}), Of("WeightedKMeans", {}))),
    (DCFL, {**ONE, "merge": "gathered"}, "rule", ("minimum", 3, None)),
    (DCFL, {**ONE, "merge": "gathered"}, "rule.metric", (f"{STOLEN}:thing",)),
    (DCFL, {**ONE, "merge": "gathered"}, "rule.decay", (math.nan, 1.0, -1.0)),
    (DCFL, {**ONE, "merge": "gathered"}, "sketch_error", (math.nan, 0.0, 1.0)),
]


@pytest.mark.parametrize(
    ("kind", "words", "path", "values"),
    MADE,
    ids=[f"{one.__name__}-{path}-{len(w)}" for one, w, path, _ in MADE],
)
def test_a_crafted_fit_is_refused_before_a_row_is_read_and_nothing_is_imported(
    kind: Any, words: dict[str, Any], path: str, values: tuple[Value, ...], folder: Path, reads: list[Path]
) -> None:
    engine = crafting(folder)
    for value in some(values):
        engine.craft = lambda algorithm, value=value: put(algorithm, path, value)  # type: ignore[misc]
        with pytest.raises(RefusedError) as refused:
            kind(**words, engine=engine).fit()
        assert refused.value.stage == "join" and len(refused.value.codes) == 3
        assert set(refused.value.codes.values()) <= {
            "agreement:program",
            "agreement:size",
            "agreement:labels",
        }
    assert reads == [] and STOLEN not in sys.modules
    assert all(Journal(one, read_identity(one)).fits == () for one in nodes_of(folder))


OTHERS = {
    "noise_multiplier": 0.5,
    "first_rate": 1.0,
    "choice_noise": 1.0,
    "sample_rate": 1.0,
    "max_grad_norm": 1e6,
}
OTHERS |= {"max_grad_norm": 1e6, "epochs": 50, "trainings": 100}


@pytest.mark.parametrize("name", OTHERS)
def test_training_by_other_steps_than_are_claimed_is_refused(
    name: str, folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator agrees on them, and asks nothing else; its own ledger looks away."""
    claimed, request = list[Any](), base.FederationRequest

    def training(*args: Any) -> Any:
        honest = noised_training_of(*args)
        claimed.append(honest.sampled_steps)
        return replace(honest, **{name: OTHERS[name]})

    monkeypatch.setattr(base, "noised_training_of", training)
    monkeypatch.setattr(base, "FederationRequest", lambda **words: request(**words | {"steps": claimed[-1]}))
    monkeypatch.setattr(SteppedLedger, "price", lambda self, ask: ask)
    with pytest.raises(RefusedError) as refused:
        FedAvg(**PRIVATE, engine=FlowerEngine(folder, network=Folders(nodes_of(folder)))).fit()
    assert set(refused.value.codes.values()) == {"policy:noise"} and len(refused.value.codes) == 3
    for node in nodes_of(folder):
        assert Journal(node, read_identity(node)).fits[-1].spent == 0.0


CRAFTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NaN": lambda model: model * math.nan,
    "infinite": lambda model: model + math.inf,
    "two models": lambda model: np.concatenate([model, model]),
    "no model": lambda model: model[:0],
    "more parameters": lambda model: np.pad(model, ((0, 0), (0, 1))),
    "no parameters": lambda model: model[:, :0],
    "of another start": lambda model: model + 0.5,
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_models_are_refused_and_errors_tell_of_no_row(name: str, folder: Path) -> None:
    engine = FlowerEngine(folder, network=Folders(nodes_of(folder)))
    fitted = FedAvg(**ONE, weighting="clients", engine=engine)
    federation = open_federation(fitted.request(Clients.elsewhere(engine.members), 1))
    algorithm = fitted.make_algorithm(fitted._training(1))
    honest = next(algorithm.run(federation.setting)).question
    assert isinstance(honest, AveragedUpdates)
    crafted = copy(honest)
    crafted.__dict__.pop("_encoded", None)
    # Past the checks of this process.
    object.__setattr__(crafted, "models", CRAFTED[name](np.array(honest.models)))
    with pytest.raises(RefusedError) as refused:
        federation.ask(Ask(crafted, 1))
    assert len(refused.value.codes) == 3
    assert set(refused.value.codes.values()) <= {"message", "program"}
    for node in nodes_of(folder):
        assert Journal(node, read_identity(node)).fits[-1].answered == 0
