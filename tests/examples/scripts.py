"""Loads the scripts of examples/, which are no package."""

import importlib.util
import sys
from pathlib import Path
from typing import Any


def loaded(name: str) -> Any:
    """Return the script of a name as a module."""
    script = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
