"""Where public inputs come from, through files and objects, up to the claim that refuses what is exact."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import (
    Ball,
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedGaussianMixture,
    FederatedScaler,
    FederatedSummary,
    MergedClusters,
    Privacy,
)
from privfed.core.values.origin import Origin, joined, origin_of, released
from privfed.data import load_clients
from privfed.errors import PrivacyError
from privfed.estimators.scaling import Scaling
from tests.some import some

BOX = Box(-1.0, 1.0, max_rows=1000)
RNG = np.random.default_rng(0)
TABLES = [np.clip(0.3 * RNG.standard_normal((300, 2)), -1.0, 1.0) for _ in range(3)]
START = np.array([[-0.2, 0.0], [0.2, 0.0]])


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**{"domain": BOX, **known, **words})


def test_one_exact_input_makes_all_exact_and_one_claimed_the_rest_claimed() -> None:
    declared, claimed, exact = Origin.DECLARED, Origin.CLAIMED, Origin.EXACT
    assert joined() == joined(declared) == declared
    assert joined(declared, claimed) == claimed and joined(claimed, exact, declared) == exact


def test_an_array_keeps_its_origin_in_copies_and_pickles_and_gives_it_to_nothing_computed() -> None:
    one = released(START, Origin.EXACT, 0.5)
    pickles = [
        pickle.loads(pickle.dumps(one, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]
    for same in (
        copy.deepcopy(one),
        copy.copy(one),
        one.copy(),
        one[:],
        one[:2].T.T,
        one.astype(float),
        *pickles,
    ):
        assert same.origin == Origin.EXACT and same.radius == 0.5
        np.testing.assert_array_equal(same, START)
    for part in (
        one[:1],
        one[0],
        one[:, 0],
        one[[1, 0]],
        one[one[:, 0] > 0.0],
        one.reshape(-1),
        np.sort(one),
    ):
        assert origin_of(part) == Origin.EXACT
    for other in (np.array(one), one + 1.0, np.asarray(one), one.mean(axis=0), one.tolist()):
        assert origin_of(other) == Origin.DECLARED
    assert type(one + 1.0) is np.ndarray and type(np.sqrt(one + 2.0)) is np.ndarray
    assert repr(one) == repr(START)
    assert origin_of(START.tolist()) == Origin.DECLARED


def exact_and_claimed() -> dict[str, tuple[Any, Any]]:
    """Return what fits give: name -> (domain or start of a fit without privacy, the same under a claim)."""
    fits = [
        kind(**{"protocol": "plain", "random_state": 0, **own})
        for kind in (FederatedScaler, FederatedSummary)
        for own in ({"domain": BOX}, {"privacy": privacy()})
    ]
    scalers, summaries = fits[:2], fits[2:]
    for one in fits:
        one.fit(TABLES)
    lows = [one.mean_ - 1.0 * np.asarray(one.scale_) for one in scalers]
    assert all(origin_of(one) == Origin.DECLARED for one in lows)
    scalings = [Scaling.of("standard", one.mean_, one.scale_, origin_of(one.scale_)) for one in scalers]
    return {
        "transform_domain": tuple(one.transform_domain() for one in scalers),
        "means": tuple(Ball(2.0, center=one.mean_) for one in summaries),
        "scaling": tuple(one.domain(BOX, 2) for one in scalings),
        "a scaling of a file": tuple(Scaling.from_dict(one.to_dict()).domain(BOX, 2) for one in scalings),
    }


@pytest.mark.parametrize("name", ["transform_domain", "means", "scaling", "a scaling of a file"])
def test_a_claim_refuses_a_domain_that_rows_gave_exactly(name: str) -> None:
    exact, claimed = exact_and_claimed()[name]
    assert exact.origin == Origin.EXACT and claimed.origin == Origin.CLAIMED
    with pytest.raises(PrivacyError) as found:
        privacy(domain=exact)
    assert found.value.parameters == ("domain",) or list(found.value.parameters) == ["domain"]
    assert privacy(domain=claimed).domain is claimed
    assert privacy(domain=exact, noise_seed=1).domain is exact  # A seeded run claims nothing.


def test_a_range_that_no_domain_was_declared_for_is_exact(tmp_path: Path) -> None:
    scaler = FederatedScaler("range", protocol="plain").fit(TABLES)
    with pytest.raises(PrivacyError):
        privacy(domain=Box(scaler.data_min_, scaler.data_max_))
    scaler.save(tmp_path / "s.npz")
    loaded = privfed.load(tmp_path / "s.npz")
    with pytest.raises(PrivacyError):
        privacy(domain=Box(loaded.data_min_, loaded.data_max_))
    # The word of whoever takes the numbers; and ends that were declared.
    assert privacy(domain=Box(np.array(loaded.data_min_), np.array(loaded.data_max_)))
    given = FederatedScaler("range", protocol="plain", domain=BOX).fit(TABLES)
    assert privacy(domain=Box(given.data_min_, given.data_max_)).domain.origin == Origin.DECLARED


def starts(tmp_path: Path) -> dict[str, Any]:
    """Return the centers of a fit without a claim as users meet them: name -> (2, 2)."""
    given: dict[str, Any] = {"protocol": "plain", "random_state": 0}
    fitted = DWFKMeans(2, scale="standard", domain=BOX, **given).fit(TABLES)
    mixture = FederatedGaussianMixture(2, **given).fit(TABLES)
    merged = MergedClusters(DWFKMeans(6, **given), n_clusters=1).fit(TABLES)
    again = DWFKMeans(2, init=mixture.cluster_centers_, **given).fit(TABLES)
    again.save(tmp_path / "again.npz")
    held = pickle.loads(pickle.dumps(merged)).estimator_.cluster_centers_
    return {
        "a part": fitted.cluster_centers_[:],
        "another order": fitted.cluster_centers_[[1, 0]],
        "a copy": copy.copy(fitted.cluster_centers_).copy(),
        "history": fitted.history_[-1],
        "a round": fitted.states_[0]["centers"],
        "in columns' units": fitted.scaling_.original(fitted.cluster_centers_),
        "means": mixture.means_,
        "covariances": mixture.covariances_[0],
        "an edge": held[merged.edges_[0]],
        "kept": held[merged.kept_[:2]],
        "what a saved model began from": privfed.load(tmp_path / "again.npz").init,
        "history of a saved model": privfed.load(tmp_path / "again.npz").history_[0],
    }


def test_centers_of_a_fit_are_exact_wherever_they_are_read(tmp_path: Path) -> None:
    for name, start in some(starts(tmp_path).items()):
        assert origin_of(start) == Origin.EXACT, name
        with pytest.raises(PrivacyError) as found:
            DPKMeans(2, init=start, privacy=privacy(), protocol="plain").fit(TABLES)
        assert list(found.value.parameters) == ["init"]


def test_a_scaling_of_exact_numbers_is_exact_whoever_makes_it() -> None:
    scaler = FederatedScaler(protocol="plain", domain=BOX).fit(TABLES)
    scaling = Scaling.of("standard", *scaler.shift_and_scale())
    assert scaling.origin == scaling.domain(BOX, 2).origin == Origin.EXACT


@pytest.mark.parametrize("kind", [DPKMeans, DWFKMeans])
def test_a_start_that_rows_gave_exactly_is_refused(kind: type[Any], tmp_path: Path) -> None:
    exact = DWFKMeans(2, protocol="plain", random_state=0).fit(TABLES)
    exact.save(tmp_path / "m.npz")
    more = {} if kind is DPKMeans else {"local_iter": 1}
    for start in (exact.cluster_centers_, privfed.load(tmp_path / "m.npz").cluster_centers_):
        model = kind(2, init=start, privacy=privacy(), protocol="plain", **more)
        for one in (model, copy.deepcopy(model)):
            with pytest.raises(PrivacyError) as found:
                one.fit(TABLES)
            assert list(found.value.parameters) == ["init"]
    noised = DPKMeans(2, privacy=privacy(), protocol="plain", random_state=0).fit(TABLES)
    noised.save(tmp_path / "n.npz")
    for start in (
        noised.cluster_centers_,
        privfed.load(tmp_path / "n.npz").cluster_centers_,
        np.array(exact.cluster_centers_),
    ):
        kind(2, init=start, privacy=privacy(), protocol="plain", **more).fit(TABLES)


def test_what_a_seeded_fit_gave_is_exact_as_its_noise_protects_nobody() -> None:
    seeded = DPKMeans(2, privacy=privacy(noise_seed=1), protocol="plain", random_state=0).fit(TABLES)
    with pytest.raises(PrivacyError):
        DPKMeans(2, init=seeded.cluster_centers_, privacy=privacy(), protocol="plain").fit(TABLES)
    again = privacy(noise_seed=2)
    DPKMeans(2, init=seeded.cluster_centers_, privacy=again, protocol="plain").fit(TABLES)


def test_a_list_of_clients_that_was_found_in_rows_is_refused(tmp_path: Path) -> None:
    lines = [f"{'abc'[i % 3]},{a:.3f},{b:.3f}" for i, (a, b) in enumerate(np.concatenate(TABLES).tolist())]
    (tmp_path / "t.csv").write_text("\n".join(["g,x,y", *lines, ""]))
    found = load_clients(tmp_path / "t.csv", group="g")
    named = load_clients(tmp_path / "t.csv", group="g", clients=["a", "b", "c"])
    assert found.listed == Origin.EXACT and named.listed == Origin.DECLARED
    with pytest.raises(PrivacyError):
        DPKMeans(2, privacy=privacy(), protocol="plain").fit(found)
    DPKMeans(2, privacy=privacy(), protocol="plain").fit(named)
