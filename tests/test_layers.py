"""The layers that pages tell of are those that the linter holds the imports to."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def layers() -> list[list[str]]:
    """Return the linter's layers, high to low; those on one level do not import each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [
        one
        for one in config["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and one["containers"] == ["privfed"]
    ]
    return [[name.strip(" ()") for name in level.split("|")] for level in contract["layers"]]


def block_after(page: str, words: str) -> list[str]:
    """Return the lines of the first indented block after some words of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(r"\n\n((?:    .*\n)+)", text[text.index(words) :])
    assert found is not None
    return found[1].splitlines()


def test_contributing_lists_the_layers_of_the_linter() -> None:
    listed = block_after("CONTRIBUTING.md", "**Who imports whom.**")
    assert [[name.strip() for name in line.split("|")] for line in listed] == layers()


def test_the_architecture_page_tells_of_each_layer_in_their_order() -> None:
    listed = block_after("docs/architecture.md", "## Folders, and who imports whom")
    named = [name for line in listed for name in re.findall(r"^    (\w+(?: \| \w+)*)  ", line)]
    flat = [name for level in layers() for name in level]
    told = [name for line in named for name in line.split(" | ")]
    assert sorted(told) == sorted(flat)
    ranks = {name: rank for rank, level in enumerate(layers()) for name in level}
    assert [ranks[name] for name in told] == sorted(ranks[name] for name in told)


def test_every_package_is_in_a_layer() -> None:
    packages = {one.parent.name for one in (ROOT / "privfed").glob("*/__init__.py")}
    modules = {one.stem for one in (ROOT / "privfed").glob("*.py")} - {"__init__"}
    assert packages | modules == {name for level in layers() for name in level}
