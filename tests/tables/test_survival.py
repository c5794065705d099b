"""Survival by cluster: curves, intervals and test of pooled rows, from one sum; all three know of noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from privfed import Box, DWFKMeans, Privacy, PrivacyBudget
from privfed.errors import ArgumentError, DataError
from privfed.plot import SurvivalDisplay
from privfed.tables import survival
from privfed.tables.outcomes import labels_of, of_counts
from tests.cli.wide import run
from tests.raised import parameter_refused

CENTERS = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])


def drawn(n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return clusters, rows, whole times and events of which .7 happen."""
    rng = np.random.default_rng(5)
    own = rng.integers(3, size=n)
    rows = CENTERS[own] + rng.normal(size=(n, 2)) * 0.3
    times = np.ceil(rng.exponential([10, 14, 30], size=(n, 3))[np.arange(n), own])
    return own, rows, times, (rng.random(n) < 0.7).astype(int)


def parted(*arrays: np.ndarray) -> list[list[np.ndarray]]:
    return [np.array_split(one, 4) for one in arrays]


def textbook(times: np.ndarray, events: np.ndarray, t: float) -> tuple[float, float]:
    """Return the Kaplan-Meier estimate at t, and Greenwood's variance of its logarithm."""
    kept, variance = 1.0, 0.0
    for at in sorted(set(times[(events == 1) & (times <= t)])):
        n, d = int((times >= at).sum()), int(((times == at) & (events == 1)).sum())
        kept *= 1 - d / n
        variance += d / (n * (n - d)) if n > d else np.inf
    return kept, variance


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_curves_intervals_and_test_are_those_of_pooled_rows(protocol: str) -> None:
    own, rows, times, events = drawn()
    edges = np.unique(times)
    found = survival(parted(rows)[0], CENTERS, *parted(times, events), edges=edges, protocol=protocol)
    for k in range(3):
        for b, edge in enumerate(edges):
            mine = own == k
            assert found.at_risk[b, k] == (times[mine] >= edge).sum()
            if not found.at_risk[b, k]:
                assert np.isnan(found.survival[b, k])
                continue
            kept, variance = textbook(times[mine], events[mine], edge)
            assert found.survival[b, k] == pytest.approx(kept, abs=1e-12)
            if 0.0 < kept < 1.0:
                turned = np.exp(1.959963984540054 * np.sqrt(variance) / np.log(kept))
                ends = found.low[b, k], found.high[b, k]
                assert ends == pytest.approx((kept ** (1 / turned), kept**turned), abs=1e-12)
    # As lifelines 0.30.3 has them for these rows.
    assert found.statistic == pytest.approx(37.703736434288494, rel=1e-10) and found.df == 2
    assert found.p_value == pytest.approx(6.497370910697954e-09, rel=1e-8)
    assert found.median.tolist() == [11.0, 15.0, 26.0] and not found.beyond.any() and found.claim is None


def test_rows_beyond_the_last_edge_are_at_risk_throughout_and_counted() -> None:
    own, rows, times, events = drawn()
    found = survival(parted(rows)[0], CENTERS, *parted(times, events), edges=[5, 20], protocol="plain")
    assert found.beyond.tolist() == [(times[own == k] > 20).sum() for k in range(3)]
    late = np.where(times <= 5, 5.0, np.where(times <= 20, 20.0, 21.0))
    for k in range(3):
        kept, _ = textbook(late[own == k], np.where(late > 20, 0, events)[own == k], 20)
        assert found.survival[1, k] == pytest.approx(kept)
    assert json.loads(json.dumps(found.to_dict()))["median"][2] is None and np.isinf(found.median[2])


def test_clusters_without_rows_are_left_out_of_the_test() -> None:
    _, rows, times, events = drawn()
    far = np.vstack([CENTERS, [[90.0, 90.0]]])
    words: dict[str, Any] = {"edges": np.unique(times), "protocol": "plain"}
    found = survival(parted(rows)[0], far, *parted(times, events), **words)
    assert found.df == 2 and found.statistic == pytest.approx(37.703736434288494)
    assert np.isnan(found.survival[:, 3]).all()
    alone = survival(parted(rows)[0], CENTERS[:1], *parted(times, events), **words)
    assert alone.df == 0 and np.isnan(alone.p_value)


@pytest.mark.parametrize(
    ("time", "event", "label"),
    [(0, 1, 1), (5, 0, 0), (5.1, 1, 3), (20, 1, 3), (20.1, 1, 4), (-0.1, 1, -1), (np.nan, 0, -1), (3, 2, -1)],
)
def test_a_row_has_one_label(time: float, event: float, label: int) -> None:
    assert labels_of([time], [event], [5, 20]).tolist() == [label]


