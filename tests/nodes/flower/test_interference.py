"""With noised answers pinned, no byte that leaves a node depends on its rows.

Rows are raw lines of CSV. Nodes are made by `privfed flower join` and `add`, and answer each message from
nothing but their folder, as a fork of `privfed flower node` does. All randomness repeats in both runs but
that of noise. So messages compare to the byte: replies, requests, what nodes say, what reaches a terminal,
and what the coordinator gets, as result, error, warning, fault or file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from privfed import Box, DPKMeans, Privacy
from privfed.cli.main import main
from privfed.core.names import ALGORITHMS, PLACES
from privfed.deep import CFL, DCFL, FedAvg
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import PolicyError
from privfed.nodes.commands import federations
from privfed.nodes.flower import FlowerEngine
from privfed.party import answerer
from privfed.tables.schema import parse
from tests.deep.estimators.test_byte_identity import DPSGD, TrainingTape
from tests.nodes.flower.pinned import compared, federated, invoked, write
from tests.privacy.test_interference import TAKERS

DOMAIN = Box(-1.0, 1.0, max_rows=64)
HEADER = "id,x,y,z,class"


def lines_of(seed: int, n: int) -> list[str]:
    """Return lines of a table: whose the row is, three numbers in the domain, and a class."""
    rng = np.random.default_rng(seed)
    return [
        f"p{i // 2},{','.join(f'{one:.4f}' for one in rng.uniform(-0.9, 0.9, 3))},{i % 2}" for i in range(n)
    ]


BASE = lines_of(0, 24)
MORE = {
    "a row": ["q,0.5,0.25,-0.5,1"],
    "out of the domain": ["q,1e200,-7,0,0"],
    "NaN": ["q,nan,0.1,0.1,0"],
    "a blank line": [""],
    "a text": ["q,ill,0.1,0.1,0"],
    "a duplicate": BASE[:1],
    "a class of its own": ["q,0.1,0.2,0.3,2"],
    "a class that is none": ["q,0.1,0.2,0.3,77"],
    "too few fields": ["q,1"],
    "an open quote": ['q,"0.1,0.2,0.3,0'],
    "no id": [",0.1,0.2,0.3,0"],
    "bytes that are no text": ["q,\udcff,0.2,0.3,0"],
    "an infinite sum": ["q,1e308,1e308,1e308,1"],
}
PAIRS = {name: (BASE, [*BASE, *lines]) for name, lines in MORE.items()} | {
    "its only row": (BASE[:1], []),
    "another in its place": (BASE, [*BASE[1:], "q,0.9,-0.9,0.9,1"]),
    "more rows than declared": (lines_of(1, 64), [*lines_of(1, 64), "q,0.9,-0.9,0.9,1"]),
    "rows of one user": (BASE, [*BASE, *["q,0.9,-0.9,0.9,1"] * 5, "q,0.1,0.2,0.3,"]),
    "its whole table": (BASE, ["r,5,5,5,1", "r,nan,1,1,0"]),
}


JOINED = (
    *("--columns", "x,y,z", "--labels", "class", "--id", "id", "--classes", 3, "--missing", "leave-out"),
    *("--tells", "--group-size", 1, "--algorithms", ",".join([*ALGORITHMS.names(), *PLACES])),
    *("--max-epsilon", 1000, "--order", 8, "--max-fits", 100),
)
"""Options of an owner who approves everything under differential privacy."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a federation of three nodes, each made by its owner's command from a raw table."""
    home = tmp_path_factory.mktemp("nodes") / "fed"
    home.mkdir()
    federated(home, HEADER, BASE, JOINED)
    (home / "found").mkdir()
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 40, 3))
    model = DPKMeans(2, privacy=privacy_of("record", "plain"), protocol="plain")
    names = HEADER.split(",")[1:4]
    model.fit([pl.DataFrame(dict(zip(names, one.T, strict=True))) for one in rows])
    model.save(home / "found" / "model.npz")
    return home


