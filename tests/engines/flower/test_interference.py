"""With noised answers pinned, no byte that leaves a node depends on its rows.

Rows are raw lines of CSV. Nodes are made by `privfed flower join` and `add`, and answer each message from
nothing but their folder, as a fork of `privfed flower node` does. All randomness repeats in both runs but
that of noise. So messages compare to the byte: replies, requests, what nodes say, what reaches a terminal,
and what the coordinator gets, as result, error, warning, fault or file.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privfed import Box, DPKMeans, Privacy
from privfed.cli import federations
from privfed.cli.main import main
from privfed.core.names import ALGORITHMS, PLACES
from privfed.deep import CFL, DCFL, FedAvg
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.training import local
from privfed.deploy.adding import approve
from privfed.deploy.folders import read_kit
from privfed.deploy.node import Says
from privfed.engines.flower import FlowerEngine
from privfed.engines.flower.network import Heard
from privfed.engines.flower.node import check_node
from privfed.errors import PolicyError
from privfed.party import answerer, database, journal
from privfed.privacy.noised import Noised
from privfed.protocols.setup import hybrid
from tests.deep.estimators.test_byte_identity import DPSGD, TrainingTape
from tests.engines.flower.networks import Folders
from tests.privacy.tapes import Tape, seen
from tests.privacy.test_interference import TAKERS, Run

NAMES = ("a", "b", "c")
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


def invoked(*words: object) -> str:
    done = CliRunner().invoke(main, ["flower", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


JOINED = (
    *("--columns", "x,y,z", "--labels", "class", "--id", "id", "--classes", 3, "--missing", "leave-out"),
    *("--tells", "--group-size", 1, "--algorithms", ",".join([*ALGORITHMS.names(), *PLACES])),
    *("--max-epsilon", 1000, "--max-fits", 100),
)
"""Options of an owner who approves everything under differential privacy."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a federation of three nodes, each made by its owner's command from a raw table."""
    home = tmp_path_factory.mktemp("nodes") / "fed"
    for place, name in enumerate(NAMES):
        party = home / name
        party.parent.mkdir(exist_ok=True)
        write(home, name, lines_of(place, 24))
        invoked("join", party, "--data", home / f"{name}.csv", *JOINED)
        settings = party / "node.toml"
        settings.write_text(
            settings.read_text() + 'models = true\nprotocols = ["plain", "masked", "masked-verified", '
            '"group-masked", "ckks", "slotted:masked"]\n'
        )
    invoked("add", home / "hub", *(home / f"{name}.pub" for name in NAMES), "--host", "localhost")
    for name in NAMES:
        approve(home / name, read_kit(home / "hub.kit"))
    (home / "found").mkdir()
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 40, 3))
    DPKMeans(2, privacy=privacy_of("record", "plain"), protocol="plain").fit(list(rows)).save(
        home / "found" / "model.npz"
    )
    return home


def write(home: Path, name: str, lines: list[str]) -> None:
    text = "\n".join([HEADER, *lines, ""])
    (home / f"{name}.csv").write_bytes(text.encode("utf-8", "surrogateescape"))


