"""A federation that grows and shrinks: every change of its clients is counted, once, and said beforehand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from click.testing import CliRunner

from privfed import DWFKMeans
from privfed.cli.main import main
from privfed.core.agreed.policy import MOST_FITS, MOST_LOSSES
from privfed.core.stored.encoding import Refusal, encode
from privfed.nodes.commands.federations import costs
from privfed.nodes.deploy.adding import add, approve
from privfed.nodes.deploy.folders import new_party, read_kit, write_card, write_node
from privfed.nodes.deploy.testimonies import TESTIMONIES, Known
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import answered
from privfed.nodes.flower.node_messages import Look, read_up
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.protocols.crypto.keys import Identity
from tests.nodes.flower.networks import Folders
from tests.raised import refused_with
from tests.some import some


def join(home: Path, name: str, **approved: Any) -> Path:
    """Make a site with rows of its own, as `privfed flower join` does where its owner is silent."""
    folder = home / name
    new_party(folder, name)
    rows = np.random.default_rng(len(name)).normal(size=(30, 2))
    np.savetxt(home / f"{name}.csv", rows, delimiter=",", header="a,b", comments="")
    write_node(
        folder, str(home / f"{name}.csv"), "rows", approved={"algorithms": ("WeightedKMeans",), **approved}
    )
    return Path(shutil.copy(write_card(folder), home / f"{name}.pub"))


def ran(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(one) for one in words])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


class Sites:
    """A federation whose sites come and go."""

    def __init__(self, home: Path, names: str, **approved: Any) -> None:
        self.home, self.names = home, list[str]()
        self.change(*(join(home, name, **approved) for name in names))

    def change(self, *cards: Path, remove: str = "") -> None:
        add(self.home / "fed", cards, remove=tuple(remove), hosts=("hub",))
        self.names = [*(one for one in self.names if one not in remove), *(card.stem for card in cards)]
        for name in self.names:
            approve(self.home / name, read_kit(self.home / "fed.kit"))

    def engine(self) -> FlowerEngine:
        return FlowerEngine(
            self.home / "fed", network=Folders(tuple(self.home / name for name in self.names))
        )

    def fit(self) -> None:
        with self.engine() as engine:
            DWFKMeans(2, engine=engine, random_state=0, max_iter=1, tol=0).fit()
            engine.end_fits()

    def journal(self, name: str) -> Journal:
        return Journal(self.home / name, read_identity(self.home / name))


def test_a_federation_grows_and_shrinks_by_default_and_each_list_costs_once(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc")
    sites.fit()
    for name in "def":
        sites.change(join(tmp_path, name))
        sites.fit()
    sites.change(remove="f")
    sites.fit()  # Of the clients of an earlier list: that costs nothing.
    fits, usage = sites.journal("a").fits, sites.journal("a").usage("rows")
    assert [one.losses for one in fits] == [0, 1, 1, 1, 0]
    assert usage.losses == sum(one.losses for one in fits) == 3 < MOST_LOSSES
    assert sites.journal("f").usage("rows").losses == 0


def test_nodes_say_what_a_fit_costs_and_what_is_left(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc")
    assert costs(sites.engine()) == [
        f"left before this fit at a, b, c: {MOST_FITS} fits, {MOST_LOSSES} changes or losses of clients"
    ]
    sites.fit()
    sites.change(join(tmp_path, "d"))
    found = sites.engine().standing()
    assert {name: one.cost for name, one in found.items()} == {"a": 1, "b": 1, "c": 1, "d": 0}
    assert found["a"].left == {"max_fits": MOST_FITS - 1, "max_losses": MOST_LOSSES}
    assert "takes 1 of the changes" in costs(sites.engine())[0]
    # Nobody but the coordinator of a node's list is told.
    asked = encode(Look(nonce=bytes(32), parties=bytes(32)).signed(Identity.generate()))
    assert isinstance(read_up(answered(tmp_path / "d", asked), "d"), Refusal)


def test_what_a_lost_machine_gave_stays_counted_with_its_groups(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc", max_fits=2)
    sites.fit()
    lost, table = tmp_path / "a", tmp_path / "a.csv"
    for name, words in (("record", ()), ("whole", ("--with-groups",))):
        ran("journal", "export", lost, "--out", tmp_path / f"{name}.json", *words)
    words = ("flower", "join", tmp_path / "new", "--name", "a", "--data", table, "--max-fits", 2)
    words = (*words, "--algorithms", "WeightedKMeans", "--data-set", "rows", "--carry")
    # Rows that were grouped once are never grouped anew.
    assert "has no groups of 'rows'" in ran(*words, tmp_path / "record.json", code=2)
    shutil.rmtree(tmp_path / "new")
    assert "carried 1 fits of a" in ran(*words, tmp_path / "whole.json")
    before, after = sites.journal("a"), Journal(tmp_path / "new", read_identity(tmp_path / "new"))
    assert after.usage("rows") == before.usage("rows") and after.fits[0].closed
    assert after.data_set("rows").kept(True) == before.data_set("rows").kept(True)
    lost.rename(tmp_path / "lost")
    (tmp_path / "new").rename(lost)
    sites.change(Path(shutil.copy(lost / "card", tmp_path / "a.pub")), remove="a")
    sites.fit()
    # The budget of the old identity goes on: two fits, and no third.
    assert sites.journal("a").usage("rows").fits == 2
    assert sites.engine().standing()["a"].left["max_fits"] == 0


def lost(sites: Sites, name: str) -> list[Path]:
    """Lose a site's folder; return what the coordinator and all others testify of it."""
    shutil.rmtree(sites.home / name)
    others = ["fed", *(one for one in sites.names if one != name)]
    for one in others:
        ran("journal", "testify", sites.home / one, name, "--out", sites.home / f"{one}.word")
    return [sites.home / f"{one}.word" for one in others]


