"""How many statements each part of the product has, by the list of files in docs/weight.md.

    python -m benchmarks.weight

prints the statements and the limit of each part, and the statements of `benchmarks` and `examples` beside.
Imports and docstrings are not counted.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "weight.md"
PRODUCT = ("privfed", "protocols", "attacks")
BESIDE = ("benchmarks", "examples")


def statements(path: Path) -> int:
    """Return the number of statements of a module, without imports and docstrings."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(isinstance(one, ast.stmt) and not _is_beside(one) for one in nodes)


def _is_beside(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return isinstance(node.value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom)


def modules(*tops: str) -> Iterator[Path]:
    """Yield the Python files below some top folders, each once: symbolic links are not followed."""
    for top in tops:
        yield from (path for path in sorted((ROOT / top).glob("**/*.py")) if path.resolve() == path)


def limits() -> dict[str, int]:
    """Return the limit of each part, from the page's first table."""
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \| [\d,]+ \|$", page, re.MULTILINE)
    return {part: int(limit.replace(",", "")) for part, limit in rows}


def listed() -> dict[str, str]:
    """Return the part of each listed file or folder, from the page's indented lines."""
    found: dict[str, str] = {}
    for part, names in re.findall(r"^    (\w+) +(.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        for name in names.split():
            if name in found:
                raise ValueError(f"{name} is listed twice")
            found[name] = part
    return found


def part_of(path: Path, names: dict[str, str]) -> str:
    """Return the part of a module: that of the file, else that of the nearest folder that is listed."""
    for one in (path, *path.parents):
        part = names.get(str(one.relative_to(ROOT)) + ("/" if one.is_dir() else ""))
        if part is not None:
            return part
    raise LookupError(f"no part of docs/weight.md holds {path.relative_to(ROOT)}")


def weights() -> dict[str, int]:
    """Return the statements of each part."""
    names, found = listed(), Counter[str]()
    for path in modules(*PRODUCT):
        found[part_of(path, names)] += statements(path)
    return dict(found)


def main() -> None:
    """Print each part, its statements and its limit."""
    found, most = weights(), limits()
    for part, limit in most.items():
        print(f"{part:12} {found.get(part, 0):7,} of {limit:,}")
    print(f"{'sum':12} {sum(found.values()):7,} of {sum(most.values()):,}")
    for top in BESIDE:
        print(f"{top:12} {sum(map(statements, modules(top))):7,}")


if __name__ == "__main__":
    main()
