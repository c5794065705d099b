"""The contract of attacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.attacks.base.interface import PassiveAttack, undeclared
from privfed.attacks.base.preparation import Prior, Target
from privfed.attacks.base.results import NotRun, Truth, evaluate
from privfed.core.record.records import View
from privfed.core.record.transcript import Transcript
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.local_steps import lloyd


class AttackContract:
    """Properties of every `privfed.attacks.PassiveAttack`. Set `kind`; write `make` where it has parameters.

    It says who attacks, what it reads and what stops it. It needs nothing but a view, also one from disk. It
    repeats with its generator and changes nothing. Where a view shows nothing that it reads, it says so.

    Attributes:
        kind: the class.
        over: the secure sum of the run that is attacked.
    """

    kind: type[PassiveAttack[Any]]
    over = "plain"

    def make(self) -> PassiveAttack[Any]:
        """Return the attack."""
        return self.kind()

    def clients(self) -> list[FloatArray]:
        """Return five clients of 12 rows of three blobs in the plane."""
        rng = np.random.default_rng(3)
        return [rng.normal(rng.integers(3, size=(12, 1)) * 5.0, 1.0, (12, 2)) for _ in range(5)]

    def fit(self, run_dir: Path | None = None) -> Transcript:
        """Return the transcript of the run that is attacked; write it for an attack on other algorithms."""
        parameters: dict[str, Any] = {"protocol": self.over, "max_iter": 4, "tol": 0, "run_dir": run_dir}
        return lloyd(6, **parameters).fit(self.clients()).transcript_

    def attacked(self, view: View) -> Any:
        """Return what the attack finds in a view."""
        return self.make().run(view, self.prior(), np.random.default_rng(0))

    def target(self) -> Target:
        """Return what is known of the run: all rows for scoring, and public ones."""
        public = np.random.default_rng(4).normal(5.0, 5.0, (60, 2))
        return Target(clients=self.clients(), public=public, client=0, shows_answers=self.over == "plain")

    def prior(self) -> Prior:
        """Return what the attacker knows besides the view."""
        return self.target().prior

    def truth(self) -> Truth:
        """Return what it is scored against; write it for an attack on more than the clients' rows."""
        return self.target().truth

    def test_it_declares_what_reports_say_of_it(self) -> None:
        """Its name, its source, who attacks, what it sees and knows, what stops it."""
        assert not undeclared(self.kind)
        assert self.kind.name == self.kind.name.lower() and " " not in self.kind.name

    def test_it_finds_something_and_is_scored(self) -> None:
        """The report is numbers and texts that JSON holds."""
        found = self.attacked(self.fit().view("server"))
        assert not isinstance(found, NotRun), found.why
        report = evaluate(found, self.truth())
        assert found.attack == self.kind.name
        assert json.loads(json.dumps(report.to_dict()))["attack"] == self.kind.name

    def test_it_needs_nothing_but_a_view_from_disk(self, tmp_path: Path) -> None:
        """What it reads of a run's folder is what it reads of a run in memory."""
        live = self.attacked(self.fit(tmp_path / "run").view("server"))
        assert self.scored(live) == self.scored(
            self.attacked(Transcript.load(tmp_path / "run").view("server"))
        )

    def test_it_repeats_with_its_generator(self) -> None:
        """The same view and the same state of the generator, the same claims."""
        view = self.fit().view("server")
        assert self.scored(self.attacked(view)) == self.scored(self.attacked(view))

    def test_where_a_view_shows_nothing_it_does_not_run_and_says_why(self) -> None:
        """An attack that had nothing to work on looks like no defence."""
        found = self.attacked(View("server", (), ("a", "b", "c", "d", "e"), (), {}))
        assert isinstance(found, NotRun) and len(found.why.split()) > 3

    def test_what_is_no_view_is_an_error(self) -> None:
        """Passing a model or a transcript is a common mistake."""
        with pytest.raises(ArgumentError, match=r"transcript_\.view"):
            self.make().run(self.fit(), Prior(), np.random.default_rng(0))  # type: ignore[arg-type]

    def scored(self, found: Any) -> dict[str, Any]:
        """Return a scored result without what differs between two runs of the same attack."""
        report = evaluate(found, self.truth()).to_dict()
        return {name: repr(value) for name, value in report.items() if name != "seconds"}
