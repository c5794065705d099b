"""The bounds of a masked client's checks: what just passes, and what just does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privfed.errors import PolicyError
from privfed.protocols import Masked
from privfed.protocols.masked.checks import check_prepared, check_reports, survivors
from privfed.protocols.masked.client_state import Pending
from privfed.protocols.masked.masked_messages import CollectRequest, UnmaskRequest
from privfed.protocols.setup.rules import Rules, bitmap
from privfed.protocols.setup.simulated import fresh_agreement
from tests.protocols.federations import Sums

N, ME = 9, 4
RULES = Rules.of(fresh_agreement(Sums(Masked(), N).configuration, range(N))[0])
T, NEIGHBOURS = RULES.threshold(0), RULES.neighbours(bytes(32), 0, ME)
MEMBERS, OTHERS = tuple(range(N)), tuple(i for i in range(N) if i != ME)
ALL = np.packbits(np.ones(N, dtype=np.uint8)).tobytes()
PENDING = Pending(
    number=1,
    header=b"",
    cohort=0,
    prepared=OTHERS,
    shares=b"",
    answer=b"",
    receipts=b"",
    participants=ALL,
)


def code_of(check: Callable[[], object]) -> str:
    """Return the code of a refusal; empty where there is none."""
    try:
        check()
    except PolicyError as error:
        return str(error)
    return ""


def prepared(chosen: set[int], boxes: bytes = b"") -> str:
    brought = bytes(len(chosen - {ME}))
    message = CollectRequest(0, 0, (), b"", b"", bitmap(MEMBERS, chosen), brought, boxes, ())
    return code_of(lambda: check_prepared(RULES, NEIGHBOURS, ME, message))


def test_a_client_masks_among_as_many_neighbours_as_open_its_secrets_and_not_among_one_less() -> None:
    assert 2 < T < N - 1
    assert prepared({ME, *OTHERS[:T]}) == "" == prepared({ME, *OTHERS})
    assert prepared({ME, *OTHERS[: T - 1]}) == "prepared:few"
    assert prepared({*OTHERS}) == "prepared:list"
    assert prepared({ME, *OTHERS}, boxes=b"\0") == "prepared:lengths"


def test_a_client_unmasks_among_as_many_neighbours_as_open_its_secrets_and_not_among_one_less() -> None:
    def reports(living: tuple[int, ...]) -> str:
        message = UnmaskRequest(bitmap(OTHERS, {*OTHERS}.difference(living)), b"", ())
        return code_of(lambda: check_reports(RULES, PENDING, message))

    assert reports(OTHERS[:T]) == "" and reports(OTHERS[: T - 1]) == "reports:few"


def bits(*lost: int, size: int = 16) -> bytes:
    flags = np.zeros(size, dtype=np.uint8)
    flags[list(lost)] = 1
    return np.packbits(flags).tobytes()


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        (b"", ""),
        (bits(*OTHERS[T:]), ""),
        (bits(ME), "reports:list"),
        (bits(OTHERS[0]), "reports:list"),
        (bits(N), "reports:list"),
        (bits(size=24), "reports:list"),
    ],
    ids=["nobody", "the dead", "itself", "a living one", "a stranger", "too long"],
)
def test_a_whole_cohorts_list_calls_neither_the_client_nor_the_living_lost(lost: bytes, code: str) -> None:
    message = UnmaskRequest(b"", b"", (), lost)
    assert code_of(lambda: survivors(RULES, PENDING, ME, message, OTHERS[:T])) == code
