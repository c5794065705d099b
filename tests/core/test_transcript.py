"""The record of a run on disk is the one in memory."""

import base64
import stat
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans, Simulation
from privfed.core.agreed.configuration import Configuration
from privfed.core.record.records import FILE, VALUES, Asked, Began, Ended, Exchanged, Summed, Table
from privfed.core.record.transcript import Transcript
from privfed.errors import RunFolderError
from tests.some import some

Clients = list[np.ndarray]


def fitted(clients: Clients, protocol: str, folder: Path | None = None, record: str = "digests") -> DWFKMeans:
    model = DWFKMeans(
        3,
        protocol=protocol,
        max_iter=2,
        tol=0,
        run_dir=folder,
        engine=Simulation(record=record),
        random_state=1,
    )
    return model.fit(clients)


def lines(folder: Path) -> list[bytes]:
    return (folder / FILE).read_bytes().splitlines(keepends=True)


def write_lines(folder: Path, records: list[Any]) -> None:
    (folder / FILE).write_bytes(b"\n".join([*map(msgspec.json.encode, records), b""]))


# --- memory and disk ---


@pytest.mark.parametrize("record", ["digests", "messages"])
def test_transcript_on_disk_is_the_one_in_memory(
    blobs: Clients, protocol: str, tmp_path: Path, record: str
) -> None:
    model = fitted(blobs, protocol, tmp_path / "run", record)
    loaded = Transcript.load(str(tmp_path / "run"))
    assert loaded.records == model.transcript_.records
    assert loaded.configuration == model.transcript_.configuration
    assert len(lines(tmp_path / "run")) == len(loaded.records)


def test_records_come_in_the_order_of_the_run(blobs: Clients, protocol: str) -> None:
    records = fitted(blobs, protocol).transcript_.records
    assert isinstance(records[0], Began) and isinstance(records[-1], Ended)
    asked = [record.index for record in records if isinstance(record, Asked)]
    # The range, the start, two rounds and the score; a round may ask a second time.
    assert asked == list(range(len(asked))) and len(asked) >= 5
    assert [record.index for record in records if isinstance(record, Summed)] == asked
    purposes = [record.purpose for record in records if isinstance(record, Asked)]
    assert (purposes[:3], purposes[-1]) == (["range", "start", "round"], "score")


def test_messages_are_kept_whole_only_when_wanted(blobs: Clients, protocol: str) -> None:
    def kept(record: str) -> set[bool]:
        transcript = fitted(blobs, protocol, record=record).transcript_
        return {sent.data is not None for one in transcript.of(Exchanged) for sent in (*one.down, *one.up)}

    assert kept("digests") == {False}
    assert kept("messages") == {True}


def test_last_line_that_was_cut_off_is_dropped_from_memory_and_disk(
    blobs: Clients, protocol: str, tmp_path: Path
) -> None:
    fitted(blobs, protocol, tmp_path)
    whole = lines(tmp_path)
    (tmp_path / FILE).write_bytes(b"".join(whole)[:-7])
    assert len(Transcript.load(tmp_path, mend=True).records) == len(whole) - 1
    assert lines(tmp_path) == whole[:-1]
    assert len(Transcript.load(tmp_path, mend=True).records) == len(whole) - 1


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b'{"type": "Asked"}', b"[]", b""])
@pytest.mark.few(5)
def test_damaged_line_is_an_error_that_names_it(
    blobs: Clients, protocol: str, tmp_path: Path, damage: bytes
) -> None:
    fitted(blobs, protocol, tmp_path)
    whole = lines(tmp_path)
    (tmp_path / FILE).write_bytes(b"".join([*whole[:2], damage + b"\n", *whole[3:]]))
    with pytest.raises(RunFolderError, match="line 3, is damaged"):
        Transcript.load(tmp_path)
    assert (tmp_path / FILE).read_bytes().count(b"\n") == len(whole)


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no transcript\.jsonl"):
        Transcript.load(tmp_path / "nowhere")
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(RunFolderError, match="does not begin with a run's configuration"):
        Transcript.load(tmp_path)


