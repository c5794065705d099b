"""The sampler against the exact probabilities, and its float arithmetic against exact arithmetic."""

import subprocess
import sys
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from privfed.errors import ArgumentError
from privfed.privacy import rejection, sampler
from privfed.privacy.sampler import SecureBits, SeededBits, discrete_gaussian
from tests.some import some

SIGMAS = [0.3, 1.0, 2.7, 5.0, 30.5, 300.0]
ALL_ONES = 2**64 - 1


class Script:
    """Bits that a test wrote down."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, size: int) -> np.ndarray:
        taken, self.left = self.left[:size], self.left[size:]
        assert len(taken) == size, "the test wrote too few words"
        return np.array(taken, dtype=np.uint64)


def seeded(seed: int) -> SeededBits:
    return SeededBits(np.random.default_rng(seed))


def p_value(draws: np.ndarray, sigma: float) -> float:
    """Return chi-squared's p-value of draws against the probability mass function, tails pooled."""
    reach = int(12 * sigma) + 2
    support = np.arange(-reach, reach + 1)
    expected = np.exp(-(support**2) / (2 * sigma**2))
    expected *= draws.size / expected.sum()
    counts = np.bincount(draws + reach, minlength=support.size)
    inner = expected >= 20
    observed = np.append(counts[inner], counts[~inner].sum())
    wanted = np.append(expected[inner], expected[~inner].sum())
    keep = wanted > 1e-9
    assert observed[~keep].sum() == 0
    return float(stats.chisquare(observed[keep], wanted[keep] * observed.sum() / wanted[keep].sum()).pvalue)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_draws_follow_the_probability_mass_function(sigma: float) -> None:
    draws = discrete_gaussian(sigma, 300_000, seeded(1))
    assert p_value(draws, sigma) > 0.001


def test_floats_made_integers_would_be_found() -> None:
    floats = np.random.default_rng(1).normal(size=400_000)
    # Rounding is wrong where a step is wide; truncation doubles the mass at zero, as in FastLloyd's counts.
    assert p_value(np.rint(floats).astype(np.int64), 1.0) < 1e-9
    assert p_value(np.trunc(30.5 * floats).astype(np.int64), 30.5) < 1e-9


def test_secure_bits_follow_the_probability_mass_function() -> None:
    # A right sampler fails this once in 10^7 runs.
    assert p_value(discrete_gaussian(2.7, 200_000, SecureBits()), 2.7) > 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
def test_many_draws_follow_the_probability_mass_function(sigma: float) -> None:
    values = [p_value(discrete_gaussian(sigma, 5_000_000, seeded(seed)), sigma) for seed in range(8)]
    assert stats.kstest(values, "uniform").pvalue > 0.001


def test_each_entry_has_its_own_sigma() -> None:
    draws = discrete_gaussian(np.array(SIGMAS), (100_000, len(SIGMAS)), seeded(2))
    assert draws.dtype == np.int64
    for column, sigma in zip(draws.T, SIGMAS, strict=True):
        assert p_value(column, sigma) > 0.001


@pytest.mark.parametrize("log2_sigma", [20, 40, 50])
def test_wide_draws_are_gaussian_and_uniform_in_their_last_bits(log2_sigma: int) -> None:
    draws = discrete_gaussian(2.0**log2_sigma, 200_000, seeded(3))
    assert stats.kstest(draws / 2.0**log2_sigma, "norm").pvalue > 0.001
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > 0.001


@pytest.mark.parametrize("sigma", [0.3, 30.5])
def test_one_sigma_for_all_draws_what_as_many_equal_ones_do(sigma: float) -> None:
    each = discrete_gaussian(np.full(40_000, sigma), 40_000, seeded(6))
    assert np.array_equal(discrete_gaussian(sigma, 40_000, seeded(6)), each)


def test_draws_are_independent_of_one_another() -> None:
    draws = discrete_gaussian(20.0, (50_000, 4), seeded(4)) / 20.0
    lagged = [float(np.mean(draws.ravel()[lag:] * draws.ravel()[:-lag])) for lag in (1, 2, 3, 4, 8)]
    # Each is a mean of about 2e5 products of variance 1.
    assert np.abs(lagged).max() < 4.5 / np.sqrt(draws.size)


@given(st.floats(0.05, 2.0**50))
@example(sigma=64 / 0.589)
@example(sigma=np.nextafter(64 / 0.589, 0))
def test_no_proposal_has_a_chance_above_one(sigma: float) -> None:
    _, shift, _, scale = (values[0] for values in sampler._blocks(np.array([sigma])))
    with localcontext() as context:
        context.prec = 60
        # The first value of each block is its likeliest.
        squares = [(Decimal(block << int(shift)) / Decimal(sigma)) ** 2 for block in range(40)]
        chances = [
            Decimal(float(scale)) * 2**block * (-square / 2).exp() for block, square in enumerate(squares)
        ]
    assert Decimal(1) - Decimal(2) ** -19 < max(chances) <= 1


