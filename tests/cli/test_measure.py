"""`privfed measure` asks private metrics of a run's centers, each under a claim of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privfed import PrivacyBudget
from tests.cli import test_claims
from tests.cli.test_claims import CLAIM, DOMAIN, GROUPS, PRIVATELY
from tests.cli.wide import run

home = test_claims.home
BUDGET = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")


def asked(home: Path, *words: object, code: int = 0) -> str:
    words = (home / "run", home / "t.csv", "--protocol", "plain", *words)
    return run("measure", *words, exit_code=code).output


def test_metrics_share_what_is_drawn_from_a_budget_and_are_kept_with_the_run(
    home: Path, tmp_path: Path
) -> None:
    (home / "run" / "metrics.json").unlink(missing_ok=True)
    run("budget", "new", tmp_path / "b", *BUDGET)
    drawn = (*DOMAIN, *GROUPS, "--budget", tmp_path / "b", "--share", 0.4)
    text = asked(home, "--metrics", "inertia,mean_distance", *drawn)
    assert "inertia " in text and "(95%: " in text and "each of these: differential privacy" in text
    paid = PrivacyBudget.of(tmp_path / "b").log()
    assert [one.share for one in paid] == pytest.approx([0.2, 0.2])
    assert [one.purpose for one in paid] == ["inertia", "mean_distance"]
    found = json.loads(asked(home, "--metrics", "score", "--json", *PRIVATELY))
    kept = json.loads((home / "run" / "metrics.json").read_text())
    assert [one["metric"] for one in kept] == ["inertia", "mean_distance", "score"] and kept[2:] == found
    assert found[0]["claim"]["epsilon"] == 2.0 and found[0]["low"] <= found[0]["value"] <= found[0]["high"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics", "inertia,score", *PRIVATELY), "each metric spends a claim"),
        (("--metrics", "inertia", *DOMAIN, *GROUPS), "claim it with --epsilon, or --budget"),
        (PRIVATELY, "name what is asked with --metrics"),
        (("--metrics", "accuracy", *PRIVATELY), "--metrics takes each of"),
        (("--metrics", "inertia", *DOMAIN, *CLAIM, "--group", "g"), "missing: --clients"),
        (("--metrics", "inertia", "--columns", "b,a", *PRIVATELY), "has the columns a, b, got b, a"),
    ],
)
def test_what_is_refused_asks_nothing(words: tuple[object, ...], said: str, home: Path) -> None:
    kept = home / "run" / "metrics.json"
    before = kept.exists() and kept.read_bytes()
    assert said in " ".join(asked(home, *words, code=2).split())
    assert (kept.exists() and kept.read_bytes()) == before


def test_a_private_fit_says_where_its_metrics_are_asked(home: Path, tmp_path: Path) -> None:
    said = run(
        *("fit", home / "t.csv", "--algorithm", "dp", "-k", 2, "--metrics", "inertia", *PRIVATELY),
        *("--out", tmp_path / "run"),
        exit_code=2,
    )
    assert "privfed measure" in said.output
