"""No command on a run with differential privacy ends without its claim, nor with an unmarked number."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result
from matplotlib.figure import Figure

import privfed
from privfed import KFED, Box, DPKMeans, Privacy, plot
from privfed.cli.declared import Declared
from privfed.cli.main import main
from privfed.errors import NotEnoughClientsError
from privfed.federation.opening import open_federation
from privfed.privacy.claim import PrivacySpent
from tests.cli.wide import run
from tests.command_line import subcommands
from tests.default_run import slow_but

DOMAIN = ("--low", "-1", "--high", "1", "--max-rows", "100")
CLAIM = ("--epsilon", "2", "--delta", "1e-6", "--unit", "record", "--neighbours", "add-remove")
GROUPS = ("--group", "g", "--clients", "a,b,c,d")
PRIVATELY = (*DOMAIN, *CLAIM, *GROUPS)
OPTIONS = {f"--{word}" for word in Declared.__struct_fields__} - {"--low", "--high", "--max_rows"}
"""Words of a claim: a command that takes one of them has a case below."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, a finished private run of it, and releases of a mechanism."""
    folder = tmp_path_factory.mktemp("claims")
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.6, 0.6, (3, 2))[rng.integers(3, size=240)] + rng.uniform(-0.1, 0.1, (240, 2))
    lines = [f"{'abcd'[i % 4]},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(rows.tolist())]
    (folder / "t.csv").write_text("g,a,b\n" + "\n".join(lines) + "\n")
    timed = [f"{line},{i % 9},{i % 2}" for i, line in enumerate(lines)]
    (folder / "s.csv").write_text("g,a,b,t,e\n" + "\n".join(timed) + "\n")
    write_schema(folder)
    np.savez(folder / "releases.npz", inside=rng.normal(size=1000), outside=rng.normal(size=1000))
    run("fit", folder / "t.csv", "--algorithm", "dp", "-k", 3, *PRIVATELY, "--out", folder / "run")
    return folder


def cases(home: Path, out: Path) -> dict[str, tuple[object, ...]]:
    """Return for each command its words on a run with differential privacy."""
    table, done = home / "t.csv", home / "run"
    return {
        "fit": ("fit", table, "--algorithm", "dwf", "--local-iter", 1, "-k", 2, *PRIVATELY, "--out", out),
        "resume": ("resume", done),
        "predict": ("predict", done, table),
        "profile": ("profile", done, *CLAIM),
        "measure": ("measure", done, table, "--metrics", "inertia", *PRIVATELY),
        "merge": ("merge", done),
        "survival": (
            *("survival", done, home / "s.csv", "--time", "t", "--event", "e", "--edges", "1,2,4"),
            *PRIVATELY,
        ),
        "show": ("show", done),
        "select-k": (
            *("select-k", table, "--algorithm", "dp", "--min-k", 2, "--max-k", 3),
            *(*PRIVATELY, "--out", out),
        ),
        "attack": ("attack", done, "--attack", "differencing", "--out", out),
        "audit": ("audit", done, "--trials", 1000, "--confidence", 1 - 1e-9),
        "summary": ("summary", table, *PRIVATELY),
        "schema fill": (
            *("schema", "fill", table, "--schema", home / "t.toml", "--max-rows", 100),
            *(*CLAIM, *GROUPS, "--out", out),
        ),
        "schema categories": (
            *("schema", "categories", home / "s.csv", "--schema", home / "coded.toml", "--max-rows", 100),
            *("--column", "e", *CLAIM, *GROUPS, "--out", out),
        ),
        "schema scale": (
            *("schema", "scale", table, "--schema", home / "filled.toml", "--max-rows", 100),
            *(*CLAIM, *GROUPS, "--out", out),
        ),
    }


def write_schema(home: Path) -> None:
    """Write what the columns of the table mean, with gaps that are an error until they are filled."""
    column = 'kind = "number"\nlow = -1\nhigh = 1\noutside = "clip"\n'
    (home / "t.toml").write_text(f"[columns.a]\n{column}[columns.b]\n{column}")
    column += "missing = 0\n"
    (home / "filled.toml").write_text(f"[columns.a]\n{column}[columns.b]\n{column}")
    coded = 'kind = "category"\ncategories = ["0", "1", "2"]\nmissing = "0"\n'
    (home / "coded.toml").write_text(f"[columns.a]\n{column}[columns.e]\n{coded}")


STUDIES = {"tradeoff", "compare"}
"""Commands whose runs are those of a study; their claims are tested in test_claims_of_studies.py."""

PARTIES = {
    "keys new",
    "keys registry",
    "keys show",
    "journal show",
    "journal export",
    "journal end",
    "journal testify",
}
"""Commands on no run: a party's keys, and its journal, whose guarantees test_parties.py reads."""

AT_HOME = {"schema draft", "schema merge", "schema declare", "check", "example"}
"""Commands that read or write a table, or words about it, where it lies: they ask and release nothing."""

FLOWER = {
    *("flower add", "flower local", "flower join", "flower check", "flower superlink"),
    *("flower node", "flower run", "flower simulate", "flower summary", "flower scale", "flower measure"),
    *("flower status", "flower profile", "flower survival", "flower stability"),
}
"""Commands on several machines; the claim their runs end with is tested in tests/nodes/flower."""

REFUSING = {"stability"}
"""Commands that are refused on a run with differential privacy: tests/metrics/test_stability.py."""

BUDGETS = {"budget new", "budget plan", "budget show"}
"""Commands on a budget, which release nothing; test_budgets.py has their words."""

STATED = {"audit": ("--epsilon", "2", "--delta", "1e-6")}
"""Commands that take words of a claim without a run that makes it."""


def commands(group: click.Group, before: str = "") -> dict[str, click.Command]:
    """Return all commands, with those of groups within groups."""
    found: dict[str, click.Command] = {}
    for name, command in subcommands(group).items():
        inner = commands(command, f"{before}{name} ") if isinstance(command, click.Group) else {}
        found |= inner or {before + name: command}
    return found


ALL = commands(main)
WITH_JSON = [name for name, command in ALL.items() if any("--json" in one.opts for one in command.params)]


def test_every_command_has_a_case(tmp_path: Path) -> None:
    known = cases(tmp_path, tmp_path)
    assert set(ALL) == set(known) | STUDIES | PARTIES | AT_HOME | FLOWER | REFUSING | BUDGETS
    taking = {name for name, one in ALL.items() if OPTIONS & {opt for p in one.params for opt in p.opts}}
    assert taking >= {"fit", "select-k", "audit", "flower run", "flower simulate"}
    for name in taking - FLOWER - BUDGETS:
        assert set(CLAIM[::2]) <= set(known[name]) or name in STATED, name
        assert name not in STUDIES | PARTIES | AT_HOME


@pytest.fixture(scope="module")
def ended(home: Path) -> Callable[[str], Result]:
    """Run the case of a command, once; what it writes lies in a folder of its name."""
    return cache(lambda name: run(*cases(home, home / name)[name]))


@pytest.mark.filterwarnings("ignore:no gap parts the centers", "ignore:noise may move")
@pytest.mark.parametrize("name", sorted(set(ALL) - STUDIES - PARTIES - AT_HOME - FLOWER - REFUSING - BUDGETS))
def test_every_command_ends_with_the_claim(name: str, ended: Callable[[str], Result], home: Path) -> None:
    said = ended(name).output
    claim = privfed.load(home / "run" / "model.npz").privacy_spent_
    assert claim is not None
    for what, fact in claim.facts().items():
        assert what in said and fact in said, (what, said)


@pytest.mark.filterwarnings("ignore:no gap parts the centers", "ignore:noise may move")
@pytest.mark.parametrize(
    "name",
    slow_but(sorted(set(WITH_JSON) - STUDIES - AT_HOME - FLOWER - REFUSING - BUDGETS), "fit", "resume"),
)
def test_every_json_holds_the_claim(name: str, home: Path, tmp_path: Path) -> None:
    found = json.loads(run(*cases(home, tmp_path / "out")[name], "--json").stdout)
    claim = PrivacySpent.from_dict(found["privacy"])
    known = privfed.load(home / "run" / "model.npz").privacy_spent_
    assert claim.facts() == known.facts() and found["privacy"]["summary"] == known.line


def test_a_stated_claim_says_what_the_file_does_not(home: Path) -> None:
    said = run("audit", home / "releases.npz", *STATED["audit"]).output
    assert "epsilon=2, delta=1e-06" in said
    assert "record or client" in said and "against whom" in said


def test_python_and_the_command_line_say_the_same_of_the_same_run(home: Path) -> None:
    """What is printed, stored and loaded of one run is one claim, to the last payment."""
    model = privfed.load(home / "run" / "model.npz")
    found = json.loads((home / "run" / "result.json").read_text())
    shown = json.loads(run("show", home / "run", "--json").stdout)
    again = json.loads(run("resume", home / "run", "--quiet", "--json").stdout)
    for one in (found, shown, again):
        assert one["privacy"] == json.loads(json.dumps(model.privacy_spent_.to_dict()))
    with np.load(home / "run" / "centroids.npz") as stored:
        assert str(stored["privacy"]) == model.privacy_spent_.line


def test_noised_numbers_are_marked(home: Path, ended: Callable[[str], Result]) -> None:
    found = json.loads((home / "run" / "result.json").read_text())
    assert found["noised"] == ["rows", "movements", "centroids", "intervals"] and found["format"] == 2
    said = run("resume", home / "run").stdout
    assert f"4, {found['rows']} (noised)" in said and "rows, movements, centroids, intervals" in said
    table = ended("select-k").stdout
    chosen = json.loads((home / "select-k" / "selection.json").read_text())
    assert chosen["noised"] == ["rows", "n_clusters", "table.index", "centroids"] and chosen["format"] == 2
    assert "sums and bytes are of the whole selection" in table
    assert "has no interval" in table and "has no interval" in chosen["no_interval"]
    assert f"{chosen['rows']} rows (noised)" in table and "davies_bouldin (noised)" in table


def test_of_many_sizes_the_first_are_printed(home: Path, tmp_path: Path) -> None:
    words = ("fit", home / "t.csv", "--algorithm", "dp", "-k", 18, *PRIVATELY, "--out", tmp_path / "run")
    line = next(one for one in run(*words).stdout.splitlines() if "(95% together)" in one)
    assert line.count(";") == 16 and "and 2 more, which result.json has" in line
    assert len(json.loads((tmp_path / "run" / "result.json").read_text())["intervals"]["sizes"]) == 18


def test_without_privacy_it_says_so_and_marks_nothing(home: Path, tmp_path: Path) -> None:
    said = run("fit", home / "t.csv", "--group", "g", "-k", 2, "--out", tmp_path / "r").stdout
    said += run("show", tmp_path / "r").stdout
    words = ("--group", "g", "--min-k", 2, "--max-k", 3, "--out", tmp_path / "s")
    said += run("select-k", home / "t.csv", *words).stdout
    assert said.count("none claimed") == 3 and "noised" not in said
    found = json.loads((tmp_path / "r" / "result.json").read_text())
    assert found["privacy"] is None and found["noised"] == []
    assert run("predict", tmp_path / "r", home / "t.csv").stderr == ""


# --- runs that do not come from `privfed fit`, or do not come to their end ---


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box(-1.0, 1.0, max_rows=100)} | words))


