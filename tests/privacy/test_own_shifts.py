"""What a client reads of any run on its own rows: nothing moved a total further than was charged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from privfed.attacks.audits import audit_rows
from privfed.core.asking.question import ClientData
from privfed.core.record.transcript import Transcript
from privfed.errors import PrivFedError
from privfed.federation.driver import Federation
from tests.privacy.audited import CLIENT, RECORD, Run
from tests.privacy.shifts import odd_rows
from tests.privacy.tapes import BALL, BOX, D, privacy_for, rows_of
from tests.privacy.test_interference import TAKERS

ROWS = np.vstack([rows_of(0, 25), odd_rows(BALL, D)])
"""A client's rows, of which many lie on the domain's border, near it, far outside, or next to nothing."""


def transcripts_of(run: Run, unit: str, neighbours: str) -> list[Transcript]:
    """Return the transcripts of what a run asks about the rows under noise; none where it refuses."""
    opened, begin = list[Federation](), Federation.__init__

    def begun(self: Federation, *args: Any, **words: Any) -> None:
        begin(self, *args, **words)
        opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Federation, "__init__", begun)
        privacy = privacy_for("plain", BOX, unit, neighbours)
        with suppress(PrivFedError):
            run([ROWS, rows_of(3, 30), rows_of(4, 20)], privacy=privacy, protocol="plain", run_dir=None)
    # An imputer asks about what is missing, too; clients of one-shot fits noise in runs of their own.
    told = [(one.transcript, one.transcript.configuration) for one in opened]
    return [kept for kept, agreed in told if agreed.n_features == D and agreed.noising_terms is not None]


CASES = {f"record {name}": run for name, run in {**TAKERS, **RECORD}.items()}
CASES |= {f"client {name}": run for name, run in {**TAKERS, **CLIENT}.items()}


@pytest.mark.filterwarnings("ignore:.*noise alone may give:UserWarning")
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.few(6)
def test_no_row_of_a_client_and_no_client_moved_a_total_further_than_was_charged(
    name: str, neighbours: str
) -> None:
    unit, known = name.split(" ", 1)
    data = ClientData(BOX.clip(ROWS), np.zeros(len(ROWS), dtype=np.int64))
    found = transcripts_of(CASES[name], unit, neighbours)
    for transcript in found:
        audited = audit_rows(transcript, data)
        assert audited.verdict == "not refuted", audited
        assert audited.charged <= audited.together.bound * (1 + 1e-9)
    assert found or known not in (RECORD if unit == "record" else CLIENT)
