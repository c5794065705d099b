"""Bad data and bad words: each is a clear error before anything is asked, and quotes no value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed import Ball, Box, ClientPolicy, DWFKMeans, EWFKMeans, Simulation, WFKMeans, metrics
from privfed.data import load_clients
from privfed.errors import ArgumentError, DataError, PrivFedError, RefusedError
from privfed.federation.clients import gather
from privfed.protocols import Plain
from tests.raised import out_of_bounds, parameter_refused

Clients = list[np.ndarray]


def with_client(bad: Any) -> Callable[[Clients], list[Any]]:
    """Return the blobs with one client's table exchanged."""
    return lambda blobs: [blobs[0], bad, *blobs[2:]]


def changed(row: int, column: int, value: float) -> Callable[[Clients], list[Any]]:
    def change(blobs: Clients) -> list[Any]:
        rows = blobs[1].copy()
        rows[row, column] = value
        return [blobs[0], rows, *blobs[2:]]

    return change


# --- data ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda blobs: [], "no clients", id="no-clients"),
        pytest.param(lambda blobs: (), "no clients", id="no-clients-tuple"),
        pytest.param(with_client(np.empty((0, 2))), r"client 1: .*shape \(0, 2\)", id="empty-client"),
        pytest.param(with_client([]), r"client 1: .*shape \(0,\)", id="empty-list"),
        pytest.param(with_client(np.empty((3, 0))), r"client 1: .*shape \(3, 0\)", id="no-columns"),
        pytest.param(with_client(np.zeros(2)), r"client 1: .*shape \(2,\)", id="one-axis"),
        pytest.param(with_client(np.zeros((2, 2, 2))), r"client 1: .*shape \(2, 2, 2\)", id="three-axes"),
        pytest.param(with_client([[1.0, 2.0], [3.0]]), "client 1: all values must be numbers", id="ragged"),
        pytest.param(changed(2, 1, np.nan), "client 1: the data holds NaN or infinity", id="nan"),
        pytest.param(changed(0, 0, -np.inf), "client 1: the data holds NaN or infinity", id="infinity"),
        pytest.param(
            with_client(np.ma.masked_greater(np.array([[1.0, 99.0]]), 9.0)),
            "client 1: the data holds masked values",
            id="masked",
        ),
        pytest.param(
            lambda blobs: np.ma.masked_greater(np.concatenate(blobs), 0.0),
            "X holds masked values",
            id="masked-table",
        ),
        pytest.param(with_client([[10**400, 1.0]]), "client 1: all values must be numbers", id="too-large"),
        pytest.param(with_client([["a", 1.0]]), "client 1: all values must be numbers", id="text"),
        pytest.param(
            with_client(np.array([["a", 1.0]], dtype=object)),
            "client 1: all values must be numbers",
            id="objects",
        ),
        pytest.param(
            with_client(pl.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})),
            "client 1: all values must be numbers",
            id="text-column",
        ),
        pytest.param(
            with_client(pl.DataFrame({"x": [1.0, None], "y": [1.0, 2.0]})),
            "client 1: the data holds NaN or infinity",
            id="missing-value",
        ),
        pytest.param(with_client(np.ones((2, 2)) * 1j), "client 1: all values must be numbers", id="complex"),
        pytest.param(
            with_client(np.array([["2020-01-01", "2021-01-01"]], dtype="datetime64[D]")),
            "client 1: all values must be numbers",
            id="dates",
        ),
        pytest.param(with_client(None), "client 1: ", id="none"),
        pytest.param(with_client(np.zeros((4, 3))), "client 1 has 3 columns, client 0 has 2", id="columns"),
    ],
)
def test_clients_that_cannot_be_used_are_an_error(
    blobs: Clients, make: Callable[[Clients], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        DWFKMeans(2, protocol="plain", run_dir=tmp_path / "run").fit(make(blobs))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(with_client([["Ada Lovelace", "36"]]), id="text"),
        pytest.param(with_client([36.25, 1815.0]), id="one-axis"),
        pytest.param(changed(0, 0, np.nan), id="nan"),
        pytest.param(lambda blobs: [*blobs[:9], blobs[9] + 1e17], id="too-large"),
    ],
)
def test_no_error_quotes_a_value(blobs: Clients, make: Callable[[Clients], Any]) -> None:
    with pytest.raises(PrivFedError) as caught:
        DWFKMeans(2, protocol="plain").fit(make(blobs))
    values = {"Ada", "Lovelace", "36", "1815", *(f"{value:.4f}"[:5] for value in blobs[1].ravel())}
    assert not [value for value in values if value in str(caught.value)]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        pytest.param(lambda n: np.zeros(n - 1), r"groups of shape .* for each of", id="too-few"),
        pytest.param(lambda n: np.zeros((n, 1)), r"groups of shape .* for each of", id="two-axes"),
        pytest.param(lambda n: [None] * n, "none missing", id="none"),
        pytest.param(lambda n: ["a"] * (n - 1) + [None], "none missing", id="one-none"),
        pytest.param(lambda n: [0.0] * (n - 1) + [np.nan], "none missing", id="nan"),
    ],
)
def test_groups_that_do_not_name_the_clients_are_an_error(
    blobs: Clients, groups: Callable[[int], Any], message: str
) -> None:
    rows = np.concatenate(blobs)
    with pytest.raises(DataError, match=message):
        DWFKMeans(2, protocol="plain").fit(rows, groups=groups(len(rows)))


