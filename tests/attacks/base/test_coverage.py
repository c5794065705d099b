"""Attacks record which of the sums that a view shows they read: what they did not read changes no claim."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed import FKM, DWFKMeans, EWFKMeans, FederatedFuzzyCMeans, attacks
from privfed.attacks import PassiveAttack, Prior, Status, Truth, evaluate
from privfed.attacks.base.reading import Shows, read_by, unread
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.metrics import fuzzy_davies_bouldin
from privfed.protocols import Slotted, by_name
from tests.attacks.populations import mixture

POPULATION = mixture(0, n_clients=4, n_rows=8)
CLIENTS, SAMPLE = POPULATION.clients, POPULATION.draw(60)


FITS: dict[str, Any] = {
    "lloyd": lambda **words: DWFKMeans(3, local_iter=1, max_iter=6, tol=0, **words),
    "dwf": lambda **words: DWFKMeans(3, local_iter=3, max_iter=6, tol=0, **words),
    "ewf": lambda **words: EWFKMeans(3, init="kfed", max_iter=6, tol=0, **words),
    "fuzzy": lambda **words: FederatedFuzzyCMeans(3, averaging="weighted", max_iter=6, tol=0, **words),
}
ATTACKS: tuple[PassiveAttack[Any], ...] = (
    attacks.Differencing(0),
    attacks.Differencing(),
    attacks.Tomography(0),
    attacks.EqualWeightCounts(0),
    attacks.Disaggregation(),
    attacks.Linkage(),
    attacks.FuzzyInversion(0, starts=1, moves=1),
    attacks.Membership(POPULATION.draw(8)),
)


def fitted(name: str, protocol: Any) -> View:
    model = FITS[name](protocol=protocol, random_state=0).fit(CLIENTS)
    if name == "fuzzy":
        fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)
    return model.transcript_.view("server")


def tried(attack: PassiveAttack[Any], view: View) -> Any:
    found = attack.run(view, Prior(sample=SAMPLE), np.random.default_rng(0))
    return evaluate(found, Truth(CLIENTS, members=np.arange(8) < 4))


def changed(one: SumView) -> SumView:
    """Return a sum with other numbers in place of what it shows: single answers, else the total."""

    def other(statistics: Statistics) -> Statistics:
        return Statistics(**{name: array * 3.0 + 1.0 for name, array in statistics.items()})

    if one.answers:
        return replace(one, answers={i: other(answer) for i, answer in one.answers.items()})
    return one if one.total is None else replace(one, total=other(one.total))


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize("fit", FITS)
def test_what_was_not_read_changes_no_claim(fit: str, protocol: str) -> None:
    view, ran, left = fitted(fit, protocol), 0, 0
    every = {one.index for one in view.sums}
    for attack in ATTACKS:
        report = tried(attack, view)
        read, rest = ({one.index for one in part} for part in (report.coverage.read, report.coverage.unread))
        assert read | rest == every and not read & rest
        assert not (report.why and read)
        ran, left = ran + (not report.why), left + len(rest)
        others = tuple(changed(one) if one.index in rest else one for one in view.sums)
        again = {**tried(attack, replace(view, sums=others)).to_dict(), "seconds": 0}
        assert again == {**report.to_dict(), "seconds": 0}, attack.name
    assert ran and left


def test_what_found_nothing_in_a_part_says_so() -> None:
    """Rounds of fuzzy c-means show every answer; differencing reads the cells of the start alone."""
    view = fitted("fuzzy", "plain")
    report = tried(attacks.Tomography(0), replace(view, sums=view.sums[2:]))
    assert report.status == Status.NOT_APPLICABLE and len(report.coverage.unread) == len(view.sums) - 2
    report = tried(attacks.Disaggregation(), fitted("lloyd", "plain"))
    # It separates totals, and left every single answer unread.
    assert (report.status, report.coverage.read) == (Status.NOT_READ, ())
    report = tried(attacks.Disaggregation(), fitted("lloyd", "masked"))
    assert report.status is Status.NOT_READ
    assert {one.question for one in report.coverage.read} == {"LloydSums"}
    assert {one.question for one in report.coverage.unread} >= {"CellSums", "FeatureRanges"}
    said = str(report)
    assert "not read" in said and "CellSums (start), sum 1: totals" in said


def test_slots_show_single_answers_and_linking_them_is_not_reading_them() -> None:
    """Whose contributions belong together is told from slots; what they say of the rows is not."""
    model = FKM(3, merge="slotted", random_state=0)
    model.set_params(protocol=Slotted(by_name("masked"), sums=model.gathered_sums, contributors=3))
    view = model.fit(CLIENTS).transcript_.view("server")
    reports = {one.name: tried(one, view).to_dict() for one in (attacks.Differencing(), attacks.Linkage())}
    slots = [one for one in read_by(reports) if one["shown"] == Shows.ANSWERS]
    assert slots and all(one["question"] != "Slots" for one in slots)
    assert any(one["linked_by"] == ["linkage"] for one in slots)
    assert unread(slots) == slots


def test_an_observer_is_shown_no_sums() -> None:
    model = DWFKMeans(3, protocol="plain", random_state=0).fit(CLIENTS)
    report = tried(attacks.Membership(POPULATION.draw(8)), model.transcript_.view("observer"))
    assert report.coverage.read == report.coverage.unread == ()
    assert report.status in (Status.FOUND, Status.OPEN)
