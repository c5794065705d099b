"""Groups of rows as an axis of a study: what they cost, and what attacks then find of rows."""

from pathlib import Path
from typing import Any

import pytest

from privfed.errors import ArgumentError
from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import Part, measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study

STUDY = """\
name = "Groups"
seeds = 1

[[data]]
source = "wine"
standardise = true
low = -6.0
high = 6.0

[[partition]]
clients = 4

[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 8
local_iter = 1
n_init = 5
grid = { group_size = [1, 4] }

[[sum]]
protocol = "masked"

[[attack]]
name = "all"
kind = "Differencing"

[[attack]]
name = "with help"
kind = "Differencing"
colluding = [1, 2, 3]

[[attack]]
name = "asking"
kind = "Probing"
n_clusters = 8
"""


@pytest.fixture(scope="module")
def found() -> dict[Any, dict[str, Part]]:
    """Return size of groups -> part -> what it found."""
    measured = {}
    for setup in plan(parse_study(STUDY, "study.toml"), Path()).setups:
        parts = measure(setup, 0, setup.parts(), Path())
        names = {attack_id(one): one.name for one in setup.attacks}
        measured[setup.parameters["group_size"]] = {
            names.get(name, name): part for name, part in parts.items()
        }
    return measured


def test_the_cost_is_that_of_the_rows_themselves(found: Any) -> None:
    exact, grouped = found[1]["fit"].values, found[4]["fit"].values
    assert grouped["rows"] == exact["rows"] == 178 and "notes" not in grouped
    assert 1.0 < grouped["score_ratio"] < exact["score_ratio"] * 1.15
    assert grouped["centers"] != exact["centers"]


@pytest.mark.parametrize("attack", ["all", "with help", "asking"])
def test_attacks_that_find_rows_find_none_in_groups(found: Any, attack: str) -> None:
    assert found[1][attack].error == found[4][attack].error == ""
    assert found[1][attack].values["report"]["recovered"] > 0.02
    assert found[4][attack].values["report"]["recovered"] == 0.0


def test_groups_and_a_guarantee_are_a_mistake_of_the_study() -> None:
    both = STUDY.replace("n_init = 5", "n_init = 1") + "[[privacy]]\nepsilon = 1.0\ndelta = 1e-5\n"
    with pytest.raises(ArgumentError, match="group_size=4 goes with no guarantee"):
        plan(parse_study(both, "study.toml"), Path())
    with pytest.raises(ArgumentError, match="group_size must be"):
        plan(parse_study(STUDY.replace("[1, 4]", "[0]"), "study.toml"), Path())
