"""CPU seconds until commands have answered, as ratios to what they cannot do without: run it by hand.

Each process runs several times, one after another, and its least CPU time (user and system) counts.
`python benchmarks/start_up.py` prints one line for each command, with the bound that it is to keep. Processes
find the bytecode of earlier ones, unless PYTHONDONTWRITEBYTECODE is set: figures then are of its compilation.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TIMES = 9
CLICK = (
    "import click\n"
    "@click.command()\n@click.argument('data')\n@click.option('--out', help='Folder to write to.')\n"
    "def fit(data, out): 'Cluster rows.'\n"
    "fit(['--help'])\n"
)
IN_MEMORY = (
    "import numpy as np\n"
    "from privfed import DWFKMeans\n"
    "rows = np.random.default_rng(0).normal(size=(150, 2))\n"
    "DWFKMeans(3, random_state=0).fit(rows, groups=np.repeat(range(5), 30))\n"
)


def cpu(*words: str) -> float:
    """Return the least CPU seconds of several processes with these words; `{}` is each one's number."""
    found = []
    for number in range(TIMES):
        before = _spent()
        own = [word.replace("{}", str(number)) for word in words]
        subprocess.run([sys.executable, *own], capture_output=True, check=False)
        found.append(_spent() - before)
    return min(found)


def _spent() -> float:
    """Return the CPU seconds of all processes that have ended, to the microsecond."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure all in one run, since only ratios can be compared."""
    privfed = ("-c", "from privfed.cli.main import main; main()")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        draw = random.Random(0)
        rows = [f"h{i % 5},{draw.gauss(i % 3 * 3, 1):.3f},{draw.gauss(i % 2 * 3, 1):.3f}" for i in range(150)]
        Path("t.csv").write_text("\n".join(["h,a,b", *rows]) + "\n", encoding="utf-8")
        small = (*privfed, "fit", "t.csv", "--group", "h", "-k", "3", "--out")
        cpu(*small, "run")
        click, numpy, sklearn = (cpu("-c", code) for code in (CLICK, "import numpy", "import sklearn.base"))
        for name, words, what, least, bound in (
            ("fit --help", (*privfed, "fit", "--help"), "a click command", click, 3.0),
            ("fit --colour", (*privfed, "fit", "t.csv", "--colour"), "import numpy", numpy, 2.0),
            ("fit of no file", (*privfed, "fit", "none.csv", "--group", "h"), "import numpy", numpy, 2.0),
            ("show", (*privfed, "show", "run"), "import numpy", numpy, 2.0),
            ("DWFKMeans().fit", ("-c", IN_MEMORY), "import sklearn.base", sklearn, 1.3),
            ("fit --no-picture", (*small, "plain{}", "--no-picture"), "import sklearn.base", sklearn, 1.3),
            ("fit", (*small, "drawn{}"), "import sklearn.base", sklearn, 1.3),
        ):
            seconds = cpu(*words)
            print(f"{name:18} {seconds:.3f} s, {seconds / least:.2f} times {what} ({bound:g} at most)")


if __name__ == "__main__":
    main()
