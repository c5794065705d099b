"""Options that take a registered name, or "module:Name" for a class of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from privfed.core.names.registry import Registry
from privfed.errors import ArgumentError
from privfed.protocols.registry import SECURE_SUMS, made


def with_own_sum(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimator's words with the secure sum that a person typed as "module:Name", if so.

    Raises:
        ArgumentError: it cannot be imported, or not be made without arguments.
    """
    typed = words.get("protocol")
    if not isinstance(typed, str) or typed in SECURE_SUMS:
        return dict(words)
    return {**words, "protocol": made(typed, SECURE_SUMS.resolve(typed))}


class Registered(click.ParamType[str]):
    """Accepts a registered name, or "module:Name", which is imported because a person typed it.

    Args:
        registry: the registry that names are looked up in.
        shown: names that help and errors list; by default all.
        also: a registry whose names are understood too; help lists those that packages and users added.
    """

    name = "name"

    def __init__(
        self,
        registry: Registry[Any],
        shown: tuple[str, ...] | None = None,
        also: Registry[Any] | None = None,
    ) -> None:
        self.registry, self._shown, self._also = registry, shown, also

    @property
    def names(self) -> tuple[str, ...]:
        """Names that help and errors list: those shown, and those that packages and users added."""
        more = () if self._also is None else self._also.added()
        if self._shown is None:
            return (*self.registry.names(), *more)
        return (*self._shown, *self.registry.added(), *more)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names as help shows them."""
        return f"[{'|'.join(self.names)}|MODULE:NAME]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that the name is known, and return it unchanged."""
        if self._also is not None and value in self._also:
            return value
        try:
            self.registry.resolve(value)
        except ArgumentError as error:
            said = str(error) if ":" in value else f"{value!r} is none of {', '.join(self.names)}."
            self.fail(said, param, ctx)
        return value
