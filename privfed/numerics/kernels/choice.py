"""Which of the two kernels does the work: the compiled one once there is enough of it.

Both give the same bits, so that it makes no difference to any result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from threadpoolctl import ThreadpoolController

BUDGET = 0.3
"""Seconds that a process may spend in the interpreted kernel, as estimated, before the other is loaded."""

_A_STEP, _A_DISTANCE = 1e-4, 4e-9
"""Estimated seconds of an interpreted step, and of each of its distances: as measured with 2 columns."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiled kernel.

    Args:
        step: `privfed.numerics.kernels.compiled.step`.
        distances: `privfed.numerics.kernels.distances.distances`.
        two_nearest: `privfed.numerics.kernels.distances.two_nearest`.
        joined: `privfed.numerics.kernels.distances.joined`.
        weighted_sums: `privfed.numerics.kernels.shared.weighted_sums`.
    """

    step: Callable[..., None]
    distances: Callable[..., None]
    two_nearest: Callable[..., None]
    joined: Callable[..., None]
    weighted_sums: Callable[..., None]

    def __call__(self, *arguments: Any) -> None:
        """Do a step."""
        self.step(*arguments)


class Choice:
    """Counts the interpreted work of a process, and loads the compiled kernel when that pays.

    Loading takes a second, and once on a machine, or after an update, ten: numba compiles, and keeps the
    machine code beside the module or in the user's cache folder.

    Args:
        budget: seconds of interpreted work before the compiled kernel is loaded.
    """

    def __init__(self, budget: float = BUDGET) -> None:
        self._left, self._loaded = budget, False
        self._compiled: Compiled | None = None

    def compiled(self, n_rows: int, n_centers: int, n_features: int) -> Compiled | None:
        """Return the compiled kernel for some more work, or None while the interpreted one is to do it."""
        if self._loaded:
            return self._compiled
        self._left -= _A_STEP + _A_DISTANCE * n_rows * n_centers * (1.0 + n_features / 32.0)
        if self._left < 0.0:
            self._loaded, self._compiled = True, load()
        return self._compiled

    def settled(self, n_rows: int, n_centers: int, n_features: int) -> Choice:
        """Return a choice that stays as it is now, for the many calls of some work; it is counted once."""
        found = Choice()
        found._loaded, found._compiled = True, self.compiled(n_rows, n_centers, n_features)
        return found


def load() -> Compiled | None:
    """Return the compiled kernel, or None.

    None where numba is not installed, or does not know this Python, or would read its machine code from where
    others can write (`privfed.numerics.kernels.machine_code`).
    """
    if find_spec("numba") is None:
        return None
    try:
        from privfed.numerics.kernels import machine_code

        if not machine_code.may_be_read():
            return None
        from privfed.numerics.kernels import compiled, distances, shared
    except (ImportError, SystemError, AttributeError, RuntimeError):
        # numba does not know this Python or NumPy, or finds no folder to keep machine code in.
        return None
    pools = ThreadpoolController().select(user_api="blas").lib_controllers

    def on_one_thread(*arguments: Any) -> None:
        # Its matrix products are small: more threads would mostly wait for each other.
        several = [(pool, threads) for pool in pools if (threads := pool.get_num_threads() or 1) > 1]
        for pool, _ in several:
            pool.set_num_threads(1)
        try:
            compiled.step(*arguments)
        finally:
            for pool, threads in several:
                pool.set_num_threads(threads)

    return Compiled(
        on_one_thread, distances.distances, distances.two_nearest, distances.joined, shared.weighted_sums
    )


CHOICE = Choice()
"""The choice of this process."""