def joined_anew(sites: Sites, *carried: Path, code: int = 0, **options: object) -> str:
    words = [word for path in carried for word in ("--carry", path)]
    words += [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    found = ("flower", "join", sites.home / "new", "--name", "a", "--data", sites.home / "a.csv")
    return ran(*found, "--data-set", "rows", "--algorithms", "WeightedKMeans", *words, code=code)


def test_what_a_party_without_a_record_gave_is_counted_from_others_testimonies(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc", group_size=1)
    sites.fit()
    sites.fit()
    sites.change(join(tmp_path, "d", group_size=1))
    sites.fit()
    before = sites.journal("a").usage("rows")
    told = lost(sites, "a")
    assert before.fits == 3
    # The fourth knows one fit, and the others count.
    joined_anew(sites, *told, group_size=1, max_fits=4)
    after = Journal(tmp_path / "new", read_identity(tmp_path / "new"))
    assert after.usage("rows") == replace(before, sums=after.usage("rows").sums)
    assert after.usage("rows").sums >= before.sums - 3 and all(one.closed for one in after.fits)
    (tmp_path / "new").rename(tmp_path / "a")
    sites.change(Path(shutil.copy(tmp_path / "a" / "card", tmp_path / "a.pub")), remove="a")
    sites.fit()
    assert sites.journal("a").usage("rows").fits == 4
    assert sites.engine().standing()["a"].left["max_fits"] == 0


def test_testimonies_need_the_coordinator_and_two_others_and_are_checked(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abcd", group_size=1)
    sites.fit()
    fed, b, c, d = lost(sites, "a")
    for few in ((b, c, d), (fed, b), (fed, b, b)):
        assert "of 2 clients" in joined_anew(sites, *few, code=2)
    # Groups that others do not know are never made anew.
    assert "has no groups of 'rows'" in joined_anew(sites, fed, b, c, code=2)
    changed = TESTIMONIES.from_bytes(c.read_bytes())
    c.write_bytes(TESTIMONIES.to_bytes(msgspec.structs.replace(changed, fits=())))
    assert "is not signed" in joined_anew(sites, fed, b, c, code=2)
    # One about another party is none about this one.
    ran("journal", "testify", tmp_path / "c", "b", "--out", tmp_path / "other")
    assert "about as many keys" in joined_anew(sites, fed, tmp_path / "other", d, code=2)
    # Nobody testifies of itself.
    ran("journal", "testify", tmp_path / "c", "c", "--out", tmp_path / "own", code=2)
    assert not (tmp_path / "own").exists()
    shutil.rmtree(tmp_path / "new")
    joined_anew(sites, fed, b, d, group_size=1)


def test_a_lying_testimony_makes_budgets_smaller_and_never_larger(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc", group_size=1)
    sites.fit()
    usage = sites.journal("a").usage("rows")
    paths, liar = lost(sites, "a"), read_identity(tmp_path / "b")
    told, b = TESTIMONIES.from_bytes(paths[0].read_bytes()), tmp_path / "b.word"
    lies = {
        "nothing": (),
        "fewer": (Known(told.fits[0].agreement, "1970-01-01T00:00:00+00:00", 0, 0),),
        "more": (msgspec.structs.replace(told.fits[0], answered=900, losses=2**32 - 1),),
    }
    for name, fits in some(lies.items()):
        honest = TESTIMONIES.from_bytes(b.read_bytes())
        lie = msgspec.structs.replace(honest, fits=fits, cells=()).signed(liar.key)
        (tmp_path / "lie").write_bytes(TESTIMONIES.to_bytes(lie))
        joined_anew(sites, paths[0], tmp_path / "lie", paths[2], group_size=1)
        found = Journal(tmp_path / "new", read_identity(tmp_path / "new")).usage("rows")
        assert found.fits == usage.fits and found.losses >= usage.losses and found.starts == usage.starts
        assert (found.losses > usage.losses) == (name == "more")
        shutil.rmtree(tmp_path / "new")


def test_a_fit_that_cannot_go_on_is_ended_and_counts_nowhere(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "abc", max_losses=0)
    sites.fit()
    sites.change(join(tmp_path, "d"))
    for _ in range(2):
        with refused_with("policy:max_losses"):
            sites.fit()
    # The fourth had joined, and the others had not.
    (first, second), usage = sites.journal("d").fits, sites.journal("d").usage("rows")
    assert first.closed and second.closed and (usage.fits, usage.losses, first.losses) == (0, 0, 0)
    assert sites.journal("a").usage("rows").fits == 1
    sites.change(remove="d")
    sites.fit()
