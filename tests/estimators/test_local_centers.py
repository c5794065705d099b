"""The estimators FKM and KFED: words, attributes, scikit-learn's checks, merges and protocols."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from privfed import Box, ClientPolicy, Simulation
from privfed.core.roles.conversation import Ask, Total
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, DataError
from privfed.estimators.local_centers import FKM, KFED
from privfed.estimators.saving import NotFittedError
from privfed.federation.clients import gather
from privfed.protocols import Masked, Plain, Slotted
from tests.estimators.checks import scikit_learns_checks
from tests.raised import refused_with

Clients = list[np.ndarray]
Kind = type[FKM] | type[KFED]
KINDS = [FKM, KFED]

# Small data of one client: with the default a lone row in a cluster would make these too few.
ESTIMATORS = [
    FKM(protocol="plain", min_cluster_size=1),
    KFED(protocol="plain", min_cluster_size=1),
    KFED(protocol="plain", min_cluster_size=1, merge="gathered", local="kmeans"),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@scikit_learns_checks(*ESTIMATORS)
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def sites() -> Clients:
    """Return six clients of 20 to 40 rows from some of four blobs."""
    rng = np.random.default_rng(11)
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    return [
        means[rng.choice(rng.choice(4, 3), n)] + rng.normal(size=(n, 2)) for n in (20, 35, 40, 28, 31, 24)
    ]


MODELS: list[Any] = [
    pytest.param(FKM, {"protocol": "masked"}, id="FKM"),
    pytest.param(FKM, {"protocol": "plain", "merge": "gathered"}, id="FKM-gathered"),
    pytest.param(KFED, {"protocol": "masked"}, id="KFED"),
    pytest.param(
        # As published it needs to know how many clusters a client has.
        KFED,
        {"protocol": "plain", "merge": "gathered", "n_local_clusters": 3},
        id="KFED-gathered",
    ),
]


@pytest.mark.parametrize(("kind", "words"), MODELS)
def test_fitted_attributes(kind: Kind, words: dict[str, Any], sites: Clients) -> None:
    model = kind(4, **words)
    assert model.fit(sites) is model
    assert model.cluster_centers_.shape == (4, 2) and model.cluster_centers_.dtype == np.float64
    assert len(model.history_) == model.n_iter_ + 1
    np.testing.assert_array_equal(model.history_[-1], model.cluster_centers_)
    rows = np.concatenate(sites)
    assert model.inertia_ == pytest.approx(float((model.transform(rows).min(axis=1) ** 2).sum()), rel=1e-6)
    assert [len(labels) for labels in model.labels_] == [len(own) for own in sites]
    assert model.n_features_in_ == 2 and model.privacy_spent_ is None and model.n_rows_ == len(rows)
    assert model.transcript_ is model.federation_.transcript
    # The four blobs are found.
    assert model.inertia_ / len(rows) < 2.5


def test_fkm_runs_ten_rounds_by_default(sites: Clients) -> None:
    assert FKM(4, protocol="plain").fit(sites).n_iter_ == 10


@pytest.mark.parametrize("kind", KINDS)
def test_clone_and_pickle(kind: Kind, sites: Clients) -> None:
    model = kind(4, min_cluster_size=3, protocol="plain").fit(sites)
    assert clone(model).get_params() == model.get_params()
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(sites[0]), model.predict(sites[0])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_declared_domain_changes_the_grid_only(kind: Kind, sites: Clients) -> None:
    start = sites[0][:4]
    words: dict[str, Any] = {"init": start, "max_iter": 3, "protocol": "masked"}
    inside = kind(4, domain=Box(-10, 20, max_rows=64), **words).fit(sites)
    np.testing.assert_allclose(inside.history_, kind(4, **words).fit(sites).history_, rtol=0, atol=1e-6)
    with pytest.raises(DataError, match="rows outside the domain"):
        kind(4, domain=Box(0, 1), **words).fit(sites)


@pytest.mark.parametrize(("kind", "words"), MODELS)
def test_groups_name_the_clients(kind: Kind, words: dict[str, Any], sites: Clients) -> None:
    rows, groups = np.concatenate(sites), np.repeat(list("abcdef"), [len(own) for own in sites])
    model = kind(4, **words).fit(rows, groups=groups)
    assert model.transcript_.configuration.clients == tuple("abcdef")
    np.testing.assert_array_equal(model.labels_, model.predict(rows))


@pytest.mark.parametrize(("kind", "words"), MODELS)
@pytest.mark.few(1)
def test_stopped_run_is_finished_from_its_folder(
    kind: Kind, words: dict[str, Any], sites: Clients, tmp_path: Path
) -> None:
    whole = kind(4, **words).fit(sites)

    def stop(index: int, ask: Ask, total: Total) -> None:
        if index == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kind(4, run_dir=tmp_path / "run", **words).fit_clients(gather(sites), watch=stop)
    again = kind(4, run_dir=tmp_path / "run", **words).resume(sites)
    np.testing.assert_array_equal(np.stack(again.history_), np.stack(whole.history_))


@pytest.mark.parametrize("kind", KINDS)
def test_client_that_drops_out_is_left_out_of_that_sum(kind: Kind, sites: Clients) -> None:
    engine = Simulation(faults=[Fault(2, "collect", "drop", frozenset({3}))])
    model = kind(4, protocol="plain", engine=engine).fit(sites)
    assert model.cluster_centers_.shape == (4, 2)
    assert any(2 not in total.contributors for _, total in model.transcript_.totals())


@pytest.mark.parametrize("kind", KINDS)
def test_policy_that_allows_other_questions_only_opens_nothing(kind: Kind, sites: Clients) -> None:
    allowed = ClientPolicy(questions=frozenset({"FeatureRanges", "PointCells", "PointSums", "PointCount"}))
    with refused_with("policy:question"):
        kind(4, merge="gathered", protocol="plain", policy=allowed).fit(sites)


@pytest.mark.parametrize("kind", KINDS)
def test_unfitted_model_is_an_error(kind: Kind) -> None:
    with pytest.raises(NotFittedError, match=f"this {kind.__name__} is not fitted yet"):
        kind().predict(np.zeros((2, 2)))


# --- merges and protocols ---


@pytest.mark.parametrize("kind", KINDS)
def test_gathered_merge_needs_a_sum_that_shows_contributions(
    kind: Kind, sites: Clients, tmp_path: Path
) -> None:
    message = r'merge="gathered" .*protocol="masked" hides; use merge="summed", or protocol="plain"'
    with pytest.raises(ArgumentError, match=message):
        kind(4, merge="gathered", run_dir=tmp_path / "run").fit(sites)
    assert not (tmp_path / "run").exists()
    kind(4, merge="gathered", protocol=Plain()).fit(sites)


@pytest.mark.parametrize("kind", KINDS)
def test_sum_that_hides_contributions_after_all_is_an_error(kind: Kind, sites: Clients) -> None:
    class Hiding(Plain):
        def parties(self, configuration: Any, policies: Any) -> Any:
            session, sides = super().parties(configuration, policies)
            return _Hidden(session), sides

    with pytest.raises(ArgumentError, match=r'does not show them; use merge="summed"'):
        kind(4, merge="gathered", protocol=Hiding()).fit(sites)


class _Hidden:
    """A session whose totals show no contributions."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.open: Callable[[], Any] = session.open
        self.close: Callable[[], Any] = session.close

    def sum(self, *arguments: Any) -> Any:
        total = yield from self._session.sum(*arguments)
        return Total(total.statistics, total.contributors)


