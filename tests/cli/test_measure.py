"""`privfed measure` asks private metrics of a run's centers, each under a claim of its own."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, PrivacyBudget, load
from privfed.cli import measuring
from privfed.errors import UndefinedIndexError
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
    assert (
        "inertia " in text and "(95%: " in text and "of each of these metrics: differential privacy" in text
    )
    paid = PrivacyBudget.of(tmp_path / "b").log()
    assert [one.share for one in paid] == pytest.approx([0.2, 0.2])
    assert [one.purpose for one in paid] == ["inertia", "mean_distance"]
    found = json.loads(asked(home, "--metrics", "score", "--json", *PRIVATELY))["metrics"]
    kept = json.loads((home / "run" / "metrics.json").read_text())
    assert [one["metric"] for one in kept] == ["inertia", "mean_distance", "score"] and kept[2:] == found
    assert found[0]["claim"]["epsilon"] == 2.0 and found[0]["low"] <= found[0]["value"] <= found[0]["high"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics", "inertia,score", *PRIVATELY), "each metric spends a claim"),
        (("--metrics", "inertia", *DOMAIN, *GROUPS), "claim it with --epsilon, or --budget"),
        (PRIVATELY, "name what is asked with --metrics"),
        (("--metrics", "silhouette", *PRIVATELY), "there is no metric 'silhouette'; take accuracy,"),
        (("--metrics", "inertia,inertia", *PRIVATELY), "--metrics names 'inertia' 2 times"),
        (("--metrics", "accuracy", *PRIVATELY), "name all classes that there may be with --classes"),
        (("--metrics", "accuracy", "--label", "b", *PRIVATELY), "that there may be with --classes"),
        (("--metrics", "accuracy", "--classes", "x,y", *PRIVATELY), "name it with --label"),
        (("--metrics", "inertia", *DOMAIN, *CLAIM, "--group", "g"), "missing: --clients"),
        (("--metrics", "inertia", "--columns", "b,a", *PRIVATELY), "has the columns a, b, got b, a"),
        (("--metrics", "builtins:len", *PRIVATELY), "builtins:len has none"),
        (("--metrics", "inertia", "--schema", "SCHEMA", *PRIVATELY), "was fitted without a schema"),
    ],
)
def test_what_is_refused_asks_nothing(words: tuple[object, ...], said: str, home: Path) -> None:
    kept = home / "run" / "metrics.json"
    before = kept.exists() and kept.read_bytes()
    words = tuple(home / "filled.toml" if one == "SCHEMA" else one for one in words)
    assert said in " ".join(asked(home, *words, code=2).split())
    assert (kept.exists() and kept.read_bytes()) == before


def test_a_private_fit_says_where_its_metrics_are_asked(home: Path, tmp_path: Path) -> None:
    said = run(
        *("fit", home / "t.csv", "--algorithm", "dp", "-k", 2, "--metrics", "inertia", *PRIVATELY),
        *("--out", tmp_path / "run"),
        exit_code=2,
    )
    assert "privfed measure" in said.output


@pytest.fixture
def drawn(home: Path, tmp_path: Path) -> tuple[object, ...]:
    """Return words that pay from a budget of their own."""
    run("budget", "new", tmp_path / "b", *BUDGET)
    return (*DOMAIN, *GROUPS, "--budget", tmp_path / "b", "--share", 0.4)


def test_what_was_paid_for_is_printed_and_kept_where_a_later_metric_fails(
    drawn: tuple[object, ...], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "run" / "metrics.json").unlink(missing_ok=True)
    whole = measuring.with_intervals

    def hidden(names: tuple[str, ...], *words: Any, **options: Any) -> Any:
        if names == ("davies_bouldin",):
            raise UndefinedIndexError("noise hides the clusters")
        return whole(names, *words, **options)

    monkeypatch.setattr(measuring, "with_intervals", hidden)
    words = (home / "run", home / "t.csv", "--protocol", "plain", "--metrics", "inertia,davies_bouldin")
    said = run("measure", *words, "--json", *drawn, exit_code=2)
    (shown,) = json.loads(said.stdout)["metrics"]
    assert shown["metric"] == "inertia" and "noise hides" in said.stderr
    assert json.loads((home / "run" / "metrics.json").read_text()) == [shown]


def test_an_older_copy_of_the_budget_that_paid_the_run_asks_nothing(
    drawn: tuple[object, ...], home: Path, tmp_path: Path
) -> None:
    shutil.copy(tmp_path / "b", tmp_path / "older")
    fit = ("fit", home / "t.csv", "--algorithm", "dp", "-k", 2, "--protocol", "plain", "--quiet")
    run(*fit, *drawn, "--out", tmp_path / "run")
    asking = ("measure", tmp_path / "run", home / "t.csv", "--protocol", "plain", "--metrics", "score")
    run(*asking, *drawn)
    shutil.copy(tmp_path / "older", tmp_path / "b")
    assert "lacks payment 1" in run(*asking, *drawn, exit_code=2).output
    assert not PrivacyBudget.of(tmp_path / "b").log()


@pytest.mark.parametrize("content", ["{", '{"a": 1}', None])
def test_a_file_that_cannot_be_added_to_is_noticed_before_anything_is_paid(
    content: str | None, drawn: tuple[object, ...], home: Path, tmp_path: Path
) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    path = tmp_path / "run" / "metrics.json"
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    words = (tmp_path / "run", home / "t.csv", "--protocol", "plain", "--metrics", "inertia", *drawn)
    assert "cannot be added to" in run("measure", *words, exit_code=2).output
    assert not PrivacyBudget.of(tmp_path / "b").log()


def test_rows_mean_what_the_run_s_did(home: Path, tmp_path: Path) -> None:
    run("fit", home / "t.csv", *GROUPS, "--schema", home / "filled.toml", "-k", 2, "--out", tmp_path / "run")
    schema = (home / "filled.toml").read_text()
    other = tmp_path / "other.toml"
    other.write_text(schema.replace('kind = "number"', 'kind = "number"\nspread = 2.0'))
    asking = ("--protocol", "plain", "--metrics", "score", *GROUPS, *CLAIM)
    words = (tmp_path / "run", home / "t.csv", *asking)
    refused = run("measure", *words, *DOMAIN, exit_code=2)
    assert "was fitted with a schema; name it with --schema" in " ".join(refused.output.split())
    refused = run("measure", *words, "--max-rows", 100, "--schema", other, exit_code=2)
    assert "has another unit, scale" in " ".join(refused.output.split())
    found = run("measure", *words, "--max-rows", 100, "--schema", home / "filled.toml").output
    assert "of this metric: differential privacy" in found and "of the centroids: nothing is claimed" in found


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table of unlike columns and classes, and runs with scaled rows."""
    folder, rng = tmp_path_factory.mktemp("stays"), np.random.default_rng(0)
    classes = rng.integers(2, size=400)
    rows = (classes[:, None] + 0.1 * rng.standard_normal((400, 2))) * [1.0, 1000.0] + [40.0, 5e4]
    lines = [
        f"{'abcd'[i % 4]},{a!r},{b!r},{'well' if own else 'ill'}"
        for i, ((a, b), own) in enumerate(zip(rows.tolist(), classes, strict=True))
    ]
    (folder / "t.csv").write_text("\n".join(["g,age,cost,state", *lines, ""]))
    fit = ("fit", folder / "t.csv", "--label", "state", "-k", 2, "--quiet")
    run(*fit, *GROUPS, "--scale", "standard", "--out", folder / "standard")
    run(*fit, *GROUPS, *WIDE, *CLAIM, "--algorithm", "dp", "--scale", "range", "--out", folder / "range")
    return folder


