"""Every benchmark runs at toy size: one that cannot start had stood beside figures that said "ok".

Each runs in a process of its own, since some register questions. A bound on a figure is of its own size: at
toy size it may fail, and what came before it has run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
Toy = tuple[str, list[Any], dict[str, Any]]

PROGRAMS: dict[str, Toy] = {
    "dp_bound": ("main", ["two_far2:1", "--seeds", "1"], {}),
    "dp_known": ("main", ["iris", "--seeds", "1", "--out", "known.json"], {}),
    "dp_tails": ("main", ["two_far2:1", "--seeds", "1"], {}),
    "dp_unseen": ("main", ["few_rows", "--seeds", "2"], {}),
    "evidence": ("main", ["1", "groups of five, three fits"], {}),
    "group_attacks": ("main", [1, ["wine"]], {"SIZES": [1, 3]}),
    "groups": ("main", [], {}),
    "hidden_clusters": ("main", ["--epsilon", "4", "--seeds", "20"], {"KINDS": ["made"]}),
    "intervals": ("cell", ["davies_bouldin", "the first table", 2.0], {"SEEDS": 2}),
    "masked_trees": (
        "main",
        [str(ROOT), "--repeats", "1", "--only", "round", "--python", sys.executable],
        {},
    ),
    "model_rounds": ("main", [], {"CLIENTS": 6, "ROWS": 25, "SHORT": 1, "LONG": 2, "TURNS": 1}),
    "model_attacks": ("main", [["columns"]], {}),
    "models": ("main", ["--methods", "fedavg", "--seeds", "20", "--rows", "67"], {"KINDS": ["made"]}),
    "private_pca": ("main", ["--seeds", "1"], {}),
    "public_tables": ("main", ["."], {"STARTS": 1}),
    "range_bins": ("main", [], {}),
    "ratios": (
        "main",
        ["privfed fit --help"],
        {"PAIRS": 1, "REPEATS": 1, "LIMITS": {"privfed fit --help": 1e9}},
    ),
    "start_up": ("main", [], {"TIMES": 1}),
    "valid": ("main", [[5]], {"MOST": 0, "FEW": 2}),
    "ways": ("main", [], {}),
    "weight": ("main", [], {}),
    "test_answers_speed": ("test_fuzzy_c_means", [2.0], {}),
    "test_ckks_cost": ("test_ckks_cost", [], {"REPEATS": 1}),
    "test_clustering_speed": ("test_rounds_against_literal_loops", [], {}),
    "test_dp_masked": ("test_whole_clients_are_protected", [1000, 10.0], {}),
    "test_dp_sets": ("test_no_baseline_is_cheaper", ["iris"], {"SEEDS": 2}),
    "test_dp_utility": ("test_single_steps_of_other_algorithms", ["DWF", "blobs"], {"SEEDS": 2}),
    "test_fkm_speed": ("test_ten_merges", [], {"MERGES": 2}),
    "test_group_cost": ("test_cost_of_a_group_masked_sum", ["capsys"], {"CLIENTS": 5, "SUMS": 1}),
    "test_kernel_speed": (
        "test_the_papers_synthetic_round_beside_a_literal_loop",
        ["monkeypatch", "iid"],
        {"ROUNDS": 1},
    ),
    "test_masked_cost": ("test_masked_cost", [], {"CLIENTS": 8, "LOST": 1, "REPEATS": 1, "MEASURED": 3}),
    "test_sampler_speed": ("test_draws_a_second", [1.0], {}),
    "test_server_noise_utility": (
        "test_one_draw_of_the_server_costs_no_more_than_shares_of_half_the_clients",
        ["blobs"],
        {"CLIENTS": 60, "SEEDS": 1, "ROUNDS": 2},
    ),
    "test_simulated_masks": ("test_a_simulated_round", ["monkeypatch", 5], {"ROUNDS": 2}),
    "test_sparse_cost": ("test_sparse_cost", [], {"SIZES": [202]}),
    "test_verified_cost": ("test_cost_of_verified_totals", [10, 300, "capsys"], {}),
}
"""By module: what is called, with which words or arguments, and constants at toy size."""

NOT_HERE = {
    "__init__",
    "dp_sets",
    "private_baselines",
    "timing",
    "utility",
    # These need what the locked environment lacks: other people's programs.
    "clustered_baselines",
    "diffprivlib_fits",
    "test_dp_anchors",
}
"""Modules that hold what others use, or cannot run here."""

RUN = """
import contextlib, importlib, inspect, json, pathlib, sys, types
import pytest
name, (function, words, constants) = sys.argv[1], json.loads(sys.argv[2])
module = importlib.import_module(f"benchmarks.{name}")
for constant, value in constants.items():
    assert hasattr(module, constant), constant
    setattr(module, constant, value)
if hasattr(module, "KEPT"):
    module.KEPT = pathlib.Path(module.KEPT.name)
given = {
    "monkeypatch": pytest.MonkeyPatch(),
    "capsys": types.SimpleNamespace(disabled=contextlib.nullcontext),
}
call = getattr(module, function)
if function == "main":
    if not inspect.signature(call).parameters:
        sys.argv[1:], words = words, []
if name == "group_attacks":
    module.STUDIES, module.ATTACKS = module.STUDIES[:1], module.ATTACKS[:1]
if name == "intervals":
    words[1] = next(iter(module.tables()))[1]
try:
    call(*[given.get(word, word) if isinstance(word, str) else word for word in words])
except AssertionError as bound:
    print("a bound of the whole size:", bound)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    if name in {"model_rounds", "model_attacks", "models", "hidden_clusters", "group_attacks"}:
        pytest.importorskip("opacus")
    release = (ROOT / "benchmarks" / "data" / "release.txt").read_text("utf-8").strip()
    known = ("git", "-C", str(ROOT), "cat-file", "-e", f"{release}^{{commit}}")
    if name == "ratios" and subprocess.run(known, capture_output=True, check=False).returncode:
        pytest.skip("this checkout has no commit of the last release")
    # A table for the benchmark that reads those of a folder.
    lines = [f"{i},{i % 7},{i * i % 11}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *lines]), encoding="utf-8")
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = (sys.executable, "-c", RUN, name, json.dumps(PROGRAMS[name]))
    done = subprocess.run(words, env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_benchmark_is_here() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == set(PROGRAMS) | NOT_HERE
