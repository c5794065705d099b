"""`privfed attack RUN RUN ...`: several runs of the same rows are attacked together."""

import json

import pytest


@pytest.fixture
def runs(copied, tmp_path):
    """Return two masked fits of iris with other seeds."""
    words = ("--algorithm", "lloyd", "--protocol", "masked", "--max-iter", 30, "-k", 8)
    return [copied(tmp_path / f"run{seed}", *words, "--seed", seed) for seed in (1, 2)]


def test_two_runs_show_more_than_one_and_have_reports_of_their_own(invoke, runs):
    words = ("--attack", "differencing")
    alone = json.loads(invoke("attack", runs[0], *words, "--json").stdout)
    both = json.loads(invoke("attack", *runs, *words, "--curve", "--json").stdout)
    one, two = (found["attacks"]["differencing"] for found in (alone, both))
    assert two["recovered"] > one["recovered"] and two["precision"] >= 0.98
    assert two["over_runs"] == [one["recovered"], two["recovered"]]
    assert both["runs"] == ["run1", "run2"] and both["protocol"] == ["masked", "masked"]
    assert sum(len(shown["sums"]) for shown in both["shown"]) > sum(
        len(one["sums"]) for one in alone["shown"]
    )
    said = invoke("attack", *runs, *words, "--curve")
    assert "stored already: differencing" in said.stderr
    assert "What the server could learn from 2 runs:" in said.stdout
    assert "recovered with the first run, the first two, ...: " in said.stdout
    folders = [path.parent.name for path in runs[0].glob("attacks/**/attacks.json")]
    assert len(folders) == 2 and not (runs[1] / "attacks").exists()


def test_runs_of_other_rows_are_refused(invoke, failing, runs, words, iris, tmp_path):
    header, first, *rest = iris.read_text().splitlines()
    hospital, value, *others = first.split(",")
    other = iris.with_name("other.csv")
    other.write_text("\n".join([header, ",".join([hospital, str(float(value) + 1), *others]), *rest]))
    masked = ("--algorithm", "lloyd", "--protocol", "masked", "--max-iter", 2)
    invoke("fit", other, *words[2:], *masked, "--out", tmp_path / "other", "--quiet")
    two = (runs[0], tmp_path / "other")
    assert "differ between these runs" in failing("attack", *two, "--attack", "differencing", "--quiet")


def test_known_rows_are_taken_out_and_the_others_attacked(invoke, failing, runs, iris, tmp_path):
    header, *lines = iris.read_text().splitlines()
    known, strange = tmp_path / "known.csv", tmp_path / "strange.csv"
    known.write_text("\n".join([header, *lines[:120]]))
    strange.write_text("\n".join([header, lines[0].replace(lines[0].split(",")[1], "99")]))
    words = ("attack", runs[0], "--attack", "differencing", "--json")
    alone = json.loads(invoke(*words).stdout)["attacks"]["differencing"]
    helped = json.loads(invoke(*words, "--known", known).stdout)["attacks"]["differencing"]
    assert helped["details"]["rows"] == alone["details"]["rows"] - 120
    assert helped["recovered"] > alone["recovered"] and helped["precision"] >= 0.98
    assert "known row 1 is not among" in failing(*words, "--known", strange)


def test_known_rows_leave_a_client_to_attack(invoke, failing, runs, iris, tmp_path):
    """A client all of whose rows are known is passed over, and named rows of it or of all are an error."""
    header, *lines = iris.read_text().splitlines()
    first, known, every = lines[0].split(",")[0], tmp_path / "known.csv", tmp_path / "every.csv"
    known.write_text("\n".join([header, *(line for line in lines if line.split(",")[0] == first)]))
    every.write_text("\n".join([header, *lines]))
    words = ("attack", runs[0], "--attack", "differencing", "--json", "--known")
    assert json.loads(invoke(*words, known).stdout)["attacks"]["differencing"]["recovered"] > 0.0
    for told in ((known, "--client", first), (every,), (every, "--known-by", header.split(",")[0])):
        assert "no rows that an attack could find" in failing(*words, *told)


@pytest.mark.parametrize("scaled", [(), ("--scale", "standard")])
def test_known_rows_of_groups_tell_the_last_one(invoke, iris, tmp_path, scaled):
    header, *lines = iris.read_text().splitlines()
    known, out = tmp_path / "known.csv", tmp_path / "grouped"
    known.write_text("\n".join([header, *lines[:-1]]))
    words = ("--group", "hospital", "--drop", "species", "-k", 3, "--group-size", 5, "--quiet")
    invoke("fit", iris, *words, *scaled, "--out", out)
    attacked = ("attack", out, "--attack", "differencing", "--json", "--known", known)
    found = json.loads(invoke(*attacked).stdout)["attacks"]["differencing"]
    assert found["recovered"] == found["precision"] == found["claims"] == 1.0
    found = json.loads(invoke(*attacked, "--known-by", "hospital").stdout)["attacks"]["differencing"]
    assert found["recovered"] == 1.0


