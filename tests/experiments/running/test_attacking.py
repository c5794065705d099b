"""Attacks on cells: each on the view that its party has, whatever the sum."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.attacks import Prior, Report
from privfed.attacks.membership.scores import chance
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.experiments import attacking
from privfed.experiments.cells import Setup, attack_id
from privfed.experiments.datasets import load_table, split
from privfed.experiments.measuring import Part, measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import StudyError, parse_study
from privfed.federation.driver import Federation
from privfed.federation.opening import open_over
from privfed.questions.lloyd import LloydSums
from tests.raised import refused_with
from tests.some import some

STUDY = """\
name = "Attacks"
seeds = 1

[[data]]
source = "iris"
standardise = true
public = 0.3

[[partition]]
clients = 4

[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 8
local_iter = 1
n_init = 3

[[sum]]
protocol = "plain"

[[sum]]
protocol = "masked"

[[sum]]
protocol = "group-masked"

[[sum]]
protocol = "masked-verified"

[[attack]]
name = "one"
kind = "Differencing"
client = 0
sums = ["plain"]
rounds = [1, 4]

[[attack]]
name = "all"
kind = "Differencing"

[[attack]]
name = "with help"
kind = "Differencing"
colluding = [1, 2, 3]
sums = ["masked"]

[[attack]]
name = "curious"
kind = "Differencing"
party = "clients"
colluding = [1]
sums = ["masked", "masked-verified"]

[[attack]]
name = "observer"
kind = "Membership"
party = "observer"

[[attack]]
name = "probing"
kind = "Probing"
n_clusters = 8

[[attack]]
name = "two faces"
kind = "Probing"
client = 0
inconsistent = true
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Part]]:
    """Return sum -> name of the attack -> what it found."""
    setups = plan(parse_study(STUDY, "study.toml"), Path()).setups
    return {setup.protocol: _named(setup) for setup in setups}


def _named(setup: Setup) -> dict[str, Part]:
    parts = measure(setup, 0, setup.parts(), Path())
    return {attack.name: parts[attack_id(attack)] for attack in setup.attacks}


def recovered(part: Part) -> Any:
    assert part.error == ""
    return part.values["report"]["recovered"]


def test_a_server_that_reads_answers_recovers_rows_and_more_with_every_round(found: Any) -> None:
    values = found["plain"]["one"].values
    assert values["rounds"][:2] == [1, 4] and len(values["rounds"]) == 3
    assert values["recovered"] == sorted(values["recovered"])
    assert values["recovered"][-1] == recovered(found["plain"]["one"]) > 0.1
    # What the rounds determine at all is found.
    assert recovered(found["plain"]["one"]) >= 0.9 * values["report"]["bound"] > 0
    assert values["report"]["advantage"] == pytest.approx(recovered(found["plain"]["one"]))
    assert values["report"]["status"] == "found"


def test_a_masked_sum_leaves_totals_which_colluders_narrow_down(found: Any) -> None:
    assert recovered(found["masked"]["all"]) < recovered(found["plain"]["one"])
    assert recovered(found["masked"]["with help"]) == recovered(found["plain"]["one"])


def test_a_curious_client_attacks_the_totals_that_it_verifies(found: Any) -> None:
    hidden = found["masked"]["curious"].values["report"]
    assert (hidden["status"], found["masked"]["curious"].error) == ("not applicable", "")
    # It takes its own answers off, so that it attacks totals of fewer clients than the server does.
    server, client = (recovered(found["masked-verified"][name]) for name in ("all", "curious"))
    assert client > 0 and server == recovered(found["masked"]["all"])
    for name in ("probing", "two faces"):
        report = found["masked-verified"][name].values["report"]
        assert report["status"] == "not applicable" and "clients verify totals" in report["why"]


def test_where_clients_open_the_server_has_nothing_to_attack(found: Any) -> None:
    for name, why in (
        ("all", "the server saw no client's answers and no totals"),
        ("probing", "the clients pose the questions"),
        ("two faces", "the clients pose the questions"),
    ):
        part = found["group-masked"][name]
        assert part.error == ""
        report = part.values["report"]
        assert (report["status"], report["recovered"], report["advantage"]) == ("not applicable", None, None)
        assert why in report["why"]
        assert part.values["recovered"] == []


