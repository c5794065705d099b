"""What users write, and what a run claims of it."""

from typing import Any

import numpy as np
import pytest

from privfed import metrics
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ball, Box, Ranges
from privfed.errors import ArgumentError
from privfed.privacy.claim import Privacy, claimed, unless_seeded
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import LloydSums

KNOWN: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "unit": "record",
    "domain": Box(-1, 1),
    "neighbours": "add-remove",
}


@pytest.mark.parametrize("missing", KNOWN)
def test_no_part_of_the_promise_has_a_default(missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        Privacy(**{name: value for name, value in KNOWN.items() if name != missing})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("epsilon", value) for value in (0, -1.0, float("nan"), float("inf"), True, "1")],
        *[("delta", value) for value in (0.0, 1.0, float("nan"))],
        *[
            ("unit", "row"),
            ("neighbours", "any"),
            ("noise", "nobody"),
            ("mechanism", "normal"),
            ("domain", (-1, 1)),
            ("domain", Box(-1e160, 1e160)),
            ("domain", Ball(1.0, [0.0, 1e100])),
            ("domain", Box(-1e-200, 1e-200)),
            ("spare", 1.0),
        ],
    ],
)
def test_a_word_out_of_its_bounds_is_named_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=name):
        Privacy(**(KNOWN | {name: value}))


@pytest.mark.parametrize(("name", "value"), [("epsilon", 11.0), ("delta", 1e-4)])
def test_a_promise_that_is_hardly_one_warns_at_once(name: str, value: float) -> None:
    with pytest.warns(UserWarning, match=name):
        Privacy(**(KNOWN | {name: value}))


@pytest.mark.parametrize(
    ("words", "honest", "colluders", "one_key", "server", "together"),
    [
        ({}, 4, 2, False, "(1, 1e-06)", "(1, 1e-06) with at most 2 of the clients"),
        ({}, 4, 0, False, "(1, 1e-06)", "none claimed"),
        ({"noise": "local"}, 4, 0, True, "(1, 1e-06)", "(1, 1e-06) each client alone"),
        ({"domain": Ball(2.0)}, 4, 2, True, "(1, 1e-06)", "none: one client's key opens every upload"),
    ],
)
def test_a_claim_names_against_whom_it_holds(
    words: dict[str, Any], honest: int, colluders: int, one_key: bool, server: str, together: str
) -> None:
    configuration = Configuration(
        protocol="masked",
        algorithm="test",
        clients=tuple("abcdef"),
        n_features=1,
        terms=Terms(honest=honest, colluders=colluders),
        privacy=Privacy(**(KNOWN | words)).terms(),
    )
    spent = unless_seeded(claimed(configuration, (), one_key=one_key))
    assert spent is not None and spent.against["the server"] == server
    assert spent.against["the server with clients"] == together


def test_noised_answers_lie_on_the_grid_and_keep_to_the_limits_of_a_client() -> None:
    ranges, centers = Ranges([-1.0], [1.0], 50), np.array([[-0.5], [0.5]])
    inner = LloydSums(ranges=ranges, centers=centers)
    noised = Noised(ranges=ranges, inner=inner, sigma=np.array([1e3, 1e3]), limits=np.array([2.0, 0.5]))
    data = ClientData(np.linspace(-1, 1, 40)[:, None])
    answers = [noised.answer(data, np.random.default_rng(seed)) for seed in range(200)]
    flat = np.array([noised.spec.flatten(answer) for answer in answers])
    assert (flat % np.repeat(noised.steps, 2) == 0).all()
    mean = flat.mean(axis=0)
    # Twenty rows a cluster, shortened to a length of 2; the sums, -10 and 10 or so, to one of 0.5.
    np.testing.assert_allclose(mean[:2], [np.sqrt(2.0)] * 2, atol=1e-3)
    assert np.linalg.norm(mean[2:]) == pytest.approx(0.5, abs=1e-3)
    np.testing.assert_allclose(flat.std(axis=0), 1e3 * np.repeat(noised.steps, 2), rtol=0.25)


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_a_seeded_runs_seed_can_be_taken_apart_again(seed: int) -> None:
    seeded = Privacy(**KNOWN, noise_seed=5)
    assert seeded.seeded(seed) != seed
    assert seeded.unseeded(seeded.seeded(seed)) == seed
    assert Privacy(**KNOWN).seeded(seed) == seed


def test_the_noise_of_a_metrics_seeded_run_follows_its_noise_seed() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (40, 2))

    def inertia(noise_seed: int) -> float:
        return metrics.inertia(
            [rows, rows], np.zeros((1, 2)), privacy=Privacy(**KNOWN, noise_seed=noise_seed), protocol="plain"
        )

    assert inertia(1) == inertia(1)
    assert inertia(1) != inertia(2)
