"""The core works without any other part: it imports none, and finds them by name where they are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modules import importable

ROOT = Path(__file__).resolve().parent.parent
SATELLITES = ("attacks", "deep", "experiments", "nodes", "tables")

REFUSING = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if (name + ".").startswith(f"privfed.{part}."):
            raise ModuleNotFoundError(f"the part {part} is refused", name=name)

part = PART
sys.meta_path.insert(0, Refusing())
"""


def of_the_core() -> list[str]:
    """Return the names of the core's modules."""
    return [name for name in importable() if name.split(".")[1] not in SATELLITES]


def without(part: str, code: str, folder: Path = ROOT) -> str:
    """Run code in a process that refuses to import a part; return what it printed."""
    call = [sys.executable, "-c", REFUSING.replace("PART", repr(part)) + code]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(call, capture_output=True, text=True, cwd=folder, env=env, timeout=1000)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


IMPORTING = f"""
from importlib import import_module
for name in {{names!r}}:
    import_module(name)
others = tuple(f"privfed.{{{{part}}}}" for part in {SATELLITES!r})
print(*(one for one in sys.modules if one.startswith(others)))
"""


def test_the_core_imports_no_other_part() -> None:
    names = of_the_core()
    assert len(names) > 150
    code = f"import sys{IMPORTING.format(names=['privfed', *names])}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


COMMANDS = """
from click.testing import CliRunner
import numpy as np
from privfed.cli.main import main

rng = np.random.default_rng(0)
blobs = rng.normal(size=(60, 2)) + 4 * (rng.random((60, 1)) < 0.5)
rows = [f"c{i % 3},{a:.3f},{b:.3f}" for i, (a, b) in enumerate(blobs)]
open("t.csv", "w").write("\\n".join(["site,x,y", *rows]))
for words in (
    ["--help"],
    ["fit", "--help"],
    ["fit", "t.csv", "--group", "site", "-k", "2", "--out", "run", "--no-picture"],
    ["show", "run"],
    ["resume", "run", "--no-picture"],
    ["predict", "run", "t.csv"],
    ["select-k", "t.csv", "--group", "site", "--max-k", "3", "--out", "chosen", "--no-picture"],
    ["summary", "t.csv", "--group", "site"],
):
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 0, (words, said.output, said.exception)

import privfed, privfed.extend
names = {one for one in privfed.extend.__all__ if one in vars(privfed.extend)}
assert len(names) > 60 and hasattr(privfed, "DWFKMeans")
"""

TESTS = ("core/test_registry.py", "numerics", "metrics", "cli/test_fit.py")
OF_THE_WHOLE = (
    "core/test_registry.py::test_all_names_of_privfed_lead_somewhere",
    "core/test_registry.py::test_every_question_of_privfed_is_found_by_its_name_on_the_wire",
    "cli/test_fit.py::test_metrics_that_cannot_be_asked_are_refused_before_anything_is",
)
"""These look at names and modules of every part."""


@pytest.mark.slow
@pytest.mark.parametrize("part", SATELLITES)
def test_the_core_works_without_a_part(part: str, tmp_path: Path) -> None:
    loaded = without(part, IMPORTING.format(names=["privfed", *of_the_core()]))
    assert loaded.split() == []
    without(part, COMMANDS, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("part", SATELLITES)
def test_the_tests_of_the_core_pass_without_a_part(part: str) -> None:
    """Modules of tests that need the part itself are left out: most must remain."""
    words = [f"tests/{one}" for one in TESTS]
    words += [word for one in OF_THE_WHOLE for word in ("--deselect", f"tests/{one}")]
    words += [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--continue-on-collection-errors",
        "--tb=line",
    ]
    said = without(part, f"import pytest; pytest.main({words!r})")
    passed, failed = (re.search(rf"(\d+) {word}", said.splitlines()[-1]) for word in ("passed", "failed"))
    assert passed and int(passed[1]) > 100 and not failed, said[-3000:]
