"""What the pages show is true: Python runs, studies are well, commands parse, files and options exist."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

from privfed.cli.main import main
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study
from tests.cli.wide import run
from tests.command_line import subcommands
from tests.some import some

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"^(?P<pad> *)```(?P<kind>[\w{}-]*)(?: [^\n`]+)?\n(?P<text>.*?)^(?P=pad)```$",
    re.S | re.M,
)
_SLOW = re.compile(r"^<!-- slow: (.+) -->$", re.M)
MOST_NOT_RUN = 2


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and why it is not run ("" where it is)."""

    kind: str
    text: str
    line: int
    reason: str


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text, found = page.read_text(encoding="utf-8"), list[Block]()
    for one in _FENCE.finditer(text):
        line = text.count("\n", 0, one.start("text")) + 1
        found.append(Block(one["kind"], one["text"], line, one["reason"] or ""))
    return found


def with_python() -> Iterator[object]:
    for page in PAGES:
        if any(one.kind == "python" for one in blocks(page)):
            slow = _SLOW.search(page.read_text(encoding="utf-8"))
            yield pytest.param(page, id=named(page), marks=[pytest.mark.slow] if slow else [])


FILE = re.compile(r"# (\w+)\.py\n")
"""First line of a block that is a file of its own."""


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the files that a page shows into a folder; return the names of their modules."""
    found = [(FILE.match(one.text), one.text) for one in blocks(page) if one.kind == "python"]
    for named_so, text in found:
        if named_so:
            (folder / f"{named_so[1]}.py").write_text(text, encoding="utf-8")
    return [named_so[1] for named_so, _ in found if named_so]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the files that pages show, from which they can be imported."""
    folder = tmp_path_factory.mktemp("files")
    for page in PAGES:
        write_files(page, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("page", [*with_python()])
def test_python_on_a_page_runs_when_it_is_pasted_from_the_top(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for one in blocks(page):
        # What is a file is imported, where it is.
        if one.kind == "python" and not one.reason and not FILE.match(one.text):
            # The lines of a traceback are those of the page.
            code = compile("\n" * (one.line - 1) + one.text, named(page), "exec")
            exec(code, names)


def test_almost_every_block_is_run() -> None:
    kinds = [(one, page) for page in PAGES for one in blocks(page)]
    assert len([one for one, _ in kinds if one.kind == "python"]) >= 11
    assert len([one for one, _ in kinds if one.reason]) <= MOST_NOT_RUN
    for one, page in kinds:
        assert one.kind in ("python", "toml", "{toctree}", "{eval-rst}", "{include}"), (
            f"{named(page)}, line {one.line}: say what a block is"
        )


def patients(folder: Path) -> None:
    """Write the table that the study on the page is of."""
    rng = np.random.default_rng(0)
    values = enumerate(rng.uniform(0, 10, (300, 2)))
    lines = [f"h{i % 6},{rng.integers(3)},{x:.3f},{y:.3f}" for i, (x, y) in values]
    (folder / "patients.csv").write_text("\n".join(["hospital,diagnosis,x,y", *lines]), encoding="utf-8")


@pytest.mark.usefixtures("files")
def test_studies_on_pages_are_well(tmp_path: Path) -> None:
    patients(tmp_path)
    found = [(page, one) for page in PAGES for one in blocks(page) if one.kind == "toml"]
    assert found
    for page, one in found:
        assert plan(parse_study(one.text, named(page)), tmp_path).setups


def commands() -> Iterator[tuple[str, list[str], bool]]:
    """Yield every command that a page shows: where, its words, whether it is a line of its own."""
    for page in PAGES:
        # A line that ends with a backslash goes on in the next one.
        text = re.sub(r"\\\n +", "", page.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), start=1):
            where = f"{named(page)}, line {number}"
            if whole := re.match(r"    privfed\b(.*)", line):
                yield where, shlex.split(whole[1], comments=True), True
            for inline in re.findall(r"`privfed( [^`]*)?`", line):
                yield where, shlex.split(inline), False


def command_of(words: list[str], where: str) -> tuple[click.Command, list[str]]:
    """Return the command that words begin with, in a group where there is one, and the words after it."""
    found: click.Command = main
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in subcommands(found), f"{where}: no command {words[0]!r}"
        found, words = subcommands(found)[words[0]], words[1:]
    return found, words


def all_commands(group: click.Group) -> Iterator[click.Command]:
    for one in subcommands(group).values():
        yield one
        if isinstance(one, click.Group):
            yield from all_commands(one)


@pytest.mark.usefixtures("files")
def test_commands_on_pages_have_the_options_that_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: True)
    seen = list(commands())
    assert sum(whole for *_, whole in seen) > 8
    for where, words, whole in seen:
        named_options = [one.partition("=")[0] for one in words if re.match("--?[a-z]", one)]
        command, words = command_of(words, where)
        known = command.get_params(click.Context(command))
        options = {option for one in known for option in one.opts + one.secondary_opts} | {"--help"}
        assert set(named_options) <= options, f"{where}: {set(named_options) - options}"
        if whole:
            # It parses whole: nothing is missing, every choice is one. A reader's own tables are there.
            command.make_context("", list(words))