def test_groups_with_a_list_of_clients_are_an_error(blobs: Clients) -> None:
    with pytest.raises(DataError, match="groups goes with one table"):
        DWFKMeans(2, protocol="plain").fit(blobs, groups=np.zeros(10))


def test_names_that_repeat_or_do_not_fit_are_an_error(blobs: Clients) -> None:
    with pytest.raises(DataError, match="client names must differ; repeated: a, b"):
        gather(blobs[:5], names=["b", "a", "a", "b", "c"])
    with pytest.raises(DataError, match="2 names do not fit 3 clients"):
        gather(blobs[:3], names=["a", "b"])


@pytest.mark.parametrize("init", ["coreset", "kfed", "random"])
def test_more_clusters_than_rows_is_an_error_that_names_both(init: str, protocol: str) -> None:
    clients = [np.array([[float(i), 0.0]]) for i in range(6)]
    with pytest.raises(ArgumentError, match=r"n_clusters=7 .* n_samples=6"):
        DWFKMeans(7, init=init, protocol=protocol).fit(clients)


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        pytest.param(Box(-1, 1), r"^client \d has rows outside the domain;", id="box"),
        pytest.param(Ball(2), r"^client \d has rows outside the domain;", id="ball"),
        pytest.param(
            Box(-9, 19, max_rows=30), "^client 0 has more rows than the declared max_rows=30;", id="rows"
        ),
        pytest.param(Box([0, 0, 0], 1), "the data has 2 features", id="other-features"),
        pytest.param(Ball(1, [0, 0, 0]), "the data has 2 features", id="ball-of-other-features"),
    ],
)
def test_data_outside_the_declared_domain_is_an_error(blobs: Clients, domain: Any, message: str) -> None:
    with pytest.raises((DataError, ArgumentError), match=message):
        DWFKMeans(2, protocol="plain", domain=domain).fit(blobs)


def test_new_rows_that_do_not_fit_are_an_error(blobs: Clients) -> None:
    model = DWFKMeans(2, protocol="plain", max_iter=1).fit(blobs)
    for ask in (model.predict, model.transform):
        with pytest.raises(ValueError, match="3 features, but DWFKMeans is expecting 2"):
            ask(np.zeros((4, 3)))
        with pytest.raises(ValueError, match="NaN"):
            ask(np.full((1, 2), np.nan))


# --- words ---

BAD_WORDS: list[tuple[str, list[Any]]] = [
    ("n_clusters", [0, -1, 2.0, "3", None, True, np.nan]),
    ("local_iter", [0, -1, 1.5, None, False, 10**6]),
    ("local_tol", [-1e-9, "x", np.nan, np.inf, True]),
    ("learning_rate", [0, -0.1, 1.1, "x", None, np.nan]),
    ("momentum", [-0.1, 1.0, "x", None, np.nan]),
    ("tol", [-1e-9, "x", None, np.nan]),
    ("max_iter", [0, -3, 2.5, None]),
    ("min_iter", [0, 1.0, None]),
    ("patience", [0, -1, 1.5, "x"]),
    ("plateau", [0, -1, 1.5, "x"]),
    ("n_init", [0, -1, 1.0, "auto", None]),
    (
        "init",
        ["k-means++", None, 3, np.zeros((2, 2)), np.zeros((3, 3)), np.full((3, 2), np.nan), [["a", "b"]] * 3],
    ),
    ("clients_per_round", [0, -1, 11, 2.5, "x"]),
    ("cohorts", [[], 5, [[]], [[0, 10]], [[-1]], [[0, 0]], [[0.5]], [["a"]], "all"]),
    ("protocol", ["nonsense", 5, None, Plain, DWFKMeans()]),
    ("privacy", [1.0, "dp"]),
    ("engine", ["flower", 5]),
    ("policy", ["strict", 5]),
    ("scale", ["minmax", 1, True]),
    ("metrics", ["inertia", ["gap"], 3]),
    ("domain", [(0, 1), "box"]),
    ("run_dir", [5]),
    ("random_state", [-1, 1.5, "x", True, 2**63]),
    ("restart_score", ["mean", None]),
    ("relocate_empty", ["no", None, 1]),
    ("finish", ["exact", True, 1]),
]


