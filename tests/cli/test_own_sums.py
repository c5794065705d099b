"""A secure sum of another author: wherever its promise is shown, it is marked as its author's word."""

import json
from pathlib import Path

import numpy as np
import pytest

from privfed import Box, DPKMeans, Privacy
from privfed.core.record.records import Began
from privfed.core.record.transcript import Transcript
from privfed.protocols import Masked, Slotted, by_name
from privfed.protocols.secure_sums import SECURE_SUMS, by_author

MARK = "declared by its author"
FEATURES = ("--columns", "petal length,petal width")


class OfOthers(Masked):
    """A sum that may do anything, under the name of one of privfed's."""


CLEAR = """
from dataclasses import replace

from privfed.protocols import Plain
from privfed.protocols.plain import PlainSession


class Session(PlainSession):
    def _total(self, *words):
        return replace(super()._total(*words), contributions=None)


class Clear(Plain):
    reveals = "sums"

    def parties(self, configuration, policies):
        return Session(configuration), super().parties(configuration, policies)[1]
"""

STUDY = """
name = "own"
seeds = 1
[[data]]
source = "iris.csv"
group = "hospital"
label = "species"
[[partition]]
kind = "given"
[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 3
max_iter = 2
tol = 0
[[sum]]
protocol = "{protocol}"
"""


@pytest.fixture
def clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a module with a sum whose uploads are clear text, and which says that it shows totals only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "clear_sum.py").write_text(CLEAR)
    return tmp_path


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.few(1)
def test_the_promise_of_another_author_is_marked_in_every_command(
    clear, invoke, words, iris, monkeypatch, entry
):
    name = "clear_sum:Clear"
    if entry:
        # As a package's entry point would register it.
        monkeypatch.setitem(SECURE_SUMS._things, "clear", SECURE_SUMS.resolve(name))
        name = "clear"
    said = invoke(*words, "--protocol", name, "--out", "run", "--max-iter", 2, "--tol", 0).stdout
    told = [line for line in said.splitlines() if "single client's answer" in line]
    assert told and all(MARK in line for line in told)
    result = json.loads(Path("run/result.json").read_text())
    assert MARK in result["server_saw"]
    shown = json.loads(invoke("show", "run", "--json").stdout)
    assert shown["server_saw"] == result["server_saw"] and MARK in invoke("show", "run").stdout
    found = invoke(
        "select-k", *words[1:4], *FEATURES, "--protocol", name, "--max-k", 2, "--out", "s", "--json"
    ).stdout
    assert MARK in json.loads(found)["server_saw"]
    invoke(*words, "--out", "ours", "--max-iter", 2, "--tol", 0)
    assert MARK not in invoke("show", "ours").stdout
    # Workers of a study know what packages registered; this process alone knows the name above.
    (clear / "study.toml").write_text(STUDY.format(protocol="clear_sum:Clear"))
    invoke("tradeoff", "study.toml", "--out", "study", "--jobs", 1)
    page = Path("study/report.html").read_text()
    assert page.count(MARK) >= 3


def test_a_claim_says_which_of_it_rests_on_another_authors_word(clear, invoke):
    clients = np.array_split(np.random.default_rng(0).uniform(-1, 1, (90, 2)), 3)
    words = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    privacy = Privacy(**words, domain=Box(-1, 1, max_rows=50))
    model = DPKMeans(2, privacy=privacy, protocol=OfOthers(), run_dir="run").fit(clients)
    assert Transcript.load("run").of(Began)[0].by_author
    against = model.privacy_spent_.against
    assert {party for party, holds in against.items() if MARK in holds} == set(against) - {
        "readers of the model"
    }
    assert MARK in invoke("show", "run").stdout
    model = DPKMeans(2, privacy=privacy, protocol="masked").fit(clients)
    assert not any(MARK in holds for holds in model.privacy_spent_.against.values())
    # Where each client adds the whole noise, the claim rests on no sum.
    own = SECURE_SUMS.resolve("clear_sum:Clear")()
    model = DPKMeans(2, privacy=privacy, protocol=own).fit(clients)
    assert not any(MARK in holds for holds in model.privacy_spent_.against.values())


def test_a_sum_of_ours_is_known_whatever_others_are_called(clear):
    own = SECURE_SUMS.resolve("clear_sum:Clear")()
    assert own.name == "plain" and by_author(own) and by_author(Slotted(own))
    assert not any(
        by_author(by_name(name)) for name in ("plain", "masked", "masked-verified", "group-masked")
    )
    assert not by_author(Slotted(Masked()))
