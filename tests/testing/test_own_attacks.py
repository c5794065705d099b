"""privfed's own attacks keep the contract that those of others are held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, EWFKMeans, Privacy
from privfed.attacks import ActiveAttack, PassiveAttack, Prior, Truth
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.names import ATTACKS
from privfed.attacks.base.preparation import Target
from privfed.core.record.transcript import Transcript
from privfed.deep import CFL
from privfed.estimators.local_steps import lloyd
from privfed.metrics import fuzzy_davies_bouldin
from privfed.testing import AttackContract
from tests.default_run import slow_but

PASSIVE = [name for name in ATTACKS.names() if not issubclass(attack_class(name), ActiveAttack)]

QUICK: dict[str, dict[str, Any]] = {
    "fuzzy-inversion": {"starts": 1, "moves": 1},
    "noisy-differencing": {"n_sweeps": 10},
    "tomography": {"n_particles": 200, "n_iter": 20},
}
"""Less work than by default: the contract asks what an attack does, not how much it finds."""


TRAINED_ON = ("class-counts", "gradient-inversion", "model-membership", "sketch-linkage")
"""Attacks on runs that train models."""


class TestOwnAttacks(AttackContract):
    """Those that ask questions of their own read no view; the contract is of those that do."""

    @pytest.fixture(autouse=True, params=slow_but(PASSIVE, "disaggregation", "membership"))
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param
        self.kind = attack_class(self.name)  # type: ignore[assignment]

    def clients(self) -> list[Any]:
        """Rows are solved for where they are few."""
        few = 2 if self.name in ("class-counts", "gradient-inversion") else None
        return [rows[:few] for rows in super().clients()]

    def labels(self) -> list[Any]:
        return [np.arange(len(rows)) % 2 for rows in self.clients()]

    def target(self) -> Target:
        """Attacks on trained models know labels too."""
        if self.name not in TRAINED_ON:
            return super().target()
        return replace(super().target(), labels=self.labels(), public_labels=np.arange(60) % 2)

    def prepared(self) -> Any:
        return self.kind.prepare(self.target(), QUICK.get(self.name, {}))

    def make(self) -> PassiveAttack[Any]:
        made: PassiveAttack[Any] = self.prepared().attack
        return made

    def prior(self) -> Prior:
        prior: Prior = self.prepared().prior
        return prior

    def truth(self) -> Truth:
        truth: Truth = self.prepared().truth
        return truth

    def fit(self, run_dir: Path | None = None) -> Transcript:
        """Each is run on what it reads: changing cohorts, equal weights, noised sums, a fuzzy index."""
        words: dict[str, Any] = {"protocol": self.over, "run_dir": run_dir}
        short = {"max_iter": 4, "tol": 0, **words}
        if self.name == "noisy-differencing":
            seeded = Privacy(
                epsilon=10.0,
                delta=1e-6,
                unit="record",
                neighbours="add-remove",
                domain=Box(-10.0, 20.0, max_rows=60),
                noise_seed=0,
            )
            return DPKMeans(3, privacy=seeded, **words).fit(self.clients()).transcript_
        if self.name == "equal-weight-counts":
            return EWFKMeans(3, **short).fit(self.clients()).transcript_
        if self.name in TRAINED_ON:
            trained = {"n_classes": 2, "rounds": 3, "domain": Box(-20.0, 20.0), "merge": "gathered", **words}
            return CFL(**trained).fit(self.clients(), self.labels()).transcript_
        cohorts = {"clients_per_round": 4} if self.name == "disaggregation" else {}
        model = lloyd(6, **cohorts, **short).fit(self.clients())
        if self.name == "fuzzy-inversion":
            fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)
        return model.transcript_


def test_all_attacks_but_those_that_ask_are_held_to_it() -> None:
    assert set(ATTACKS.names()) - set(PASSIVE) == {"probing"}
