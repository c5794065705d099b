"""What a coordinator's process knows of a federation over Flower: a folder of `privfed flower new`."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.errors import ArgumentError

FILE, APP, HOME = "federation.toml", "app", "flwr"
"""In the folder: the file, the thin Flower app, and what Flower keeps for itself."""

_KINDS: dict[str, tuple[type, ...]] = {
    "coordinator": (str,),
    "parties": (str,),
    "superlink": (str,),
    "root_certificates": (str,),
    "timeout": (int, float),
    "wait": (int, float),
}


@dataclass(frozen=True, kw_only=True)
class FederationFile:
    """A federation over Flower, as its coordinator keeps it.

    Args:
        folder: where the file lies; its paths start there.
        coordinator: folder of the coordinator's identity.
        parties: list of everybody's cards.
        columns: names of the columns, the same for all.
        superlink: address of Flower's SuperLink, host:port.
        root_certificates: of its TLS certificate; None for a SuperLink on this machine without TLS.
        timeout: seconds that a node has for one reply; messages live as long.
        wait: seconds to wait for nodes when a fit begins.
    """

    folder: Path
    coordinator: Path
    parties: Path
    columns: tuple[str, ...]
    superlink: str = "127.0.0.1:8000"
    root_certificates: Path | None = None
    timeout: float = 120.0
    wait: float = 120.0

    @classmethod
    def read(cls, folder: Path) -> FederationFile:
        """Return what is in a folder.

        Raises:
            ArgumentError: the file is missing, or a key or value is not known.
        """
        # Flower's commands run in a folder of their own.
        folder = folder.absolute()
        path = folder / FILE
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise ArgumentError(f"{path} is missing or no TOML; make it with: privfed flower new") from None
        if unknown := sorted(set(table) - {*_KINDS, "columns"}):
            raise ArgumentError(
                f"{path}: {unknown[0]!r} is not known; known are columns, {', '.join(_KINDS)}."
            )
        for name, kinds in _KINDS.items():
            if name in table and (isinstance(table[name], bool) or not isinstance(table[name], kinds)):
                raise ArgumentError(f"{path}: {name} must be {kinds[0].__name__}, got {table[name]!r}.")
        columns = table.get("columns")
        if not isinstance(columns, list) or not columns or not all(isinstance(one, str) for one in columns):
            raise ArgumentError(f"{path}: columns must list the names of the columns, got {columns!r}.")
        return cls(folder=folder, **_words(folder, table), columns=tuple(columns))

    def text(self) -> str:
        """Return the file's text."""
        lines = [
            f"coordinator = {quoted(str(self.coordinator))}  # from privfed keys new, its own alone",
            f"parties = {quoted(str(self.parties))}  # list of privfed keys registry; nodes have the same",
            f"columns = [{', '.join(map(quoted, self.columns))}]  # the same for all, in this order",
            f"superlink = {quoted(self.superlink)}",
        ]
        if self.root_certificates is not None:
            lines.append(f"root_certificates = {quoted(str(self.root_certificates))}")
        lines += [
            f"timeout = {self.timeout:g}  # seconds for one reply; messages live as long",
            f"wait = {self.wait:g}  # seconds to wait for nodes when a fit begins",
        ]
        return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _words(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {name: table[name] for name in ("superlink", "timeout", "wait") if name in table}
    for name, usual in (("coordinator", "coordinator"), ("parties", "parties"), ("root_certificates", None)):
        given = table.get(name, usual)
        words[name] = None if given is None else folder / given
    return words
