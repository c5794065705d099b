"""`privfed audit --my-rows`: what a client's own rows moved in a run, beside what was charged."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy, metrics
from privfed.attacks.audits import audit_rows
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Transcript
from privfed.federation.driver import Federation
from privfed.questions.bounded import bounded_sums
from privfed.tables import columns_by_cluster
from tests.cli.wide import run
from tests.nodes.elsewhere import Elsewhere
from tests.privacy.shifts import answers
from tests.privacy.unheld import unheld
from tests.some import some

CLAIM = ("--low", -1, "--high", 1, "--max-rows", 100, "--epsilon", 2, "--delta", 1e-6, "--clients", "a,b,c")
FIT = ("--group", "g", "--algorithm", "dp", "-k", 3, *CLAIM)
FAR = 5
"""Row of client a, from 0, that lies outside the domain."""


def rows_of(client: str) -> np.ndarray:
    """Return a client's rows."""
    rng = np.random.default_rng(ord(client))
    rows = rng.uniform(-0.6, 0.6, (3, 2))[rng.integers(3, size=40)] + rng.uniform(-0.1, 0.1, (40, 2))
    if client == "a":
        rows[FAR] = 9.0, -9.0
    return rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table of three clients, the rows of one, and a run for each relation."""
    folder = tmp_path_factory.mktemp("own")
    lines = {name: [f"{a!r},{b!r}" for a, b in rows_of(name).tolist()] for name in "abc"}
    (folder / "mine.csv").write_text("\n".join(["x,y", *lines["a"]]))
    (folder / "t.csv").write_text("\n".join(["g,x,y", *(f"{g},{one}" for g in "abc" for one in lines[g])]))
    for neighbours in ("add-remove", "replace-one"):
        words = ("--unit", "record", "--neighbours", neighbours, "--missing", 0, "--out", folder / neighbours)
        run("fit", folder / "t.csv", *FIT, *words)
    return folder


def found_in(folder: Path, *words: object, exit_code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("audit", folder, *words, "--json", exit_code=exit_code).stdout)
    return found


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_row_moved_a_total_further_than_was_charged(home: Path, neighbours: str) -> None:
    found = found_in(home / neighbours, "--my-rows", home / "mine.csv")
    assert found["verdict"] == "not refuted"
    assert len(found["questions"]) > 5
    for one in found["questions"]:
        assert 0.5 * one["bound"] < one["shift"] <= one["bound"]
    assert found["together"]["shift"] <= found["charged"] <= found["together"]["bound"] * (1 + 1e-9)
    # The row outside the domain is in a corner of it, where offsets from the middle are longest.
    assert FAR in {one["row"] for one in found["questions"]}


def test_columns_in_another_order_are_not_the_run_s(home: Path) -> None:
    """Noise leaves room for such rows, and what they would have moved was printed."""
    named = ("--my-rows", home / "mine.csv", "--columns", "y,x")
    said = run("audit", home / "add-remove", *named, exit_code=2).stderr
    assert "columns y, x, and the run is of x, y, in this order" in said
    shutil.copytree(home / "add-remove", home / "of-nodes", ignore=shutil.ignore_patterns("run.json"))
    np.savez(home / "mine.npz", X=rows_of("a"))  # Arrays have no names.
    assert found_in(home / "of-nodes", "--my-rows", home / "mine.npz")["verdict"] == "not refuted"


def test_the_shift_is_that_of_answers_with_a_row_and_without_it(home: Path) -> None:
    transcript, rows = Transcript.load(home / "add-remove"), rows_of("a")
    asked = [question_from_bytes(one.question) for one in transcript.of(Asked)]
    found = audit_rows(transcript, ClientData(rows))
    claim = Privacy(
        epsilon=2, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-1, 1, max_rows=100)
    )
    counted = transcript.configuration.noising
    for number, question in enumerate(some(asked)):
        # Noise is of the operating system here: it is taken out of both answers by asking without it.
        bare = [np.delete(rows, i, axis=0) for i in range(len(rows))]
        exact = exactly(question, [rows, *bare], claim, counted)
        shifts = np.linalg.norm(exact[1:] - exact[0], axis=1)
        one = found.questions[number]
        assert one.shift == pytest.approx(shifts.max(), rel=1e-9)
        assert shifts[one.row] == pytest.approx(shifts.max(), rel=1e-9)


def exactly(question: Any, variants: list[np.ndarray], claim: Privacy, counted: int) -> np.ndarray:
    """Return a question's answers without noise, in standard deviations of what was counted on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(question), "_noise", lambda self, n, generators: np.zeros((n, self.spec.size)))
        return answers([question], variants, claim, counted)