@pytest.mark.parametrize("wrong", [[-1.0, 1.0], [np.nan, 1.0], [1.0, 0.5], [1.0, np.nan]])
def test_a_row_without_a_usable_time_is_an_error_and_under_a_claim_not_counted(wrong: list[float]) -> None:
    _, rows, times, events = drawn()
    times[7], events = wrong[0], events.astype(float)
    events[7] = wrong[1]
    with pytest.raises(DataError, match="1 rows"):
        survival(parted(rows)[0], CENTERS, *parted(times, events), edges=[5, 20], protocol="plain")
    words: dict[str, Any] = {"edges": [5, 20], "privacy": claim(noise_seed=1), "protocol": "plain"}
    found = survival(parted(rows)[0], CENTERS, *parted(times, events), **words)
    kept = np.arange(len(rows)) != 7
    alone = [[a[m] for a, m in zip(one, parted(kept)[0], strict=True)] for one in parted(rows, times, events)]
    assert survival(alone[0], CENTERS, *alone[1:], **words).at_risk.tolist() == found.at_risk.tolist()


@pytest.mark.parametrize("edges", [[], [5, 5], [5, 3], [0, 1], [-1], [1, np.inf], [[1, 2]], "x"])
def test_edges_rise_from_above_0(edges: Any) -> None:
    _, rows, times, events = drawn(40)
    with parameter_refused("edges"):
        survival(parted(rows)[0], CENTERS, *parted(times, events), edges=edges, protocol="plain")


def test_times_and_events_are_needed_and_of_one_length() -> None:
    _, rows, times, events = drawn(40)
    with parameter_refused("labels"):
        survival(parted(rows)[0], CENTERS, edges=[5])
    with pytest.raises(ArgumentError, match="shapes"):
        labels_of(times, events[1:], [5])


def test_clients_of_a_federation_hold_labels() -> None:
    _, rows, times, events = drawn()
    edges = [5, 10, 20]
    labels = [labels_of(*one, edges) for one in zip(*parted(times, events), strict=True)]
    model = DWFKMeans(3, random_state=0).fit(parted(rows)[0], labels)
    found = survival(model.federation_, model.cluster_centers_, edges=edges)
    again = survival(parted(rows)[0], model.cluster_centers_, *parted(times, events), edges=edges)
    assert found.survival.tolist() == again.survival.tolist()


def claim(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box(-2.0, 7.0, max_rows=10_000)} | words))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_one_row_changes_one_count_or_two(neighbours: str) -> None:
    """The counts are one histogram over time, event and cluster: the bound of the sum is 1, or sqrt(2)."""
    own, rows, times, events = drawn(60)
    words: dict[str, Any] = {"edges": [5, 10, 20], "protocol": "plain"}
    words["privacy"] = claim(neighbours=neighbours, noise_seed=3)
    before = survival(parted(rows)[0], CENTERS, *parted(times, events), **words)
    if neighbours == "add-remove":
        parts = [[*one[:-1], one[-1][:-1]] for one in parted(rows, times, events)]
    else:
        rows[-1], times[-1], events[-1] = CENTERS[(own[-1] + 1) % 3], 1.0, 1
        parts = parted(rows, times, events)
    after = survival(parts[0], CENTERS, parts[1], parts[2], **words)

    def counts(found: Any) -> np.ndarray:
        later = np.vstack([found.at_risk[1:], found.beyond])
        censored = found.at_risk - later - found.events
        return np.concatenate([found.events, censored, found.beyond[None]])

    moved = np.abs(counts(after) - counts(before))
    assert np.square(moved).sum() == pytest.approx(1.0 if neighbours == "add-remove" else 2.0, abs=1e-6)


@pytest.mark.parametrize("std", [4.5, 15.0])
def test_intervals_cover_and_the_test_keeps_its_level_under_noise(std: float) -> None:
    """Of 200 noised tables of equal survival: 95 % of points are covered, 5 % of tests are below .05."""
    rng, n, n_bins = np.random.default_rng(2), 3000, 12
    edges, covered, small = np.arange(1.0, n_bins + 1), [], []
    truth = np.exp(-edges / 10.0)[:, None]
    for _ in range(200):
        own = rng.integers(3, size=n)
        life, seen = np.ceil(rng.exponential(10.0, n)), np.ceil(rng.uniform(0, 20, n))
        table = np.zeros((2 * n_bins + 1, 3))
        np.add.at(table, (labels_of(np.minimum(life, seen), life <= seen, edges), own), 1.0)
        found = of_counts(table + std * rng.standard_normal(table.shape), edges, 0.95, std)
        known = ~np.isnan(found.survival)
        covered.append(((found.low <= truth) & (truth <= found.high))[known].mean())
        small.append(found.p_value < 0.05)
    assert 0.93 < np.mean(covered) < 0.98 and np.mean(small) < 0.1


