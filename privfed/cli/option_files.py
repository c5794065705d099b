"""Files of options: what stands in one is read as if it stood on the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path

from privfed.errors import ArgumentError


def words_of(path: Path) -> list[str]:
    """Return what a TOML file says of options as words of a command line.

    Raises:
        ArgumentError: it cannot be read, or a value is no text, number, truth value or list of these.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be read as a file of options ({type(error).__name__}).") from None
    words = list[str]()
    for name, value in found.items():
        option = f"--{name.replace('_', '-')}"
        if option == "--config":
            raise ArgumentError(f"{path} names another file of options; write its options here.")
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str | int | float) for one in several):
            raise ArgumentError(
                f"{path}: {name} must be a text, a number, true or false, or a list of these."
            )
        if isinstance(value, bool):
            words += [option] if value else [f"--no-{option[2:]}"] if option == "--picture" else []
        else:
            words.append(f"{option}={','.join(map(str, several))}")
    return words
