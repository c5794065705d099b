"""Contract tests for parts of your own: subclass one, say how yours is made, and pytest runs its tests.

    from privfed.testing import SecureSumContract

    class TestMine(SecureSumContract):
        def make(self):
            return Mine()

privfed's own parts are tested by the same classes. They need pytest, which privfed itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily
from privfed.testing.contracts import EstimatorContract, MetricContract, PartitionContract
from privfed.testing.questions import BoundedQuestionContract, QuestionContract
from privfed.testing.sums import SecureSumContract

if TYPE_CHECKING:
    from privfed.attacks.testing import AttackContract

__all__ = [
    "AttackContract",
    "BoundedQuestionContract",
    "EstimatorContract",
    "MetricContract",
    "PartitionContract",
    "QuestionContract",
    "SecureSumContract",
]

# Who tests no attack imports none.
__getattr__ = lazily(__name__, {"AttackContract": "privfed.attacks.testing"})