def test_transcript_without_its_first_line_is_an_error(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    fitted(blobs, protocol, tmp_path)
    (tmp_path / FILE).write_bytes(b"".join(lines(tmp_path)[1:]))
    with pytest.raises(RunFolderError, match="does not begin with a run's configuration"):
        Transcript.load(tmp_path)


def test_contributions_need_not_be_kept(blobs: Clients, tmp_path: Path) -> None:
    kept, left_out = (fitted(blobs, "plain", tmp_path / record, record) for record in ("digests", "totals"))
    assert left_out.transcript_.of(Exchanged) == kept.transcript_.of(Exchanged)
    assert left_out.cluster_centers_.tolist() == kept.cluster_centers_.tolist()
    for model in (left_out.transcript_, Transcript.load(tmp_path / "totals")):
        assert all(total.contributions is None for _, total in model.totals())
        assert not any(one.answers for one in model.view().sums)
    assert all(one.answers for one in kept.transcript_.view().sums)


def answers(transcript: Transcript) -> list[object]:
    shown = [total.contributions for _, total in transcript.totals()]
    return [{i: (own.layout, own.vector.tobytes()) for i, own in one.items()} for one in shown if one]


BIG = base64.b64encode(zlib.compress(bytes(1 << 26), 9)).decode()
DAMAGE: dict[str, tuple[str, Any]] = {
    "not-compressed": ("data", "AAAA"),
    "a-bomb": ("data", BIG),
    "a-huge-table": ("size", 10**12),
    "a-negative-size": ("size", -5),
    "one-client-twice": ("clients", [0, 0, *range(2, 10)]),
    "clients-that-are-not-there": ("clients", list(range(10, 20))),
    "another-digest": ("sha256", "0" * 64),
    "behind-the-file": ("at", 10**9),
    "before-the-file": ("at", -1),
}


def test_what_a_session_kept_is_recalled_in_order(blobs: Clients) -> None:
    transcript = fitted(blobs, "plain").transcript_
    kept = ((1, b"lost"), (0, b"first"), (1, b"second"), (len(transcript.totals()), b"never opened"))
    for index, data in kept:
        transcript.relayed(index, data)
    assert transcript.recalled() == [b"lost", b"first", b"second", b"never opened"]


def test_the_same_sum_twice_is_damage(blobs: Clients, tmp_path: Path) -> None:
    fitted(blobs, "plain", tmp_path)
    *whole, last, ended = lines(tmp_path)
    (tmp_path / FILE).write_bytes(b"".join([*whole, last, last, ended]))
    with pytest.raises(RunFolderError, match="do not fit together"):
        Transcript.load(tmp_path)


@pytest.mark.parametrize("name", [FILE, VALUES])
def test_a_run_behind_a_link_is_read_and_never_written(blobs: Clients, tmp_path: Path, name: str) -> None:
    fitted(blobs, "plain", tmp_path / "run")
    (tmp_path / "run" / VALUES).touch()
    (tmp_path / "run" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    Transcript.load(tmp_path / "run")
    with pytest.raises(RunFolderError, match=f"{name} is a link"):
        Transcript.load(tmp_path / "run", mend=True)
    assert (tmp_path / "elsewhere").read_bytes() == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_contributions_are_an_error_and_take_no_memory(
    blobs: Clients, tmp_path: Path, damage: str
) -> None:
    fitted(blobs, "plain", tmp_path)
    *whole, damaged = [msgspec.json.decode(line) for line in lines(tmp_path)][:-1]
    field, value = DAMAGE[damage]
    damaged["contributions"][Table.__struct_fields__.index(field)] = value
    write_lines(tmp_path, [*whole, damaged])
    tracemalloc.start()
    with pytest.raises(RunFolderError, match="damaged"):
        Transcript.load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


def test_a_sum_of_clients_that_are_not_there_is_an_error(blobs: Clients, tmp_path: Path) -> None:
    fitted(blobs, "plain", tmp_path, "totals")
    *whole, damaged = [msgspec.json.decode(line) for line in lines(tmp_path)][:-1]
    for contributors in ([99], [-1], [1, 1]):
        damaged["contributors"] = contributors
        write_lines(tmp_path, [*whole, damaged])
        with pytest.raises(RunFolderError, match="damaged"):
            Transcript.load(tmp_path)


@pytest.mark.parametrize("attempts", [0, -1, 2, 10**12])
def test_a_sum_of_more_attempts_than_were_agreed_is_an_error(
    attempts: int, blobs: Clients, tmp_path: Path
) -> None:
    # Each is a line of a private run's ledger.
    fitted(blobs, "plain", tmp_path, "totals")
    *whole, damaged = [msgspec.json.decode(line) for line in lines(tmp_path)][:-1]
    damaged["attempts"] = attempts
    write_lines(tmp_path, [*whole, damaged])
    with pytest.raises(RunFolderError, match="damaged"):
        Transcript.load(tmp_path)


# --- the file of values ---


@pytest.fixture
def in_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every table in the file."""
    monkeypatch.setattr("privfed.core.record.records.INLINE", -1)


def test_large_tables_are_in_a_file_and_come_back(blobs: Clients, tmp_path: Path, in_file: None) -> None:
    model, alone = fitted(blobs, "plain", tmp_path), fitted(blobs, "plain")
    expected = answers(alone.transcript_)
    assert len(expected) > 2
    for transcript in (model.transcript_, Transcript.load(tmp_path)):
        assert answers(transcript) == expected
    shown = [record.contributions for record in model.transcript_.of(Summed)]
    assert all(isinstance(one, Table) and not one.data for one in some(shown))
    assert stat.S_IMODE((tmp_path / VALUES).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "gone", "changed", "another-run's"])
def test_a_damaged_file_of_values_is_an_error(
    blobs: Clients, tmp_path: Path, in_file: None, damage: str
) -> None:
    fitted(blobs, "plain", tmp_path / "run")
    fitted([rows + 1.0 for rows in blobs], "plain", tmp_path / "other")
    path = tmp_path / "run" / VALUES
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-1])
    elif damage == "gone":
        path.unlink()
    elif damage == "changed":
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        path.write_bytes((tmp_path / "other" / VALUES).read_bytes() + bytes(1000))
    with pytest.raises(RunFolderError, match="damaged"):
        answers(Transcript.load(tmp_path / "run"))


def test_a_run_that_was_killed_goes_on_with_its_values(blobs: Clients, tmp_path: Path, in_file: None) -> None:
    whole = fitted(blobs, "plain", tmp_path / "whole")
    kept, values = lines(tmp_path / "whole"), (tmp_path / "whole" / VALUES).read_bytes()
    shown = [one.contributions for one in whole.transcript_.of(Summed)]
    ends = [0, *(one.end for one in shown if isinstance(one, Table))]
    for cut in some(range(1, len(kept), 2)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        # Killed after a table was written, or part of one, and before its line was whole.
        (folder / FILE).write_bytes(b"".join(kept[:cut]) + kept[cut][:9])
        (folder / VALUES).write_bytes(values[: ends[sum(b'"Summed"' in line for line in kept[:cut])] + 7])
        model = DWFKMeans(**whole.get_params() | {"run_dir": folder}).resume(blobs)
        assert model.cluster_centers_.tolist() == whole.cluster_centers_.tolist()
        assert answers(Transcript.load(folder)) == answers(whole.transcript_)
        assert (folder / VALUES).read_bytes().startswith(values[: ends[1]])


def test_no_run_begins_in_a_folder_that_holds_one(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    fitted(blobs, protocol, tmp_path)
    before = lines(tmp_path)
    with pytest.raises(RunFolderError, match="already holds a run"):
        fitted(blobs, protocol, tmp_path)
    with pytest.raises(RunFolderError, match="already holds a run"):
        agreed = Configuration(protocol="plain", algorithm="", clients=("a",), n_features=1)
        Transcript(tmp_path).begin(agreed, "server", "sums")
    assert lines(tmp_path) == before


def test_empty_transcript_has_no_configuration_and_no_view() -> None:
    for ask in (lambda t: t.configuration, lambda t: t.view()):
        with pytest.raises(RunFolderError, match="no run has begun"):
            ask(Transcript())


def test_lines_are_json_that_names_its_record(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    model = fitted(blobs, protocol, tmp_path)
    tags = [msgspec.json.decode(line)["type"] for line in lines(tmp_path)]
    assert tags == [type(record).__name__ for record in model.transcript_.records]