def rows_of(n_clients: int) -> list[np.ndarray]:
    return np.array_split(np.random.default_rng(1).uniform(-0.9, 0.9, (60 * n_clients, 2)), n_clients)


def test_a_seeded_run_is_shown_as_not_private(tmp_path: Path) -> None:
    model = DPKMeans(2, privacy=privacy(noise_seed=1), run_dir=tmp_path, protocol="plain").fit(rows_of(2))
    said = run("show", tmp_path).stdout
    assert "not private: a seeded run of epsilon 2, delta 1e-06" in said
    assert model.privacy_spent_ is None
    shown = json.loads(run("show", tmp_path, "--json").stdout)
    assert shown["privacy"] == json.loads(json.dumps(model.privacy_claim_.to_dict()))


def test_noise_of_each_client_alone_is_shown(tmp_path: Path) -> None:
    model = KFED(2, privacy=privacy(), run_dir=tmp_path, protocol="plain").fit(rows_of(2))
    shown = json.loads(run("show", tmp_path, "--json").stdout)
    assert PrivacySpent.from_dict(shown["privacy"]).facts() == model.privacy_spent_.facts()
    assert "(gaussian, local)" in run("show", tmp_path).stdout


def test_a_run_with_noise_of_each_client_alone_is_resumed_and_not_audited(home: Path, tmp_path: Path) -> None:
    rows = [line for line in (home / "t.csv").read_text().splitlines() if line[0] in "gab"]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    few = ("--group", "g", "--clients", "a,b", "--protocol", "plain", "--quiet")
    words = ("--algorithm", "kfed", "-k", 2, *DOMAIN, *CLAIM, *few, "--out", tmp_path / "r")
    run("fit", tmp_path / "t.csv", *words)
    assert "(gaussian, local)" in run("resume", tmp_path / "r").stdout
    said = run("audit", tmp_path / "r", exit_code=2).stderr
    assert "carry no noise" in said and "against the server with clients" in said