@given(st.floats(0.05, 2.0**50), st.integers(0, 2**32 - 1))
def test_float_chances_are_within_the_proven_bound(sigma: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = sampler._blocks(np.full(8, sigma))
    _, shift, _, scale = blocks
    block = rng.geometric(0.5, 8) - 1
    size = (block << shift) + rng.integers(0, 1 << shift)
    computed = blocks.chance(np.arange(8), size, block.astype(np.int32))
    with localcontext() as context:
        context.prec = 60
        for x, b, c, q in some(
            zip(size.tolist(), block.tolist(), scale.tolist(), computed.tolist(), strict=True)
        ):
            p = Decimal(c) * 2**b * (-(Decimal(x) ** 2) / (2 * Decimal(sigma) ** 2)).exp()
            assert p <= 1
            assert abs(Decimal(q) - p) <= Decimal(2) ** -48


def test_floats_decide_as_exact_arithmetic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sigma = np.array([0.4, 1.0, 7.3, 1e6, 2.0**45])
    by_floats = discrete_gaussian(sigma, (60, 5), seeded(5))
    monkeypatch.setattr(rejection, "_MARGIN", 2.0)
    assert np.array_equal(discrete_gaussian(sigma, (60, 5), seeded(5)), by_floats)


NEAR_TIES = [(1, 0, 1.0), (9, 2, 3.3), (2**41 + 5, 1, 1.5 * 2.0**40)]


@pytest.mark.parametrize(("size", "block", "sigma"), NEAR_TIES)
def test_a_near_tie_is_decided_by_further_bits(size: int, block: int, sigma: float) -> None:
    with localcontext() as context:
        context.prec = 80
        p = Decimal("0.75") * 2**block * (-(Decimal(size) ** 2) / (2 * Decimal(sigma) ** 2)).exp()
        bits = int(p * 2**192)
    first, second, third = bits >> 128, bits >> 64 & ALL_ONES, bits & ALL_ONES

    blocks = sampler._blocks(np.array([sigma]))._replace(scale=np.array([0.75]))

    def accepts(uniform: int, *more: int) -> bool:
        return rejection._accepts(blocks.bounds(0, size, block), uniform, Script(*more))

    assert accepts(first - 1)
    assert not accepts(first + 1)
    assert accepts(first, second - 1)
    assert not accepts(first, second + 1)
    assert accepts(first, second, third - 1)
    assert not accepts(first, second, third + 1)


def test_a_full_word_of_ones_is_continued() -> None:
    words = np.array([0b0111, ALL_ONES, 0, ALL_ONES], dtype=np.uint64)
    assert rejection._ones(words, Script(0b011, ALL_ONES, 0b1)).tolist() == [3, 66, 0, 129]


@pytest.mark.parametrize("sign", [0, 1])
def test_tails_are_not_clipped(sign: int) -> None:
    # Blocks are 8 wide at sigma 10; eight proposals at once for one draw: block 10, offset 3, U = 0.
    places, blocks = [sign << 63 | 3] * 8, [0b01111111111] * 8
    draw = discrete_gaussian(10.0, 1, Script(*places, *blocks, *[0] * 8))
    assert draw.tolist() == [-84 if sign else 83]


@pytest.mark.parametrize("size", [0, 7, (3, 0), (2, 3, 4), (40_000,)])
def test_draws_have_the_asked_shape(size: int | tuple[int, ...]) -> None:
    assert discrete_gaussian(3.0, size, SecureBits()).shape == np.empty(size).shape


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf, 2.0**51])
def test_a_sigma_out_of_bounds_is_named(sigma: float) -> None:
    with pytest.raises(ArgumentError, match="sigma must lie in"):
        discrete_gaussian(np.array([1.0, sigma]), (3, 2), SecureBits())


def test_seeded_runs_repeat_and_secure_draws_do_not() -> None:
    def draws(source: rejection.RandomBits) -> list[int]:
        values: list[int] = discrete_gaussian(1e9, 50, source).tolist()
        return values

    assert draws(seeded(6)) == draws(seeded(6))
    assert draws(seeded(6)) != draws(seeded(7))
    source = SecureBits()
    assert not set(draws(source)) & set(draws(source))


def test_processes_that_were_forked_apart_share_no_bits() -> None:
    script = (
        "import os\n"
        "from privfed.privacy.sampler import SecureBits\n"
        "source = SecureBits(); source.words(1)\n"
        "child = os.fork()\n"
        "os.write(1, b'%d\\n' % source.words(1)[0])\n"
        "child and os.waitpid(child, 0)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert len(set(shown.split())) == 2