def frames() -> Iterator[str]:
    """Yield where the code that runs was called from, file and line."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"
        frame = frame.f_back


class Repeating:
    """Random bytes of the operating system and its clock, alike in both runs; noise is drawn anew."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._fresh, self._anew, self._drawn = os.urandom, False, Counter[str]()
        self._kept, self._counts = dict[tuple[bytes, int], Any](), Counter[bytes]()
        patch.setattr(os, "urandom", self._bytes)
        patch.setattr(random, "_urandom", self._bytes)
        for module in (database, journal):
            patch.setattr(module, "now", lambda: "now")
        patch.setattr(hybrid, "encapsulate", self._again(hybrid.encapsulate))
        patch.setattr(Noised, "answer_all", self._unpinned(Noised.answer_all))
        patch.setattr(local, "private_sgd", self._unpinned(local.private_sgd))

    def _bytes(self, n: int) -> bytes:
        # What other libraries draw, once in a process, moves nothing.
        asks = next((one for one in frames() if one.startswith("privfed.")), None)
        if self._anew or asks is None:
            return self._fresh(n)
        self._drawn[asks] += 1
        return hashlib.shake_256(f"{asks} {self._drawn[asks]}".encode()).digest(n)

    def _again(self, honest: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Return a function whose library draws by itself: what it drew in the first run."""

        def drawn(public: bytes) -> Any:
            self._counts[public] += 1
            place = public, self._counts[public]
            if place not in self._kept:
                self._kept[place] = honest(public)
            return self._kept[place]

        return drawn

    def _unpinned(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def free(*words: Any) -> Any:
            self._anew = True
            try:
                return honest(*words)
            finally:
                self._anew = False

        return free

    def replay(self) -> None:
        """Begin again."""
        self._drawn.clear()
        self._counts.clear()


class Live(Folders):
    """The nodes, each of which says what it is asked and what it replies, as its process does."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        super().__init__(folders)
        self.said = io.StringIO()
        self._says = {place: Says(one.name, self.said) for place, one in self.folders.items()}

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        for node, request in messages.items():
            self._says[node].asked(request)
        heard = super().send(messages, seconds)
        for node, reply in heard.replies.items():
            self._says[node].told(messages[node], reply)
        return heard


def compared(
    made: Path,
    run: Run,
    lines: tuple[list[str], list[str]],
    privacy: Privacy,
    protocol: str,
    capfd: pytest.CaptureFixture[str],
    taped: Callable[[pytest.MonkeyPatch], Any] = Tape,
) -> tuple[list[Any], Any]:
    """Compare all that leaves the nodes in two runs; return that, and what was replayed."""
    kept, found = made.with_name("kept"), []
    if not kept.exists():
        shutil.copytree(made, kept)
    with pytest.MonkeyPatch.context() as patch:
        repeating = Repeating(patch)
        tape = taped(patch)
        for own in lines:
            shutil.rmtree(made)
            shutil.copytree(kept, made)
            write(made, NAMES[0], own)
            assert [check_node(made / name) for name in NAMES] == list(NAMES)
            network = Live(tuple(made / name for name in NAMES))
            engine = FlowerEngine(made / "hub", network=network)

            def over(clients: Any, **words: Any) -> Any:
                found = run(None, engine=engine, **{**words, "protocol": protocol})  # noqa: B023
                engine.end_fits()  # noqa: B023
                return found

            capfd.readouterr()
            shown = seen(over, made / "run", "plain", privacy, None, patch)
            said = re.sub(r"^\S+ ", "", network.said.getvalue(), flags=re.MULTILINE)
            faults = [str(one) for one in engine.faults]
            found.append([network.up, network.down, said, faults, tuple(capfd.readouterr()), shown])
            repeating.replay()
            tape.replay()
    for one, other in zip(*found, strict=True):
        assert one == other
    return found[0], tape


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


COMMANDS = {
    "run": ("--algorithm", "dp", "-k", 2, "--out", "run"),
    "summary": ("--bins", 4, "--out", "run"),
    "measure": ("found", "--metrics", "inertia"),
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
            patch.setattr(federations, "FlowerEngine", lambda folder, clients: engine)
            said = CliRunner(env={"COLUMNS": "2000"}).invoke(
                main, ["flower", *map(str, (name, made / "hub", *words, *claim, *domain))]
            )
        assert said.exit_code == 0, said.output
        return said.output

    _, tape = compared(made, run, PAIRS[pair], privacy_of("record", "masked"), "masked", capfd)
    assert tape.differed == len(tape.answers) > 0


@pytest.mark.slow
def test_a_card_says_nothing_of_the_rows_that_its_party_joined_with(made: Path, tmp_path: Path) -> None:
    cards = set()
    for lines in (BASE, PAIRS["a text"][1], PAIRS["out of the domain"][1], BASE[:1]):
        write(tmp_path, "own", lines)
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
