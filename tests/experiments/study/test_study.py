"""Studies: what is read, and one line that says what is wrong and where."""

from pathlib import Path

import pytest

from privfed.errors import ArgumentError
from privfed.experiments.cells import estimator_class
from privfed.experiments.planning import plan
from privfed.experiments.reading import StudyError, StudyFile, parse_study, read_study
from privfed.experiments.study import Algorithm, Data, Guarantee, Partition, Study, Sum
from tests.experiments.small import SMALL
from tests.some import some


def mistakes(text: str) -> list[str]:
    """Return the mistakes of a study, each without the name of the file."""
    with pytest.raises(StudyError) as caught:
        plan(parse_study(text, "study.toml"), Path())
    assert "\n" not in str(caught.value)
    return [one.removeprefix("study.toml, ") for one in caught.value.mistakes]


def failure(text: str) -> str:
    """Return the only mistake of a study."""
    (found,) = mistakes(text)
    return f"study.toml, {found}"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        pytest.param(
            "clients = 5", 'clients = "5"', "clients: Expected `int`, got `str`; it is '5'.", id="kind"
        ),
        pytest.param(
            "clients = 5",
            "client = 5",
            "unknown field `client`; partition takes clients, kind, name, alpha, beta.",
            id="unknown key",
        ),
        pytest.param("clients = 5", "clients = 900", "clients must", id="more clients than rows"),
        pytest.param("clients = 5", "clients = 5\nkind = 'dirichlet'", "alpha", id="option of a partition"),
        pytest.param("n_clusters = 3", "n_clusters = 0", "n_clusters must be a whole number in", id="bound"),
        pytest.param("n_clusters = 3", "n_cluster = 3", "n_cluster is no parameter of DWFKMeans", id="word"),
        pytest.param("n_clusters = 3", "protocol = 'plain'", "protocol is no parameter", id="word of ours"),
        pytest.param("n_init = [1, 2]", "n_init = [1, 0]", "n_init must be a whole number in", id="grid"),
        pytest.param('"DWFKMeans"', '"WFK"', "estimator must be one of", id="estimator"),
        pytest.param('"iris"', '"lilies"', "source must be one of", id="source"),
        pytest.param(
            "public = 0.3", "public = 1.0", "public: Expected `float` <= 0.9; it is 1.0.", id="public"
        ),
        pytest.param("high = 8.0", "high = -1.0", "low must be below high", id="low above high"),
        pytest.param('"masked"', '"maskd"', "protocol must be one of", id="sum"),
        pytest.param('"masked"', '"masked"\ncolour = 1', "colour is no parameter of Masked", id="of a sum"),
        pytest.param('"Membership"', '"Guessing"', "kind must be one of", id="attack"),
        pytest.param(
            "rounds = [1, 2]", "rounds = [0]", "rounds 1: Expected `int` >= 1; it is 0.", id="rounds"
        ),
        pytest.param(
            "rounds = [1, 2]", "colour = 1", "colour is no parameter of Membership", id="of attacks"
        ),
        pytest.param("rounds = [1, 2]", "sums = ['x']", "sums must be one of", id="attack's sums"),
        pytest.param("rounds = [1, 2]", "colluding = [5]", "colluding must be positions", id="colluding"),
        pytest.param('"Membership"', '"Probing"', "rounds is for passive attacks", id="active"),
        pytest.param("rounds = [1, 2]", "budget = 0", "budget: Expected `int` >= 1; it is 0.", id="budget"),
        pytest.param("seeds = 2", "seeds = 0", "seeds must be a number above 0", id="seeds"),
        pytest.param("seeds = 2", "metrics = ['x']", "metrics must be some of", id="metrics"),
        pytest.param("seeds = 2", "seeds = ", "is no TOML", id="syntax"),
        pytest.param(
            "seeds = 2",
            "seeds = 'x'",
            "seeds: Expected `int | array`, got `str`; it is 'x'.",
            id="seeds' kind",
        ),
        pytest.param("n_clusters = 3", "n_clusters = 300", "n_clusters must be at most the 105 rows", id="k"),
        pytest.param(
            "n_init = [1, 2]", "n_init = []", "grid: Expected `array` of length >= 1", id="empty grid"
        ),
        pytest.param("n_init = [1, 2]", "n_init = 1", "grid: Expected `array`, got `int`", id="no grid"),
        pytest.param(
            "leakage = 0.2", "leakage = 2", "leakage: Expected `float` <= 1.0; it is 2.", id="leakage"
        ),
        pytest.param(
            "score_ratio = 1.5",
            "score_ratio = 0.5",
            "score_ratio: Expected `float` >= 1.0; it is 0.5.",
            id="ratio",
        ),
        pytest.param('[[sum]]\nprotocol = "plain"', "[sum]", "is no TOML", id="table and list"),
    ],
)
def test_a_wrong_study_gives_one_line_that_says_what_and_where(before: str, after: str, problem: str) -> None:
    assert SMALL.count(before) == 1
    text = SMALL.replace(before, after)
    found = failure(text)
    assert problem in found


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            "[[privacy]]\nepsilon = [1.0, -1.0]\ndelta = 1e-6",
            "privacy 1, epsilon 2: Expected `float` > 0.0; it is -1.0.",
        ),
        ("[[privacy]]\ndelta = 1.0\nepsilon = 1.0", "privacy 1, delta: Expected `float` < 1.0; it is 1.0."),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nalgorithms = ['X']", "algorithms must be one of"),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nunit = 'rows'", "unit must be"),
        ("[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nmechanism = 'laplace'", "mechanism must be"),
        ("[[defence]]\nname = 'few'\nclients_per_round = 1", "a masked sum needs at least 3 clients"),
        ("[[defence]]\nwords = 1", "missing required field `name`; defence takes name, algorithms"),
        ("[[defence]]\nname = 'a'\n[[defence]]\nname = 'b'", "two configurations are the same"),
        (
            "[[defence]]\nname = 'a'\n[[defence]]\nname = 'a'\nmax_iter = 2",
            "two configurations have the same name",
        ),
        ("[[attack]]\nkind = 'Membership'\nparty = 'observer'\nname = 'membership'", "name must differ"),
        ("[[attack]]\nkind = 'Differencing'\nclient = 5", "client must be the position of one of the 5"),
        ("[[attack]]\nkind = 'Probing'\nclient = '0'", "client must be the position of one of the 5"),
        ("[[attack]]\nkind = 'Probing'\nn_clusters = 1", "n_clusters must be a whole number in [2, inf)"),
    ],
)
def test_a_wrong_table_is_named_with_its_key(table: str, problem: str) -> None:
    found = failure(SMALL + table + "\n")
    assert problem in found and found.startswith("study.toml")


