"""Contributions come back as they were shown, to the last bit, in any order in which they are asked for."""

from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.statistics import Entry, StatisticsSpec, StatisticsTable
from privfed.core.record import records
from privfed.core.roles.conversation import Contributions
from tests.some import some

SPEC = StatisticsSpec(Entry("count", (2,), 0.0, 9.0, 1.0), Entry("sum", (2, 3), -1.0, 1.0, 0.1))


@given(seed=st.integers(0, 2**32 - 1), in_file=st.booleans())
def test_tables_come_back_to_the_last_bit(seed: int, in_file: bool) -> None:
    rng, kept, expected = np.random.default_rng(seed), [], []
    with TemporaryDirectory() as folder, patch.object(records, "INLINE", -1):
        file = Path(folder) / "values" if in_file else None
        for _ in range(8):
            vectors = rng.normal(size=(3 if rng.random() < 0.7 else 2, SPEC.size))
            vectors[0, :3] = rng.choice([0.0, -0.0, np.nan], 3)
            shown = {i: SPEC.unflatten(one.copy()) for i, one in enumerate(vectors)}
            kept.append(records.Tables(file).kept(shown))
            expected.append(vectors)
        for place in some(rng.permutation(8).tolist()):
            assert bool(kept[place].data) != in_file
            assert kept[place].values(file).tobytes() == expected[place].tobytes()


def test_a_large_table_keeps_the_bytes_that_it_was_read_from(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(8 * 4 * 60_000)
    whole = np.frombuffer(data).reshape(4, 60_000)
    for vectors, as_they_are in ((whole, True), (whole[::-1], False), (whole[1:], False), (whole.T, False)):
        layout = (("numbers", (vectors.shape[1],)),)
        shown = Contributions(range(len(vectors)), partial(StatisticsTable, layout, vectors))
        kept = records.Tables().kept(shown)
        assert (kept.data is data) == as_they_are
        assert kept.data == vectors.tobytes() and kept.sha256 == ""
        stored = records.Tables(tmp_path / records.VALUES).kept(shown)
        assert stored.data == b"" and stored.sha256 == sha256(kept.data).hexdigest()
