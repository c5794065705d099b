"""Fixtures of the tests of secure sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from privfed.core.roles.engine import Exchange
from privfed.protocols.masked import preparing, session
from privfed.protocols.setup import parties
from tests.protocols.federations import Sums
from tests.protocols.tapes import Forger


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Forger]:
    """Return what makes a forger, and lets the session gather before its eyes."""

    def make(run: Sums, forge: Callable[[Exchange, int, bytes], list[bytes]], **options: Any) -> Forger:
        forger = Forger(run, forge, **options)
        for module in (parties, preparing, session):
            monkeypatch.setattr(module, "gather", forger.gather)
        return forger

    return make