def test_a_row_that_is_not_clipped_is_found_and_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unheld(monkeypatch)
    monkeypatch.setattr(bounded_sums, "HAIR", 3.0)
    said = run("audit", home / "add-remove", "--my-rows", home / "mine.csv", exit_code=1).stdout
    assert "verdict: violated" in said
    assert f"{FAR + 1} │ beyond its bound" in said


def test_a_node_reads_the_transcript_that_it_was_given(home: Path, tmp_path: Path) -> None:
    shutil.copy(home / "add-remove" / "transcript.jsonl", tmp_path)
    whole = found_in(home / "add-remove", "--my-rows", home / "t.csv", "--client", "a")
    assert found_in(tmp_path, "--my-rows", home / "mine.csv") == whole


def test_a_nodes_journal_knows_which_questions_it_answered(tmp_path: Path) -> None:
    nodes = Elsewhere(tmp_path / "nodes", [rows_of(name) for name in "abc"])
    rows = tmp_path / "mine.csv"
    np.savetxt(rows, rows_of("a"), delimiter=",", header="x,y", comments="", fmt="%.17g")
    for name in ("first", "second"):
        claim = Privacy(
            epsilon=2, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-1, 1, max_rows=100)
        )
        DPKMeans(2, privacy=claim, engine=nodes, run_dir=tmp_path / name, random_state=0).fit()
    words = ("--my-rows", rows, "--journal", tmp_path / "nodes" / "c0")
    for number, name in enumerate(some(["first", "second"]), start=1):
        said = run("audit", tmp_path / name, *words).stdout
        n = len(Transcript.load(tmp_path / name).of(Asked))
        assert f"{n} of {n} questions were answered, in fit {number}" in said
    lines = (tmp_path / "first" / "transcript.jsonl").read_text().splitlines(keepends=True)
    second = [i for i, line in enumerate(lines) if '"type":"Asked"' in line][1]
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "transcript.jsonl").write_text("".join(lines[:second]))
    assert "that this run has not" in run("audit", tmp_path / "part", *words, exit_code=2).stderr


