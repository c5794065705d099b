"""Whatever totals say: shares sum to at most 1, and clients find each question in the program."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks.private_baselines import LloydBaseline, PrivateEvolution
from privfed.algorithms.private.coreset import coreset
from privfed.algorithms.private.grids import ROUNDS_SHARE
from privfed.algorithms.private.kmeans import FixedKMeans, PrivateKMeans
from privfed.algorithms.private.mixtures import PrivateMixture
from privfed.algorithms.private.scale import Frame, Scale
from privfed.algorithms.private.selection import PrivateSelection
from privfed.algorithms.quartiles import PrivateQuartiles
from privfed.algorithms.summary import PrivateMoments
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.values.domain import Box, Ranges
from privfed.core.values.guarantee import Unit
from privfed.party.program import Program, ProgramState
from privfed.privacy.accounting import gdp_mu
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import bounds_of

DELTA = 1e-6


def setting_of(epsilon: float, d: int, unit: str = "record", neighbours: str = "add-remove") -> Setting:
    terms = PrivacyTerms(
        epsilon=epsilon,
        delta=DELTA,
        unit=Unit(unit),
        neighbours=neighbours,  # type: ignore[arg-type]
        noise="distributed",  # type: ignore[arg-type]
        budget=gdp_mu(epsilon, DELTA) ** 2,
    )
    return Setting(("0", "1", "2"), d, Box(-1, 1), privacy=terms)


def stds_of(ask: Ask, setting: Setting) -> dict[str, float]:
    assert setting.privacy is not None
    bounds, weights = bounds_of(ask.question, ask.limits, setting.privacy.unit), ask.weights or {}
    return {name: bounds[name].l2 / np.sqrt(weights[name] * setting.privacy.budget) for name in bounds}


def invented(ask: Ask, n_rows: float, setting: Setting, rng: np.random.Generator) -> Total:
    """Return a total of no rows at all: few cells full or many, long sums or short ones, and noise."""
    stds, values = stds_of(ask, setting), {}
    for entry in ask.question.spec.entries:
        value = rng.standard_normal(entry.shape)
        if entry.name == "sum":
            # Along one direction, or along all.
            value = value[..., :1] * rng.standard_normal(entry.shape[-1]) if rng.random() < 0.5 else value
        else:
            value = value**2 * (rng.random(entry.shape) < rng.choice([0.0, 0.05, 1.0]))
            value.flat[rng.integers(value.size)] += 1e-3
        size = float(np.max(np.abs(entry.high))) if entry.name == "length" else n_rows
        reach = stds[entry.name] if entry.name == "distance" else 1.0
        value *= size * reach / np.linalg.norm(value) * 10.0 ** -rng.uniform(0, 3)
        if entry.name in ("count", "clients"):
            value *= n_rows / value.sum()
        values[entry.name] = value + stds[entry.name] * rng.standard_normal(entry.shape)
    return Total(Statistics(**values), (0, 1, 2), noise_std=stds)


def of_rows(ask: Ask, rows: np.ndarray, setting: Setting, rng: np.random.Generator) -> Total:
    """Return the total of rows, with its noise."""
    exact, stds = ask.question.answer(ClientData(rows), rng), stds_of(ask, setting)
    noised = {name: exact[name] + stds[name] * rng.standard_normal(exact[name].shape) for name in exact}
    return Total(Statistics(**noised), (0, 1, 2), noise_std=stds)


def held(algorithm: Any, setting: Setting) -> Generator[Ask, Total, None]:
    """Yield an algorithm's asks, each held against its program and its budget; takes the totals."""
    program, followed, spent = Program.of(algorithm, setting), ProgramState(), 0.0
    running = algorithm.run(setting)
    ask = next(running)
    for number in range(algorithm.max_sums):
        weights = ask.weights or {}
        assert min(weights.values()) > 0.0
        spent += sum(weights.values())
        assert spent <= 1.0 + 1e-9
        names = [entry.name for entry in ask.question.spec.entries]
        limits = np.array([ask.limits[name] for name in names] if ask.limits else [])
        noised = Noised(
            ranges=ask.question.ranges,
            inner=ask.question,
            sigma=np.full(len(names), 1e3),
            limits=limits,
        )
        followed = program.after(followed, program.placed(followed, noised, ask.purpose)[0], number)
        total = yield ask
        try:
            ask = running.send(total)
        except StopIteration:
            assert spent == pytest.approx(1.0)
            return
    raise AssertionError("more sums than declared")


