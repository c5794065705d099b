"""With what clients trained forced equal, noise included, nothing that is seen depends on rows or labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.rdpcfl import RDPCFL, learning
from privfed.core.values.domain import Box
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.training import local
from privfed.privacy.claim import Privacy
from privfed.protocols import Slotted, slotted
from privfed.protocols.client_opened import group_client, relay
from privfed.protocols.slotted import slot_key
from tests.privacy.tapes import Tape, seen

WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 2, "learning_rate": 0.5, "random_state": 3}
DPSGD: dict[str, Any] = {**WORDS, "noise_multiplier": 2.0, "sample_rate": 0.5, "rows_per_client": 20}
GATHERED: dict[str, Any] = {**DPSGD, "merge": "gathered"}
DOMAIN = Box(-1.0, 1.0)
CLAIM: dict[str, Any] = {"epsilon": 6.0, "delta": 1e-6, "domain": DOMAIN, "neighbours": "add-remove"}


def table(seed: int, n: int = 20) -> np.ndarray:
    """Return rows, and their labels as a last column."""
    rng = np.random.default_rng(seed)
    return np.hstack([rng.uniform(-0.9, 0.9, (n, 3)), rng.integers(0, 3, (n, 1))])


BASE = table(0)
OTHERS = [table(1), table(2), table(3, 5), table(4), table(5)]
NEIGHBOURS = {
    "one more": (BASE, np.vstack([BASE, table(9, 1)])),
    "one more, far outside the domain": (BASE, np.vstack([BASE, [[1e200, -1e200, 0.0, 1.0]]])),
    "one more, of no class": (BASE, np.vstack([BASE, [[0.1, 0.1, 0.1, 77.0]]])),
    "its only one": (BASE[:1], BASE[:0]),
}


class TrainingTape:
    """What clients trained and chose in a first run, played back in a second one that does so as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recording, self.found, self.differed, self._at = True, list[Any](), 0, 0
        self.chosen = 0
        monkeypatch.setattr(local, "private_sgd", self._planted(local.private_sgd))
        monkeypatch.setattr(learning, "noised_choice", self._planted(learning.noised_choice))

    def _planted(self, honest: Any) -> Any:
        def planted(*words: Any) -> Any:
            own = honest(*words)
            self.chosen += isinstance(own, int)
            if self.recording:
                self.found.append(own)
                return own
            played, self._at = self.found[self._at], self._at + 1
            self.differed += isinstance(own, int) or not np.array_equal(own, played)
            return played

        return planted

    def replay(self) -> None:
        self.recording = False


def training(model: FederatedModel) -> Any:
    """Return the run of a model over tables whose last column is the label; labels of clients stay there."""

    def run(clients: list[np.ndarray], *, protocol: Any, **words: Any) -> Any:
        if model.get_params().get("merge") == "slotted":
            protocol = Slotted(protocol, sums=2)
        fitted = type(model)(**{**model.get_params(), "protocol": protocol, **words})
        fitted.fit([one[:, :-1] for one in clients], [one[:, -1].astype(np.int64) for one in clients])
        del fitted.labels_history_
        return fitted

    return run


@pytest.mark.parametrize("case", NEIGHBOURS)
@pytest.mark.parametrize(
    ("model", "protocol"),
    [
        (FedAvg(**DPSGD), "plain"),
        (FedAvg(**DPSGD), "masked"),
        (CFL(**GATHERED, split_after=0, split_max_norm=0.0, split_mean_norm=9.0), "plain"),
        (DCFL(**GATHERED), "plain"),
        (DCFL(**GATHERED, cohorts=[[1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]), "plain"),
        (DCFL(**DPSGD), "masked"),
        (DCFL(**DPSGD, sketch_error=0.9), "masked"),
        (RDPCFL(**GATHERED, choosing_share=1.0), "plain"),
        (RDPCFL(**DPSGD, choosing_share=1.0), "masked"),
    ],
    ids=[
        *("FedAvg", "FedAvg-masked", "CFL", "DCFL", "DCFL-joins", "DCFL-slots", "DCFL-sketches", "RDPCFL"),
        "RDPCFL-slots",
    ],
)
@pytest.mark.few(6)
def test_nothing_but_what_dp_sgd_trained_depends_on_the_data(
    model: FederatedModel, protocol: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = NEIGHBOURS[case]
    privacy, tape = Privacy(**CLAIM, unit="record", noise="local"), TrainingTape(monkeypatch)
    # Which slot is whose is drawn anew in each run, from a secret of the clients: here from the same one.
    monkeypatch.setattr(slotted, "slot_key", lambda secret, *context: slot_key(bytes(32), context[-1]))
    # Who leads follows from the session's random bytes, and the lengths of messages from who leads.
    for module in (group_client, relay):
        monkeypatch.setattr(module, "leader_of", lambda session, clients: min(clients))
    words: dict[str, Any] = {"others": OTHERS}
    first = seen(training(model), tmp_path / "one", protocol, privacy, one, monkeypatch, **words)
    tape.replay()
    second = seen(training(model), tmp_path / "other", protocol, privacy, other, monkeypatch, **words)
    # All trainings of the second run were done, with noise of their own, and none was sent.
    assert tape.differed == len(tape.found) >= 7
    assert bool(tape.chosen) == isinstance(model, RDPCFL)
    for of_one, of_other in zip(first, second, strict=True):
        assert of_one == of_other


@pytest.mark.parametrize("case", ["none", "others, far outside, of no class"])
@pytest.mark.parametrize("model", [FedAvg(**WORDS), IFCA(**WORDS)], ids=["FedAvg", "IFCA"])
def test_no_client_shows_in_noised_updates(
    model: FederatedModel, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"none": BASE[:0], "others, far outside, of no class": 40.0 * table(8)}[case]
    privacy, tape = Privacy(**CLAIM, unit="client"), Tape(monkeypatch)
    words: dict[str, Any] = {"others": OTHERS}
    first = seen(training(model), tmp_path / "one", "masked", privacy, BASE, monkeypatch, **words)
    tape.replay()
    second = seen(training(model), tmp_path / "other", "masked", privacy, other, monkeypatch, **words)
    assert tape.differed == len(tape.answers) > 0
    for of_one, of_other in zip(first, second, strict=True):
        assert of_one == of_other