def test_a_single_table_is_told_how_to_be_written() -> None:
    assert "data: Expected `array`, got `object`; it is a table; write [[data]]." in failure(
        SMALL.replace("[[data]]", "[data]")
    )


def test_an_attack_on_members_needs_rows_held_back() -> None:
    text = SMALL.replace("public = 0.3\n", "")
    assert "attack 1: kind 'Membership' compares with public rows: hold at least 4 back" in failure(text)


def test_noise_of_the_server_is_for_sums_that_it_cannot_read_and_for_runs_that_are_fixed() -> None:
    text = SMALL.replace("tol = 0\ngrid = { n_init = [1, 2] }", "local_iter = 1")
    guarantee = "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nnoise = 'server'\n"
    assert "needs a number of rounds that no total decides" in failure(text + guarantee)
    text = text.replace("local_iter = 1", "local_iter = 1\ntol = 0")
    assert all("protects nobody from the server" in one for one in mistakes(text + guarantee))
    text = text.replace('[[sum]]\nprotocol = "plain"\n\n', "").replace('"masked"', '"group-masked"')
    checked = plan(parse_study(text + guarantee, "study.toml"), Path())
    assert [one.labels["privacy"] for one in checked.setups] == ["epsilon 1, record server"]


def test_a_missing_table_and_a_missing_name_are_told() -> None:
    assert "missing required field `sum`; a study takes name" in failure(
        SMALL.replace('[[sum]]\nprotocol = "plain"\n\n[[sum]]\nprotocol = "masked"\n', "")
    )
    assert "missing required field `name`; a study takes name" in failure(
        SMALL.replace('name = "Small"\n', "")
    )


def test_a_key_of_a_table_at_the_top_is_told_where_it_belongs() -> None:
    told = failure(SMALL.replace("seeds = 2", "seeds = 2\nseeded = true"))
    assert "study.toml, seeded: Object contains unknown field `seeded`; write it in [[privacy]];" in told


def test_differential_privacy_needs_a_declared_domain() -> None:
    text = SMALL.replace("low = 0.0\nhigh = 8.0\n", "") + "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\n"
    assert "epsilon needs a declared domain" in failure(text)


def test_a_study_built_in_python_is_checked_alike() -> None:
    study = Study(
        name="Python",
        data=[Data(source="iris")],
        partition=[Partition(clients=5)],
        algorithm=[Algorithm(estimator="DWFKMeans", parameters={"n_clusters": 0})],
        sum=[Sum(protocol="plain")],
    )
    with pytest.raises(ArgumentError, match=r"^study: n_clusters must be a whole number"):
        plan(StudyFile(study), Path())


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


# --- where two tables clash; several mistakes ---

