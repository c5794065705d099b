"""Seeding gives the same bits whatever threads and processor; a client that computes others takes no part."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.errors import RefusedError
from privfed.numerics.kmeans import known_answers
from privfed.protocols import answering

ROWS = [np.random.default_rng(i).normal(4 * (i % 2), 1, (12, 2)) for i in range(4)]


def test_the_digest_is_the_one_that_other_machines_have() -> None:
    assert known_answers() == "198bf9c8095d6abca42674abed37d6b303eb7e3c085a038fb0d34603f5c62a31"


def test_threads_and_instructions_of_the_processor_change_nothing() -> None:
    asked = "from privfed.numerics.kmeans import known_answers; print(known_answers())"
    other = {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4", "OPENBLAS_CORETYPE": "Nehalem"}
    found = subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | other, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == known_answers()


@pytest.mark.parametrize("protocol", ["group-masked", "ckks"])
def test_a_client_with_other_known_answers_refuses_by_name(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "known_answers", lambda: "0" * 64)
    with pytest.raises(RefusedError, match=r"numerics.*same versions of privfed and numpy") as refused:
        DWFKMeans(2, protocol=protocol, max_iter=1).fit(ROWS)
    assert refused.value.codes == {str(i): "numerics" for i in range(4)}


def test_no_known_answers_are_agreed_where_the_server_runs_the_algorithm_alone() -> None:
    fitted = DWFKMeans(2, protocol="masked", max_iter=1, tol=0).fit(ROWS)
    assert fitted.transcript_.configuration.numerics == ""