def test_chosen_questions_take_rows_apart_and_masks_stop_inconsistent_ones(found: Any) -> None:
    assert recovered(found["plain"]["probing"]) == recovered(found["masked"]["probing"]) > 0.9
    # It asked, and the masks stopped it: that is a measurement.
    assert recovered(found["masked"]["two faces"]) == 0.0
    assert found["masked"]["two faces"].values["report"]["status"] == "may be determined"


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.few(1)
def test_chosen_questions_get_noise_where_a_fit_would_have(unit: str) -> None:
    text = STUDY.split("[[attack]]")[0].replace("standardise = true", "low = 0.0\nhigh = 8.0")
    text = text.replace("DWFKMeans", "DPKMeans").replace("local_iter = 1\nn_init = 3\n", "")
    text += f"[[privacy]]\nepsilon = 1.0\ndelta = 1e-6\nunit = '{unit}'\n"
    text += "[[attack]]\nname = 'probing'\nkind = 'Probing'\nn_clusters = 8\nbudget = 20\n"
    for setup in some(plan(parse_study(text, "study.toml"), Path()).setups):
        part = _named(setup)["probing"]
        assert part.error == ""
        report = part.values["report"]
        if setup.protocol in ("group-masked", "masked-verified"):
            assert (report["status"], report["queries"]) == ("not applicable", 0)
        else:
            assert (report["status"], report["advantage"]) == ("may be determined", 0.0)
            assert 2 <= report["queries"] <= 20


def test_an_observer_sees_the_same_model_whatever_the_sum(found: Any) -> None:
    seen = {recovered(parts["observer"]) for parts in found.values()}
    assert max(seen) - min(seen) < 0.05


def test_no_attack_is_told_a_row_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What attackers know beforehand is disjoint from what clients hold."""
    priors: list[Prior] = []
    truths: list[Any] = []
    report = attacking._report

    def watched(made: Any, view: Any, seed: int) -> Any:
        priors.append(made.prior)
        truths.append(made.truth)
        return report(made, view, seed)

    monkeypatch.setattr(attacking, "_report", watched)
    setup = plan(parse_study(STUDY, "study.toml"), Path()).setups[0]
    _named(setup)
    assert len(priors) >= 3
    for prior, truth in zip(priors, truths, strict=True):
        assert prior.sample is not None and not prior.colluders
        # Iris has equal rows: numbers of rows, not values, tell them apart. To who tells members from others
        # only half of the public rows are known.
        known = len(prior.sample) if truth.members is None else 45
        assert known == 45 and len(prior.sample) in (22, 45)
        assert 45 + sum(map(len, truth.clients)) == 150


OWN = """
from privfed.attacks import Membership

class Quick(Membership):
    name = "quick"