def driven(algorithm: Any, setting: Setting, answer: Callable[[Ask], Total]) -> list[Ask]:
    running, asked = held(algorithm, setting), []
    try:
        asked.append(next(running))
        while True:
            asked.append(running.send(answer(asked[-1])))
    except StopIteration:
        return asked


MAKE: dict[str, Callable[[int, int], Any]] = {
    "ours": lambda k, seed: PrivateKMeans(n_clusters=k, seed=seed),
    "select": lambda k, seed: PrivateSelection(
        candidates=(k, k + 2), algorithm=PrivateKMeans(n_clusters=k, seed=seed)
    ),
    "fixed": lambda k, seed: FixedKMeans(n_clusters=k, rounds=3, seed=seed),
    "pe": lambda k, seed: PrivateEvolution(n_clusters=k, seed=seed),
    "fastlloyd": lambda k, seed: LloydBaseline(n_clusters=k, method="fastlloyd", seed=seed),
    "lloyd": lambda k, seed: LloydBaseline(n_clusters=k, method="lloyd", seed=seed),
    "mixture": lambda k, seed: PrivateMixture(n_clusters=k, seed=seed),
    "tied mixture": lambda k, seed: PrivateMixture(n_clusters=k, seed=seed, covariance_type="tied"),
    "diag mixture": lambda k, seed: PrivateMixture(n_clusters=k, seed=seed, covariance_type="diag"),
    "moments": lambda k, seed: PrivateMoments(),
    "products": lambda k, seed: PrivateMoments(products=True),
    "quartiles": lambda k, seed: PrivateQuartiles(),
}


@pytest.mark.parametrize("name", MAKE)
def test_invented_totals_lead_to_no_question_beyond_budget_or_program(name: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng([seed, 26])
        d, k = int(rng.choice([1, 2, 3, 4, 8])), int(rng.choice([1, 2, 8, 40]))
        unit = (
            str(rng.choice([Unit.RECORD, Unit.CLIENT]))
            if name in ("ours", "fixed", "moments", "products", "quartiles")
            else "record"
        )
        neighbours = str(rng.choice(["add-remove", "replace-one"]))
        setting, n_rows = (
            setting_of(10.0 ** rng.uniform(-1.5, 1.5), d, unit, neighbours),
            10.0 ** rng.uniform(1, 6),
        )
        driven(MAKE[name](k, seed), setting, partial(invented, n_rows=n_rows, setting=setting, rng=rng))


def test_five_searches_and_a_large_grid_leave_a_share_for_the_rounds() -> None:
    # Three of few cells hold all rows: the grid gets its largest share, and these cells are to be cut.
    ranges = Ranges(np.array([-1.0]), np.array([1.0]), 1 << 20)
    scale = Scale(Frame(ranges, np.zeros(1), 1.0), 1.85e-4, False, 6e4, np.zeros(1), 1.0, spent=0.29)
    running, spent = coreset(scale, 60, np.random.default_rng(0)), scale.spent
    ask = next(running)
    while True:
        spent += sum((ask.weights or {}).values())
        assert spent <= 1.0 - ROUNDS_SHARE + 1e-9
        counts = np.zeros(ask.question.spec.entries[0].shape)
        counts[:3] = 2e4
        sums = np.zeros((len(counts), 1))
        noise = {name: (weight * scale.budget) ** -0.5 for name, weight in (ask.weights or {}).items()}
        try:
            ask = running.send(Total(Statistics(count=counts, sum=sums), (0,), noise_std=noise))
        except StopIteration:
            break


def test_thirty_rows_on_a_line_in_three_dimensions_are_asked_what_was_agreed_on() -> None:
    rng = np.random.default_rng(1)
    rows = np.clip(0.8 * rng.choice([-1.0, 1.0], (30, 1)) + 0.01 * rng.standard_normal((30, 3)), -1, 1)
    slabs = 0
    for seed in range(4):
        setting = setting_of(50.0, 3)
        asked = driven(MAKE["ours"](3, seed), setting, partial(of_rows, rows=rows, setting=setting, rng=rng))
        slabs += sum(type(ask.question).__name__ == "SlabSums" for ask in asked)
    assert slabs
