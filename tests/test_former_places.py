"""Documented imports of modules that have moved work for one version, and say where the names are now."""

from __future__ import annotations

import importlib

import pytest

MOVED = {
    "privfed.audits": ("privfed.attacks.audits", "audit"),
    "privfed.data": ("privfed.tables", "read_schema"),
    "privfed.engines.flower": ("privfed.nodes.flower", "FlowerEngine"),
}


@pytest.mark.parametrize("old", MOVED)
def test_a_former_place_has_the_names_of_the_new_one_and_warns(old: str) -> None:
    new, name = MOVED[old]
    module = importlib.import_module(old)
    with pytest.warns(DeprecationWarning, match=new):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(new), name)
    with pytest.raises(AttributeError):
        _ = module.__no_such_name__
