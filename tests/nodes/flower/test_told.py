"""Where clients open totals, one that lies gives whoever drives the run none that others did not open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privfed import DWFKMeans, metrics
from privfed.core.stored.encoding import Array
from privfed.errors import IntegrityError, ProtocolError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import Node
from privfed.nodes.party import Party
from privfed.party.replay import TOTAL, OpenedTotal
from tests.default_run import slow
from tests.nodes.flower.federations import WORDS, federation
from tests.nodes.flower.networks import Folders

SUMS = pytest.mark.parametrize("protocol", ["ckks", slow("group-masked")])

Tells = Callable[[Any, int, OpenedTotal], None]
HONEST: Tells = Node._tell


def changed(total: OpenedTotal, name: str = "") -> bytes:
    """Return a total, fifty times as large but for its counts; or an entry of another name."""
    own = {one: array.to_numpy() * (1 if one == "count" else 50) for one, array in total.statistics.items()}
    told = {name or one: Array.from_numpy(array) for one, array in own.items()}
    return TOTAL.to_bytes(msgspec.structs.replace(total, statistics=told))


def over(folder: Path, protocol: str, network: Folders | None = None, **words: Any) -> Any:
    engine = FlowerEngine(folder, network=network or Folders(nodes_of(folder)))
    return DWFKMeans(2, protocol=protocol, engine=engine, **WORDS, **words)


def asked(folder: Path, protocol: str, tells: Tells, monkeypatch: pytest.MonkeyPatch) -> float:
    """Fit, and ask a metric besides, where the first client's node tells totals in its own way."""

    def tell(self: Any, index: int, total: OpenedTotal) -> None:
        (tells if self._folder.name == "c0" else HONEST)(self, index, total)

    monkeypatch.setattr(Node, "_tell", tell)
    model = over(folder, protocol).fit()
    return metrics.davies_bouldin(model.federation_, model.cluster_centers_)


def true(folder: Path, protocol: str, monkeypatch: pytest.MonkeyPatch) -> dict[int, OpenedTotal]:
    """Return the totals of a fit and of the metric after it, by their numbers."""
    found = dict[int, OpenedTotal]()
    asked(folder, protocol, lambda node, index, total: found.update({index: total}), monkeypatch)
    monkeypatch.setattr(Node, "_tell", HONEST)
    return found


@SUMS
@pytest.mark.parametrize("first", [slow(1), 6], ids=["of the next", "of a metric after the fit"])
def test_a_total_that_is_told_before_there_is_one_ends_the_run(
    first: int, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = true(federation(tmp_path / "honest"), protocol, monkeypatch)
    assert list(known) == list(range(7))

    def lies(node: Any, index: int, total: OpenedTotal) -> None:
        node._totals += [(i, changed(known[i])) for i in range(first, 7) if index == first - 1]
        HONEST(node, index, total)

    with pytest.raises(IntegrityError, match=f"a total of sum {first} that too few others have"):
        asked(federation(tmp_path / "fed"), protocol, lies, monkeypatch)


@pytest.mark.slow
@SUMS
def test_a_resumed_run_takes_no_total_that_one_client_says_is_of_before(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was asked the rest of the fit, and the result was the liar's."""

    class Lost(Folders):
        def send(self, messages: Any, seconds: float) -> Any:
            if self.trips == 5:
                raise ProtocolError("the Flower run ended")
            return super().send(messages, seconds)

    known, folder = true(federation(tmp_path / "honest"), protocol, monkeypatch), federation(tmp_path / "fed")
    with pytest.raises(ProtocolError, match="the Flower run ended"):
        over(folder, protocol, Lost(nodes_of(folder)), run_dir=tmp_path / "run").fit()
    opened = Node._opened

    def lies(self: Any, *args: Any) -> Any:
        told = opened(self, *args)
        more = tuple((i, changed(known[i])) for i in range(len(told), 6))
        return (*told, *more) if self._folder.name == "c0" else told

    monkeypatch.setattr(Node, "_opened", lies)
    with pytest.raises(IntegrityError, match="that too few others have"):
        over(folder, protocol, run_dir=tmp_path / "run").resume()


@SUMS
def test_a_resumed_run_asks_nobody_again_where_some_had_got_the_last_total(
    protocol: str, tmp_path: Path
) -> None:
    """The others answered the same sum anew, without the one who has its total, before it was refused."""

    class Lost(Folders):
        def send(self, messages: Any, seconds: float) -> Any:
            if self.trips != 5:
                return super().send(messages, seconds)
            super().send(dict(sorted(messages.items())[:1]), seconds)
            raise ProtocolError("the Flower run ended")

    folder = federation(tmp_path / "fed")
    with pytest.raises(ProtocolError, match="the Flower run ended"):
        over(folder, protocol, Lost(nodes_of(folder)), run_dir=tmp_path / "run").fit()
    answers = [one.answered for node in nodes_of(folder) for one in Party(node).journal.fits]
    with pytest.raises(IntegrityError, match="begin a new fit"):
        over(folder, protocol, run_dir=tmp_path / "run").resume()
    assert [one.answered for node in nodes_of(folder) for one in Party(node).journal.fits] == answers


@SUMS
def test_a_total_of_another_layout_is_an_error_that_says_so(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = federation(tmp_path / "fed")
    for node in nodes_of(folder)[1:]:
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(settings.replace("tells = true", "tells = false"))

    def lies(node: Any, index: int, total: OpenedTotal) -> None:
        node._totals += [(index, changed(total, "another"))]

    with pytest.raises(IntegrityError, match="no total of what was asked"):
        asked(folder, protocol, lies, monkeypatch)
