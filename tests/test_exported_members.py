"""The public names are there, each once, and nothing else is promised (the linter keeps their order)."""

import importlib
import importlib.metadata

import pytest

import privfed
from tests.some import some

PACKAGES = [
    "privfed",
    "privfed.data",
    "privfed.engines",
    "privfed.plot",
    "privfed.protocols",
    "privfed.tables",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_true(name: str) -> None:
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    for member in package.__all__:
        assert hasattr(package, member), member


def test_words_of_the_face_are_exported() -> None:
    assert {
        "Ball",
        "Box",
        "ClientPolicy",
        "DWFKMeans",
        "EWFKMeans",
        "Simulation",
        "WFKMeans",
        "load",
    } <= set(privfed.__all__)


def test_everything_public_has_a_docstring() -> None:
    for name in some(PACKAGES):
        package = importlib.import_module(name)
        assert package.__doc__
        for member in package.__all__:
            if not member.startswith("__"):
                assert getattr(package, member).__doc__, member


def test_version_is_the_packages() -> None:
    assert privfed.__version__ == importlib.metadata.version("privfed")
