"""The study of DCFL's figures and tables runs; in its quick form DCFL is ahead (over 60 rounds CFL is)."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples.dcfl import figures


@pytest.mark.slow
def test_quick_study_writes_its_page_and_picture(tmp_path: Path) -> None:
    assert figures.main(["--quick", "--out", str(tmp_path), "--page", str(tmp_path / "papers")]) == 0
    page = (tmp_path / "papers" / "dcfl.md").read_text(encoding="utf-8")
    assert "Table II, digits, preference 0.5" in page and "half of the clients a round" in page
    assert (tmp_path / "papers" / "dcfl.png").read_bytes().startswith(b"\x89PNG")
    found = pl.read_csv(tmp_path / "dcfl.csv", comment_prefix="#")
    assert len(found) == len(list(figures.jobs(False, 1, 1)))
    assert {len(one.split()) for one in found["course"]} == {12}


def test_half_of_the_clients_take_part_in_a_round_and_all_in_the_last() -> None:
    experiment = figures.Experiment(figures.digits(), 40, 60, private=False, after=10)
    half = figures.SETTINGS["half of the clients a round, no DP"]
    everybody, some = (experiment.scenario(0, half._replace(share=share)) for share in (1.0, 0.5))
    sizes = [len(a) / len(b) for a, b in zip(some.cohorts(), everybody.cohorts(), strict=True)]
    # 59 rounds of 40 clients or more: 0.5 within six standard deviations, .01 each.
    assert abs(np.mean(sizes[:-1]) - 0.5) < 0.065
    assert sizes[-1] == 1.0
    assert (everybody.joins, everybody.degrees, everybody.drifts) == (some.joins, some.degrees, some.drifts)


def test_budgets_are_asked_for_where_models_are_trained_under_privacy() -> None:
    settings = {private: {job.setting for job in figures.jobs(private, 1, 1)} for private in (True, False)}
    assert settings[True] == set(figures.SETTINGS)
    assert all(figures.SETTINGS[one].epsilon is None for one in settings[False] - {"dynamic"})


@pytest.mark.slow
def test_dcfl_is_ahead_after_twelve_rounds_in_the_mean_of_three_seeds() -> None:
    def final(name: str) -> float:
        wanted = [figures.Job("dynamic", name, figures.QUANTILES[0], seed) for seed in range(3)]
        return float(np.mean([figures.scored(job, "quick", None)["final_mean"] for job in wanted]))

    assert final("DCFL") > final("CFL") + 0.02 > final("FedAvg") + 0.04
    assert final("DCFL") > max(final(name) for name in ("divergence", "euclidean")) + 0.02
    # Three seeds of 12 rounds tell no more of the cosine than that it is not ahead.
    assert final("DCFL") > final("cosine") - 0.01
