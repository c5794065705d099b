"""Rows are compared with a run's totals before anything is scored against them."""

import numpy as np
import pytest

from privfed import (
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
)
from privfed.audits import audit_run
from privfed.audits.truth import unlike
from privfed.errors import DataError
from tests.attacks.populations import mixture


def fitted(model):
    rows = mixture(0, n_clients=4, n_rows=30).clients
    model.fit(np.concatenate(rows), groups=np.repeat(list("abcd"), 30), client_names=list("abcd"))
    return model.federation_.transcript, rows


@pytest.mark.parametrize(
    "model",
    [
        DWFKMeans(3, local_iter=1, random_state=0),
        DWFKMeans(3, local_iter=1, init="nested", protocol="masked", random_state=0),
        DWFKMeans(3, protocol="ckks", random_state=0),
        FederatedMiniBatchKMeans(3, batch_size=20, random_state=0, max_iter=5),
        FederatedFuzzyCMeans(3, random_state=0, max_iter=3),
    ],
    ids=lambda model: f"{type(model).__name__} over {model.protocol}",
)
def test_the_rows_of_a_run_give_its_totals_and_rows_with_one_changed_do_not(model):
    transcript, rows = fitted(model)
    assert unlike(transcript, rows) is None
    changed = [own.copy() for own in rows]
    changed[2][7, 0] += 0.5
    assert unlike(transcript, changed) is not None


def test_noised_totals_are_not_audited_against_other_rows():
    """Differences that are too large would be taken for enough noise."""
    privacy = Privacy(
        epsilon=10.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25, max_rows=99)
    )
    transcript, rows = fitted(DPKMeans(3, privacy=privacy))
    assert unlike(transcript, rows) is None
    assert audit_run(transcript, rows, confidence=1 - 1e-9).verdict == "not refuted"
    others = [own[:5] + 9.0 for own in rows]
    assert unlike(transcript, others) == "its noised sums"
    with pytest.raises(DataError, match="nothing was audited"):
        audit_run(transcript, others)
