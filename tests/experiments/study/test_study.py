"""Studies: what is read, and one line that says what is wrong and where."""

from pathlib import Path

import pytest

from privfed.errors import ArgumentError
from privfed.experiments.running.planning import plan
from privfed.experiments.study.reading import Located, parse_study
from privfed.experiments.study.study import Algorithm, Data, Guarantee, Partition, Study, Sum
from tests.experiments.small import SMALL


def line_with(text: str, word: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), start=1) if word in line)


def failure(text: str) -> str:
    with pytest.raises(ArgumentError) as caught:
        plan(parse_study(text, "study.toml"), Path())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        pytest.param("clients = 5", 'clients = "5"', "clients must be an integer, got text.", id="kind"),
        pytest.param("clients = 5", "client = 5", "client is no key of partition.", id="unknown key"),
        pytest.param("clients = 5", "clients = 900", "clients must", id="more clients than rows"),
        pytest.param("clients = 5", "clients = 5\nkind = 'dirichlet'", "alpha", id="option of a partition"),
        pytest.param("n_clusters = 3", "n_clusters = 0", "n_clusters must be an integer of at", id="bound"),
        pytest.param("n_clusters = 3", "n_cluster = 3", "n_cluster is no word of DWFKMeans", id="word"),
        pytest.param("n_clusters = 3", "protocol = 'plain'", "protocol is no word", id="word of ours"),
        pytest.param(
            "n_init = [1, 2]", "n_init = [1, 0]", "n_init must be an integer of at least 1", id="grid"
        ),
        pytest.param('"DWFKMeans"', '"WFK"', "estimator must be one of", id="estimator"),
        pytest.param('"iris"', '"lilies"', "source must be one of", id="source"),
        pytest.param("public = 0.3", "public = 1.0", "public must lie in [0, 0.9]", id="public"),
        pytest.param("high = 8.0", "high = -1.0", "low must be below high", id="low above high"),
        pytest.param('"masked"', '"maskd"', "protocol must be one of", id="sum"),
        pytest.param('"masked"', '"masked"\ncolour = 1', "colour is no word of Masked", id="word of a sum"),
        pytest.param('"Membership"', '"Guessing"', "kind must be one of", id="attack"),
        pytest.param("rounds = [1, 2]", "rounds = [0]", "rounds must be at least 1", id="rounds"),
        pytest.param("rounds = [1, 2]", "colour = 1", "colour is no word of Membership", id="attack's word"),
        pytest.param("rounds = [1, 2]", "sums = ['x']", "sums must be one of", id="attack's sums"),
        pytest.param("rounds = [1, 2]", "colluding = [5]", "colluding must be positions", id="colluding"),
        pytest.param('"Membership"', '"Probing"', "rounds is for passive attacks", id="active"),
        pytest.param("rounds = [1, 2]", "budget = 0", "budget must be at least 1", id="budget"),
        pytest.param("seeds = 2", "seeds = 0", "seeds must be a number above 0", id="seeds"),
        pytest.param("seeds = 2", "metrics = ['x']", "metrics must be some of", id="metrics"),
        pytest.param("seeds = 2", "seeds = ", "this is no TOML", id="syntax"),
        pytest.param(
            "seeds = 2", "seeds = 'x'", "seeds must be an integer or a list, got text", id="seeds' kind"
        ),
        pytest.param("n_clusters = 3", "n_clusters = 300", "n_clusters must be at most the 105 rows", id="k"),
        pytest.param("n_init = [1, 2]", "n_init = []", "grid needs at least one value", id="empty grid"),
        pytest.param("n_init = [1, 2]", "n_init = 1", "grid must be a list", id="no grid"),
        pytest.param("leakage = 0.2", "leakage = 2", "leakage must lie in [0, 1]", id="leakage"),
        pytest.param("score_ratio = 1.5", "score_ratio = 0.5", "score_ratio must be at least", id="ratio"),
        pytest.param('[[sum]]\nprotocol = "plain"', "[sum]", "this is no TOML", id="table and list"),
    ],
)
def test_a_wrong_study_gives_one_line_that_says_what_and_where(before: str, after: str, problem: str) -> None:
    assert SMALL.count(before) == 1
    text = SMALL.replace(before, after)
    wrong = after.splitlines()[-1]
    expected = f"study.toml, line {line_with(text, wrong)}: "
    found = failure(text)
    if problem.startswith(
        (
            "low must",
            "public must",
            "rounds is",
            "alpha",
            "seeds",
            "metrics",
            "this is no",
            "leakage",
            "score",
        )
    ):
        # Said of a table: the line is that of the key, or where the table begins.
        assert found.startswith("study.toml, line ")
    else:
        assert found.startswith(expected), found
    assert problem in found