"""


def test_an_attack_of_ones_own_is_run_by_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attack_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = STUDY.split("[[attack]]")[0] + "[[attack]]\nkind = 'attack_of_mine:Quick'\n"
    for setup in some(plan(parse_study(text, "study.toml"), Path()).setups[:1]):
        report = measure(setup, 0, setup.parts(), Path())[attack_id(setup.attacks[0])].values["report"]
        assert (report["attack"], report["claims"] > 0) == ("quick", True)


def test_chance_is_taken_off_an_area_under_the_curve() -> None:
    by_chance = chance(np.arange(200) < 100)
    assert 0.06 < by_chance < 0.07

    def report(recovered: float) -> Report:
        return Report(attack="a", goal="g", recovered=recovered, baseline=0.5, chance=by_chance)

    assert report(0.5 + by_chance).advantage == pytest.approx(0.0, abs=1e-12)
    assert report(0.5).status == report(0.4).status == "may be determined"
    assert report(1.0).advantage == pytest.approx(1.0 - 2 * by_chance) and report(1.0).status == "found"


def test_attacks_read_several_fits_together_and_the_first_is_the_fit_itself() -> None:
    text = STUDY.replace("\n\n[[data]]", "\nfits = [1, 3]\n\n[[data]]", 1)
    setups = plan(parse_study(text, "study.toml"), Path()).setups
    (setup,) = [one for one in setups if one.protocol == "masked"]
    attack = next(one for one in setup.attacks if one.name == "all")
    assert "probing" not in {one.name for one in setup.pooling}
    parts = measure(setup, 0, [attack_id(attack), setup.fits_id(attack)], Path())
    several = parts[setup.fits_id(attack)]
    assert several.error == "" and several.values["fits"] == [1, 3]
    first, together = several.values["reports"]
    alone = parts[attack_id(attack)].values["report"]
    assert first["recovered"] == alone["recovered"]
    assert together["recovered"] > alone["recovered"] and together["precision"] >= 0.95


def test_fits_after_the_first_may_have_other_numbers_of_clusters() -> None:
    text = STUDY.replace("\n\n[[data]]", "\nfits = [1, 3]\n\n[[data]]", 1)
    text = text.replace("\nn_clusters = ", "\nfurther_n_clusters = [2, 4]\nn_clusters = ", 1)
    (setup,) = [
        one for one in plan(parse_study(text, "study.toml"), Path()).setups if one.protocol == "masked"
    ]
    first = setup.parameters["n_clusters"]
    assert [setup.further(i).parameters["n_clusters"] for i in (1, 2, 3)] == [2, 4, 2]
    assert setup.parameters["n_clusters"] == first and "further_n_clusters" in setup.content
    attack = next(one for one in setup.attacks if one.name == "all")
    several = measure(setup, 0, [setup.fits_id(attack)], Path())[setup.fits_id(attack)]
    alone, together = several.values["reports"]
    assert several.error == "" and together["recovered"] > alone["recovered"]
    assert together["precision"] >= 0.95


def test_further_numbers_of_clusters_are_checked_before_anything_runs() -> None:
    several = STUDY.replace("\n\n[[data]]", "\nfits = [1, 3]\n\n[[data]]", 1)
    for text, numbers, message in (
        (STUDY, "[2]", "give fits = "),
        (several, "[5000]", "n_clusters must be at most"),
        (several, "[0]", "further_n_clusters"),
    ):
        wrong = text.replace("\nn_clusters = ", f"\nfurther_n_clusters = {numbers}\nn_clusters = ", 1)
        with pytest.raises(StudyError, match=message):
            plan(parse_study(wrong, "study.toml"), Path())


GROWING = (
    STUDY.replace("\n\n[[data]]", "\nfits = [1, 3]\n\n[[data]]", 1)
    .replace("\nn_clusters = ", "\nrow_joins = true\nn_clusters = ", 1)
    .replace('[[sum]]\nprotocol = "plain"\n', "", 1)
    .split("[[attack]]")[0]
)
ROWS = "\n[[attack]]\nkind = 'differencing'\nsums = ['masked']\n"


def test_a_row_that_joins_between_two_fits_is_found_and_the_fits_add_up_without_it() -> None:
    setups = plan(parse_study(GROWING + ROWS, "study.toml"), Path()).setups
    (setup,) = [one for one in setups if one.protocol == "masked"]
    assert setup.joining == 2 == setup.content["joining"]
    (attack,) = setup.attacks
    several = measure(setup, 0, [setup.fits_id(attack)], Path())[setup.fits_id(attack)]
    assert several.error == "" and several.values["joined"] == [None, 1.0]
    alone, together = several.values["reports"]
    assert together["recovered"] > alone["recovered"] and together["precision"] >= 0.95


def test_rows_that_join_are_new_to_the_attacker_and_to_the_first_fit() -> None:
    setup = plan(parse_study(GROWING, "study.toml"), Path()).setups[0]
    table = load_table(setup.data, Path())
    scene = split(setup.data, table, setup.partition, 0, setup.joining)
    whole = split(setup.data, table, setup.partition, 0)
    assert scene.joining is not None and scene.public is not None and whole.public is not None
    assert np.array_equal(np.concatenate([scene.joining, scene.public]), whole.public)
    first, later = scene.grown(0).clients, scene.grown(2).clients
    assert all(map(np.array_equal, first, whole.clients)) and all(map(np.array_equal, first[1:], later[1:]))
    assert np.array_equal(later[0][len(first[0]) :], scene.joining)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fits = [1, 3]\n", "", "give fits = "),
        ("fits = [1, 3]\n", "fits = [1, 46]\n", "45 of the 45 rows that are held back"),
        ('protocol = "masked"\n', 'protocol = "plain"\n', "row_joins is measured on totals"),
    ],
)
def test_a_row_that_cannot_join_is_a_mistake_of_the_study(old: str, new: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        plan(parse_study(GROWING.replace(old, new, 1), "study.toml"), Path())


def test_a_server_probes_in_a_program_that_its_clients_check(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Federation] = []

    def kept(*args: Any, **words: Any) -> Federation:
        opened.append(open_over(*args, **words))
        return opened[-1]

    monkeypatch.setattr(attacking, "open_over", kept)
    text = STUDY.split("[[attack]]")[0] + "[[attack]]\nkind = 'probing'\nsums = ['masked']\nbudget = 12\n"
    (setup,) = [one for one in plan(parse_study(text, "study.toml"), Path()).setups if one.attacks]
    name = attack_id(setup.attacks[0])
    report = measure(setup, 0, [name], Path())[name].values["report"]
    assert report["queries"] == 12 and report["recovered"] > 0
    (federation,) = opened
    assert federation.configuration.program is not None
    with refused_with("program"):
        federation.ask(Ask(LloydSums(ranges=Ranges(np.zeros(4), np.ones(4), 64), centers=np.eye(4))))
