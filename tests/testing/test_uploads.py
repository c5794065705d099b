"""The contract of secure sums finds uploads that tell a client's answer, however the sum describes itself."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privfed.testing import SecureSumContract
from privfed.testing.sum_runs import told_by_bits, told_by_repeats, vectors
from tests.test_documents import ROOT, write_files

PAGE = ROOT / "docs" / "extending.md"
LAW = "test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total"


@pytest.fixture
def shared_key(tmp_path: Path) -> ModuleType:
    """Return the sum of the page, whose masks a test spoils."""
    write_files(PAGE, tmp_path)
    spec = importlib.util.spec_from_file_location("shared_key", tmp_path / "shared_key.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # What is spoiled is the page's alone.
    module.px = SimpleNamespace(**vars(module.px))  # type: ignore[attr-defined]
    return module


def contract(module: ModuleType) -> SecureSumContract:
    class Contract(SecureSumContract):
        def make(self) -> Any:
            return module.SharedKey()

    return Contract()


def clear_text(module: ModuleType) -> None:
    """Add no mask."""

    class Unmasked(module.px.Masker):  # type: ignore[name-defined,misc]
        def add(self, total: Any, key: Any, sign: int = 1) -> None:
            pass

    module.px.Masker = Unmasked


def low_half(module: ModuleType) -> None:
    """Mask the low 16 bits of each word only."""

    class Low(module.px.Masker):  # type: ignore[name-defined,misc]
        def add(self, total: Any, key: Any, sign: int = 1) -> None:
            whole = np.zeros_like(total)
            super().add(whole, key)
            part = whole & np.uint64(0xFFFF)
            total += np.negative(part) if sign < 0 else part

    module.px.Masker = Low


def one_word(module: ModuleType) -> None:
    """Mask all words of an upload alike."""

    class Alike(module.px.Masker):  # type: ignore[name-defined,misc]
        def add(self, total: Any, key: Any, sign: int = 1) -> None:
            whole = np.zeros_like(total)
            super().add(whole, key)
            total += np.negative(whole[:1]) if sign < 0 else whole[:1]

    module.px.Masker = Alike


def fixed_key(module: ModuleType) -> None:
    """Take the same key in every fit."""
    drawn = secrets.token_bytes(32)
    module.secrets = type("Fixed", (), {"token_bytes": staticmethod(lambda n: drawn)})  # type: ignore[attr-defined]


def used_twice(module: ModuleType) -> None:
    """Take the same streams in every sum of a fit."""
    real = module.px.with_numbers
    module.px.with_numbers = lambda prefix, number, *rest: real(prefix, 1, *rest)


def of_a_few(module: ModuleType) -> None:
    """Take one of 2^7 streams for each of the two in a mask."""
    real = module.px.expand
    few = [secrets.token_bytes(32) for _ in range(1 << 7)]
    module.px.expand = lambda *words: few[real(*words)[0] >> 1]


@pytest.mark.parametrize(
    ("spoil", "find"),
    [
        (clear_text, told_by_bits),
        (low_half, told_by_bits),
        (one_word, told_by_repeats),
        (fixed_key, told_by_repeats),
        (used_twice, told_by_repeats),
        (of_a_few, told_by_repeats),
    ],
)
@pytest.mark.few(2)
def test_spoiled_masks_do_not_pass(
    shared_key: ModuleType, spoil: Callable[[ModuleType], None], find: Callable[..., list[str]]
) -> None:
    spoil(shared_key)
    run = contract(shared_key).federation()
    # The total is right all the same: no law of totals finds it.
    run.assert_sum(run.ask(), vectors())
    assert find(contract(shared_key).federation) == ["collect"]
    with pytest.raises(AssertionError):
        getattr(contract(shared_key), LAW)()


def test_whole_masks_pass(shared_key: ModuleType) -> None:
    getattr(contract(shared_key), LAW)()
