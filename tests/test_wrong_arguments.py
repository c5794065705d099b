"""Arguments of a wrong kind end in an error that names them, not in one of Python's from somewhere inside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import Ball, Box, ClientPolicy, DWFKMeans, Privacy, metrics, select_n_clusters
from privfed.attacks import Differencing, Prior, Truth, evaluate, pooled
from privfed.data import load_clients, load_features
from privfed.errors import PrivFedError
from privfed.protocols import CKKS, GroupMasked, Masked, Slotted
from tests.some import some

ROWS = [np.random.default_rng(seed).normal(size=(9, 2)) for seed in range(3)]
CENTERS = np.eye(2)


def private(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "domain": Box(-5, 5)}
    return Privacy(**{**known, "neighbours": "add-remove", **words})


def attacked(view: Any = None, rng: Any = None, client: Any = 0) -> Any:
    model = DWFKMeans(2, protocol="plain", max_iter=2, tol=0).fit(ROWS)
    seen = model.transcript_.view("server") if view is None else view
    return Differencing(client=client).run(seen, Prior(), np.random.default_rng(0) if rng is None else rng)


WRONG: dict[str, Callable[[], Any]] = {
    "low": lambda: Box("a", "b"),  # type: ignore[arg-type]
    "high": lambda: Box(1, 1j),  # type: ignore[arg-type]
    "radius": lambda: Ball("a"),  # type: ignore[arg-type]
    "radius must be a number in (0, inf)": lambda: Ball([1.0, 2.0]),  # type: ignore[arg-type]
    "center": lambda: Ball(1, "x"),
    "one center, or one a feature": lambda: Ball(1, np.eye(2)),
    "max_rows": lambda: Box(-1, 1, max_rows="x"),  # type: ignore[arg-type]
    "max_rows must be None or a whole number in [1, 1099511627776]": lambda: Ball(1, max_rows=1.5),  # type: ignore[arg-type]
    "threshold": lambda: Masked(threshold="a"),  # type: ignore[arg-type]
    "colluders": lambda: Masked(colluders=1.5),  # type: ignore[arg-type]
    "dropouts": lambda: Masked(dropouts="a"),  # type: ignore[arg-type]
    "repeats": lambda: GroupMasked(repeats=None),  # type: ignore[arg-type]
    "honest": lambda: CKKS(honest=2.5),  # type: ignore[arg-type]
    "sums must be": lambda: Slotted(Masked(), sums="a"),  # type: ignore[arg-type]
    "noise_seed": lambda: private(noise_seed="a"),
    "spare": lambda: private(spare=None),
    "group_size": lambda: ClientPolicy(group_size=1.5),  # type: ignore[arg-type]
    "max_sums": lambda: ClientPolicy(max_sums="a"),  # type: ignore[arg-type]
    "max_fits": lambda: ClientPolicy(max_fits=-1),
    "fixed_cohorts": lambda: ClientPolicy(fixed_cohorts="no"),  # type: ignore[arg-type]
    "questions": lambda: ClientPolicy(questions="LloydSums"),  # type: ignore[arg-type]
    "questions must be": lambda: ClientPolicy(questions=3),  # type: ignore[arg-type]
    "domain": lambda: ClientPolicy(domain="a"),  # type: ignore[arg-type]
    "pass a list with one array a client": lambda: DWFKMeans(2).fit(None),
    "X is 'int'; pass a list": lambda: metrics.inertia(3, CENTERS),
    "watch": lambda: DWFKMeans(2, scale="standard").fit(ROWS, watch=5),  # type: ignore[arg-type]
    "watch must be": lambda: select_n_clusters(ROWS, range(2, 4), watch=5),  # type: ignore[arg-type]
    "NaN": lambda: DWFKMeans(2).fit([np.array([[np.nan, 1.0]])]),
    "path must be that of a file": lambda: load_clients(None),  # type: ignore[arg-type]
    "path": lambda: load_features(3),  # type: ignore[arg-type]
    "got None": lambda: DWFKMeans(2, protocol="plain", tol=0, max_iter=2).fit(ROWS).save(None),  # type: ignore[arg-type]
    "centers": lambda: metrics.fuzzy_davies_bouldin(ROWS, "a"),
    "centers must be": lambda: metrics.inertia(ROWS, [[1.0], [1.0, 2.0]]),
    "m must be": lambda: metrics.fuzzy_davies_bouldin(ROWS, CENTERS, m="a"),  # type: ignore[arg-type]
    "p must be": lambda: metrics.fuzzy_davies_bouldin(ROWS, CENTERS, p=None),  # type: ignore[arg-type]
    "q must be": lambda: metrics.davies_bouldin(ROWS, CENTERS, q="a"),  # type: ignore[arg-type]
    "p must be a number": lambda: metrics.davies_bouldin(ROWS, CENTERS, p=[]),  # type: ignore[arg-type]
    "engine must be None or of type Engine": lambda: metrics.inertia(ROWS, CENTERS, engine=3),
    "policy must be None or of type ClientPolicy": lambda: metrics.score(ROWS, CENTERS, policy="a"),
    "domain must be None or of type Box or Ball": lambda: metrics.inertia(ROWS, CENTERS, domain=(0, 1)),
    "privacy must be None or of type Privacy": lambda: metrics.inertia(ROWS, CENTERS, privacy=DWFKMeans),  # type: ignore[arg-type]
    "a metric takes no polcy=; it takes protocol,": lambda: metrics.inertia(ROWS, CENTERS, polcy=None),
    "views must be a list of one View or more": lambda: pooled([3]),  # type: ignore[list-item]
    "views must be": lambda: pooled([]),
    "a file; name a folder": lambda: DWFKMeans(2, run_dir=__file__).fit(ROWS),
    "result must be of type Result": lambda: evaluate(3, Truth(ROWS)),  # type: ignore[arg-type]
    "sample of the prior": lambda: Prior(sample="a"),  # type: ignore[arg-type]
    "list with the rows of each client": lambda: Truth("a"),
    "in place of the View": lambda: attacked(view="a"),
    "in place of the Generator": lambda: attacked(rng=3),
    "client must be None or a whole number": lambda: attacked(client="a"),
}


@pytest.mark.parametrize(
    "call",
    [
        lambda: DWFKMeans(2, max_iter=1, init=CENTERS + 9).fit(ROWS),
        lambda: DWFKMeans(2, policy=ClientPolicy(group_size=3)).fit(ROWS),
        lambda: private(epsilon=100.0),
    ],
)
def test_a_warning_stands_at_the_line_that_called_privfed(call: Callable[[], Any]) -> None:
    with pytest.warns(UserWarning) as told:
        call()
    assert {one.filename for one in some(told)} == {__file__}


def test_code_of_no_module_is_warned() -> None:
    words = {"epsilon": 100.0, "delta": 1e-6, "unit": "record", "neighbours": "replace-one"}
    with pytest.warns(UserWarning, match="promises very little"):
        exec("Privacy(domain=domain, **words)", {"Privacy": Privacy, "domain": Box(-5, 5), "words": words})


@pytest.mark.parametrize("words", WRONG)
def test_an_argument_of_a_wrong_kind_is_named(words: str) -> None:
    with pytest.raises(PrivFedError) as found:
        WRONG[words]()
    assert words in str(found.value)
