"""`privfed keys` and `privfed journal`: identities, the list of all parties, what a party has given."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.image import imread

from examples.operation.months import drawn
from privfed import ClientPolicy
from privfed.errors import ArgumentError
from privfed.nodes.commands.records import read_record
from privfed.nodes.identity import IDENTITY, SIGNED_KEY, read_identity, read_parties
from privfed.nodes.journal import FILE, Journal
from privfed.party.state import Memories
from tests.command_line import Invoke
from tests.nodes.journals import agreement, question
from tests.owners import assert_the_owners
from tests.some import some


@pytest.fixture
def folders(tmp_path: Path, invoke: Invoke) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("server", "b", "a")}
    for name, folder in made.items():
        invoke("keys", "new", name, "--out", folder)
    return made


def test_a_new_identity_is_its_owners_alone_and_shows_its_digits(tmp_path: Path, invoke: Invoke) -> None:
    said = invoke("keys", "new", "clinic a", "--out", tmp_path / "party").stdout
    assert_the_owners(tmp_path / "party", {IDENTITY, SIGNED_KEY, FILE})
    own = read_identity(tmp_path / "party")
    assert own.name == "clinic a" and own.signed_key.fingerprint in said
    assert own.key.secret.hex() not in said
    for path in (tmp_path / "party", tmp_path / "party" / SIGNED_KEY):
        assert own.signed_key.fingerprint in invoke("keys", "show", path).stdout


def test_an_identity_is_not_made_over_another(folders: dict[str, Path], failing: Callable[..., str]) -> None:
    before = read_identity(folders["a"])
    assert "not empty" in failing("keys", "new", "a", "--out", folders["a"])
    assert read_identity(folders["a"]) == before


def test_a_list_is_the_same_for_all_who_make_it(
    folders: dict[str, Path], tmp_path: Path, invoke: Invoke, failing: Callable[..., str]
) -> None:
    signed_keys = {name: folder / SIGNED_KEY for name, folder in folders.items()}
    said = []
    for name, order in (("one", "ab"), ("two", "ba")):
        words = [signed_keys[one] for one in order]
        made = invoke("keys", "registry", *words, "--server", signed_keys["server"], "--out", tmp_path / name)
        said.append(made.stdout)
    assert said[0] == said[1] == invoke("keys", "show", tmp_path / "one").stdout
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    parties = read_parties(tmp_path / "one")
    assert parties.fingerprint in said[0] and [one.name for one in parties.clients] == list("ab")
    words = (signed_keys["a"], "--server", signed_keys["server"], "--out", tmp_path / "one")
    assert "never replaced" in failing("keys", "registry", *words)
    (tmp_path / "bad").write_bytes(b"nothing")
    assert "damaged" in failing("keys", "show", tmp_path / "bad")


def test_a_journal_is_shown_and_exported_without_keys(
    folders: dict[str, Path], tmp_path: Path, invoke: Invoke, failing: Callable[..., str]
) -> None:
    own = read_identity(folders["a"])
    fit = Journal(folders["a"], own).begin(agreement(own, epsilon=0.5), 0, "ward 3", ClientPolicy())
    fit.answers(question(), 0)
    with fit.store("memory").transaction() as kept:
        kept.save(Memories(1, {"model": b"secret"}))
    said = invoke("journal", "show", folders["a"]).stdout
    assert "data set ward 3: 1 fits, 1 sums answered" in said and "epsilon 0.431 at delta 1e-05" in said
    invoke("journal", "export", folders["a"], "--out", tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    assert own.key.secret.hex() not in text and own.journal.hex() not in text and "secret" not in text
    found = json.loads(text)["record"]
    kinds = [entry["kind"] for entry in some(found["entries"])]
    assert kinds == ["rows", "begin", "rows", "sum", "rows", "rows"]
    assert [one["epsilon"] for one in some(found["data_sets"]["ward 3"]["given"]["claims"])] == [0.5]
    assert "ended fit 1" in invoke("journal", "end", folders["a"], 1).stdout
    assert "fit 1 (ended" in invoke("journal", "show", folders["a"]).stdout
    assert "there is no open fit 1" in failing("journal", "end", folders["a"], 1)
    (folders["a"] / FILE).unlink()
    assert "is missing" in failing("journal", "show", folders["a"])


def test_a_record_is_signed_and_counts_what_the_journal_shows(
    folders: dict[str, Path], tmp_path: Path, invoke: Invoke, failing: Callable[..., str]
) -> None:
    own, words = read_identity(folders["a"]), ("journal", "export", folders["a"], "--out")
    kept = Journal(folders["a"], own)
    for seed in range(2):
        fit = kept.begin(agreement(own, seed=seed, epsilon=0.5), 0, "ward 3", ClientPolicy())
        fit.answers(question(), 0)
        fit.answers(question(1.0), 1)
    fit.lost(2)
    invoke(*words, tmp_path / "record.json")
    found = read_record(tmp_path / "record.json")
    assert [(one["answered"], one["losses"]) for one in found["fits"]] == [(2, 0), (2, 2)]
    assert found["data_sets"]["ward 3"]["given"]["losses"] == 2
    assert "never replaced" in failing(*words, tmp_path / "record.json")
    text = (tmp_path / "record.json").read_text()
    (tmp_path / "changed.json").write_text(text.replace('"answered": 2', '"answered": 1', 1))
    with pytest.raises(ArgumentError, match="was changed"):
        read_record(tmp_path / "changed.json")
    drawn(found).savefig(tmp_path / "months.png")
    assert imread(tmp_path / "months.png").std() > 0.01
