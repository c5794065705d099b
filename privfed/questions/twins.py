"""Which questions have a form with a proven bound, and which a client answers once, as a whole."""

from __future__ import annotations

from collections.abc import Callable

from privfed.core.question import Question
from privfed.privacy.bounds import RecordBounded

TWINS: dict[type[Question], Callable[..., RecordBounded]] = {}
"""Question -> the same one with a proven bound for one record."""

OF_CLIENTS: dict[type[Question], dict[str, float]] = {}
"""Questions to which a client gives one answer as a whole -> L2 limit of each entry."""

SIGNED = {"offset"}
"""Entries that may be negative without noise."""
