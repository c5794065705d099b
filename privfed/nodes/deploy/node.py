"""A node: connects to its SuperLink until stopped, and says what it is asked and what it answers."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from privfed.core.agreed.agreement import Agreement
from privfed.core.stored.encoding import Refusal, decode
from privfed.core.stored.files import make_folder, open_file
from privfed.errors import REMEDIES, PrivFedError, remedied
from privfed.nodes.deploy.certificates import NODE_KEY
from privfed.nodes.deploy.folders import KIT, read_kit
from privfed.nodes.deploy.processes import stop_by_signals
from privfed.nodes.flower import node_messages as messages
from privfed.nodes.flower.network import environment
from privfed.nodes.flower.settings import HOME, SETTINGS, NodeSettings
from privfed.nodes.identity import read_identity
from privfed.nodes.signed import SignedRequest

LOCK, ALIVE, METRICS = "node.lock", "alive", "metrics"
"""In the `flwr` folder: held while it runs; touched when the SuperLink has answered it; OpenMetrics text."""

LOG, LEVEL = "PRIVFED_LOG", "PRIVFED_LOG_LEVEL"
"""Environment variables: "json" for lines of JSON, and "warning" for lines of these words alone:"""

WARNINGS = ("cut", "failed", "gone", "lost", "refused", "waiting")

_TRYING, _WORKING = ("connecting", "waiting", "cut", "working"), "working"
_AGAIN, _STILL = 3.0, 60.0
"""Seconds until a node connects again, and until it says the same again where nobody sits before it."""


@dataclass
class Says:
    """Says what a node does, a line each: time, name, one word, and the rest. Operators look for the word.

    A line tells what was asked and what came of it; nothing that depends on rows.

    Args:
        name: of the party.
        file: where to.
        metrics: file for counts of the words, as OpenMetrics text; None for none.
        there: of each party whether it is there, for the same file.
    """

    name: str
    file: TextIO = field(default_factory=lambda: sys.stdout)
    metrics: Path | None = None
    there: dict[str, bool] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _last: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __call__(self, word: str, text: str) -> None:
        """Say a line; the same one not again within a minute, except at a terminal."""
        now = time.monotonic()
        said, before = self._last.get(word, ("", 0.0))
        if (said == text or (said and word == _WORKING)) and now - before < (
            _AGAIN if self.file.isatty() else _STILL
        ):
            return
        self._count(word)
        if word not in _TRYING:
            self._last.clear()
        self._last[word] = text, now
        # What others wrote stands in one line, and moves no cursor.
        text = "".join(one if one.isprintable() else "?" for one in text)
        level = "warning" if word in WARNINGS else "info"
        line = {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "name": self.name, "word": word}
        if os.environ.get(LOG) == "json":
            shown = json.dumps({**line, "level": level, "text": text}, ensure_ascii=False)
        else:
            shown = f"{' '.join(line.values())}: {text}"
        if os.environ.get(LEVEL, level) in (level, "info"):
            print(shown, file=self.file, flush=True)

    def _count(self, word: str) -> None:
        """Count a word in the file of metrics."""
        self._counts[word] += 1
        if self.metrics is not None:
            parties = [(json.dumps(one, ensure_ascii=False), here) for one, here in self.there.items()]
            lines = [
                "# TYPE privfed_lines counter",
                *(f'privfed_lines_total{{word="{one}"}} {n}' for one, n in sorted(self._counts.items())),
                "# TYPE privfed_party_connected gauge",
                *(f"privfed_party_connected{{party={label}}} {here:d}" for label, here in sorted(parties)),
            ]
            fresh = self.metrics.with_suffix(".new")
            fresh.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
            fresh.replace(self.metrics)

    def asked(self, request: bytes) -> None:
        """Say what a message asks."""
        self("asked", _asked(request)[0])

    def working(self, seconds: float) -> None:
        """Say that the answer takes so long."""
        self(_WORKING, f"on that for {seconds:.0f} s")

    def told(self, request: bytes, reply: bytes | None) -> None:
        """Say what was replied."""
        word, what = _replied(reply)
        self(word, f"{_asked(request)[1]}{what}")


def _asked(request: bytes) -> tuple[str, str]:
    """Return what a message asks, and which fit it is of."""
    try:
        message = messages.read_down(request)
        if isinstance(message, messages.Join):
            agreement = Agreement.from_bytes(message.agreement)
            agreed, fit = agreement.configuration, agreement.digest.hex()[:8]
            private = "no guarantee" if agreed.privacy is None else f"epsilon {agreed.privacy.epsilon:g}"
            columns = f"{agreed.n_features} columns" if agreed.columns is None else ", ".join(agreed.columns)
            named = re.match(r'\{"algorithm": ?"(\w+)"', agreed.algorithm)
            what = f"{named[1] if named else agreed.algorithm[:80]} over {agreed.protocol} sums, of {columns}"
            return (
                f"fit {fit} to join: {what}, with {', '.join(agreed.clients)}; {private}",
                f"fit {fit}, ",
            )
        if isinstance(message, messages.Look):
            return "how it stands", ""
        fit = f"fit {message.digest.hex()[:8]}"
        if isinstance(message, messages.End):
            return f"{fit} to end", f"{fit}, "
        number = decode(message.request, SignedRequest, sender="the coordinator", stage="request").number
        return f"{fit}, request {number}", f"{fit}, "
    except PrivFedError:
        return "something that is no message of privfed's", ""


def _replied(reply: bytes | None) -> tuple[str, str]:
    """Return in a word what became of a message, and its code."""
    if reply is None:
        return (
            "failed",
            "its process died, or was ended since nobody waits for it any more (timeout in the coordinator's "
            "federation.toml); your move: see log/ in the party's folder",
        )
    try:
        answer = messages.read_up(reply, "this node")
    except PrivFedError:
        return "failed", "no reply"
    if isinstance(answer, messages.Declined | Refusal):
        return "refused", ". ".join(filter(None, (answer.code, REMEDIES.get(remedied(answer.code)))))
    if isinstance(answer, messages.Silent):
        return (
            "failed",
            "its journal cannot be used; your move: see log/ in the party's folder",
        )
    words = {messages.Joined: "joined", messages.Ended: "ended", messages.Standing: "how it stands"}
    return "answered", words.get(type(answer), "by the secure sum")


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Say whether this process is the folder's only node, and keep others from it meanwhile."""
    make_folder(folder / HOME)
    with open_file(folder / HOME / LOCK, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def run_node(folder: Path) -> None:
    """Be a node until this process is ended, which must have no threads: it forks for every answer.

    Where the SuperLink cannot be used it is tried again every few seconds. A kit that the owner approves
    meanwhile holds from the next look for a message on.

    Args:
        folder: of the party, checked (`check_node`) in another process, since reading tables leaves threads.

    Raises:
        ArgumentError: the folder has no kit or no identity.
    """
    says = Says(read_identity(folder).name, metrics=folder / HOME / METRICS)
    # Before flwr is imported, which reads it.
    os.environ.update(environment(folder / HOME))
    from privfed.nodes.deploy import supernode

    # A signal becomes an exception, so that the SuperLink hears that this node leaves.
    stop_by_signals()
    says("starting", "reading what answers need")
    supernode.load(_also(folder))
    kits, unsent = Kits(folder, says), list[Any]()
    while True:
        kits.moved()
        kit = kits.kit
        says("connecting", kit.address)
        try:
            fleet = supernode.Fleet(kit, folder / NODE_KEY, says, folder / HOME / ALIVE)
        except supernode.LinkError as error:
            says("waiting", str(error))
            time.sleep(_AGAIN)
            continue
        try:
            says(
                "connected",
                f"to {kit.address}, as one of {len(kit.parties.clients)} clients; stop with Ctrl-C",
            )
            supernode.serve(fleet, folder, says, kits.moved, unsent)
        except supernode.LinkError as error:
            says("lost", str(error))
            time.sleep(_AGAIN)
        finally:
            fleet.close()


class Kits:
    """The kit that a party's owner approved, which may change while its node runs.

    Args:
        folder: the party's.
        says: hears of another list.
    """

    def __init__(self, folder: Path, says: Says) -> None:
        self._path, self._says = folder / KIT, says
        self._seen, self.kit = self._path.read_bytes(), read_kit(self._path)

    def moved(self) -> bool:
        """Read the kit where it changed; say whether the SuperLink is another one."""
        if (content := self._path.read_bytes()) == self._seen:
            return False
        before, self.kit, self._seen = self.kit, read_kit(self._path), content
        self._says(
            "approved", f"a list of {len(self.kit.parties.clients)} clients: {self.kit.parties.fingerprint}"
        )
        return (before.address, before.authority) != (self.kit.address, self.kit.authority)


def _also(folder: Path) -> tuple[str, ...]:
    """Return the parts that a node imports besides: where it has labels, what trains torch modules."""
    trains = (folder / SETTINGS).exists() and NodeSettings.read(folder).labels is not None
    return ("torch",) if trains and find_spec("torch") and find_spec("opacus") else ()


if __name__ == "__main__":
    with alone(Path(sys.argv[1])) as only:
        if not only:
            raise SystemExit(f"a node of {sys.argv[1]} runs already.")
        run_node(Path(sys.argv[1]))