@pytest.mark.parametrize(("word", "value"), [(word, value) for word, values in BAD_WORDS for value in values])
@pytest.mark.parametrize("kind", [DWFKMeans, EWFKMeans])
def test_bad_word_is_an_error_that_names_it(
    kind: type[DWFKMeans], blobs: Clients, word: str, value: Any, tmp_path: Path
) -> None:
    words = {"n_clusters": 3, "protocol": "plain", "run_dir": tmp_path / "run", word: value}
    with pytest.raises(ArgumentError, match=word):
        kind(**words).fit(blobs)


def test_tables_where_one_is_needed_are_an_error_that_says_how(blobs: Clients) -> None:
    model = DWFKMeans(2, protocol="plain").fit(blobs)
    same = np.stack([rows[:3] for rows in blobs])
    for ask, given in ((model.predict, blobs), (model.transform, same), (model.predict, tuple(same))):
        with pytest.raises(DataError, match="pass each by itself"):
            ask(given)
    with pytest.raises(DataError, match=r"three axes; pass list\(X\)"):
        DWFKMeans(2, protocol="plain").fit(same)


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        ({"min_clients": 99}, "take more, or draw more of them"),
        ({"min_honest": 99}, r"as Masked\(honest=...\)"),
        ({"min_colluders": 99}, r"as Masked\(colluders=...\)"),
        ({"protocols": ("ckks",)}, "take one of these"),
        ({"max_sums": 1}, "take fewer rounds or restarts"),
    ],
    ids=str,
)
def test_what_a_policy_refuses_is_said_with_a_remedy(
    blobs: Clients, policy: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(RefusedError, match=f"policy:{next(iter(policy)).removesuffix('s')}.*{remedy}"):
        DWFKMeans(2, protocol="masked", policy=ClientPolicy(**policy)).fit(blobs)


def test_every_word_has_its_bad_values() -> None:
    assert {word for word, _ in BAD_WORDS} == set(DWFKMeans().get_params())


@pytest.mark.parametrize("weights", ["uniform", None, 3, ["equal"]])
def test_bad_weights_are_an_error(blobs: Clients, weights: Any) -> None:
    with pytest.raises(ArgumentError, match="weights"):
        WFKMeans(3, protocol="plain", weights=weights).fit(blobs)


def test_clients_per_round_and_cohorts_exclude_each_other(blobs: Clients) -> None:
    with parameter_refused("clients_per_round"):
        DWFKMeans(3, protocol="plain", clients_per_round=5, cohorts=[[0, 1]]).fit(blobs)


@pytest.mark.parametrize("threshold", [0, -1, 11])
def test_threshold_that_no_sum_can_reach_is_an_error(blobs: Clients, threshold: int) -> None:
    with out_of_bounds("threshold", "[1, 10]", threshold):
        DWFKMeans(3, protocol=Plain(threshold=threshold)).fit(blobs)


def test_threshold_counts_the_smallest_cohort(blobs: Clients) -> None:
    with out_of_bounds("threshold", "[1, 2]", 3):
        DWFKMeans(3, protocol=Plain(threshold=3), cohorts=[[0, 1, 2], [4, 5]]).fit(blobs)
    DWFKMeans(3, protocol=Plain(threshold=2), cohorts=[[0, 1, 2], [4, 5]], max_iter=2, tol=0).fit(blobs)


@pytest.mark.parametrize("protocol", ["masked", "group-masked", "ckks"])
def test_one_array_is_told_how_several_clients_are_passed(blobs: Clients, protocol: str) -> None:
    model, rows = DWFKMeans(3, protocol=protocol, max_iter=1), np.concatenate(blobs)
    with pytest.raises(ArgumentError, match=r"^one array was given.*a list .*groups="):
        model.fit(rows)
    with pytest.raises(ArgumentError, match=r"^one array was given"):
        model.fit(rows, groups=["a"] * len(rows))
    with pytest.raises(ArgumentError, match=r"^a list of one array was given"):
        model.fit([rows])
    with pytest.raises(ArgumentError, match=r"^one array was given"):
        metrics.davies_bouldin(rows, rows[:2], protocol=protocol)
    with pytest.raises(ArgumentError, match=r"Take more clients, or draw more.* or use protocol=\"plain\""):
        model.fit(blobs[:2])
    # Each of the remedies.
    for protocol_, words in ((protocol, {"groups": np.arange(len(rows)) % 5}), ("plain", {})):
        assert model.set_params(protocol=protocol_).fit(rows, **words).n_iter_ == 1


def test_what_to_record_is_checked() -> None:
    with pytest.raises(ArgumentError, match="record must be"):
        Simulation(record="everything")


def test_words_may_be_numpys(blobs: Clients) -> None:
    words: dict[str, Any] = {
        "n_clusters": np.int64(3),
        "local_iter": np.int32(2),
        "local_tol": np.float32(0.5),
        "max_iter": np.int64(2),
        "tol": np.float64(0),
        "clients_per_round": np.int64(5),
        "random_state": np.int64(4),
        "relocate_empty": np.bool_(False),
    }
    for init in ("coreset", "kfed", "random"):
        model = DWFKMeans(init=init, protocol="plain", policy=ClientPolicy(), **words).fit(blobs)
        assert model.cluster_centers_.shape == (3, 2)


ROWS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((rows for rows in (ROWS, ROWS)), "X is 'generator'; pass a list with one array a client"),
        ("clients.csv", r"X is 'str'; .*load_clients\(path\)\.arrays is such a list"),
        (Path("clients.csv"), r"load_clients\(path\)\.arrays"),
        ([ROWS[:, 0], ROWS[:3, 0]], r"different lengths; .*reshape\(-1, 1\)"),
        ([[1, 2], [3]], "different lengths; .* or rows of one length"),
        (np.array([["31337", "x"]] * 6), "all values of X must be numbers; encode or drop"),
        (pl.DataFrame({"a": ["31337", "x"], "b": [1, 2]}), "all values of X must be numbers"),
    ],
    ids=["generator", "text", "path", "one feature", "ragged", "text table", "frame of text"],
)
def test_what_is_no_list_of_tables_is_told_how_it_is_passed(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        DWFKMeans(2, protocol="plain").fit(given)
    assert "31337" not in str(caught.value)


def test_the_remedies_for_other_kinds_of_data_work(tmp_path: Path) -> None:
    pl.DataFrame({"who": ["a", "b"] * 3, "x": ROWS[:, 0], "y": ROWS[:, 1]}).write_csv(tmp_path / "c.csv")
    by_name, model = {"a": ROWS, "b": ROWS}, DWFKMeans(2, protocol="plain", max_iter=1)
    model.fit(list(by_name.values()), client_names=list(by_name))
    assert model.federation_.setting.clients == ("a", "b")
    model.fit(load_clients(tmp_path / "c.csv", group="who").arrays)
    model.fit([ROWS[:, 0].reshape(-1, 1), ROWS[:3, 0].reshape(-1, 1)])
    assert model.n_features_in_ == 1


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_values_close_to_zero_are_clustered_as_others_with_a_domain_and_without(
    protocol: str, blobs: Clients
) -> None:
    tiny = [1e-9 * rows for rows in blobs]
    words: dict[str, Any] = {"protocol": protocol, "random_state": 0}
    found = DWFKMeans(3, **words).fit(tiny)
    near = DWFKMeans(3, **words).fit(blobs)
    assert 1e18 * found.inertia_ == pytest.approx(near.inertia_, rel=0.5)
    most = max(float(np.abs(rows).max()) for rows in blobs)
    declared = DWFKMeans(3, domain=Box(-1e-9 * most, 1e-9 * most), **words).fit(tiny)
    usual = DWFKMeans(3, domain=Box(-most, most), **words).fit(blobs)
    np.testing.assert_allclose(1e9 * declared.cluster_centers_, usual.cluster_centers_, rtol=1e-3, atol=1e-3)
    # Zeros are what they are.
    DWFKMeans(1, **words).fit([np.zeros((5, 2)) for _ in range(4)])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"age": [1.0, 2.0], "crp": [None, 4.0]}, "in 1 rows, in columns crp; .*FederatedImputer"),
        ({"age": [1.0, 2.0], "ward": ["a", "b"]}, r"must be numbers; .*columns \(ward\)"),
        ({"age": [1.0, 2.0]}, r"has 1 columns, client here has 2 \(crp of one alone\)"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said_with_its_columns(other: dict[str, Any], said: str) -> None:
    whole = pl.DataFrame({"age": [1.0, 2.0], "crp": [3.0, 4.0]})
    with pytest.raises(DataError, match=f"client there.*{said}"):
        DWFKMeans(1).fit({"here": whole, "there": pl.DataFrame(other)})


def test_a_domain_that_is_too_small_is_said_with_its_columns() -> None:
    tables = [pl.DataFrame({"age": [1.0, 2.0], "crp": [3.0, one]}) for one in (4.0, 99.0)]
    with pytest.raises(DataError, match=r"^client 1 has rows outside the domain; .* \(columns crp\)\.$"):
        DWFKMeans(1, domain=Box(0, 10)).fit(tables)
