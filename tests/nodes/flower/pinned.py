"""Nodes whose randomness repeats, but for that of noise: all that leaves two runs compares to the byte."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from privfed import Privacy
from privfed.cli import progress
from privfed.cli.main import main
from privfed.deep.training import local
from privfed.nodes import database, journal
from privfed.nodes.deploy.adding import approve
from privfed.nodes.deploy.folders import read_kit
from privfed.nodes.deploy.node import Says
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower import node as node_module
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node import check_node
from privfed.privacy.noised import Noised
from privfed.protocols.setup import advertising, hybrid
from tests.nodes.flower.networks import Folders
from tests.privacy.audited import Run
from tests.privacy.tapes import Tape, seen

NAMES = ("a", "b", "c")


def invoked(*words: object) -> str:
    done = CliRunner().invoke(main, ["flower", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def federated(home: Path, header: str, lines: list[str], words: Sequence[object]) -> Path:
    """Make nodes of tables with the same lines, each by its owner's command, and the list of all."""
    for name in NAMES:
        write(home, name, lines, header)
        invoked("join", home / name, "--data", home / f"{name}.csv", *words)
        settings = home / name / "node.toml"
        settings.write_text(
            settings.read_text() + 'models = true\nprotocols = ["plain", "masked", "masked-verified", '
            '"group-masked", "ckks"]\n'
        )
    invoked("add", home / "hub", *(home / f"{name}.pub" for name in NAMES), "--host", "localhost")
    for name in NAMES:
        approve(home / name, read_kit(home / "hub.kit"))
    return home


def write(home: Path, name: str, lines: list[str], header: str) -> None:
    text = "\n".join([header, *lines, ""])
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
        patch.setattr(advertising, "time_ns", self._clock)
        # Each party's journal goes on from its own last time.
        patch.setattr(journal, "time_ns", lambda: 10**18)
        # A line of progress is written every ten seconds: a run that took longer had one more.
        patch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0))
        # A node says its time where it is asked how it stands.
        patch.setattr(node_module, "time", SimpleNamespace(time=lambda: 1e9))
        patch.setattr(hybrid, "encapsulate", self._again(hybrid.encapsulate))
        patch.setattr(Noised, "answer_all", self._unpinned(Noised.answer_all))
        patch.setattr(local, "private_sgd", self._unpinned(local.private_sgd))

    def _clock(self) -> int:
        self._drawn["clock"] += 1
        return 10**18 + self._drawn["clock"]

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


PARTS = ("replies", "requests", "what nodes say", "faults", "a terminal", "what the coordinator gets")


def first_difference(one: Any, other: Any) -> str:
    """Say where two values first differ: a failure that comes once must tell by itself."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        one, other = list(one.items()), list(other.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return f"[{i}] {first_difference(a, b)}"
    a, b = repr(one), repr(other)
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    at = max(0, at - 40)
    return f"{a[at : at + 160]} != {b[at : at + 160]}"


def compared(
    made: Path,
    run: Run,
    lines: tuple[list[str], list[str]],
    privacy: Privacy,
    protocol: str,
    capfd: pytest.CaptureFixture[str],
    taped: Callable[[pytest.MonkeyPatch], Any] = Tape,
    alike: Callable[[list[Any]], list[Any]] = list,
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
            write(made, NAMES[0], own, (made / "b.csv").read_text().split("\n")[0])
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
    for name, one, other in zip(PARTS, *map(alike, found), strict=True):
        assert one == other, f"{name}: {first_difference(one, other)}"
    return found[0], tape
