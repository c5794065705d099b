"""Audits of sums that the server noised, from a client's rows to the opened total, against the claim."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks.audits import Audit, Claim, audit_noises, audit_samples
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask, Total
from privfed.core.values.domain import Box, Ranges
from privfed.engines.in_process import Pool
from privfed.privacy import pricing
from privfed.privacy.accounting import ROUNDING_VARIANCE, gdp_mu
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import discrete_gaussian
from privfed.protocols.client_opened import group_client, relay
from privfed.protocols.client_opened.client_opened import CommonReplay
from privfed.protocols.client_opened.scheme import Sealed
from privfed.questions.bounded.bounded_sums import GridSums
from tests.default_run import covering
from tests.privacy.paths import DELTA, REACH, scaled
from tests.privacy.served import PROTOCOLS, Asks, by_server, served

MOST_ROWS = 4096
BOX = Box(-1.0, 1.0, max_rows=MOST_ROWS)


def releases(
    name: str, epsilon: float, seed: int, *, rounds: int = 1, secure: bool = False, replaced: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return 4096 releases with a worst-case row, and 4096 without: (4096, 2 * rounds) each (`paths`)."""
    n_cells = 2 * MOST_ROWS + 2
    width, used = 2.0 / n_cells, n_cells - 2
    middles = -1.0 + (np.arange(n_cells) + 0.5) * width
    far = 0.95 * width / 2
    rows = [(middles[:used:2] + far)[:, None], *[middles[-1:, None]] * 4]
    if replaced:
        rows[1] = (middles[1:used:2] - far)[:, None]
    ranges = Ranges(np.array([-1.0]), np.array([1.0]), MOST_ROWS)
    question = GridSums(ranges=ranges, radius=REACH * width / 2, per_axis=n_cells)
    runs = Asks(*[Ask(question, weights=dict.fromkeys(("count", "sum"), 0.5 / rounds))] * rounds)
    privacy = by_server(
        epsilon=epsilon,
        domain=BOX,
        neighbours="replace-one" if replaced else "add-remove",
        noise_seed=None if secure else seed,
    )
    federation = served(PROTOCOLS[name](), rows, runs, privacy)
    totals = np.concatenate([scaled(total) for total in federation.run(runs)], axis=1)
    return totals[:used:2], totals[1:used:2]


def audited(name: str, epsilon: float, runs: int, confidence: float = 0.95, **words: bool | int) -> Audit:
    sides = [releases(name, epsilon, seed, **words) for seed in range(runs)]  # type: ignore[arg-type]
    inside, outside = (np.concatenate([run[side] for run in sides]) for side in (0, 1))
    return audit_samples(inside, outside, claim=Claim(epsilon=epsilon, delta=DELTA), confidence=confidence)


def meets(found: Audit, least: float) -> bool:
    assert found.epsilon_gdp is not None
    return found.verdict == "not refuted" and found.epsilon_gdp >= least * found.claim.epsilon


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(
    "epsilon", [pytest.param(1.0, marks=pytest.mark.slow), 4.0, pytest.param(10.0, marks=pytest.mark.slow)]
)
@pytest.mark.few(1)
def test_opened_totals_give_away_what_is_claimed_and_no_more(name: str, epsilon: float) -> None:
    assert meets(audited(name, epsilon, 3), 0.5 if epsilon == 1.0 else 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("epsilon", [4.0, 10.0])
def test_many_draws_come_within_five_percent_of_the_claim(name: str, epsilon: float) -> None:
    assert meets(audited(name, epsilon, 120), 0.95)


@pytest.mark.parametrize("name", [pytest.param("ckks", marks=pytest.mark.slow), "group-masked"])
def test_a_replaced_row_three_rounds_and_claimed_noise_meet_their_claims(name: str) -> None:
    assert meets(audited(name, 4.0, 3, replaced=True), 0.7)
    assert meets(audited(name, 4.0, 3, rounds=3), 0.8)
    # Fresh noise in every run: a sound path fails this once in a million.
    assert meets(audited(name, 4.0, 3, 1 - 1e-6, secure=True), 0.6)


def halve_the_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pricing, "discrete_gaussian", lambda sigma, *rest: discrete_gaussian(sigma / 2, *rest))


def count_on_a_draw_of_each_client(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("privfed.core.agreed.configuration.Configuration.noising", 5)


def leave_the_counts_out_of_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pricing, "_worst", lambda costs, bounds, terms: float(np.max(costs)))


