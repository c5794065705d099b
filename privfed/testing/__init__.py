"""Contract tests for parts of your own: subclass one, say how yours is made, and pytest runs its tests.

    from privfed.testing import SecureSumContract

    class TestMine(SecureSumContract):
        def make(self):
            return Mine()

privfed's own parts are tested by the same classes. They need pytest, which privfed itself does not.
"""

from privfed.testing.contracts import AttackContract, EstimatorContract, MetricContract, PartitionContract
from privfed.testing.questions import BoundedQuestionContract, QuestionContract
from privfed.testing.sums import SecureSumContract

__all__ = [
    "AttackContract",
    "BoundedQuestionContract",
    "EstimatorContract",
    "MetricContract",
    "PartitionContract",
    "QuestionContract",
    "SecureSumContract",
]
