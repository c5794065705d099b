"""Cells are known by what they depend on, and by nothing else."""

from pathlib import Path

import msgspec
import pytest

from privfed.experiments.cells import attack_id
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from tests.experiments.small import SMALL


def planned(before: str = "", after: str = "", text: str = SMALL) -> Plan:
    assert before in text
    return plan(parse_study(text.replace(before, after, 1), "study.toml"), Path())


def ids(of: Plan) -> set[str]:
    return {setup.id for setup in of.setups}


def test_a_study_is_the_product_of_its_axes(small: Plan) -> None:
    labels = [(s.labels["algorithm"], s.labels["sum"]) for s in small.setups]
    assert sorted(labels) == [
        ("DWF, n_init 1", "masked"),
        ("DWF, n_init 1", "plain"),
        ("DWF, n_init 2", "masked"),
        ("DWF, n_init 2", "plain"),
    ]
    assert small.seeds == [0, 1]
    assert len({setup.cell(seed) for setup in small.setups for seed in small.seeds}) == 8


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('name = "DWF"', 'name = "Other"'),
        ('source = "iris"', 'source = "iris"\nname = "flowers"'),
        ("about = ", "metrics = ['ari']\nabout = "),
        ("seeds = 2", "seeds = [5]"),
        ("rounds = [1, 2]", "rounds = [3]"),
        ("[[sum]]", "[[defence]]\nname = 'nothing'\n\n[[sum]]"),
    ],
    ids=["name", "name of data", "metrics", "seeds", "attack", "empty defence"],
)
def test_what_changes_no_fit_changes_no_id(small: Plan, before: str, after: str) -> None:
    assert ids(planned(before, after)) == ids(small)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("high = 8.0", "high = 9.0"),
        ("public = 0.3", "public = 0.2"),
        ("clients = 5", "clients = 6"),
        ("clients = 5", "clients = 5\nkind = 'non-iid'"),
        ("max_iter = 6", "max_iter = 7"),
        ('"DWFKMeans"', '"EWFKMeans"'),
        ('source = "iris"', 'source = "iris"\nstandardise = true'),
        ("[[sum]]", "[[defence]]\nname = 'few'\nlocal_iter = 1\n\n[[sum]]"),
    ],
)
def test_what_changes_a_fit_changes_every_id(small: Plan, before: str, after: str) -> None:
    assert not ids(planned(before, after)) & ids(small)


def test_an_attack_is_known_by_its_words_and_not_by_its_name(small: Plan) -> None:
    attack = small.setups[0].attacks[0]
    assert attack_id(msgspec.structs.replace(attack, name="other", sums=["plain"])) == attack_id(attack)
    assert attack_id(msgspec.structs.replace(attack, party="observer")) != attack_id(attack)


def test_a_moved_file_is_the_same_data(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 3},{i},{i * i % 7}" for i in range(60))
    found = []
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"client,x,y\n{rows}\n")
        text = SMALL.replace('source = "iris"', f'source = "{name}"\ngroup = "client"')
        text = text.replace("clients = 5", 'kind = "given"').replace("public = 0.3", "public = 0.1")
        found.append(ids(plan(parse_study(text, "study.toml"), tmp_path)))
    assert found[0] == found[1]