@pytest.mark.parametrize(
    "plant",
    [halve_the_noise, count_on_a_draw_of_each_client, leave_the_counts_out_of_the_sensitivity],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert audited("group-masked", 4.0, 3).verdict == "violated"


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.few(1)
def test_noise_is_independent_across_rounds_statistics_and_runs(name: str) -> None:
    named = {}
    for seed in range(2):
        for column, values in enumerate(releases(name, 1.0, seed, rounds=2)[1].T):
            named[f"run {seed}, column {column}"] = values
    assert audit_noises(named, confidence=1 - 1e-7) == []


# Shift audit: how far one row moves all totals of a fit.


def shifts(asked: list[Noised], rows: np.ndarray) -> np.ndarray:
    """Return a client's answers over a run, in standard deviations of the server's one draw."""
    answerer = Pool([ClientData(rows)], ["0"], 0).answerer(0)
    found = []
    for index, question in enumerate(asked):
        exact = question.spec.flatten(answerer(question, index)[0]) / question.spec.resolution
        found.append(exact / question._per_value(np.sqrt(question.sigma**2 - ROUNDING_VARIANCE)))
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("epsilon", "neighbours", "d"), covering([0.5, 4.0], ["add-remove", "replace-one"], [2, 6])
)
@pytest.mark.few(1)
def test_no_row_moves_a_fit_by_more_than_its_budget(epsilon: float, neighbours: str, d: int) -> None:
    rng = np.random.default_rng(d)
    middles = rng.uniform(-0.6, 0.6, (4, d))
    rows = [middles[rng.integers(4, size=300)] + 0.1 * rng.standard_normal((300, d)) for _ in range(5)]
    privacy = by_server(epsilon=epsilon, neighbours=neighbours, domain=BOX)
    model = DWFKMeans(4, local_iter=1, tol=0, max_iter=3, protocol="group-masked", privacy=privacy).fit(rows)
    asked = [question_from_bytes(record.question) for record in model.transcript_.of(Asked)]
    assert all(isinstance(question, Noised) and question.by_server for question in asked)
    base, costs = rows[0][:20], []
    directions = rng.standard_normal((4, 8, d))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    corners = np.sign(rng.standard_normal((16, d)))
    lengths = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3])[:, None]
    near = [center + lengths * way for center, way in zip(model.cluster_centers_, directions, strict=True)]
    for one in np.concatenate([1e200 * corners[:4], corners, *near]):
        for other in (-one, -corners[0]) if neighbours == "replace-one" else (None,):
            others = base if other is None else np.vstack([base, other])
            pair = shifts(asked, np.vstack([base, one])), shifts(asked, others)  # type: ignore[arg-type]
            costs.append(float(np.square(pair[0] - pair[1]).sum()))
    budget = gdp_mu(epsilon, DELTA) ** 2
    assert (0.5 if neighbours == "replace-one" else 0.6) * budget <= max(costs) <= budget


# With the opened totals forced equal, nothing that anybody sees depends on the data.

SHA = re.compile(rb'"sha256":"[0-9a-f]{64}"')
BASE = np.random.default_rng(0).uniform(-0.9, 0.9, (50, 3))
NEIGHBOURS = {
    "one more": np.vstack([BASE, [[0.1, 0.2, 0.3]]]),
    "one fewer": BASE[:-1],
    "one more, far outside the domain": np.vstack([BASE, np.full((1, 3), 1e200)]),
    "one that repeats another": np.vstack([BASE[:-1], BASE[:1]]),
}


def seen(folder: Path, name: str, rows: np.ndarray) -> list[object]:
    """Return everything that a fit shows to others; encrypted and masked bytes are new in every run."""
    clients = [rows, *np.random.default_rng(1).uniform(-0.9, 0.9, (4, 30, 3))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        privacy = by_server(noise_seed=None)
        model = DWFKMeans(3, local_iter=1, tol=0, max_iter=2, protocol=name, privacy=privacy, run_dir=folder)
        model.fit(clients)
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    traffic = model.federation_.traffic
    return [
        {inside: SHA.sub(b"", path.read_bytes()) for inside, path in files.items()},
        [centers.tobytes() for centers in model.history_],
        (model.n_iter_, model.inertia_, model.n_rows_, model.converged_),
        model.privacy_spent_,
        (traffic.exchanges, traffic.down, traffic.up),
        [str(one.message) for one in caught],
    ]


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(
    "neighbour",
    [pytest.param(one, marks=() if "far outside" in one else pytest.mark.slow) for one in NEIGHBOURS],
)
def test_nothing_but_the_noised_totals_depends_on_the_data(
    name: str, neighbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape: list[Total] = []
    honest, played = CommonReplay.open, iter(tape)

    def planted(self: CommonReplay, sealed: Sealed) -> Total:
        own = honest(self, sealed)
        if len(shown):
            recorded = next(played)
            pairs = [(own.statistics[one], recorded.statistics[one]) for one in own.statistics]
            differed.append(not all(np.array_equal(*pair) for pair in pairs))
            return recorded
        tape.append(own)
        return own

    monkeypatch.setattr(CommonReplay, "open", planted)
    # Who leads follows from the session's random bytes, and the lengths of messages from who leads.
    for module in (group_client, relay):
        monkeypatch.setattr(module, "leader_of", lambda session, clients: min(clients))
    shown: list[list[object]] = []
    differed: list[bool] = []
    for side, rows in (("one", BASE), ("other", NEIGHBOURS[neighbour])):
        shown.append(seen(tmp_path / side, name, rows))
    assert len(differed) == len(tape) > 4 and all(differed)
    for of_one, of_other in zip(*shown, strict=True):
        assert of_one == of_other
