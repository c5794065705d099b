"""`privfed resume`: a run that was stopped anywhere ends like one that was not."""

import errno
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from privfed.cli.fitting import resumable
from privfed.cli.main import main
from privfed.errors import ProtocolError
from tests.default_run import slow

RESULTS = ("result.json", "centroids.csv", "centroids.npz", "model.npz", "picture.png")


@pytest.fixture(scope="module", params=["plain", slow("masked")])
def finished(request, tmp_path_factory, write_iris) -> Path:
    """A finished run beside its data; tests work on copies of it."""
    folder = tmp_path_factory.mktemp(request.param)
    words = ["fit", write_iris(folder / "iris.csv"), "--group", "hospital", "--label", "species", "-k", 3]
    words += ["--protocol", request.param, "--out", folder / "run", "--n-init", 2]
    assert CliRunner().invoke(main, [str(word) for word in words]).exit_code == 0
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def read(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def stop(folder: Path, n_sums: int, rest: bytes = b"") -> None:
    """Make the folder what it was after so many sums; `rest` is what a crash left of the next line."""
    lines = (folder / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    sums = [number for number, line in enumerate(lines, start=1) if b'"type":"Summed"' in line]
    (folder / "transcript.jsonl").write_bytes(b"".join(lines[: sums[n_sums - 1]]) + rest)
    for name in RESULTS:
        (folder / name).unlink()


def same(one: dict, other: dict) -> None:
    """Compare two results, except for what a new session may cost."""
    for name in one.keys() - {"traffic", "sums"}:
        assert one[name] == other[name], name
    # Exactly the sums that were there before are asked, for the same purpose, of the same clients.
    asked = [(row["index"], row["purpose"], row["contributors"]) for row in one["sums"]]
    assert asked == [(row["index"], row["purpose"], row["contributors"]) for row in other["sums"]]


@pytest.mark.parametrize("n_sums", [slow(1), slow(2), 4, slow(7)])
def test_a_stopped_run_ends_like_one_that_was_not(run, finished, invoke, n_sums) -> None:
    stop(run, n_sums)
    invoke("resume", run, "--quiet", "--picture")
    same(read(run), read(finished))
    for name in RESULTS:
        assert (run / name).exists()
    np.testing.assert_equal(dict(np.load(run / "model.npz")), dict(np.load(finished / "model.npz")))


def test_a_line_that_a_crash_cut_off_is_asked_again(run, finished, invoke) -> None:
    stop(run, 3, rest=b'{"type":"Asked","index":3,"ques')
    invoke("resume", run)
    same(read(run), read(finished))


def test_a_run_that_lacks_only_its_agreement_is_finished(run, finished, invoke) -> None:
    stop(run, len(read(run)["sums"]) - 1)
    invoke("resume", run)
    same(read(run), read(finished))


def test_of_a_finished_run_the_results_are_written_anew(run, finished, invoke) -> None:
    for name in RESULTS[1:]:
        (run / name).unlink()
    transcript = (run / "transcript.jsonl").read_bytes()
    said = invoke("resume", run, "--json", "--picture")
    assert "finished already" in said.stderr
    assert json.loads(said.stdout) == read(run) == read(finished)
    assert (run / "transcript.jsonl").read_bytes() == transcript
    for name in RESULTS:
        assert (run / name).exists()


@pytest.mark.parametrize("rest", [slow(None), slow(b""), b'{"type":"Beg'], ids=["none", "empty", "cut off"])
def test_without_a_whole_line_the_run_begins_anew(run, finished, invoke, rest) -> None:
    stop(run, 1)
    (run / "transcript.jsonl").unlink()
    if rest is not None:
        (run / "transcript.jsonl").write_bytes(rest)
    invoke("resume", run)
    same(read(run), read(finished))


@pytest.fixture
def filling(monkeypatch):
    """Return a function after which the disk is full once so many files were written through."""
    write_through = os.fsync

    def fill(after: int) -> None:
        left = iter(range(after))

        def fsync(descriptor: int) -> None:
            if next(left, None) is None:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - 9)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write_through(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    yield fill
    monkeypatch.undo()


@pytest.mark.parametrize("lines", [slow(0), slow(1), 4])
def test_on_a_full_disk_a_run_says_how_it_goes_on(
    finished, invoke, failing, filling, monkeypatch, tmp_path, lines
) -> None:
    settings = json.loads((finished / "run.json").read_text())
    words = ["fit", settings["source"]["path"], "--group", "hospital", "--label", "species", "-k", 3]
    words += ["--protocol", read(finished)["protocol"], "--n-init", 2, "--out", tmp_path / "run"]
    # Before them `run.json` is written through, and its folder.
    filling(2 + lines)
    said = failing(*words, "--quiet")
    assert "is full" in said and "what was done so far is kept" in said
    monkeypatch.undo()
    command = shlex.split(said.partition("finish the run with: ")[2])
    invoke(*command[1:], "--quiet")
    same(read(tmp_path / "run"), read(finished))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_leaves_no_half_of_a_file_behind(failing, finished, monkeypatch, tmp_path) -> None:
    def full(path: Path, mode: str) -> object:
        assert mode == "xb"
        path.touch()
        return open("/dev/full", "wb")

    data = json.loads((finished / "run.json").read_text())["source"]["path"]
    with monkeypatch.context() as patched:
        patched.setattr("privfed.core.stored.files.open_file", full)
        said = failing(
            "fit", data, "--group", "hospital", "--columns", "petal length", "--out", tmp_path / "run"
        )
    assert said == "No space left on device; free some space, then give the same command again"
    assert list((tmp_path / "run").iterdir()) == []


def test_data_that_has_moved_is_named(run, finished, invoke, failing, tmp_path) -> None:
    stop(run, 3)
    settings = json.loads((run / "run.json").read_text())
    moved = shutil.copy(settings["source"]["path"], tmp_path / "moved.csv")
    settings["source"]["path"] = str(tmp_path / "gone.csv")
    (run / "run.json").write_text(json.dumps(settings))
    assert "gone.csv does not exist" in failing("resume", run)
    invoke("resume", run, "--data", moved)
    same(read(run), read(finished))


def test_other_data_is_refused(run, failing, tmp_path) -> None:
    stop(run, 3)
    lines = Path(json.loads((run / "run.json").read_text())["source"]["path"]).read_text().splitlines()
    (tmp_path / "fewer.csv").write_text("\n".join(lines[:-1]))
    assert "149 rows, the run began with 150" in failing("resume", run, "--data", tmp_path / "fewer.csv")
    (tmp_path / "others.csv").write_text("\n".join(lines).replace("h3,", "x3,"))
    assert "another run" in failing("resume", run, "--data", tmp_path / "others.csv")


def test_a_damaged_line_is_named(run, failing) -> None:
    stop(run, 3)
    lines = (run / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:40] + b"\n"
    (run / "transcript.jsonl").write_bytes(b"".join(lines))
    for command in ("resume", "show"):
        message = failing(command, run)
        assert f"{run}/transcript.jsonl, line 3, is damaged" in message


def test_lines_that_do_not_fit_together_are_an_error(run, failing) -> None:
    stop(run, 3)
    lines = (run / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"type":"Asked","index":1,' not in line]
    assert len(kept) == len(lines) - 1
    (run / "transcript.jsonl").write_bytes(b"".join(kept))
    for command in ("resume", "show"):
        assert "do not fit together" in failing(command, run)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run.json"),
        (b"", "is damaged"),
        (b'{"format": 1', "is damaged"),
        (b'{"format": 1}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[]", "is damaged"),
    ],
    ids=["missing", "empty", "cut off", "lacks all", "no text", "no object"],
)
def test_a_half_written_folder_is_an_error(run, failing, content, message) -> None:
    (run / "run.json").unlink()
    if content is not None:
        (run / "run.json").write_bytes(content)
    assert message in failing("resume", run)


def test_a_run_of_a_newer_privfed_is_an_error(run, failing) -> None:
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "format": 2}))
    assert "newer" in failing("resume", run)


