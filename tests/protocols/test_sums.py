"""Every secure sum keeps the contract that privfed.testing offers for sums of one's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from privfed.core.roles.secure_sum import SecureSum
from privfed.protocols import CKKS, GroupMasked, Masked, Plain, Slotted
from privfed.testing import SecureSumContract


class TestPlain(SecureSumContract):
    def make(self) -> SecureSum:
        return Plain()


class TestMasked(SecureSumContract):
    def make(self) -> SecureSum:
        return Masked()


class TestGroupMasked(SecureSumContract):
    def make(self) -> SecureSum:
        return GroupMasked()


class TestCKKS(SecureSumContract):
    def make(self) -> SecureSum:
        return CKKS()

    @pytest.mark.slow
    def test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total(self) -> None:
        super().test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total()


class TestSlotted(SecureSumContract):
    small_cohort = 5

    def make(self) -> SecureSum:
        return Slotted(Masked())

    @pytest.mark.slow
    def test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total(self) -> None:
        super().test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total()


VARIANTS: dict[str, Callable[[], SecureSum]] = {
    "plain, threshold": lambda: Plain(threshold=2),
    "masked, threshold": lambda: Masked(threshold=3),
    "masked, no colluders": lambda: Masked(colluders=0, honest=2),
    "group-masked, no colluders": lambda: GroupMasked(colluders=0, honest=2, repeats=1),
}


@pytest.mark.slow
class TestVariants(SecureSumContract):
    """Other terms."""

    small_cohort = 5

    @pytest.fixture(autouse=True, params=VARIANTS)
    def _made(self, request: pytest.FixtureRequest) -> None:
        self.made = VARIANTS[request.param]

    def make(self) -> SecureSum:
        return self.made()
