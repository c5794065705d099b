"""Audits of the whole path, from a client's rows to the opened total, against the claim."""

import numpy as np
import pytest

from privfed.attacks.audits import Audit, Claim, audit_noises, audit_samples
from privfed.privacy import ledger, noised, pricing
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import SeededBits, discrete_gaussian
from tests.privacy.paths import DELTA, Path
from tests.privacy.unheld import unheld

EPSILONS = [1.0, 4.0, 10.0]


def audited(path: Path, pairs: int, seed: int = 1, confidence: float = 0.95) -> Audit:
    """Audit a path against what it claims."""
    inside, outside = path.releases(pairs, seed)
    claim = Claim(epsilon=path.epsilon, delta=DELTA)
    return audit_samples(inside, outside, claim=claim, confidence=confidence)


def meets(found: Audit, least: float) -> bool:
    """Say whether the bound by the Gaussian curve is at least this share of the claim, and none is above."""
    assert found.epsilon_gdp is not None
    return found.verdict == "not refuted" and found.epsilon_gdp >= least * found.claim.epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_masked_totals_give_away_what_is_claimed_and_no_more(epsilon: float) -> None:
    assert meets(audited(Path(epsilon=epsilon, masked=True), 10_000), 0.5 if epsilon == 1.0 else 0.8)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.few(1)
def test_plain_totals_give_away_what_is_claimed_and_no_more(epsilon: float) -> None:
    assert meets(audited(Path(epsilon=epsilon), 200_000), 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_million_draws_come_within_five_percent_of_the_claim(epsilon: float, masked: bool) -> None:
    # At epsilon 1 a million are only just enough: the bound is 0.97 of the claim, give or take 0.01.
    pairs = 2_000_000 if epsilon == 1.0 else 1_000_000
    assert meets(audited(Path(epsilon=epsilon, masked=masked), pairs), 0.95)


@pytest.mark.slow
def test_ten_million_draws_come_within_five_percent_of_a_small_claim() -> None:
    # Both values have the same shift in standard deviations: their sum tells the sides apart best.
    path = Path(epsilon=0.5)
    runs = [path.releases(1_000_000, seed) for seed in range(0, 1000, 100)]
    inside, outside = (np.concatenate([run[side].sum(axis=1) for run in runs]) for side in (0, 1))
    assert meets(audit_samples(inside, outside, claim=Claim(epsilon=0.5, delta=DELTA)), 0.95)


OTHER_PATHS = {
    "in three rounds": Path(epsilon=4.0, rounds=3),
    "replaced": Path(epsilon=4.0, replaced=True, claimed="replace-one"),
    "masked, in three rounds": Path(epsilon=4.0, masked=True, rounds=3),
    "three of eight lost, as the noise allows for": Path(
        epsilon=4.0, masked=True, clients=8, honest=5, lost=(1, 3, 6)
    ),
}


@pytest.mark.parametrize("name", OTHER_PATHS)
@pytest.mark.few(2)
def test_other_paths_meet_their_claims(name: str) -> None:
    assert meets(audited(OTHER_PATHS[name], 50_000), 0.9)


def test_noise_of_clients_that_were_not_counted_on_is_extra() -> None:
    found = audited(Path(epsilon=4.0, masked=True, honest=2), 50_000)
    assert meets(found, 0.5)
    assert not meets(found, 0.9)


def test_claimed_noise_meets_its_claim() -> None:
    # Fresh noise in every run: a sound path fails this once in a million.
    found = audited(Path(epsilon=4.0, masked=True, secure=True), 50_000, confidence=1 - 1e-6)
    assert meets(found, 0.85)


def lose_half_of_the_shares(patch: pytest.MonkeyPatch) -> Path:
    sound = Noised._noise

    def planted(self, n, generators):  # type: ignore[no-untyped-def]
        noise = sound(self, n, generators)
        noise[::2] = 0.0
        return noise

    patch.setattr(Noised, "_noise", planted)
    return Path(epsilon=1.0, masked=True)


def leave_the_counts_out_of_the_sensitivity(patch: pytest.MonkeyPatch) -> Path:
    # Each entry then has the noise of a question that asks for nothing else.
    patch.setattr(pricing, "_worst", lambda costs, bounds, terms: float(np.max(costs)))
    return Path(epsilon=1.0)


def claim_add_remove_for_a_replacement(patch: pytest.MonkeyPatch) -> Path:
    return Path(epsilon=1.0, replaced=True)


def clip_nothing(patch: pytest.MonkeyPatch) -> Path:
    unheld(patch)
    patch.setattr("privfed.questions.bounded.bounded_sums.HAIR", 1e9)
    return Path(epsilon=1.0, radius=0.95 / 3)


def spend_the_whole_budget_in_every_round(patch: pytest.MonkeyPatch) -> Path:
    patch.setattr(ledger, "SLACK", 100.0)
    return Path(epsilon=1.0, rounds=4, weight=4.0)


def halve_the_noise(patch: pytest.MonkeyPatch) -> Path:
    patch.setattr(noised, "discrete_gaussian", lambda sigma, *rest: discrete_gaussian(sigma / 2, *rest))
    return Path(epsilon=1.0)


PLANTED = [
    lose_half_of_the_shares,
    leave_the_counts_out_of_the_sensitivity,
    claim_add_remove_for_a_replacement,
    clip_nothing,
    spend_the_whole_budget_in_every_round,
    halve_the_noise,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    path = plant(monkeypatch)
    found = audited(path, 50_000)
    assert found.verdict == "violated"
    assert any("Gaussian curve" in violation for violation in found.violations)


def noises(path: Path, runs: int) -> dict[str, np.ndarray]:
    """Return the noise of counts and sums in each round of several runs, each of shape (n_values,)."""
    n_cells, named = 2048, {}
    for run in range(runs):
        inside, outside = path.releases(n_cells // 2 - 1, 1000 + run, n_cells)
        # Without a record the exact totals are zero.
        del inside
        for column, values in enumerate(outside.T):
            named[f"run {run}, {'count' if column % 2 == 0 else 'sum'} of round {column // 2}"] = values
    return named


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.few(2)
def test_noise_is_independent_across_rounds_statistics_and_runs(masked: bool, secure: bool) -> None:
    found = noises(Path(epsilon=1.0, rounds=3, masked=masked, secure=secure), 3)
    assert audit_noises(found, confidence=1 - 1e-7) == []


def test_a_shared_seed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(sigma, size, source):  # type: ignore[no-untyped-def]
        # One generator for counts and one for sums, both with the same seed, and so in each round.
        assert np.unique(sigma).size == 2
        unit = discrete_gaussian(1e6, (size[0], size[1] // 2), SeededBits(np.random.default_rng(7)))
        return np.rint(np.concatenate([unit, unit], axis=1) * (sigma / 1e6)).astype(np.int64)

    monkeypatch.setattr(noised, "discrete_gaussian", planted)
    found = audit_noises(noises(Path(epsilon=1.0, rounds=2, secure=True), 2))
    # Every pair of the eight releases.
    assert len(found) == 28
    assert min(one.correlation for one in found) > 0.99