def test_options_on_pages_exist() -> None:
    options = {
        option
        for one in all_commands(main)
        for part in one.get_params(click.Context(one))
        for option in (*part.opts, *part.secondary_opts)
    }
    shown = [
        (named(page), option)
        for page in PAGES
        for code in re.findall(r"`([^`\n]*)`", page.read_text(encoding="utf-8"))
        if not code.startswith(
            ("pip", "make", "git", "uv", "examples/", "python -m examples", "python -m benchmarks")
        )
        for option in re.findall(r"(?<!\S)--[a-z][\w-]+", code)
    ]
    assert shown
    assert [one for one in shown if one[1] not in options] == []


def on_pages(pattern: str) -> Iterator[tuple[Path, str]]:
    """Yield every match of a pattern on any page."""
    for page in PAGES:
        for found in re.findall(pattern, page.read_text(encoding="utf-8"), re.M):
            yield page, found


def test_files_and_pages_that_pages_name_exist() -> None:
    for page, link in some(on_pages(r"\]\(([^)#\s]+)[^)]*\)")):
        assert link.startswith("http") or (page.parent / link).exists(), f"{named(page)}: {link}"
    for page, path in some(on_pages(r"`((?:privfed|protocols|attacks|tests|examples|docs)/[\w/.-]+\.\w+)`")):
        assert (ROOT / path).exists(), f"{named(page)}: {path}"


def test_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page, target in some(on_pages(r"(?:^    |`)make ([a-z-]+)")):
        assert target in targets, f"{named(page)}: make {target}"


def test_no_page_holds_both_sides_of_a_merge() -> None:
    sides = re.compile(r"^(<{7}|>{7}) ", re.M)
    assert [named(page) for page in PAGES if sides.search(page.read_text(encoding="utf-8"))] == []


def test_every_decision_has_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [page.name[:3] for page in pages]
    assert len(pages) >= 14 and sorted(set(numbers)) == numbers
    for page, number in zip(pages, numbers, strict=True):
        assert page.read_text(encoding="utf-8").startswith(f"# {number}"), page.name


def test_tests_that_pages_and_docstrings_name_exist() -> None:
    rooms = [path for room in ("privfed", "protocols", "attacks") for path in (ROOT / room).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in [*PAGES, *rooms]]
    found = {one for text in texts for one in re.findall(r"\btests/[\w/]+\.py", text)}
    assert found
    assert [one for one in sorted(found) if not (ROOT / one).is_file()] == []


NOT_TYPED = ("tradeoff", "audit", "flower", "--epsilon")
"""What takes minutes, depends on noise or needs Flower: tests of their own run these."""


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "page", ["README.md", "docs/tour.md", "docs/algorithms/merged.md", "docs/survival.md"]
)
def test_commands_of_a_page_run_in_their_order_in_an_empty_folder(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for one in blocks(ROOT / page) if page == "docs/survival.md" else ():  # It writes its own table.
        exec(one.text, names)
    lines = [words for where, words, whole in commands() if whole and where.startswith(f"{page},")]
    typed = [words for words in lines if not set(NOT_TYPED) & set(words)]
    assert len(typed) >= 2 and (page == "docs/survival.md" or typed[0][0] == "example")
    for words in typed:
        run(*words)
    assert len(list(tmp_path.iterdir())) >= 2