def privacy_of(unit: str, protocol: str, **words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "neighbours": "add-remove"}
    known |= {"noise": "local" if protocol == "plain" else "distributed", "domain": DOMAIN, "unit": unit}
    return Privacy(**(known | words))


PROTOCOLS = ("plain", "masked", "masked-verified", "group-masked")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.few(1)
def test_no_line_of_a_table_shows_in_what_leaves_nodes(
    pair: str, protocol: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unit = {"rows of one user": "user", "its whole table": "client"}.get(pair, "record")
    words: dict[str, Any] = {"rows_per_user": 2} if unit == "user" else {}
    privacy = privacy_of(unit, protocol, **words)
    (up, *_), tape = compared(made, TAKERS["DPKMeans"], PAIRS[pair], privacy, protocol, capfd)
    assert len(up) > 10
    assert tape.differed == len(tape.answers) > 3


@pytest.mark.parametrize("pair", ["a text", "out of the domain", "its only row"])
@pytest.mark.slow
def test_over_ckks_no_line_shows_in_lengths_and_what_nodes_say(
    pair: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its library draws by itself, and its totals are near, so that bytes and results differ in any run."""

    def alike(found: list[Any]) -> list[Any]:
        up, down, *said, _ = found
        return [list(map(len, up)), list(map(len, down)), *said, None]

    _, tape = compared(
        made, TAKERS["DPKMeans"], PAIRS[pair], privacy_of("record", "ckks"), "ckks", capfd, alike=alike
    )
    assert tape.differed == len(tape.answers) > 3


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("name", sorted(TAKERS))
@pytest.mark.slow
def test_whatever_takes_privacy_shows_no_row_at_nodes(
    name: str, unit: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = PAIRS["its whole table" if unit == "client" else "out of the domain"]
    (*_, shown), tape = compared(made, TAKERS[name], pair, privacy_of(unit, "masked"), "masked", capfd)
    assert tape.differed == len(tape.answers)
    assert tape.answers or "Error" in repr(shown)


MODELS: dict[str, FederatedModel] = {
    "FedAvg": FedAvg(**DPSGD),
    "CFL": CFL(**DPSGD, merge="gathered", split_after=0, split_max_norm=0.0, split_mean_norm=9.0),
    "DCFL": DCFL(**DPSGD, merge="gathered"),
}


@pytest.mark.parametrize("pair", ["a row", "out of the domain", "a class that is none", "its only row"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_no_line_shows_in_models_that_nodes_train(
    name: str, pair: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = MODELS[name]

    def run(clients: Any, **words: Any) -> Any:
        fitted = type(model)(**{**model.get_params(), **words}).fit(clients)
        fitted.__dict__.pop("labels_history_", None)
        return fitted

    privacy = privacy_of("record", "plain", domain=Box(-1.0, 1.0))
    _, tape = compared(made, run, PAIRS[pair], privacy, "plain", capfd, TrainingTape)
    assert tape.differed == len(tape.found) > 2


SCHEMA = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
low = 0
high = 100
outside = "clip"
missing = 50
codes = ["999"]
[columns.admitted]
kind = "date"
low = 2026-01-01
high = 2026-12-31
outside = "clip"
missing = "leave-out"
[columns.ward]
kind = "category"
categories = ["heart", "lung"]
missing = "lung"
[columns.class]
kind = "label"
"""
DESCRIBED = [f"p{i},{20 + i},2026-0{1 + i % 9}-11,{'heart' if i % 3 else 'lung'},{i % 2}" for i in range(24)]
ODD = {
    "a code": "q,999,2026-02-03,heart,1",
    "no number": "q,old,2026-02-03,heart,1",
    "a decimal comma": 'q,"33,5",2026-02-03,heart,1',
    "out of range": "q,-1e9,2026-02-03,heart,1",
    "no date": "q,40,2026-13-40,heart,1",
    "an older date": "q,40,1826-01-02,heart,1",
    "a strange ward": "q,40,2026-02-03,cellar,1",
    "no ward": "q,40,2026-02-03,,1",
    "a strange class": "q,40,2026-02-03,heart,7",
    "an id that repeats": "p1,40,2026-02-03,heart,1",
    "nothing": ",,,,",
    "a short line": "q,40",
    "bytes that are no text": "q,40,2026-02-03,\udcff,1",
}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a federation whose nodes read their tables by a schema."""
    home = tmp_path_factory.mktemp("described") / "fed"
    home.mkdir()
    (home / "schema.toml").write_text(SCHEMA)
    words = [*JOINED[JOINED.index("--tells") :], "--id", "who", "--schema", home / "schema.toml"]
    return federated(home, "who,age,admitted,ward,class", DESCRIBED, words)


@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.slow
def test_no_line_shows_that_a_schema_reads(
    odd: str, unit: str, described: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = parse(SCHEMA, "schema").domain()
    assert ends is not None
    words: dict[str, Any] = {"rows_per_user": 2} if unit == "user" else {}
    privacy = privacy_of(unit, "plain", domain=Box(*ends, max_rows=64), **words)
    pair = (DESCRIBED, [*DESCRIBED, ODD[odd]])
    _, tape = compared(described, TAKERS["DPKMeans"], pair, privacy, "plain", capfd)
    assert tape.differed == len(tape.answers) > 3


COMMANDS = {
    "run": ("--algorithm", "dp", "-k", 2, "--out", "run"),
    "summary": ("--bins", 4, "--out", "run"),
    "measure": ("found", "--metrics", "inertia"),
    "measure labels": ("found", "--metrics", "accuracy,v_measure", "--classes", "0,1,2"),
}


@pytest.mark.parametrize("pair", ["a text", "its only row"])
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.slow
def test_no_line_shows_in_what_the_coordinator_s_commands_print_and_write(
    name: str, pair: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claim = ("--epsilon", 4, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    domain = ("--low", -1, "--high", 1, "--max-rows", 64)
    words = [made / str(one) if one in ("run", "found") else one for one in COMMANDS[name]]

    def run(clients: Any, engine: FlowerEngine, **known: Any) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(federations, "FlowerEngine", lambda folder, **words: engine)
            said = CliRunner(env={"COLUMNS": "2000"}).invoke(
                main, ["flower", *map(str, (name.split()[0], made / "hub", *words, *claim, *domain))]
            )
        assert said.exit_code == 0, said.output
        return said.output

    _, tape = compared(made, run, PAIRS[pair], privacy_of("record", "masked"), "masked", capfd)
    assert tape.differed == len(tape.answers) > 0


@pytest.mark.slow
def test_a_card_says_nothing_of_the_rows_that_its_party_joined_with(made: Path, tmp_path: Path) -> None:
    cards = set()
    for lines in (BASE, PAIRS["a text"][1], PAIRS["out of the domain"][1], BASE[:1]):
        write(tmp_path, "own", lines, HEADER)
        (tmp_path / "own" / "node.toml").unlink(missing_ok=True)
        invoked("join", tmp_path / "own", "--data", tmp_path / "own.csv", *JOINED)
        cards.add((tmp_path / "own.pub").read_bytes())
    assert len(cards) == 1


@pytest.mark.slow
def test_a_reply_that_tells_how_many_rows_there_are_is_found(
    made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = answerer.answered_alone

    def tells(question: Any, index: int, name: str, data: Any, *words: Any, **known: Any) -> Any:
        if data.n_rows % 2:
            raise PolicyError("policy:rows")
        return honest(question, index, name, data, *words, **known)

    monkeypatch.setattr(answerer, "answered_alone", tells)
    with pytest.raises(AssertionError):
        compared(made, TAKERS["DPKMeans"], PAIRS["a row"], privacy_of("record", "plain"), "plain", capfd)