def test_a_curve_ends_where_noise_hides_who_is_at_risk() -> None:
    table = np.zeros((9, 2))
    table[0::2, 0], table[1, 0], table[0, 1] = 30.0, 100.0, 500.0
    found = of_counts(table, np.arange(1.0, 5.0), 0.95, 10.0)
    assert np.isfinite(found.survival[:, 0]).any() and np.isnan(found.survival[1:, 1]).all()


@pytest.mark.parametrize("private", [False, True])
def test_the_picture_has_a_curve_for_each_cluster(private: bool) -> None:
    _, rows, times, events = drawn()
    words: dict[str, Any] = {"privacy": claim(noise_seed=1)} if private else {}
    found = survival(parted(rows)[0], CENTERS, *parted(times, events), edges=[5, 10, 20, 40], **words)
    shown = SurvivalDisplay.from_survival(found, names=["a", "b", "c"])
    curves = [line.get_ydata() for line in shown.ax_.get_lines()]
    for i, curve in enumerate(curves):
        np.testing.assert_array_equal(curve, np.r_[1.0, found.survival[:, i]])
    assert len(curves) == 3 and "log-rank" in shown.ax_.get_title()
    plt.close(shown.figure_)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    _, rows, times, events = drawn()
    lines = [
        f"{'abcd'[i % 4]},{a!r},{b!r},{t},{'dead' if e else 'alive'}"
        for i, (a, b, t, e) in enumerate(zip(*rows.T.tolist(), times.tolist(), events.tolist(), strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["site,a,b,days,state", *lines]) + "\n")
    run("fit", tmp_path / "t.csv", "--group", "site", "--columns", "a,b", "-k", 3, "--out", tmp_path / "run")
    return tmp_path


ASKED = ("--time", "days", "--event", "state", "--happened", "dead", "--censored", "alive", "--group", "site")
EXACT = (*ASKED, "--edges", ",".join(map(str, np.unique(drawn()[2]).astype(int))))


def test_the_command_prints_what_pooled_rows_have_and_keeps_it(home: Path) -> None:
    said = run("survival", home / "run", home / "t.csv", *EXACT, "--json").output
    found = json.loads(said)
    assert found["statistic"] == pytest.approx(37.703736434288494) and sorted(found["median"]) == [11, 15, 26]
    assert json.loads((home / "run" / "survival.json").read_text()) == found
    run("profile", home / "run", "--ask", "--out", home / "page.html", "--names", "long,short,mid")
    page = (home / "page.html").read_text()
    assert "<h2>Survival</h2>" in page and page.count("<svg") == 1 and "short (" in page and "Kaplan" in page
    text = run("survival", home / "run", home / "t.csv", *EXACT, "--picture").output
    assert (home / "run" / "survival.png").read_bytes().startswith(b"\x89PNG")
    assert "chi-squared 37.7, df 2" in text and "median" in text


def test_a_schema_reads_its_files_numbers(home: Path) -> None:
    (home / "s.toml").write_text(
        '[columns.a]\nkind = "number"\n[columns.b]\nkind = "number"\n[files.t]\n'
        'decimal = ","\nseparator = ";"\n'
    )
    text = (home / "t.csv").read_text().replace(",", ";").replace(".", ",")
    (home / "t.csv").write_text(text)
    run("fit", home / "t.csv", "--group", "site", "--schema", home / "s.toml", "-k", 3, "--out", home / "own")
    words = (home / "own", home / "t.csv", *EXACT, "--schema", home / "s.toml", "--json")
    assert json.loads(run("survival", *words).output)["statistic"] == pytest.approx(37.703736434288494)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--edges", "5,3"), "rising"),
        (("--edges", "5", "--happened", "gone"), "rows have a time"),
        (("--edges", "5", "--level", "2"), "level"),
        (("--edges", "5", "--epsilon", "1"), "--delta"),
        (("--edges", "5", "--time", "a"), "'a'"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], said: str, home: Path) -> None:
    assert said in run("survival", home / "run", home / "t.csv", *ASKED, *words, exit_code=2).output


def test_a_budget_pays_and_exact_counts_after_noise_are_refused(home: Path) -> None:
    sites = ("--group", "site", "--clients", "a,b,c,d", "--low", "-2,-2", "--high", "7,7")
    whole = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    run("budget", "new", home / "b", *whole)
    paid = (*sites, "--budget", home / "b", "--share")
    own = ("fit", home / "t.csv", "--columns", "a,b", "--algorithm", "dp", "-k", 3, "--out", home / "dp")
    run(*own, *paid, 0.5)
    refused = run("survival", home / "dp", home / "t.csv", *EXACT, exit_code=2).output
    assert "claim" in refused
    text = run("survival", home / "dp", home / "t.csv", *ASKED, "--edges", "5,10,20,40", *paid, 0.5).output
    assert "differential privacy" in text
    log = PrivacyBudget.of(home / "b").log()
    assert [one.share for one in log] == [0.5, 0.5] and log[1].purpose == "survival"
