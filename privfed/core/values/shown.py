"""How notebooks show an object: as a small table of text, which refers to nothing outside it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any


def as_table(lines_of: Callable[[Any], Iterable[Iterable[object]]]) -> Callable[[Any], str]:
    """Return the `_repr_html_` of a class.

    Args:
        lines_of: returns an object's lines, of which the first has the names of the columns.
    """

    def _repr_html_(self: Any) -> str:
        lines = [[html.escape(str(one)) for one in line] for line in lines_of(self)]
        cells = (
            "".join(f"<{tag}>{one}</{tag}>" for one in line)
            for tag, line in zip(["th", *["td"] * len(lines)], lines, strict=False)
        )
        return f"<table>{''.join(f'<tr>{one}</tr>' for one in cells)}</table>"

    return _repr_html_