@pytest.mark.parametrize(
    ("table", "line", "problem"),
    [
        ("[[privacy]]\nepsilon = [1.0, -1.0]\ndelta = 1e-6", 2, "epsilon must be above 0"),
        ("[[privacy]]\ndelta = 1.0\nepsilon = 1.0", 2, "delta must lie in (0, 1)"),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nalgorithms = ['X']", 4, "algorithms must be one of"),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nunit = 'rows'", 4, "unit must be"),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nmechanism = 'laplace'", 4, "mechanism must be"),
        ("[[defence]]\nname = 'few'\nclients_per_round = 1", 0, "a masked sum needs at least 3 clients"),
        ("[[defence]]\nwords = 1", 1, "the key name is missing"),
        ("[[defence]]\nname = 'a'\n[[defence]]\nname = 'b'", 0, "two configurations are the same"),
        (
            "[[defence]]\nname = 'a'\n[[defence]]\nname = 'a'\nmax_iter = 2",
            0,
            "two configurations are called",
        ),
        ("[[attack]]\nkind = 'Membership'\nparty = 'observer'\nname = 'Membership'", 4, "name must differ"),
        ("[[attack]]\nkind = 'Differencing'\nclient = 5", 3, "client must be the position of one of the 5"),
        ("[[attack]]\nkind = 'Probing'\nclient = '0'", 3, "client must be the position of one of the 5"),
        ("[[attack]]\nkind = 'Probing'\nn_clusters = 1", 0, "probing needs n_clusters >= 2"),
    ],
)
def test_a_wrong_table_is_named_by_its_line(table: str, line: int, problem: str) -> None:
    begins = len(SMALL.splitlines())
    found = failure(SMALL + table + "\n")
    assert problem in found
    if line:
        assert found.startswith(f"study.toml, line {begins + line}: ") or f"line {begins + 1}: " in found


def test_a_single_table_is_told_how_to_be_written() -> None:
    assert "data is a list of tables: write [[data]]." in failure(SMALL.replace("[[data]]", "[data]"))


def test_an_attack_on_members_needs_rows_held_back() -> None:
    assert "line 27: kind 'Membership' tells members from others" in failure(
        SMALL.replace("public = 0.3\n", "")
    )


def test_a_baseline_is_refused_before_anything_runs() -> None:
    text = SMALL.replace('"DWFKMeans"', '"DPKMeans"').replace(
        "max_iter = 6\ngrid = { n_init = [1, 2] }\n", ""
    )
    text = text.replace("n_clusters = 3", "n_clusters = 3\nmethod = 'lloyd'")
    guarantee = "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nunit = 'client'\n"
    assert "method='lloyd' is a baseline" in failure(text + guarantee)


def test_noise_of_the_server_is_for_sums_that_it_cannot_read_and_for_runs_that_are_fixed() -> None:
    text = SMALL.replace("grid = { n_init = [1, 2] }", "local_iter = 1")
    guarantee = "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nnoise = 'server'\n"
    assert "needs a number of rounds that no total decides" in failure(text + guarantee)
    text = text.replace("local_iter = 1", "local_iter = 1\ntol = 0")
    assert "protects nobody from the server" in failure(text + guarantee)
    text = text.replace('[[sum]]\nprotocol = "plain"\n\n', "").replace('"masked"', '"group-masked"')
    checked = plan(parse_study(text + guarantee, "study.toml"), Path())
    assert [one.labels["privacy"] for one in checked.setups] == ["epsilon 1, record server"]


def test_a_missing_table_and_a_missing_name_are_told() -> None:
    assert "a study needs a table [[sum]]." in failure(
        SMALL.replace('[[sum]]\nprotocol = "plain"\n\n[[sum]]\nprotocol = "masked"\n', "")
    )
    assert "a study needs a name." in failure(SMALL.replace('name = "Small"\n', ""))


def test_differential_privacy_needs_a_declared_domain() -> None:
    text = SMALL.replace("low = 0.0\nhigh = 8.0\n", "") + "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\n"
    assert "epsilon needs a declared domain" in failure(text)


def test_a_study_built_in_python_is_checked_alike() -> None:
    study = Study(
        name="Python",
        data=[Data(source="iris")],
        partition=[Partition(clients=5)],
        algorithm=[Algorithm(estimator="DWFKMeans", words={"n_clusters": 0})],
        sum=[Sum(protocol="plain")],
    )
    with pytest.raises(ArgumentError, match=r"^study, .*: n_clusters must be an integer"):
        plan(Located(study), Path())


def test_guarantees_that_differ_are_told_apart() -> None:
    text = SMALL.replace("grid = { n_init = [1, 2] }", "local_iter = 1")
    words = "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\n"
    others = f"{words}noise = 'local'\n{words}mechanism = 'skellam'\n"
    checked = plan(parse_study(text + words + others, "study.toml"), Path())
    told = {one.labels["privacy"] for one in checked.setups}
    assert told == {"epsilon 1, record", "epsilon 1, record local", "epsilon 1, record skellam"}
    assert len({one.id for one in checked.setups}) == 6


def test_one_epsilon_or_several() -> None:
    assert Guarantee(epsilon=2.0, delta=1e-6).epsilons == [2.0]
    assert Guarantee(epsilon=[1.0, float("inf")], delta=1e-6).epsilons == [1.0, float("inf")]