WIDE = ("--low", "38,48000", "--high", "43,53000", "--max-rows", 200)


@pytest.mark.parametrize("kind", ["standard", "range"])
def test_rows_of_a_scaled_run_are_scaled_as_its_were(kind: str, stays: Path) -> None:
    """The interval covers the score of scaled rows; in the columns' units that is half a million times it.

    After a private fit it is that of rows clipped at the radius that the fit released.
    """
    model, rows = load(stays / kind), np.genfromtxt(stays / "t.csv", delimiter=",", skip_header=1)[:, 1:3]
    apart = ((model.scaling_.scaled(rows)[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    words = (stays / kind, stays / "t.csv", "--label", "state", "--protocol", "plain", "--metrics", "score")
    claim = (*WIDE, *GROUPS, "--epsilon", 8, *CLAIM[2:])
    said = run("measure", *words, *claim).output
    assert "Distances are of scaled rows." in said
    (found,) = json.loads(run("measure", *words, *claim, "--json").output)["metrics"]
    radius = model.cluster_centers_.radius
    assert found["radius"] == radius and (radius is not None) == (kind == "range")
    assert ("do not see how far rows lie beyond" in said) == (kind == "range")
    exact = np.minimum(apart, np.inf if radius is None else radius**2).mean()
    # Five standard deviations, as the noise of a claim is drawn anew each time.
    apart_by = 2.6 * (found["high"] - found["low"]) / 2.0
    assert abs(found["value"] - exact) <= apart_by and found["high"] < 3.0
    claims = "nothing is claimed" if kind == "standard" else "differential privacy: epsilon 2, delta"
    assert f"of the centroids, and of their scale: {claims}" in said


def test_scores_of_labels_are_asked_once_with_public_classes(stays: Path, tmp_path: Path) -> None:
    run("budget", "new", tmp_path / "b", *BUDGET)
    drawn = (*WIDE, *GROUPS, "--budget", tmp_path / "b", "--share", 0.4)
    labels = ("--label", "state", "--classes", "ill,well,unknown")
    words = ("measure", stays / "standard", stays / "t.csv", "--protocol", "plain", *labels)
    said = run(*words, "--metrics", "accuracy,inertia,v_measure", *drawn).output
    assert "of each of these metrics, scores of labels together: " in said
    paid = PrivacyBudget.of(tmp_path / "b").log()
    assert [(one.share, one.purpose) for one in paid] == [(0.2, "accuracy, v_measure"), (0.2, "inertia")]
    found = json.loads(run(*words, "--metrics", "v_measure", "--json", *WIDE, *GROUPS, *CLAIM).output)
    assert 0.7 < found["metrics"][0]["value"] <= 1.0 and found["metrics"][0]["high"] is None


def test_nodes_do_not_scale_as_a_run_did(stays: Path, tmp_path: Path) -> None:
    words = (tmp_path / "hub", stays / "range", "--metrics", "score", *WIDE, *CLAIM)
    said = " ".join(run("flower", "measure", *words, exit_code=2).output.split())
    assert "scaled its rows with --scale, and nodes scale by their schema" in said


def test_nodes_of_other_columns_are_asked_nothing(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    fed = tmp_path / "fed"
    (tmp_path / "t.csv").write_text((home / "t.csv").read_text().replace("g,a,b", "g,age,bmi"))
    run("flower", "local", tmp_path / "t.csv", "--group", "g", "--out", fed)
    run("fit", home / "t.csv", *GROUPS, "-k", 2, "--out", tmp_path / "run")
    words = (fed, tmp_path / "run", "--metrics", "score", *DOMAIN, *CLAIM)
    said = " ".join(run("flower", "measure", *words, exit_code=2).output.split())
    assert "has the columns a, b, got age, bmi; ask the nodes that it was fitted with" in said
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_a_weak_claim_warns_once_a_command_in_terms_of_what_was_given(home: Path, tmp_path: Path) -> None:
    def told(*words: object) -> list[str]:
        asking = ("measure", home / "run", home / "t.csv", "--protocol", "plain", *DOMAIN, *GROUPS)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            said = run(*asking, *words).stderr
        return [line for line in said.splitlines() if "warning" in line]

    (alone,) = told("--metrics", "score", *BUDGET, "--epsilon", 20)
    assert "--epsilon 20.0 promises very little" in alone
    run("budget", "new", tmp_path / "b", *BUDGET, "--epsilon", 100)
    (drawn,) = told("--metrics", "inertia,score", "--budget", tmp_path / "b", "--share", 0.9)
    assert "--share is worth epsilon " in drawn and "--epsilon" not in drawn


def test_a_share_of_much_warns_once(tmp_path: Path) -> None:
    budget = PrivacyBudget(100.0, 1e-6, "record", "add-remove", tmp_path / "b", domain=Box(-1.0, 1.0))
    with pytest.warns(UserWarning, match=r"share=\.\.\. is worth epsilon") as found:
        budget.take(0.9)
    assert len(found) == 1
