"""The natural order, in which clients and label values are listed.

`client2` comes before `client10`, and `-1` before `0`. The order of clients fixes their positions in a
fit, so it must not depend on the file system or on which row of a table comes first.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_DIGITS = re.compile(r"([0-9]+)")

NaturalKey = tuple[int, float, tuple[tuple[int, str], ...], str]


def natural_key(text: str) -> NaturalKey:
    """Return the key that sorts texts naturally: numbers by value, then texts, digits in them by value.

    Law: the keys of two different texts differ, so that the order never depends on the order of arrival.
    """
    if _NUMBER.fullmatch(text):
        return (0, float(text), (), text)
    # Runs of digits are compared by length, without leading zeros, and then as text: this is the order of
    # their values, without converting runs that may be thousands of digits long.
    chunks = (
        chunk.lstrip("0") if position % 2 else chunk for position, chunk in enumerate(_DIGITS.split(text))
    )
    return (
        1,
        0.0,
        tuple((len(chunk) * (position % 2), chunk) for position, chunk in enumerate(chunks)),
        text,
    )
