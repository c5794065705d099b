"""`privfed attack`, as users run it."""

import json
import linecache
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks.base.names import ATTACKS
from privfed.data import load_clients


@pytest.fixture
def run(copied, tmp_path):
    """Return a function that fits iris over a protocol and returns the run's folder."""

    def fitted(protocol):
        return copied(tmp_path / protocol, "--algorithm", "lloyd", "--protocol", protocol, "--max-iter", 30)

    return fitted


@pytest.fixture
def public(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "public.csv"
    header = "sepal length,sepal width,petal length,petal width"
    rows = rng.normal([5.8, 3.0, 3.8, 1.2], [0.8, 0.4, 1.7, 0.7], (120, 4))
    np.savetxt(path, rows, delimiter=",", header=header, comments="")
    return path


def test_all_attacks_write_json_and_pictures(invoke, run, public):
    folder = run("plain")
    shown = invoke("attack", folder, "--public", public, "--picture")
    found = json.loads((folder / "attacks" / "attacks.json").read_text())
    assert found["party"] == "server"
    assert {"differencing", "linkage", "membership", "disaggregation", "tomography"} <= set(found["attacks"])
    assert found["attacks"]["linkage"]["recovered"] > 0.9
    for name, report in found["attacks"].items():
        picture = folder / "attacks" / f"{name}.png"
        # What was not run has nothing to be drawn.
        assert report["why"] or picture.read_bytes().startswith(b"\x89PNG")
        assert picture.exists() is not bool(report["why"])
        assert {"paper", "adversary", "defence", "baseline", "bound"} <= set(report)
        assert name[:8] in shown.stdout
    # What the view does not show is said, not hidden.
    assert "equally weighted" in found["left_out"]["equal-weight-counts"]
    # Measured columns have too many possible rows to be listed.
    assert "more than 5000" in found["left_out"].pop("enumerated-domain")
    for name in found["left_out"]:
        report = found["attacks"][name]
        assert (report["status"], report["recovered"], report["advantage"]) == ("not applicable", None, None)
        assert report["why"] == found["left_out"][name]
    assert found["attacks"]["linkage"]["status"] == "found"
    lines = [line for line in shown.stdout.splitlines() if "equal-weight-counts" in line]
    assert lines and "were left out: the server saw" in lines[-1]


def test_over_a_secure_sum_single_clients_are_not_there(invoke, run, tmp_path):
    folder = run("masked")
    words = ("--attack", "linkage,disaggregation", "--out", tmp_path / "out", "--json", "--quiet")
    found = json.loads(invoke("attack", folder, *words).stdout)
    linkage = found["attacks"]["linkage"]
    assert (linkage["status"], linkage["recovered"]) == ("not applicable", None)
    assert "the server saw totals only" in found["left_out"]["linkage"]
    helped = json.loads(invoke("attack", folder, "--colluding", "h1,h2,h3,h4,h5", *words).stdout)
    assert helped["colluding"] == ["h1", "h2", "h3", "h4", "h5"]
    # Of six clients five collude: what is left is the sixth's own counts.
    assert helped["attacks"]["disaggregation"]["details"]["holds rows, told right"] == 1.0


@pytest.mark.slow
@pytest.mark.timeout(300)  # On a loaded machine every start takes long.
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_attacks_that_were_stopped_go_on(invoke, run, public, how):
    folder = run("plain")
    names = "differencing,disaggregation,tomography,linkage,membership"
    words = ["attack", str(folder), "--public", str(public), "--attack", names]
    command = [sys.executable, "-c", "from privfed.cli.main import main; main()", *words]
    path = folder / "attacks" / "attacks.json"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not path.exists():
            time.sleep(0.01)
        process.send_signal(how)
        said = process.communicate()[1].decode()
    if how == signal.SIGINT:
        assert (process.returncode, said) == (130, "\nprivfed: stopped\n")
    before = json.loads(path.read_text())["attacks"]
    assert 0 < len(before) < 5
    shown = invoke(*words)
    assert shown.stderr == f"privfed: stored already: {', '.join(before)}\n"
    after = json.loads(path.read_text())["attacks"]
    # Their seconds too: none of them was run again.
    assert {name: after[name] for name in before} == before
    assert len(after) == 5
    again = invoke(*words)
    assert again.stderr == f"privfed: stored already: {', '.join(after)}\n"
    assert json.loads(path.read_text())["attacks"] == after


@pytest.mark.slow
def test_a_run_that_no_attack_fits_is_told_of_and_not_scored(invoke, run):
    folder = run("group-masked")
    shown = invoke("attack", folder)
    found = json.loads((folder / "attacks" / "attacks.json").read_text())
    assert {one["status"] for one in found["attacks"].values()} == {"not applicable"}
    assert {one["recovered"] for one in found["attacks"].values()} == {None}
    assert "the server saw no client's answers and no totals" in found["left_out"]["differencing"]
    assert "0" not in next(line for line in shown.stdout.splitlines() if "differencing" in line)
    assert invoke("attack", folder, "--attack", "differencing").stderr == (
        "privfed: stored already: differencing\n"
    )


@pytest.mark.slow
def test_reports_in_other_words_are_run_again(invoke, run):
    folder = run("plain")
    words = ("attack", folder, "--attack", "linkage")
    path = folder / "attacks" / "attacks.json"
    invoke(*words)
    first = json.loads(path.read_text())["attacks"]
    assert "stored already: linkage" in invoke(*words).stderr
    for changed in (("--seed", 1), ("--client", "h2")):
        assert invoke(*words, *changed).stderr == ""
    assert invoke(*words).stderr == ""
    second = json.loads(path.read_text())["attacks"]
    assert {name: one["key"] for name, one in second.items()} == {
        name: one["key"] for name, one in first.items()
    }


def test_each_adversary_has_reports_of_its_own_and_all_are_shown(invoke, run, public):
    """An observer's results stand beside the server's, in the file, in what is printed and in JSON."""
    folder = run("plain")
    words = ("attack", folder, "--attack", "linkage,membership", "--public", public, "--picture")
    invoke(*words)
    mine = folder / "attacks"
    first = (mine / "attacks.json").read_text(), (mine / "membership.png").read_bytes()
    said = invoke(*words, "--party", "observer")
    assert said.stderr == ""
    assert first == ((mine / "attacks.json").read_text(), (mine / "membership.png").read_bytes())
    seen = json.loads((mine / "observer" / "attacks.json").read_text())
    assert seen["party"] == "observer" and seen["attacks"]["membership"]["status"] in (
        "found",
        "may be determined",
    )
    assert (mine / "observer" / "membership.png").exists() and "linkage" in seen["left_out"]
    for party in ("server", "observer"):
        assert f"What the {party} could learn:" in said.stdout
    helped = ("--colluding", "h1,h2")
    for party in ("clients", "server"):
        found = json.loads(invoke(*words, "--party", party, *helped, "--json").stdout)
        assert (found["party"], found["colluding"]) == (party, ["h1", "h2"])
    assert {(one["party"], *one["colluding"]) for one in found["others"]} == {
        ("server",),
        ("observer",),
        ("clients", "h1", "h2"),
    }
    assert first[0] == (mine / "attacks.json").read_text()
    assert "stored already: linkage, membership" in invoke(*words).stderr


def test_what_was_shown_and_read_by_none_is_listed(invoke, copied, tmp_path):
    """Fuzzy rounds over plain sums: no attack here reads what single clients answered in them."""
    folder = copied(
        tmp_path / "fuzzy", "--algorithm", "fuzzy", "--protocol", "plain", "--averaging", "weighted"
    )
    words = ("attack", folder, "--attack", "differencing,linkage,tomography")
    found = json.loads(invoke(*words, "--low", 0, "--high", 8, "--json").stdout)
    rounds = next(one for one in found["shown"] if one["purpose"] == "round")
    assert (rounds["read_by"], rounds["linked_by"]) == ([], ["linkage"])
    assert rounds["shown"] == "single clients' answers" and len(rounds["sums"]) > 1
    for name in ("differencing", "tomography"):
        report = found["attacks"][name]
        assert report["status"] in ("found", "not read")
        assert any(one["purpose"] == "round" for one in report["not_read"])
    text = invoke(*words, "--low", 0, "--high", 8).stdout
    assert "Shown, and read by no attack: " in text and "WeightedFuzzyCentroids (round), sums " in text


def test_a_report_without_a_picture_is_stored_and_made_anew_only_where_a_picture_is_wanted(invoke, run):
    folder = run("plain")
    words, drawn = ("attack", folder, "--attack", "linkage"), folder / "attacks" / "linkage.png"
    assert "a picture of each attack" not in invoke(*words, "--no-picture").stdout
    assert not drawn.exists()
    assert "stored already: linkage" in invoke(*words, "--no-picture").stderr
    said = invoke(*words, "--picture")
    assert said.stderr == "" and "a picture of each attack" in said.stdout
    assert drawn.read_bytes().startswith(b"\x89PNG")
    for option in ("--picture", "--no-picture"):
        assert "stored already: linkage" in invoke(*words, option).stderr
    invoke(*words, "--seed", 1, "--no-picture")
    assert not drawn.exists(), "the picture showed the report of another seed"


OWN = """
from privfed.attacks import Particles, PassiveAttack, Reads, Shows

class Echo(PassiveAttack):
    name, paper, adversary, view = "echo", "ours", "passive server", "totals"
    prior, defence = "public rows", "none"
    reads = (Reads(what="totals", shown=Shows.TOTALS),)

    def _attack(self, view, prior, rng):
        rows = prior.guesses(SIZE, rng)
        return Particles(attack=self.name, particles=rows, weights=rows[:, 0] ** 0, without_access=rows)
"""


OWN_PARAMETERS = OWN.replace(
    "class Echo(PassiveAttack):",
    '''@dataclass(frozen=True)
class Echo(PassiveAttack):
    """Guesses.

    Args:
        depth: how far it looks; 0 for nothing.
        rows: rows that no text can stand for.
    """

    depth: int = 7
    rows: object = None
''',
)


def test_the_parameters_of_an_attack_are_options(invoke, failing, run, public, tmp_path, monkeypatch):
    folder = run("masked")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = OWN_PARAMETERS.replace("SIZE", "self.depth").replace(
        "rows = prior", "assert self.depth < 9; rows = prior"
    )
    (tmp_path / "deep_attack.py").write_text("from dataclasses import dataclass\n" + text)
    words = ("attack", folder, "--public", public, "--no-picture", "--attack", "deep_attack:Echo")
    said = invoke(*words, "--help").stdout
    assert "Options of deep_attack:Echo" in said and "--depth INTEGER" in said and "--rows" not in said
    assert "How far it looks." in said
    for depth in (7, 8):
        assert "stored already" not in invoke(*words, "--depth", depth).stderr
    assert "stored already" in invoke(*words, "--depth", 8).stderr
    with pytest.raises(AssertionError):
        invoke(*words, "--depth", 9)
    assert "No such option" in failing("attack", folder, "--attack", "differencing", "--depth", 9)


def test_parameters_of_a_constructor_are_options_and_most_rows_reaches_its_attacks(invoke, tmp_path):
    said = invoke("attack", tmp_path, "--attack", "noisy-differencing", "--help").stdout
    assert "--n-sweeps INTEGER" in said and "Options of noisy-differencing" in said
    folder = tmp_path / "run"
    data = tmp_path / "rows.csv"
    data.write_text("g,x\n" + "".join(f"{'abcde'[i % 5]},{i % 7}\n" for i in range(50)))
    claim = ("--epsilon", 2, "--delta", "1e-5", "--unit", "record", "--neighbours", "add-remove")
    words = ("--group", "g", "--clients", "a,b,c,d,e", "--low", 0, "--high", 7, "-k", 2, "--out", folder)
    invoke("fit", data, "--algorithm", "dp", *claim, *words)
    shown = invoke("attack", folder, "--attack", "noisy-differencing", "--most-rows", 3, "--json")
    assert "more than most_rows=3" in json.loads(shown.stdout)["left_out"]["noisy-differencing"]


@pytest.mark.slow
def test_an_attack_of_ones_own_is_run_shown_and_stored_until_its_code_changes(
    invoke, run, public, tmp_path, monkeypatch
):
    folder = run("masked")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("attack", folder, "--public", public, "--attack", "own_attack:Echo,linkage")
    words = (*words, "--picture")
    for size in (7, 9):
        (tmp_path / "own_attack.py").write_text(OWN.replace("SIZE", str(size)))
        # Python takes its compiled copy for a file of the same second and length.
        os.utime(tmp_path / "own_attack.py", (size, size))
        sys.modules.pop("own_attack", None)
        linecache.clearcache()
        assert ("stored already: linkage\n" in invoke(*words).stderr) is (size == 9)
        assert "stored already: own_attack:Echo, linkage" in invoke(*words).stderr
    report = json.loads((folder / "attacks" / "attacks.json").read_text())["attacks"]["own_attack:Echo"]
    assert (report["attack"], report["paper"], report["status"]) == ("echo", "ours", "not read")
    assert (folder / "attacks" / "own_attack.Echo.png").exists()
    kind = sys.modules["own_attack"].Echo
    monkeypatch.setitem(ATTACKS._things, "echo", kind)
    assert "echo" in invoke("attack", "--help").stdout
    assert (
        "echo"
        in json.loads(invoke("attack", folder, "--public", public, "--quiet", "--json").stdout)["attacks"]
    )


def test_attacks_are_known_by_the_names_of_their_classes_too_and_stored_by_their_own(invoke, run):
    folder = run("masked")
    found = json.loads(invoke("attack", folder, "--attack", "Linkage", "--quiet", "--json").stdout)
    assert found["attacks"]["linkage"]["attack"] == "linkage"
    # Names are broken at hyphens where a line ends.
    help_text = "".join(invoke("attack", "--help").stdout.split())
    assert "equal-weight-counts" in help_text and "probing" not in help_text


def test_a_damaged_report_is_one_line(failing, invoke, run):
    folder = run("plain")
    (folder / "attacks").mkdir()
    for text in ("{", "[]", '{"attacks": [1]}'):
        (folder / "attacks" / "attacks.json").write_text(text)
        assert "attacks.json is damaged" in failing("attack", folder, "--quiet")


def test_the_truth_may_have_moved(invoke, run, iris, tmp_path):
    folder = run("plain")
    moved = iris.rename(tmp_path / "moved.csv")
    shown = invoke("attack", folder, "--attack", "linkage", "--truth", moved, "--quiet", "--json")
    assert json.loads(shown.stdout)["attacks"]["linkage"]["precision"] > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--attack", "nonsense"),
            "no attack 'nonsense'; use all, attribute-inference, class-counts, differencing, disaggregation",
        ),
        (("--attack", "probing"), "probing asks questions of its own, which a recorded run cannot answer"),
        (("--attack", "no_such_module:Kind"), "write module:Name"),
        (("--attack", "collections:Counter"), "must be a class of attacks"),
        (("--colluding", "h9"), "client 'h9' is not in this run; it has h1, h2"),
        (("--colluding", "h1,h2,h3,h4,h5,h6"), "nobody is left to attack"),
        (("--party", "clients"), "name them with --colluding"),
        (("--client", "h1", "--colluding", "h1"), "client 'h1' colludes"),
        (("--group", "species", "--truth", "DATA"), "--group and --label must be two columns"),
        (("--public", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_words_are_one_line(failing, run, iris, options, message):
    options = [iris if option == "DATA" else option for option in options]
    assert message in failing("attack", run("plain"), "--quiet", *options)


def test_a_folder_without_a_run_is_one_line(failing, tmp_path):
    assert "holds no transcript.jsonl" in failing("attack", tmp_path)
    assert "holds no transcript.jsonl" in failing("audit", tmp_path)


def test_the_truth_of_a_run_from_python_has_its_columns_named(invoke, failing, iris, tmp_path):
    tables = load_clients(iris, group="hospital", label="species")
    words = {"local_iter": 1, "protocol": "plain", "random_state": 0, "run_dir": tmp_path / "r"}
    DWFKMeans(3, **words).fit(tables.arrays, client_names=tables.names)
    truth = ["attack", tmp_path / "r", "--attack", "linkage", "--truth", iris, "--group", "hospital"]
    assert "choose others (--columns)" in failing(*truth)
    assert "the rows have 2 columns, the run has 4" in failing(
        *truth, "--columns", "petal length,petal width"
    )
    found = json.loads(invoke(*truth, "--columns", ",".join(tables.columns), "--quiet", "--json").stdout)
    assert found["attacks"]["linkage"]["status"] == "found"


def test_a_curious_client_attacks_what_it_sees(invoke, run):
    """Over masked sums it sees no total; where clients open or verify totals, it sees them all."""
    words = ["--attack", "differencing", "--party", "clients", "--colluding", "h1", "--quiet", "--json"]
    hidden, opened = (
        json.loads(invoke("attack", run(protocol), *words).stdout) for protocol in ("masked", "group-masked")
    )
    assert (hidden["party"], hidden["colluding"]) == ("clients", ["h1"])
    assert hidden["attacks"]["differencing"]["status"] == "not applicable"
    assert "the clients saw no client's answers and no totals" in hidden["left_out"]["differencing"]
    assert opened["attacks"]["differencing"]["status"] in ("found", "may be determined", "not certain")


def test_the_questions_of_an_algorithm_of_ones_own_are_named(invoke, failing, run, tmp_path):
    folder = run("plain")
    settings = (folder / "run.json").read_text()
    (folder / "run.json").write_text(settings.replace('"lloyd"', '"nowhere:Mine"'))
    assert f"name it again: privfed attack {folder} --algorithm nowhere:Mine" in failing("attack", folder)
    other = failing("attack", folder, "--algorithm", "nowhere:Other")
    assert "was begun with --algorithm nowhere:Mine, got --algorithm nowhere:Other" in other
