"""What commands print: nothing of what --quiet asks them to leave out, and no table that cuts a number."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.cli.main import main
from privfed.core.stored.encoding import Message, Refusal
from privfed.protocols.masked.session import REJECTED
from privfed.protocols.setup.setup_messages import Direction, Stage
from tests.cli.test_claims import commands

STUDY = """
name = "small"
seeds = 1
[[data]]
source = "table.csv"
group = "g"
[[partition]]
kind = "given"
[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 2
max_iter = 2
[[sum]]
protocol = "plain"
[[attack]]
kind = "differencing"
client = 0
"""


UNSCORED = """
from privfed import DWFKMeans

class Unscored(DWFKMeans):
    inertia_ = property(lambda self: None, lambda self, value: None)
"""


@pytest.fixture
def home(tmp_path, invoke):
    """Return a folder with a table of wide numbers, a finished run of it, and a study."""
    rng = np.random.default_rng(0)
    rows = 3.04087123e6 + rng.normal(size=(60, 2))
    lines = [f"{'abc'[i % 3]},{a!r},{b!r}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "table.csv").write_text("g,a,b\n" + "\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    invoke("fit", tmp_path / "table.csv", "--group", "g", "-k", 2, "--out", tmp_path / "run")
    return tmp_path


def words(home: Path) -> dict[str, tuple[object, ...]]:
    """Return for each command that takes --quiet the words of a case."""
    table = (home / "table.csv", "--group", "g")
    return {
        "fit": ("fit", *table, "-k", 2, "--out", home / "fit"),
        "resume": ("resume", home / "run"),
        "select-k": ("select-k", *table, "--max-k", 3, "--out", home / "select"),
        "attack": ("attack", home / "run"),
        "tradeoff": ("tradeoff", home / "study.toml", "--out", home / "study", "--jobs", 1),
    }


@pytest.mark.slow
def test_quiet_commands_print_nothing_and_json_alone(home, invoke):
    quiet = {name for name, one in commands(main).items() if any("--quiet" in p.opts for p in one.params)}
    assert quiet == set(words(home))
    for name, case in words(home).items():
        said = invoke(*case, "--quiet")
        assert (said.stdout, said.stderr) == ("", ""), name
    # What is stored already is no more worth a line than what is new.
    for name in ("attack", "resume", "tradeoff"):
        said = invoke(*words(home)[name], "--quiet")
        assert (said.stdout, said.stderr) == ("", ""), name
    for name in ("attack", "resume"):
        said = invoke(*words(home)[name], "--quiet", "--json")
        assert json.loads(said.stdout) and said.stderr == "", name


def test_quiet_commands_still_say_what_is_wrong(home, failing):
    assert "no attack 'nonsense'" in failing("attack", home / "run", "--attack", "nonsense", "--quiet")


def piped(*words: object, columns: int | None = None) -> str:
    """Return what a command writes into a pipe, of a shell whose terminal has so many columns."""
    code = "from privfed.cli.main import main; main()"
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    sized = known if columns is None else {**known, "COLUMNS": str(columns)}
    call = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(call, capture_output=True, text=True, check=True, env=sized).stdout


@pytest.mark.slow
def test_piped_tables_cut_and_break_no_number(home):
    """A program or a file that reads a table gets every number whole, however narrow the shell is."""
    call = ("summary", home / "table.csv", "--group", "g", "--bins", 3)
    whole, narrow = piped(*call), piped(*call, columns=20)
    assert whole == narrow
    assert len(re.findall(r"\d\.\d+e\+06 to \d\.\d+e\+06 │", whole)) == 2 * 3
    shown = piped("show", home / "run", columns=30)
    name = next(line for line in shown.splitlines() if "parameters" in line)
    assert "max_iter" in name and "…" not in shown


def test_on_a_terminal_tables_fit_its_width(home):
    leader, follower = pty.openpty()
    code = "from privfed.cli.main import main; main()"
    call = [sys.executable, "-c", code, "show", str(home / "run")]
    with subprocess.Popen(call, stdout=follower, env={**os.environ, "COLUMNS": "60"}) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                part = os.read(leader, 1 << 16)
            except OSError:
                break
            if not part:
                break
            text += part
    os.close(leader)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", text.decode()).splitlines()
    first, *others = lines
    assert first == f"Run in {home / 'run'}"
    assert any("│" in line for line in others) and max(map(len, others)) == 60


def test_without_privacy_no_budget_is_spoken_of(home, invoke, monkeypatch):
    """A score that was not asked was not left out for a budget that there is not."""
    monkeypatch.chdir(home)
    (home / "unscored.py").write_text(UNSCORED)
    case = ("fit", "table.csv", "--group", "g", "-k", 2, "--algorithm", "unscored:Unscored")
    said = invoke(*case, "--out", "own").stdout
    assert re.search(r"score +│ not asked +│", said) and "privacy budget" not in said


def test_a_file_is_written_into_a_folder_that_is_there(home, failing, invoke):
    """A folder is made for a run, never for the file of a result."""
    said = failing("predict", home / "run", home / "table.csv", "--out", home / "new" / "labels.csv")
    assert said == f"{home / 'new'}, the folder of labels.csv, does not exist; make it first."
    assert not (home / "new").exists()
    np.savez(home / "releases.npz", inside=np.zeros(200), outside=np.zeros(200))
    audited = ("audit", home / "releases.npz", "--epsilon", 1, "--delta", 1e-5)
    assert "does not exist" in failing(*audited, "--out", home / "new" / "audit.json")
    (home / "new").mkdir()
    invoke("predict", home / "run", home / "table.csv", "--out", home / "new" / "labels.csv")
    assert len((home / "new" / "labels.csv").read_text().splitlines()) == 61


def test_whoever_was_left_out_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table of a run as in its result, on the evidence that decided."""
    begun, sealed = Direction.__init__, Direction.seal

    def init(direction: Direction, key: bytes, session: bytes, client: int, way: str) -> None:
        begun(direction, key, session, client, way)
        direction.is_liars = (client, way) == (2, "up")  # type: ignore[attr-defined]

    def seal(direction: Direction, number: int, stage: Stage, message: Message) -> bytes:
        lies = direction.is_liars and stage == "unmask"  # type: ignore[attr-defined]
        return sealed(direction, number, stage, Refusal("receipts") if lies else message)

    monkeypatch.setattr(Direction, "__init__", init)
    monkeypatch.setattr(Direction, "seal", seal)
    rows = [np.random.default_rng(i).normal(size=(9, 2)) for i in range(6)]
    DWFKMeans(2, protocol="masked", max_iter=2, tol=0, random_state=0, run_dir=tmp_path / "run").fit(rows)
    with pytest.raises(SystemExit) as ended:
        main(["show", str(tmp_path / "run")])
    assert not ended.value.code
    assert re.search(rf"│ rejected +│ 2: {REJECTED} +│", capsys.readouterr().out)
