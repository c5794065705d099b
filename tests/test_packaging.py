"""The package list of pyproject.toml is what lies in the folders; the site is built without torch."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_is_listed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = {
        ".".join((name, *init.parent.relative_to(ROOT / folder).parts))
        for name, folder in setuptools["package-dir"].items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert set(setuptools["packages"]) == found


WITHOUT_TORCH = """
import runpy, sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else PathFinder.find_spec(name, path, target)

sys.meta_path = [Others if one is PathFinder else one for one in sys.meta_path]
print(*runpy.run_path(sys.argv[1])["public"]["privfed.deep"])
"""


@pytest.mark.slow
def test_the_site_is_configured_without_torch(tmp_path: Path) -> None:
    """`make docs` runs in the environment that `make install` makes."""
    (tmp_path / "docs").mkdir()
    conf = shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs" / "conf.py")
    call = [sys.executable, "-c", WITHOUT_TORCH, str(conf)]
    names = subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()
    assert {"FedAvg", "Trainer"} <= set(names) and "TorchTrainer" not in names
