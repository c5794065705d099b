"""Registries: names of privfed, of packages and of users; what is imported, and because of whom."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from privfed.core.names import Registry
from privfed.errors import ArgumentError
from tests.modules import importable
from tests.some import some

OWN = {"ordered": "collections:OrderedDict", "deque": "collections:deque"}


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Registry[type]:
    found = [EntryPoint("counter", "collections:Counter", "privfed.kinds")]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: found if group == "privfed.kinds" else []
    )
    return Registry("kind", "privfed.kinds", OWN)


def test_names_of_privfed_come_first_then_those_of_packages(kinds: Registry[type]) -> None:
    kinds.add("mine", dict)
    assert kinds.names() == ("ordered", "deque", "counter", "mine")
    assert kinds.added() == ("counter", "mine")


def test_what_a_name_stands_for_is_imported_when_it_is_used(kinds: Registry[type]) -> None:
    from collections import Counter, OrderedDict

    assert (kinds.find("ordered"), kinds.find("counter")) == (OrderedDict, Counter)


def test_a_thing_knows_its_first_name(kinds: Registry[type]) -> None:
    from collections import Counter, deque

    assert (kinds.name_of(deque), kinds.name_of(Counter), kinds.name_of(dict)) == ("deque", "counter", None)


def test_the_same_thing_may_be_added_again_and_another_is_an_error_that_names_both(
    kinds: Registry[type],
) -> None:
    kinds.add("mine", dict)
    kinds.add("mine", dict)
    with pytest.raises(ArgumentError, match=r"kind 'mine': <class 'dict'> and <class 'list'>"):
        kinds.add("mine", list)
    with pytest.raises(ArgumentError, match="'deque'"):
        kinds.add("deque", list)


def test_two_packages_with_one_name_are_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [EntryPoint("one", f"collections:{name}", "privfed.kinds") for name in ("Counter", "deque")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: twice)
    with pytest.raises(ArgumentError, match="collections:Counter and collections:deque"):
        Registry("kind", "privfed.kinds", {}).names()


def test_a_package_does_not_take_a_name_of_privfed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [EntryPoint("deque", "evil:deque", group)]
    )
    with pytest.raises(ArgumentError, match="collections:deque and evil:deque"):
        Registry("kind", "privfed.kinds", OWN).names()


def test_another_word_for_a_name_is_understood_and_never_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from collections import deque

    found = [EntryPoint("counter", "collections:Counter", "privfed.kinds")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    kinds: Registry[type] = Registry("kind", "privfed.kinds", OWN, also={"Deque": "deque"})
    assert kinds.find("Deque") is kinds.resolve("Deque") is deque and "Deque" in kinds
    assert "Deque" not in kinds.names() and kinds.name_of(deque) == "deque"
    assert (kinds.canonical("Deque"), kinds.canonical("mine:Deque")) == ("deque", "mine:Deque")
    with pytest.raises(ArgumentError, match="'Deque'"):
        kinds.add("Deque", dict)
    found.append(EntryPoint("Deque", "evil:Deque", "privfed.kinds"))
    with pytest.raises(ArgumentError, match="collections:deque and evil:Deque"):
        Registry("kind", "privfed.kinds", OWN, also={"Deque": "deque"}).names()


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(kinds: Registry[type]) -> None:
    with pytest.raises(ArgumentError, match="kind must be one of ordered, deque, counter; got 'other'"):
        kinds.find("other")


def test_what_a_file_names_is_never_imported(
    kinds: Registry[type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="got 'loud:Kind'"):
        kinds.find("loud:Kind")
    with pytest.raises(SystemExit):
        kinds.resolve("loud:Kind")


@pytest.mark.parametrize("text", ["collections:Nothing", "no_such_module:Kind", "collections:", ":Kind"])
def test_what_cannot_be_imported_is_an_error_that_says_how_it_is_written(
    kinds: Registry[type], text: str
) -> None:
    with pytest.raises(ArgumentError, match="write module:Name"):
        kinds.resolve(text)


def test_all_names_of_privfed_lead_somewhere() -> None:
    from privfed.attacks.base.names import ATTACKS
    from privfed.data.named_partitions import PARTITIONS
    from privfed.estimators.choosing import INDICES
    from privfed.estimators.registry import ESTIMATORS
    from privfed.experiments.datasets import DATA_SETS
    from privfed.metrics.named import METRICS
    from privfed.protocols.secure_sums import SECURE_SUMS

    registries: list[Registry[object]] = [
        ESTIMATORS,
        SECURE_SUMS,
        ATTACKS,
        PARTITIONS,
        INDICES,
        METRICS,
        DATA_SETS,
    ]  # type: ignore[list-item]
    for one in some(registries):
        assert one.names()
        assert all(one.find(name) is not None for name in one.names())


def test_a_registry_is_asked_without_importing_what_it_holds() -> None:
    """Names are listed by help and errors: that must not cost an import of everything."""
    code = (
        "import sys; from privfed.estimators.registry import ESTIMATORS; ESTIMATORS.names();"
        "sys.exit('privfed.estimators.local_steps' in sys.modules or 'sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_question_of_privfed_is_found_by_its_name_on_the_wire() -> None:
    """In a process that has imported nothing but the decoder."""
    code = (
        "from privfed.core.names import PLACES; "
        "from privfed.core.asking.question import kind_named;"
        "assert all(kind_named(name).__name__ == name for name in PLACES); "
        "import importlib; from privfed.core.asking.question import _REGISTRY;"
        f"[importlib.import_module(one) for one in {importable()}];"
        # Tests of secure sums ask it, of clients in their own process.
        "assert set(_REGISTRY) == {*PLACES, 'Vectors'}, set(_REGISTRY) ^ set(PLACES)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
