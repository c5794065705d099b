"""Files and folders are their owner's alone, whatever the umask says, and before they have their name too."""

import os
from pathlib import Path

import pytest

from privfed.core.stored.files import make_folder, open_file, replaced
from privfed.errors import RunFolderError
from tests.owners import mode, umask

UMASKS = [0o000, 0o022, 0o077, 0o377, 0o777]


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_a_new_folder_and_those_above_it_are_the_owners(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        make_folder(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
@pytest.mark.parametrize("how", ["wb", "ab", "xb"])
def test_a_new_file_is_the_owners(tmp_path: Path, mask: int, how: str) -> None:
    with umask(mask), open_file(tmp_path / "file", how) as file:
        assert mode(tmp_path / "file") == 0o600
        file.write(b"text")
    assert (tmp_path / "file").read_bytes() == b"text"


@pytest.mark.parametrize("how", ["wb", "ab"])
def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old ")
    path.chmod(0o644)
    with open_file(path, how) as file:
        assert mode(path) == 0o600
        file.write(b"new")
    assert path.read_bytes() == (b"old new" if how == "ab" else b"new")


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o644)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with open_file(tmp_path / "pipe", "wb"):
            assert mode(tmp_path / "pipe") == 0o644
    finally:
        os.close(reader)


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_a_file_that_is_written_under_another_name_is_never_open_to_others(
    tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "new folder" / "file", []
    put = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (seen.append(mode(old)), put(old, new)))
    path.parent.mkdir()
    path.write_bytes(b"old")
    path.chmod(0o666)
    (path.parent / ".new-file").write_bytes(b"left by a crash")
    with umask(mask), replaced(path) as fresh:
        assert mode(fresh) == 0o600
        fresh.write_bytes(b"text")
    assert seen == [0o600] and mode(path) == 0o600 and path.read_bytes() == b"text"


def test_nothing_is_written_through_a_link_that_others_laid(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"of somebody else")
    (tmp_path / ".new-file").symlink_to(tmp_path / "target")
    with replaced(tmp_path / "file") as fresh:
        fresh.write_bytes(b"text")
    assert (tmp_path / "target").read_bytes() == b"of somebody else"
    assert (tmp_path / "file").read_bytes() == b"text"


def shared(folder: Path, *files: str) -> Path:
    folder.mkdir()
    folder.chmod(0o755)
    for name in files:
        (folder / name).touch()
    return folder


def test_an_empty_folder_and_one_of_ours_are_closed_to_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_folder(shared(tmp_path / "run"))
    make_folder(shared(tmp_path / "begun", "transcript.jsonl"), ours=True)
    assert mode(tmp_path / "run") == mode(tmp_path / "begun") == 0o700
    assert not caplog.records


def test_a_folder_with_other_files_keeps_its_mode_and_the_log_names_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shared(tmp_path / "shared", "file")
    make_folder(folder)
    assert mode(folder) == 0o755
    assert "(mode 755)" in caplog.text and f"chmod 700 {folder}" in caplog.text
    caplog.clear()
    folder.chmod(0o700)
    make_folder(folder)
    assert not caplog.records


@pytest.mark.parametrize("ours", [False, True])
def test_a_folder_that_is_shared_on_purpose_keeps_its_mode(
    ours: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shared(tmp_path / "shared")
    folder.chmod(0o1777)
    make_folder(folder, ours=ours)
    assert mode(folder) == 0o1777 and "(mode 1777)" in caplog.text


@pytest.mark.parametrize("below", ["", "run", "runs/run"])
def test_a_file_or_a_link_to_nothing_in_the_place_of_a_folder_is_an_error(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(RunFolderError, match="file is a file; name a folder"):
        make_folder(tmp_path / "file" / below)
    with pytest.raises(RunFolderError, match="link is a link to nothing; name a folder"):
        make_folder(tmp_path / "link" / below)