def test_nothing_is_written(home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert "for your eyes" in run("audit", home / "add-remove", "--my-rows", home / "mine.csv").stdout
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_more_rows_than_declared_are_clipped_together(home: Path) -> None:
    many = np.tile(rows_of("b"), (4, 1))
    assert audit_rows(Transcript.load(home / "add-remove"), ClientData(many)).verdict == "not refuted"


def test_rows_for_which_a_run_has_no_room_are_refused(home: Path, tmp_path: Path) -> None:
    """What others moved says nothing of one's own: a total has fewer rows, or answers are others."""
    lines = (home / "mine.csv").read_text().splitlines()
    (tmp_path / "many.csv").write_text("\n".join([lines[0], *4 * lines[1:]]))
    # With little noise, of which no seed repeats: at epsilon 2 every other run left room for so many rows.
    words = ("--unit", "record", "--neighbours", "add-remove", "--epsilon", 10)
    run("fit", home / "t.csv", *FIT, *words, "--out", tmp_path / "masked")
    said = run("audit", tmp_path / "masked", "--my-rows", tmp_path / "many.csv", exit_code=2).stderr
    assert "not rows that a client of this run answered from: they contradict sum" in said
    run("fit", home / "t.csv", *FIT, *words, "--protocol", "plain", "--out", tmp_path / "plain")
    swapped = str.maketrans("abc", "bac")
    table = (home / "t.csv").read_text().splitlines()
    exchanged = [one[0].translate(swapped) + one[1:] for one in table]
    (tmp_path / "swapped.csv").write_text("\n".join(exchanged))
    mine = ("--client", "a", "--my-rows")
    assert "whose they are" in found_in(tmp_path / "plain", *mine, home / "t.csv")["doubt"]
    said = run("audit", tmp_path / "plain", *mine, tmp_path / "swapped.csv", exit_code=2).stderr
    assert "not rows that a of this run answered from: they contradict its noised answers" in said


def test_of_a_client_the_unit_is_all_its_rows() -> None:
    claim = Privacy(
        epsilon=4, delta=1e-6, unit="client", neighbours="add-remove", domain=Box(-1, 1, max_rows=100)
    )
    clients = [rows_of(name) for name in "abc"]
    model = DWFKMeans(3, local_iter=2, max_iter=2, privacy=claim, random_state=0).fit(clients)
    found = audit_rows(model.transcript_, ClientData(clients[1]))
    assert found.verdict == "not refuted"
    assert {one.row for one in found.questions} == {None}
    assert 0 < found.together.shift <= found.charged


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--my-rows", "t.csv"), "name yours with --client"),
        (("--my-rows", "t.csv", "--client", "z"), "client 'z' is not in this run"),
        (("--my-rows", "mine.csv", "--out", "o.json"), "leave out --truth and --out"),
        (("--my-rows", "mine.csv", "--truth", "t.csv"), "leave out --truth and --out"),
        (("--client", "a"), "name their file, --my-rows"),
        (("--id", "who"), "name their file, --my-rows"),
        (("--my-rows", "mine.csv", "--journal", "nowhere"), "nowhere"),
        (("--my-rows", "mine.csv", "--columns", "x"), "the run is of x, y"),
    ],
)
def test_bad_input_is_one_line(
    home: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert message in run("audit", "add-remove", *words, exit_code=2).stderr


def test_a_run_that_is_not_there_is_named(home: Path, tmp_path: Path) -> None:
    said = run("audit", tmp_path / "none", "--my-rows", home / "mine.csv", exit_code=2).stderr
    assert f"--my-rows needs the folder of a run, and {tmp_path / 'none'} is none" in said


def test_users_of_a_run_that_names_no_table_are_replayed_by_their_ids(tmp_path: Path) -> None:
    """As after a fit over nodes, whose folder says nothing of columns."""
    lines = {g: [f"p{i // 4},{a!r},{b!r}" for i, (a, b) in enumerate(rows_of(g).tolist())] for g in "abc"}
    (tmp_path / "mine.csv").write_text("\n".join(["who,x,y", *lines["a"]]))
    (tmp_path / "t.csv").write_text(
        "\n".join(["g,who,x,y", *(f"{g},{one}" for g in "abc" for one in lines[g])])
    )
    words = ("--unit", "user", "--rows-per-user", 2, "--neighbours", "add-remove", "--id", "who")
    run("fit", tmp_path / "t.csv", *FIT, *words, "--out", tmp_path / "run")
    (tmp_path / "run/run.json").unlink()
    mine = ("--my-rows", tmp_path / "mine.csv", "--columns", "x,y")
    assert "--id" in run("audit", tmp_path / "run", *mine, exit_code=2).stderr
    found = found_in(tmp_path / "run", *mine, "--id", "who")
    assert found["verdict"] == "not refuted" and 0 < found["together"]["shift"] <= found["charged"]
    said = run("audit", tmp_path / "run", *mine, "--id", "who").stdout
    assert "chosen by another key than in the run" in " ".join(said.split())


def test_rows_move_a_table_of_labels_only_where_they_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Privacy(
        epsilon=4, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-1, 1, max_rows=100)
    )
    clients, labels = [rows_of(name) for name in "abc"], [np.arange(40) % 3] * 3
    opened, begin = list[Federation](), Federation.__init__

    def begun(self: Federation, *args: Any, **words: Any) -> None:
        begin(self, *args, **words)
        opened.append(self)

    monkeypatch.setattr(Federation, "__init__", begun)
    metrics.labels_agreement(clients, clients[0][:2], labels, n_labels=3, privacy=claim)
    assert audit_rows(opened[0].transcript, ClientData(clients[0])).together.shift == 0.0
    found = audit_rows(opened[0].transcript, ClientData(clients[0], labels[0])).questions[0]
    assert 0.5 * found.bound < found.shift <= found.bound


def test_rows_without_a_value_move_counts_of_missing_values(tmp_path: Path) -> None:
    domain = Box(-1, 1, max_rows=100)
    claim = Privacy(epsilon=2, delta=1e-6, unit="record", neighbours="add-remove", domain=domain)
    rows, centers = [rows_of(name) for name in "abc"], np.array([[0.5], [-0.5]])
    rows[0][:, 1] = np.nan
    words: dict[str, Any] = {"edges": [np.linspace(-1, 1, 9)], "privacy": claim}
    columns_by_cluster(rows, centers, **words, run_dir=tmp_path / "run", client_names=["a", "b", "c"])
    lines = [f"{one!r}," for one in rows[0][:, 0].tolist()]
    (tmp_path / "mine.csv").write_text("\n".join(["x,y", *lines]))
    found = found_in(tmp_path / "run", "--my-rows", tmp_path / "mine.csv")
    assert found["verdict"] == "not refuted"
    assert 0.5 * found["questions"][0]["bound"] < found["questions"][0]["shift"]
    given = ("--my-rows", tmp_path / "mine.csv", "--missing", 0.1)
    assert found_in(tmp_path / "run", *given)["questions"][0]["shift"] > 0.0