def test_a_table_that_has_changed_since_the_run_is_one_line(failing, copied, iris, tmp_path):
    """Scored against other rows an attack that finds rows would be said to find nothing."""
    folder = copied(tmp_path / "run", "--algorithm", "lloyd", "--protocol", "plain")
    first, *others = iris.read_text().splitlines(keepends=True)
    cells = others[3].split(",")
    iris.write_text(first + "".join([*others[:3], ",".join([cells[0], "9.5", *cells[2:]]), *others[4:]]))
    said = failing("attack", folder, "--attack", "differencing", "--quiet")
    assert "not those of the run" in said and "has changed since" in said
    assert not (folder / "attacks").exists()


def test_other_columns_than_the_runs_are_named_and_not_taken_for_another_file(failing, copied, tmp_path):
    folder = copied(tmp_path / "run", "--algorithm", "lloyd", "--protocol", "plain")
    own = "sepal length, sepal width, petal length, petal width"
    words = ("attack", folder, "--attack", "differencing", "--quiet", "--columns")
    said = " ".join(failing(*words, "petal length,petal width,sepal length,sepal width").split())
    assert f"is of {own}, in this order; name these with --columns" in said and "changed" not in said
    said = " ".join(failing(*words, "petal length").split())
    assert f"the rows have 1 columns, the run has 4 ({own}); name those with --columns" in said


def test_other_columns_than_those_of_a_noised_run_are_refused_and_no_doubt(failing, copied, iris, tmp_path):
    """Noise may leave room for their rows, and figures scored against these were printed."""
    claim = ("--epsilon", 0.1, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    fit = ("--clients", "h1,h2,h3,h4,h5,h6", "--algorithm", "dp", "--low", 0, "--high", 9)
    folder = copied(tmp_path / "run", *claim, *fit, "--protocol", "plain")
    words = ("--attack", "noisy-differencing", "--quiet", "--columns")
    others = "petal length,petal width,sepal length,sepal width"
    rows = ("--truth", iris, "--group", "hospital", "--label", "species")
    for more in ((), rows):  # The second is as of nodes, whose folder names no table.
        said = " ".join(failing("attack", folder, *words, others, *more).split())
        assert "the rows are of the columns petal length, petal width," in said
        assert "the run is of sepal length, sepal width, petal length, petal width, in this order" in said
        (folder / "run.json").unlink(missing_ok=True)


def test_a_run_over_noised_centers_of_the_clients_is_attacked_and_a_doubt_is_said(invoke, iris, tmp_path):
    table = ("--group", "hospital", "--drop", "species", "--clients", "h1,h2,h3,h4,h5,h6")
    claim = ("--epsilon", 9, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    fit = ("--algorithm", "kfed", "-k", 2, "--protocol", "plain", "--low", 0, "--high", 9)
    invoke("fit", iris, *table, *claim, *fit, "--out", tmp_path / "run")
    shown = " ".join(invoke("attack", tmp_path / "run").stdout.split())
    assert "in doubt: clients answered from their own noised centers" in shown


def test_of_groups_and_of_runs_without_a_table_a_doubt_is_said(invoke, iris, copied, tmp_path):
    folder = copied(tmp_path / "grouped", "--algorithm", "lloyd", "--protocol", "plain", "--group-size", 5)
    words = ("--attack", "differencing")
    shown = invoke("attack", folder, *words).stdout
    assert "in doubt: clients answered from groups of rows; whether these are the run's was not checked" in (
        " ".join(shown.split())
    )
    (folder / "run.json").unlink()
    rows = ("--truth", iris, "--group", "hospital", "--label", "species")
    found = json.loads(invoke("attack", folder, *words, *rows, "--json").stdout)
    assert "do not give the run's totals" in found["doubts"][0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sums_that_were_asked_after_a_fit_are_attacked_and_audited_on_its_rows(
    invoke, failing, copied, tmp_path
):
    asked = {"--delta": 1e-6, "--unit": "record", "--neighbours": "add-remove"}
    claim = ("--epsilon", 4, *(one for pair in asked.items() for one in pair), "--low", -1, "--high", 9)
    plain = copied(tmp_path / "plain", "--algorithm", "lloyd", "--protocol", "masked", "-k", 8)
    invoke("profile", plain, "--ask", "--no-picture")
    alone = json.loads(invoke("attack", plain / "profile", "--attack", "differencing", "--json").stdout)
    both = json.loads(invoke("attack", plain, plain / "profile", "--attack", "differencing", "--json").stdout)
    figures = [one["attacks"]["differencing"] for one in (alone, both)]
    assert figures[0]["details"]["rows"] == figures[1]["details"]["rows"] == 150
    assert len(both["shown"][1]["sums"]) == len(alone["shown"][0]["sums"])
    noised = copied(tmp_path / "noised", "--algorithm", "lloyd", "--protocol", "masked", "-k", 8)
    names = ",".join(json.loads((noised / "result.json").read_text())["clients"])
    invoke("profile", noised, *claim, "--max-rows", 60, "--clients", names, "--no-picture")
    audited = json.loads(invoke("audit", noised / "profile", "--trials", 1000, "--json").stdout)
    assert audited["verdict"] == "not refuted" and audited["privacy"]["epsilon"] == pytest.approx(4.0)
    (tmp_path / "elsewhere").mkdir()
    assert "transcript" in failing("attack", tmp_path / "elsewhere", "--attack", "differencing")