def test_a_run_of_other_parameters_is_an_error(run, failing) -> None:
    stop(run, 3)
    settings = json.loads((run / "run.json").read_text())
    settings["parameters"]["words"]["tol"] = 0.5
    (run / "run.json").write_text(json.dumps(settings))
    assert "another run" in failing("resume", run)


def test_two_commands_never_write_to_one_run(run, failing) -> None:
    stop(run, 3)
    with (run / "run.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "in use" in failing("resume", run)


def test_no_folder_is_an_error(failing, tmp_path) -> None:
    assert "is no folder" in failing("resume", tmp_path / "nowhere")


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path, invoke, write_iris) -> None:
    iris, folder = write_iris(tmp_path / "iris.csv"), tmp_path / "run"
    words = ["fit", iris, "--group", "hospital", "--label", "species", "--protocol", "plain", "--out", folder]
    words += ["--tol", "0", "--max-iter", "100000"]
    call = [sys.executable, "-c", "from privfed.cli.main import main; main()", *map(str, words)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        transcript = folder / "transcript.jsonl"
        while time.monotonic() < deadline and not (transcript.exists() and transcript.stat().st_size > 10**6):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.strip().endswith(f"stopped; finish the run with: privfed resume {folder}")
    assert json.loads(invoke("show", folder, "--json").stdout)["finished"] is False


def test_a_sum_that_cannot_be_opened_says_how_to_go_on() -> None:
    with (
        pytest.raises(ProtocolError, match=r"too few.* privfed resume 'a b'"),
        resumable(Path("a b"), "privfed resume 'a b'"),
    ):
        raise ProtocolError("too few.")
    with pytest.raises(click.exceptions.Exit), resumable(Path("a"), "privfed resume a"):
        raise KeyboardInterrupt