def test_a_sum_of_another_protocol_is_no_reason_to_claim_more(tmp_path: Path) -> None:
    DPKMeans(2, privacy=privacy(), run_dir=tmp_path, protocol="plain").fit(rows_of(2))
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"protocol":"plain"', b'"protocol":"own"'))
    against = json.loads(run("show", tmp_path, "--json").stdout)["privacy"]["against"]
    assert against["the server with clients"] == "unknown here: 'own' is no protocol of this privfed"


def stopping(after: int, error: BaseException) -> Callable[..., Any]:
    """Open a federation that fails after so many sums."""

    def opened(*given: Any, **words: Any) -> Any:
        federation = open_federation(*given, **words)
        ask, done = federation.ask, []

        def asked(question: Any) -> Any:
            if len(done) == after:
                raise error
            done.append(question)
            return ask(question)

        federation.ask = asked  # type: ignore[method-assign]
        return federation

    return opened


LOST = NotEnoughClientsError(missing=["a"], left=1, needed=2, stage="collect")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("privfed.estimators.fitting", "fit"),
        ("privfed.estimators.selection", "select-k"),
    ],
)
@pytest.mark.parametrize(("error", "exit_code"), [(LOST, 2), (KeyboardInterrupt(), 130)])
def test_a_run_that_stops_says_under_which_claim_it_has_asked(
    module: str,
    name: str,
    error: BaseException,
    exit_code: int,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{module}.open_federation", stopping(2, error))
    said = run(*cases(home, tmp_path / "out")[name], exit_code=exit_code).stderr
    assert "What was asked so far is under the claim: differential privacy: epsilon 2, delta 1e-06" in said
    assert "against the server with clients" in said
    assert said.count("\n") == (1 if exit_code == 2 else 2)


def test_a_run_that_asked_nothing_claims_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privfed.estimators.fitting.open_federation", stopping(0, LOST))
    assert "claim" not in run(*cases(home, tmp_path / "out")["fit"], exit_code=2).stderr


# --- what is stored ---


def test_a_result_of_another_format_is_refused_by_name(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", tmp_path / "r")
    path = tmp_path / "r" / "result.json"
    found = json.loads(path.read_text())
    for version, age in ((1, "an older"), (3, "a newer")):
        path.write_text(json.dumps(found | {"format": version}))
        said = run("predict", tmp_path / "r", home / "t.csv", exit_code=2).stderr
        assert f"result.json has format {version}, of {age} privfed, and this one reads format 2" in said
    path.write_text(json.dumps(found | {"privacy": {"epsilon": "low"}}))
    assert "result.json is damaged" in run("predict", tmp_path / "r", home / "t.csv", exit_code=2).stderr


def test_a_report_of_a_newer_format_is_refused_by_name(home: Path, ended: Callable[[str], Result]) -> None:
    ended("attack")
    words, path = cases(home, home / "attack")["attack"], home / "attack" / "attacks.json"
    found = json.loads(path.read_text())
    assert found["format"] == 3 and found["privacy"]["epsilon"] == 2.0
    path.write_text(json.dumps(found | {"format": 4}))
    assert "attacks.json has format 4" in run(*words, exit_code=2).stderr


def test_pictures_say_the_claim(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, claim = list[str](), privfed.load(home / "run" / "model.npz").privacy_spent_

    def kept(figure: Figure, path: Path, own: PrivacySpent) -> None:
        assert own.line == claim.line
        texts.append(" ".join(one.get_text().replace("\n", " ") for one in figure.texts))

    monkeypatch.setattr(plot, "save", kept)
    run("resume", home / "run", "--quiet", "--picture")
    run(*cases(home, tmp_path)["select-k"], "--picture")
    assert len(texts) == 2 and all(claim.short in text for text in texts)
    assert "(noised)" in texts[0]


def test_a_public_number_of_rows_is_said_to_be_that(home: Path, tmp_path: Path) -> None:
    words = (
        "fit",
        home / "t.csv",
        "--algorithm",
        "dp",
        "-k",
        3,
        *DOMAIN,
        *CLAIM[:-1],
        "replace-one",
        *GROUPS,
    )
    # Rows that are left out for what they hold would make their number depend on it.
    assert "--missing" in run(*words, "--protocol", "plain", "--out", tmp_path / "r", exit_code=2).output
    said = run(*words, "--missing", 0, "--protocol", "plain", "--out", tmp_path / "r").stdout
    assert "4, 240 (public: neighbours replace a row)" in said
    assert json.loads((tmp_path / "r" / "result.json").read_text())["noised"] == [
        "movements",
        "centroids",
        "intervals",
    ]
