"""What masked sums do not hide: two sums over many clients that differ by one client's answer.

SECURITY.md and docs/threat-model.md say so. No client can tell a real loss from one that the server names.
"""

from __future__ import annotations

import numpy as np

from privfed.engines.in_process import Fault
from privfed.protocols import Masked
from tests.protocols.federations import EVERYONE, Sums, vectors


def test_two_equal_sums_with_one_client_named_lost_between_them_differ_by_its_answer() -> None:
    sums, question = Sums(Masked(), 8), vectors()
    whole = sums.ask(question)
    # The same rows, so the same answers; the server throws one upload away and says that it never came.
    sums.draw = lambda question: None  # type: ignore[method-assign]
    others = sums.ask(question, EVERYONE, (EVERYONE,), Fault(3, "collect", "lost-reply"))
    assert (whole.contributors, others.contributors) == (tuple(range(8)), (0, 1, 2, 4, 5, 6, 7))
    difference = question.spec.flatten(whole.statistics) - question.spec.flatten(others.statistics)
    np.testing.assert_allclose(difference, sums.values[3], atol=2.0**-16)
