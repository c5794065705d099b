"""A masked fit that was killed goes on with one history of who was in its sums, wherever it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.core.roles.engine import Exchange, Replies
from privfed.protocols import Masked
from tests.nodes.elsewhere import Elsewhere

N = 5
WORDS: dict[str, Any] = {"local_iter": 1, "max_iter": 4, "tol": 0, "random_state": 3}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Stopped(Exception):
    """Stops a run as a kill would: what was not written is gone."""


class Killed(Elsewhere):
    """Is stopped in an exchange, after some clients have answered it; their replies are lost."""

    at: tuple[str, int, int] = ("", 0, 0)

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        stage, number, after = self.at
        if (exchange.stage, exchange.number) == (stage, number):
            self.at = ("", 0, 0)
            self.silent = lambda exchange, client: client >= after
            super().exchange(exchange, timeout)
            self.silent = lambda exchange, client: False
            raise Stopped
        return super().exchange(exchange, timeout)


@pytest.mark.parametrize("after", [0, 2, N])
@pytest.mark.parametrize("stage", ["collect", "unmask"])
@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.few(6)
def test_whoever_heard_what_all_are_in_the_fit_after_the_coordinator_was_killed(
    verified: bool, stage: str, after: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    rows = [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0) for i in range(N)]
    engine = Killed(tmp_path / "clients", rows, ClientPolicy(max_losses=9))
    engine.at = (stage, 3, after)

    def model(engine: Any, folder: Path | None) -> DWFKMeans:
        return DWFKMeans(
            2, protocol=Masked(losses=0, verified=verified), engine=engine, run_dir=folder, **WORDS
        )

    with pytest.raises(Stopped):
        model(engine, tmp_path / "run").fit()
    resumed = model(engine, tmp_path / "run").resume()
    whole = model(None, None).fit(rows)
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    assert all(total.contributors == tuple(range(N)) for _, total in resumed.transcript_.totals())
