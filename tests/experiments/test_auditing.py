"""The audited epsilon: close below a claim that is kept, above one that is not."""

import msgspec
import numpy as np
import pytest

from privfed import Box, DPKMeans, Privacy
from privfed.core.question import question_from_bytes
from privfed.core.transcript import Asked, Transcript
from privfed.errors import ArgumentError, PrivacyError
from privfed.experiments.auditing import audit_run
from privfed.experiments.cells import Privately

CLAIM = Privately(
    epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", noise="distributed", rehearsal=True
)


@pytest.fixture(scope="module")
def run() -> Transcript:
    rng = np.random.default_rng(0)
    clients = [np.clip(rng.normal(size=(400, 2)) / 3, -1, 1) for _ in range(5)]
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(-1, 1), neighbours="add-remove", noise_seed=1
    )
    model = DPKMeans(3, privacy=privacy, protocol="plain", random_state=0).fit(clients)
    found: Transcript = model.transcript_
    return found


def test_a_claim_that_is_kept_is_not_refuted_and_nearly_reached(run: Transcript) -> None:
    found = audit_run(run, CLAIM, 20_000, seed=0)
    assert found["verdict"] == "not refuted"
    assert 0.5 < found["epsilon_gdp"] <= 1.0
    assert found == audit_run(run, CLAIM, 20_000, seed=0)


def test_a_claim_that_is_not_kept_is_refuted(run: Transcript) -> None:
    bold = msgspec.structs.replace(CLAIM, epsilon=0.5)
    assert audit_run(run, bold, 20_000, seed=0)["verdict"] == "violated"


def test_what_carries_no_noise_and_other_units_are_refused(run: Transcript) -> None:
    bare = Transcript()
    asked = run.of(Asked)[0]
    plain = question_from_bytes(asked.question).inner.to_bytes()
    bare.records = [run.records[0], msgspec.structs.replace(asked, question=plain)]
    with pytest.raises(PrivacyError, match="without noise"):
        audit_run(bare, CLAIM, 1000, seed=0)
    with pytest.raises(ArgumentError, match="one record"):
        audit_run(run, msgspec.structs.replace(CLAIM, unit="client"), 1000, seed=0)