FEW = "[[defence]]\nname = 'none'\n[[defence]]\nname = 'few'\nclients_per_round = 1\n"
CLAIM = "[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            SMALL + FEW,
            "a masked sum needs at least 3 clients in every cohort, got 1",
            id="defence-and-sum",
        ),
        pytest.param(
            SMALL.replace("clients = 5", "clients = 2"),
            "a masked sum needs at least 3 clients in every cohort, got 2",
            id="partition",
        ),
        pytest.param(
            SMALL.replace("grid = { n_init = [1, 2] }", "local_iter = 5") + CLAIM + "unit = 'record'\n",
            "5 local steps have no useful bound for one record; use DWFKMeans(local_iter=1), DPKMeans, or",
            id="algorithm-and-privacy",
        ),
        pytest.param(
            SMALL.replace("max_iter = 6", "local_iter = 1\nmax_iter = 6") + CLAIM,
            "each restart would cost budget, got n_init=2; use n_init=1",
            id="grid-and-privacy",
        ),
        pytest.param(
            SMALL + "[[defence]]\nname = 'a'\n[[defence]]\nname = 'b'\n",
            "two configurations are the same",
            id="two-defences",
        ),
        pytest.param(
            SMALL + "[[partition]]\nclients = 5\n\n",
            "two configurations are the same",
            id="partitions",
        ),
    ],
)
def test_tables_that_clash_are_named_by_their_configuration(text: str, problem: str) -> None:
    found = failure(text)
    assert problem in found, found
    assert " The configuration is iris / " in found


def test_every_mistake_is_told_step_by_step() -> None:
    """Keys and values are checked first, then names, then what tables are together."""
    text = SMALL.replace("seeds = 2", "seeds = 'x'").replace("clients = 5", "clients = 5\nkind = 3")
    text = text.replace("n_clusters = 3", "n_clusters = 0\nmomentum = 3").replace('"Membership"', '"Guess"')
    text += "[[privacy]]\nepsilon = -1\n[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nunit = 'rows'\n"
    text += "[[defence]]\nname = 'c'\n[[defence]]\nname = 'd'\ncolour = 3\nalgorithms = ['DWF', 'X']\n"
    steps = [
        {
            "seeds": ("seeds = 'x'", "seeds = 2"),
            "partition 1, kind": ("kind = 3", ""),
            "privacy 1, epsilon": ("epsilon = -1", ""),
            "privacy 2": ("unit = 'rows'", ""),
        },
        {
            "attack 1": ('"Guess"', '"Membership"'),
            "defence 2": ("colour = 3\nalgorithms = ['DWF', 'X']", "local_iter = 1"),
        },
        {"study.toml": ("n_clusters = 0", "n_clusters = 3")},
        {"study.toml": ("momentum = 3", "")},
    ]
    for wrong in some(steps):
        found = [one.partition(":")[0] for one in mistakes(text)]
        assert set(found) == set(wrong)
        for before, after in wrong.values():
            text = text.replace(before, after)


def test_one_line_says_that_there_are_more() -> None:
    text = SMALL.replace("clients = 5", "client = 5").replace("public = 0.3", "public = 3")
    with pytest.raises(
        StudyError, match=r"data 1, public: .*There are 1 more mistakes: 'privfed tradeoff --check'"
    ):
        plan(parse_study(text, "study.toml"), Path())


def test_a_table_that_cannot_be_read_gives_no_mistake_of_others() -> None:
    """Whatever single table is broken, the only mistake is that one."""
    for before, after in (
        ('source = "iris"', "source = 3"),
        ("clients = 5", "clients = 'five'"),
        ('estimator = "DWFKMeans"', "estimator = 3"),
        ('estimator = "DWFKMeans"', "estimator = 'Nothing'"),
        ('protocol = "masked"', "protocol = 3"),
        ('kind = "Membership"', "kind = 3"),
    ):
        rest = CLAIM.replace("[[privacy]]", "[[privacy]]\nalgorithms = ['DWF']") + "unit = 'client'\n"
        text = SMALL.replace(before, after).replace("n_init = [1, 2]", "max_iter = [6, 7]") + rest
        text += "[[attack]]\nkind = 'Differencing'\nsums = ['masked']\n"
        assert failure(text).startswith("study.toml, "), after


def test_a_study_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_bytes("name = 'a'\nabout = 'é'\n".encode("latin-1"))
    with pytest.raises(ArgumentError, match="UTF-8"):
        read_study(tmp_path / "study.toml")
    with pytest.raises(ArgumentError, match="directory"):
        read_study(tmp_path)


def test_clients_given_by_data_that_cannot_be_read_are_no_second_mistake() -> None:
    """What stands in for the data has clients too, so that `kind = "given"` is not blamed."""
    text = SMALL.replace('source = "iris"', 'source = "nowhere.csv"').replace("clients = 5", 'kind = "given"')
    assert "there is no 'nowhere.csv'" in failure(text)


def test_a_study_offers_the_estimators_that_it_takes() -> None:
    with pytest.raises(ArgumentError, match="estimator must be one of") as error:
        estimator_class("nope")
    offered = str(error.value).split(" of ")[1].split(", or ")[0].split(", ")
    assert "DWFKMeans" in offered and "lloyd" not in offered
    for name in offered:
        assert estimator_class(name)