@pytest.mark.parametrize("kind", KINDS)
def test_slotted_merge_is_the_gathered_one_without_names(kind: Kind, sites: Clients) -> None:
    words: dict[str, Any] = {"max_iter": 3, "random_state": 1}
    # The first client of k-FED's own start is another one here: contributions have no order.
    words |= {"init": np.asarray(sites[0][:4])} if kind is KFED else {}
    gathered = kind(4, merge="gathered", protocol="plain", **words).fit(sites)
    slotted = kind(4, merge="slotted", protocol=Slotted(Masked(), sums=4), **words).fit(sites)
    np.testing.assert_allclose(slotted.cluster_centers_, gathered.cluster_centers_, atol=1e-6)
    again = kind(4, merge="slotted", protocol=Slotted(Masked(), sums=4), **words).fit(sites)
    np.testing.assert_array_equal(again.cluster_centers_, slotted.cluster_centers_)


@pytest.mark.parametrize(
    ("kind", "words", "protocol", "sums"),
    [
        (KFED, {}, "masked", 1),
        (KFED, {"n_init": 3}, Slotted(Masked()), 3),
        (FKM, {"max_iter": 5, "n_init": 2}, Slotted(Masked(), sums=11), 12),
        (FKM, {}, "plain", 11),
    ],
)
def test_slotted_merge_needs_as_many_sums_with_slots(
    kind: Kind, words: dict[str, Any], protocol: Any, sums: int, sites: Clients
) -> None:
    with pytest.raises(ArgumentError, match=f'in {sums} sums of a fit.*use merge="summed", or .*sums={sums}'):
        kind(4, merge="slotted", protocol=protocol, **words).fit(sites)


