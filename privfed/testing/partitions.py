"""The contract of splits into clients, for simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

RowNumbers = npt.NDArray[np.intp]


class PartitionContract:
    """Laws of every way to split a table into clients. Write `split`.

    The clients' row numbers are disjoint, together they are all rows, none is empty, and the same
    generator state gives the same split.

    Attributes:
        room: fewest rows a client for which the way finds a split.
        n_tries: on how many drawn tables each law is tried.
    """

    room = 2
    n_tries = 25

    def split(
        self, X: FloatArray, n_clients: int, rng: np.random.Generator, y: npt.NDArray[np.int64]
    ) -> Sequence[RowNumbers]:
        """Return one array of row numbers a client; `y` are labels, for ways that need some."""
        raise NotImplementedError

    def tables(self) -> list[tuple[FloatArray, int, npt.NDArray[np.int64]]]:
        """Return tables with numbers of clients and labels, some of one row many times."""
        drawn = []
        for turn in range(self.n_tries):
            rng = np.random.default_rng(turn)
            n_clients = int(rng.integers(1, 7))
            n_rows = self.room * n_clients + int(rng.integers(31))
            X = rng.integers(0, rng.integers(9) + 1, (n_rows, 2)).astype(np.float64)
            drawn.append((X, n_clients, X[:, 0].astype(np.int64)))
        return drawn

    def test_each_row_goes_to_one_client_and_no_client_is_empty(self) -> None:
        """Disjoint, covering, ascending, none empty."""
        for turn, (X, n_clients, y) in enumerate(self.tables()):
            clients = self.split(X, n_clients, np.random.default_rng(turn), y)
            assert len(clients) == n_clients and min(map(len, clients)) >= 1
            assert sorted(np.concatenate(clients).tolist()) == list(range(len(X)))
            for rows in clients:
                assert rows.dtype == np.intp and (np.diff(rows) > 0).all()

    def test_the_generator_decides(self) -> None:
        """The same state, the same split."""
        for turn, (X, n_clients, y) in enumerate(self.tables()):
            one, other = (self.split(X, n_clients, np.random.default_rng(turn), y) for _ in range(2))
            assert all(np.array_equal(*rows) for rows in zip(one, other, strict=True))

    def test_another_seed_gives_another_split(self) -> None:
        """Two states of the generator, two splits of five blobs."""
        X = np.repeat(np.arange(5.0), 40)[:, None] * [10, -10] + np.random.default_rng(1).normal(
            size=(200, 2)
        )
        y = np.repeat(np.arange(5), 40)
        one, other = (self.split(X, 7, np.random.default_rng(seed), y) for seed in (1, 2))
        assert [rows.tolist() for rows in one] != [rows.tolist() for rows in other]
