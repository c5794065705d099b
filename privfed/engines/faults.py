"""Faults of clients and networks that a simulation injects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privfed.errors import ArgumentError

KINDS = ("drop", "lost-reply", "late", "twice", "garbage", "truncate")


@dataclass(frozen=True, slots=True)
class Fault:
    """One client's fault.

    Args:
        client: position of the client.
        stage: stage in which it fails, one of those that the secure sum declares (`SecureSum.stages`, which
            say what becomes of the client); None for any.
        kind: "drop" (the request never arrives), "lost-reply" (the client answers, but the reply is lost),
            "late" (the reply arrives in the next exchange), "twice" (the reply arrives in this exchange and
            in the next), "garbage" (random bytes replace it), "truncate" (only its first half arrives).
        sums: numbers of the sums in which it fails; None for all.
    """

    client: int
    stage: str | None = None
    kind: Literal["drop", "lost-reply", "late", "twice", "garbage", "truncate"] = "drop"
    sums: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError(f"kind must be one of {KINDS}, got {self.kind!r}.")

    def strikes(self, client: int, stage: str, number: int) -> bool:
        """Say whether the fault happens to a client in a stage of a sum."""
        here = self.client == client and self.stage in (None, stage)
        return here and (self.sums is None or number in self.sums)