# --- words ---

SHARED: list[tuple[str, list[Any]]] = [
    ("n_clusters", [0, -1, 2.0, "3", None, True]),
    ("min_cluster_size", [0, -1, 1.5, None, "2", True]),
    ("merge", ["sum", None, 1, ["summed"], "slotted"]),
    ("tol", [-1e-9, "x", None, np.nan]),
    ("max_iter", [0, -3, 2.5, None]),
    ("min_iter", [0, 1.0, None]),
    ("patience", [0, -1, 1.5, "x"]),
    ("plateau", [0, -1, 1.5, "x"]),
    ("n_init", [0, -1, 1.0, "auto", None]),
    ("init", ["kmeans++", None, 3, np.zeros((2, 2)), np.full((3, 2), np.nan), [["a", "b"]] * 3]),
    ("clients_per_round", [0, -1, 7, 2.5, "x"]),
    ("cohorts", [[], 5, [[]], [[0, 10]], "all"]),
    ("protocol", ["nonsense", 5, None, Plain]),
    ("privacy", [1.0, "dp"]),
    ("engine", ["flower", 5]),
    ("policy", ["strict", 5]),
    ("scale", ["minmax", 1, True]),
    ("metrics", ["inertia", ["gap"], 3]),
    ("domain", [(0, 1), "box"]),
    ("run_dir", [5]),
    ("random_state", [-1, 1.5, "x", True]),
]
OWN: list[tuple[str, list[Any]]] = [
    ("n_local_clusters", [0, -1, 1.5, "x"]),
    ("local", ["lloyd", None, 3]),
]
BAD_WORDS = [(kind, word, bad) for kind in KINDS for word, values in SHARED for bad in values]
BAD_WORDS += [(KFED, word, bad) for word, values in OWN for bad in values]


@pytest.mark.parametrize(("kind", "word", "value"), BAD_WORDS)
def test_bad_word_is_an_error_that_names_it(
    kind: Kind, word: str, value: Any, sites: Clients, tmp_path: Path
) -> None:
    words = {"n_clusters": 3, "protocol": "plain", "run_dir": tmp_path / "run", word: value}
    with pytest.raises(ArgumentError, match=word):
        kind(**words).fit(sites)


def test_every_word_has_its_bad_values() -> None:
    assert {word for word, _ in SHARED} == set(FKM().get_params())
    assert {word for word, _ in (*SHARED, *OWN)} == set(KFED().get_params())


@pytest.mark.parametrize("kind", KINDS)
def test_more_clusters_than_rows_is_an_error_that_names_both(kind: Kind) -> None:
    with pytest.raises(ArgumentError, match="n_clusters=9 is more than all rows together, n_samples=6"):
        kind(9, protocol="plain").fit([np.zeros((3, 1)), np.ones((3, 1))])


@pytest.mark.parametrize("kind", KINDS)
def test_words_may_be_numpys(kind: Kind, sites: Clients) -> None:
    words: dict[str, Any] = {"n_clusters": np.int64(3), "min_cluster_size": np.int32(2), "tol": np.float64(0)}
    model = kind(max_iter=np.int64(2), clients_per_round=np.int64(5), protocol="plain", **words).fit(sites)
    assert model.cluster_centers_.shape == (3, 2)
