"""Intervals of private metrics cover the metrics of the exact totals, and say where there is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, Privacy, PrivacyBudget, metrics
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.metrics.intervals import OF_A_QUOTIENT, _ends
from privfed.metrics.named import METRICS, OF_LABELS
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.noised import Noised
from privfed.questions.cluster_spread import ClusterDistances
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Inertia
from tests.some import some

RNG = np.random.default_rng(0)
CENTERS = np.array([[-0.5, 0.5], [0.5, -0.5], [0.0, 0.0]])


def clients(n_clients: int, n_rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    rows = CENTERS[rng.integers(3, size=n_rows)] + 0.15 * rng.standard_normal((n_rows, 2))
    return np.array_split(rows.clip(-1, 1), n_clients)


def options(name: str, tables: list[np.ndarray]) -> dict[str, Any]:
    """Return what a metric takes besides: for scores of labels classes that clusters meet in part."""
    classes = [(one[:, 0] > 0.1) + 1 * (one[:, 1] > 0.3) for one in tables]
    return {"labels": classes, "n_labels": 3} if name in OF_LABELS else {}


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box(-1.0, 1.0, max_rows=1000)} | words))


SCORES = sorted({*OF_LABELS} & {*METRICS})
DRAWN = ("davies_bouldin", "calinski_harabasz")
NAMES = (*sorted(OF_A_QUOTIENT), "inertia", "fuzzy_davies_bouldin", *DRAWN)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (12, {}),
        *(
            pytest.param(100, words, marks=pytest.mark.slow)
            for words in ({"epsilon": 0.5}, {"neighbours": "replace-one"}, {"epsilon": 4.0})
        ),
    ],
)
def test_intervals_cover_the_metric_of_the_exact_total(name: str, seeds: int, words: dict[str, Any]) -> None:
    """P(low <= exact <= high) >= level; where there is no interval, the whole line covers."""
    tables, surroundings = clients(3, 900), {"domain": Box(-1.0, 1.0, max_rows=1000)}
    more = options(name, tables)
    exact = getattr(metrics, name)(tables, CENTERS, protocol="plain", **more, **surroundings)
    known, covered = [], 0
    for seed in range(seeds):
        own = privacy(noise_seed=seed, **words)
        found = metrics.with_interval(name, tables, CENTERS, privacy=own, protocol="plain", level=0.8, **more)
        known += [found] if found.low is not None else []
        covered += found.low is None or found.low - 1e-5 <= exact <= found.high + 1e-5
    assert covered / seeds > 0.8 - 4.0 * np.sqrt(0.16 / seeds)
    assert known
    if name in DRAWN and seeds > 12 and words.get("epsilon", 1.0) > 1.0:
        # Where noise is small, they are hardly wider than the values scatter.
        widths, scatter = [one.high - one.low for one in known], np.std([one.value for one in known])
        assert np.median(widths) < 2.0 * 2.0 * 1.2816 * scatter


def test_the_level_is_met_and_not_passed_where_one_quotient_or_sum_is_asked() -> None:
    """Over many draws the intervals of single quotients and of the inertia cover as often as they say."""
    rng, tables = np.random.default_rng(1), clients(3, 900)
    ranges = Ranges(np.full(2, -1.0), np.full(2, 1.0), 1000)
    for name, question in (
        ("inertia", Inertia(ranges=ranges, centers=CENTERS)),
        ("score", Inertia(ranges=ranges, centers=CENTERS)),
        ("mean_distance", ClusterDistances(ranges=ranges, centers=CENTERS)),
    ):
        bounded = question.bounded()
        assert isinstance(bounded, RecordBounded)
        noised = Noised(ranges=ranges, inner=bounded, sigma=np.full(2, 2.0**21), limits=np.zeros(0))
        (answer,) = bounded.answer_all([ClientData(np.concatenate(tables))], [rng])
        std = dict.fromkeys(answer, 5.0)
        true = answer["inertia"][0] if name == "inertia" else None
        if true is None:
            above, below = OF_A_QUOTIENT[name]
            true = answer[above].sum() / answer[below].sum()
        covered = []
        for _ in range(3000):
            total = Statistics(
                **{one: answer[one] + 5.0 * rng.standard_normal(answer[one].shape) for one in answer}
            )
            found = _ends(name, noised, total, std, 0.8, rng)
            assert not isinstance(found, str)
            covered.append(found[0] <= true <= found[1])
        assert np.mean(covered) == pytest.approx(0.8, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:epsilon=60.0 promises")
def test_at_unit_client_intervals_are_of_the_sums_that_were_asked(name: str) -> None:
    """Sixty equal clients are clipped nowhere, but their common size is noised: quotients do not notice."""
    tables = np.array_split(np.concatenate(clients(1, 900)), 60)
    more = options(name, tables)
    surroundings: dict[str, Any] = {"protocol": "plain", **more}
    exact = getattr(metrics, name)(tables, CENTERS, domain=Box(-1.0, 1.0, max_rows=1000), **surroundings)
    seeded = [privacy(epsilon=60.0, unit="client", noise_seed=seed) for seed in range(6)]
    found = [metrics.with_interval(name, tables, CENTERS, privacy=own, **surroundings) for own in seeded]
    for one in some(found):
        assert one.low is not None and one.low <= one.value <= one.high
    if name != "inertia":
        # The common number of rows is rounded to a bin, by which sums are multiplied.
        assert sum(one.low <= exact <= one.high for one in found) >= 4


def test_where_a_cluster_may_be_empty_there_is_no_interval() -> None:
    tables = clients(3, 900)
    far = np.vstack([CENTERS, [[1.0, 1.0]]])
    for seed in range(4):
        own = privacy(epsilon=2.0, noise_seed=seed)
        try:
            empty = metrics.with_interval("davies_bouldin", tables, far, privacy=own, protocol="plain")
        except UndefinedIndexError:
            continue
        assert empty.low is None and empty.no_interval == "a cluster may have no rows, and would be left out"
        assert "no interval: a cluster may have no rows" in str(empty)


def test_several_scores_of_labels_are_asked_at_once(tmp_path: Path) -> None:
    budget = PrivacyBudget(2.0, 1e-6, "record", "add-remove", tmp_path / "b", domain=Box(-1.0, 1.0, 1000))
    tables = clients(3, 900)
    words: dict[str, Any] = {"protocol": "plain", **options("accuracy", tables)}
    found = metrics.with_intervals(SCORES, tables, CENTERS, privacy=budget.take(0.5), **words)
    assert [one.metric for one in found] == SCORES and len(budget.log()) == 1
    assert all(one.low is None and "none is proven" in str(one) for one in found)
    own = privacy(epsilon=2.0, noise_seed=3)
    both = metrics.with_intervals(("v_measure", "accuracy"), tables, CENTERS, privacy=own, **words)
    alone = [metrics.with_interval(one, tables, CENTERS, privacy=own, **words) for one in SCORES[::4]]
    assert both == alone[::-1]
    with pytest.raises(ArgumentError, match="or several scores of labels"):
        metrics.with_intervals(("inertia", "score"), tables, CENTERS, privacy=own, protocol="plain")


@pytest.mark.filterwarnings("ignore:epsilon=60.0 promises")
def test_at_unit_client_all_scores_of_labels_are_of_rows_whichever_is_named_first() -> None:
    """The others were of sums in units of a client, rounded: 1 in place of .93."""
    tables, own = clients(5, 900), privacy(epsilon=60.0, unit="client", noise_seed=3)
    words: dict[str, Any] = {"privacy": own, "protocol": "plain", **options("accuracy", tables)}
    both = metrics.with_intervals(("v_measure", "accuracy"), tables, CENTERS, **words)
    assert both == metrics.with_intervals(("accuracy", "v_measure"), tables, CENTERS, **words)[::-1]


@pytest.mark.parametrize("name", ["inertia", "mean_distance", "fuzzy_davies_bouldin"])
def test_an_interval_of_mere_noise_is_no_point(name: str) -> None:
    """A total far below 0 said "0 to 0", as if that were known."""
    inner = {
        "inertia": Inertia,
        "mean_distance": ClusterDistances,
        "fuzzy_davies_bouldin": FuzzySpread,
    }[name](ranges=Ranges(np.full(2, -1.0), np.full(2, 1.0), 1000), centers=CENTERS)
    question = inner.bounded()
    noised = Noised(
        ranges=inner.ranges,
        inner=question,
        sigma=np.full(len(question.spec.entries), 2.0**21),
        limits=np.zeros(0),
    )
    positive = {"count", "rows"}
    total = Statistics(
        **{
            one.name: np.full(one.shape, 90.0 if one.name in positive else -90.0)
            for one in question.spec.entries
        }
    )
    found = _ends(name, noised, total, {one.name: 10.0 for one in question.spec.entries}, 0.95, RNG)
    assert not isinstance(found, str) and found[0] == 0.0 < found[1]


def test_coinciding_centers_have_no_number_in_json() -> None:
    own = privacy(epsilon=8.0)
    twins = np.zeros((2, 2))
    found = metrics.with_interval(
        "fuzzy_davies_bouldin", clients(3, 900), twins, privacy=own, protocol="plain"
    )
    assert found.value == np.inf and found.to_dict()["value"] is None


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            {"metric": "profiles"},
            "with_interval takes privacy=Privacy.*profiles returns the intervals",
        ),
        ({"metric": "knowledge_gap"}, "No interval: knowledge_gap compares centers and asks nobody, so that"),
        ({"metric": "labels_agreement"}, "labels_agreement is several scores"),
        ({"metric": "profiles"}, "profiles returns the intervals"),
        ({"metric": "mine"}, "mine is none of which the effect of noise is known"),
        ({"metric": "inertia", "privacy": None}, "with_interval takes privacy=Privacy"),
        ({"metric": "inertia", "level": 1.0}, "level must be a number in"),
        ({"metric": "accuracy"}, "takes these options of numbers: n_labels"),
    ],
)
def test_what_has_no_interval_is_refused_before_anything_is_asked(words: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        metrics.with_interval(clients=clients(2, 40), centers=CENTERS, **{"privacy": privacy(), **words})
